// Keeps a page fresh: asks for its parts again and again, and says so when nobody answers.
import { showTimes } from "./times.js";

const TIMEOUT_MS = 15000;
const SLOWEST_MS = 15000;

function tellZone() {
  const note = document.querySelector("[data-zone]");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (note && zone) note.textContent = note.dataset.zone.replace("%", zone);
}

// What has the focus inside a part is found again by where it leads.
function keepFocus(part, replace) {
  const active = document.activeElement;
  const href = part.contains(active) ? active.getAttribute("href") : null;
  replace();
  if (href) part.querySelector(`[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
}

function selecting(part) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
}

function replaceParts(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of fresh.querySelectorAll("[data-part]")) {
    const shown = document.getElementById(part.id);
    if (!shown || selecting(shown)) continue;
    showTimes(part);
    keepFocus(shown, () => shown.replaceChildren(...part.childNodes));
  }
  return fresh.querySelector("[data-final]") !== null;
}

class Refresher {
  constructor(main) {
    this.address = main.dataset.refresh;
    this.every = Number(main.dataset.every) * 1000;
    this.stale = document.getElementById("stale");
    this.seen = new Date();
    this.failures = 0;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.plan(document.hidden ? null : 0));
    this.plan(this.every);
  }

  plan(milliseconds) {
    clearTimeout(this.timer);
    if (milliseconds !== null && !this.over && !document.hidden) this.timer = setTimeout(() => this.ask(), milliseconds);
  }

  async ask() {
    if (this.asking) return;
    this.asking = true;
    try {
      const answer = await fetch(this.address, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (!answer.ok) throw new Error(String(answer.status));
      this.over = replaceParts(await answer.text());
      this.failures = 0;
      this.seen = new Date();
    } catch {
      this.failures += 1;
    } finally {
      this.asking = false;
    }
    this.tell();
    this.plan(Math.min(SLOWEST_MS, this.every * 2 ** Math.min(this.failures, 4)));
  }

  tell() {
    this.stale.hidden = this.failures === 0;
    const words = this.stale.dataset.text.replace("%", this.seen.toLocaleTimeString(document.documentElement.lang));
    if (this.failures && this.stale.textContent !== words) this.stale.textContent = words;
  }
}

showTimes(document);
tellZone();
const main = document.querySelector("main[data-refresh]");
if (main) new Refresher(main);
