// Refreshes the parts of a page periodically, and shows a notice while the server does not respond.
import { inUtc, showInputs, showTimes } from "./times.js";

const TIMEOUT_MS = 15000;
const MAX_DELAY_MS = 15000;

// The zone of the times is that of the browser, or UTC, which the pages are in.
function showZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!zone || inUtc) return;
  const note = document.querySelector("[data-zone]:not(html)");
  if (note) note.textContent = note.dataset.zone.replace("%", zone);
  showInputs(zone);
}

// Menus close when something else is clicked, or by Escape.
function closeMenus() {
  const open = () => document.querySelector("details.menu[open]");
  document.addEventListener("click", ({ target }) => {
    if (open() && !open().contains(target)) open().open = false;
  });
  document.addEventListener("keydown", ({ key }) => {
    const menu = key === "Escape" && open();
    if (!menu) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
}

// Signs out at once by the form of the own account, whose token no other page has.
async function signOut(event) {
  event.preventDefault();
  const link = event.currentTarget;
  try {
    const response = await fetch(link.href, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    const account = new DOMParser().parseFromString(await response.text(), "text/html");
    const form = document.importNode(account.querySelector(`form[action^="${CSS.escape(link.dataset.signOut)}"]`), true);
    form.hidden = true;
    document.body.append(form);
    form.requestSubmit();
  } catch {
    location.assign(link.href);
  }
}

// Restores the focus after a replacement, by the link's target.
function keepFocus(part, replace) {
  const active = document.activeElement;
  const href = part.contains(active) ? active.getAttribute("href") : null;
  replace();
  if (href) part.querySelector(`[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
}

function hasSelection(part) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
}

// What a person has opened stays open.
function keepOpen(part, replace) {
  const open = [...part.querySelectorAll("details[id][open]")].map((one) => one.id);
  replace();
  for (const id of open) part.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
}

function replaceParts(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of fresh.querySelectorAll("[data-part]")) {
    const current = document.getElementById(part.id);
    if (!current || hasSelection(current)) continue;
    showTimes(part);
    keepFocus(current, () => keepOpen(current, () => current.replaceChildren(...part.childNodes)));
  }
  return fresh.querySelector("[data-final]") !== null;
}

class Refresher {
  constructor(main) {
    this.url = main.dataset.refresh;
    this.interval = Number(main.dataset.every) * 1000;
    this.notice = document.getElementById("stale");
    this.updatedAt = new Date();
    this.failures = 0;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.schedule(document.hidden ? null : 0));
    this.schedule(this.interval);
  }

  schedule(milliseconds) {
    clearTimeout(this.timer);
    if (milliseconds === null || this.final || document.hidden) return;
    this.timer = setTimeout(() => this.refresh(), milliseconds);
  }

  async refresh() {
    if (this.busy) return;
    this.busy = true;
    try {
      const response = await fetch(this.url, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (response.status === 401) {
        // The session has ended: the page itself leads to the sign-in.
        location.reload();
        return;
      }
      if (!response.ok) throw new Error(String(response.status));
      this.final = replaceParts(await response.text());
      this.failures = 0;
      this.updatedAt = new Date();
    } catch {
      this.failures += 1;
    } finally {
      this.busy = false;
    }
    this.showNotice();
    this.schedule(Math.min(MAX_DELAY_MS, this.interval * 2 ** Math.min(this.failures, 4)));
  }

  showNotice() {
    this.notice.hidden = this.failures === 0;
    document.getElementById("leader-pill")?.toggleAttribute("data-away", this.failures > 0);
    const time = this.updatedAt.toLocaleTimeString(document.documentElement.lang);
    const text = this.notice.dataset.text.replace("%", time);
    if (this.failures && this.notice.textContent !== text) this.notice.textContent = text;
  }
}

showTimes(document);
showZone();
closeMenus();
for (const one of document.querySelectorAll("[data-scripts]")) one.hidden = false;
document.querySelector("[data-sign-out]")?.addEventListener("click", signOut);
const main = document.querySelector("main[data-refresh]");
if (main) new Refresher(main);

// A change of many runs goes on by itself, part after part, until it is done or the person leaves.
const going = document.querySelector("form[data-continue]");
if (going) setTimeout(() => going.requestSubmit(), 400);
