// Opens the form of an action over the page that it is about; without this script, or when the form needs more, the link leads to a page of its own.
import { showInputs, showTimes } from "./times.js";

const KEPT_REASONS = 4;
const TIMEOUT_MS = 15000;
// Of every page; one that has more does more than its form.
const COMMON = new Set([...document.scripts].map((one) => one.src));

function reasons() {
  try {
    return JSON.parse(localStorage.getItem("reasons") ?? "[]").map(String);
  } catch {
    return [];
  }
}

function keepReason(form) {
  const text = form.elements.reason?.value?.trim();
  if (!text) return;
  try {
    localStorage.setItem("reasons", JSON.stringify([text, ...reasons().filter((one) => one !== text)].slice(0, KEPT_REASONS)));
  } catch {
    // A browser that keeps nothing offers nothing.
  }
}

// The last reasons of this browser, to be taken with a click.
function offerReasons(root) {
  for (const field of root.querySelectorAll("textarea[name=reason][data-reasons]")) {
    const found = reasons();
    field.form.addEventListener("submit", () => keepReason(field.form));
    if (!found.length) continue;
    const chips = document.createElement("p");
    chips.className = "chips";
    chips.setAttribute("role", "group");
    chips.setAttribute("aria-label", field.dataset.reasons);
    for (const text of found) {
      const chip = document.createElement("button");
      chip.type = "button";
      chip.className = "chip";
      chip.textContent = text;
      chip.addEventListener("click", () => {
        field.value = text;
        field.focus();
      });
      chips.append(chip);
    }
    field.after(chips);
  }
}

function dialogOf(main) {
  const dialog = document.createElement("dialog");
  dialog.className = "action";
  for (const one of [...main.children]) if (!one.matches(".crumbs, #stale")) dialog.append(document.importNode(one, true));
  const title = dialog.querySelector("h1");
  title.id = "action-title";
  dialog.setAttribute("aria-labelledby", title.id);
  dialog.addEventListener("close", () => dialog.remove());
  // By a click beside it; where a browser does not know this, Escape and the link back do the same.
  dialog.setAttribute("closedby", "any");
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
    const response = await fetch(link.href, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const form = page.querySelector("main form.action");
    const more = [...page.scripts].some((one) => !COMMON.has(new URL(one.getAttribute("src"), location.href).href));
    if (!response.ok || !form || more || form.querySelector("input[type=datetime-local]:not(#until)")) throw new Error("a page of its own");
    const dialog = dialogOf(page.querySelector("main"));
    showTimes(dialog);
    offerReasons(dialog);
    document.body.append(dialog);
    showInputs(dialog);
    dialog.showModal();
    dialog.querySelector("form.action :is(input:not([type=hidden]), textarea, select)")?.focus();
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
