// Opens the form of an action over the page that it is about; without this script, or when the form needs more, the link leads to a page of its own.
import { element, keep, kept, loadPage } from "./common.js";
import { showInputs, showTimes } from "./times.js";

const KEPT_REASONS = 4;
// Of every page; one that has more does more than its form.
const COMMON = new Set([...document.scripts].map((one) => one.src));

// The last reasons of this browser for the same action, to be taken with a click.
function offerReasons(root) {
  for (const field of root.querySelectorAll("textarea[name=reason][data-reasons]")) {
    const key = `reasons ${field.dataset.of.trim()}`;
    const found = [kept(key, [])].flat().map(String);
    field.form.addEventListener("submit", () => {
      const text = field.value.trim();
      if (text) keep(key, [text, ...found.filter((one) => one !== text)].slice(0, KEPT_REASONS));
    });
    if (!found.length) continue;
    const take = ({ target }) => {
      field.value = target.textContent;
      field.focus();
    };
    const chips = found.map((text) => element("button", { type: "button", className: "chip", onclick: take }, text));
    field.after(element("p", { className: "chips", role: "group", ariaLabel: field.dataset.reasons }, ...chips));
  }
}

function dialogOf(main) {
  const shown = [...main.children].filter((one) => !one.matches(".crumbs, #stale"));
  // By a click beside it; where a browser does not know this, Escape and the link back do the same.
  const dialog = element("dialog", { className: "action", closedBy: "any", onclose: ({ target }) => target.remove() }, ...shown);
  dialog.querySelector("h1").id = "action-title";
  dialog.setAttribute("aria-labelledby", "action-title");
  dialog.addEventListener("click", (event) => {
    // What leads back is here already.
    if (!event.target.closest(".actions a")) return;
    event.preventDefault();
    dialog.close();
  });
  return dialog;
}

async function open(link) {
  link.ariaBusy = "true";
  try {
    const page = await loadPage(link.href);
    const form = page.querySelector("main form.action:not([data-page])");
    const more = [...page.scripts].some((one) => !COMMON.has(new URL(one.getAttribute("src"), location.href).href));
    if (!form || more || form.querySelector("input[type=datetime-local]:not(#until)")) throw new Error("a page of its own");
    const dialog = dialogOf(page.querySelector("main"));
    showTimes(dialog);
    offerReasons(dialog);
    document.body.append(dialog);
    showInputs(dialog);
    dialog.showModal();
    // Of several to choose from it is the chosen one, where the Tab key would lead.
    const field = dialog.querySelector("form.action :is(input:not([type=hidden], [type=radio]:not(:checked)), textarea, select)");
    field?.focus();
    field?.select?.();
  } catch {
    location.assign(link.href);
  } finally {
    link.ariaBusy = null;
  }
}

offerReasons(document);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.button");
  // Links that ask before they act end in an ellipsis.
  if (!link?.textContent.trim().endsWith("…") || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (link.closest("dialog")) return;
  event.preventDefault();
  if (link.ariaBusy !== "true" && !document.querySelector("dialog[open]")) open(link);
});
