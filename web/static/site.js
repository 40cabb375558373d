// Reads the parts of a page again when something has changed and periodically, and shows a notice while the server does not respond.
import { loadPage } from "./common.js";
import { morph } from "./morph.js";
import { Stream } from "./stream.js";
import { inUtc, showInputs, showTimes } from "./times.js";

const MAX_DELAY_MS = 15000;
// Between two reads after changes, and how far those of several pages are apart.
const LEAST_MS = 1000;
const SPREAD_MS = 300;
// A page that follows the changes and shows nothing that runs.
const QUIET_MS = 30000;

// The zone of the times is that of the browser, or UTC, which the pages are in.
function showZone() {
  showInputs(document);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!zone || inUtc) return;
  const note = document.querySelector("[data-zone]:not(html)");
  if (note) note.textContent = note.dataset.zone.replace("%", zone);
}

// Menus close when something else is clicked, or by Escape.
function closeMenu(event) {
  const menu = document.querySelector("details.menu[open]");
  if (!menu || (event.key ? event.key !== "Escape" : menu.contains(event.target))) return;
  menu.open = false;
  if (event.key) menu.querySelector("summary").focus();
}

// Signs out at once by the form of the own account, whose token no other page has.
async function signOut(event) {
  event.preventDefault();
  const link = event.currentTarget;
  try {
    const account = await loadPage(link.href);
    const form = account.querySelector(`form[action^="${CSS.escape(link.dataset.signOut)}"]`);
    form.hidden = true;
    document.body.append(form);
    form.requestSubmit();
  } catch {
    location.assign(link.href);
  }
}

// Copies an address of this site. Where the clipboard is closed to pages, what stands before the button is selected, to be copied by hand.
function copy({ target }) {
  const button = target.closest("[data-copy]");
  if (!button) return;
  getSelection().selectAllChildren(button.previousElementSibling);
  navigator.clipboard?.writeText(new URL(button.dataset.copy, location.href)).then(() => (button.textContent = button.dataset.copied), () => {});
}

function replaceParts(fresh) {
  for (const part of fresh.querySelectorAll("[data-part]")) {
    const current = document.getElementById(part.id);
    if (!current) continue;
    showTimes(part);
    morph(current, part);
  }
  return fresh.querySelector("[data-final]") !== null;
}

class Refresher {
  constructor(main) {
    this.url = main.dataset.refresh;
    this.interval = Number(main.dataset.every) * 1000;
    this.notice = document.getElementById("stale");
    this.label = document.getElementById("live");
    this.updatedAt = new Date();
    Object.assign(this, { failures: 0, timer: 0, live: false, least: LEAST_MS, ended: () => {} });
    document.addEventListener("visibilitychange", () => this.schedule(document.hidden ? null : 0));
    setInterval(() => document.hidden || this.show(), 1000);
    this.schedule(this.interval);
    this.show();
  }

  schedule(milliseconds) {
    clearTimeout(this.timer);
    if (milliseconds === null || this.final || document.hidden) return;
    this.timer = setTimeout(() => this.refresh(), milliseconds);
  }

  // Something has changed. Pages that are open together do not all ask in the same moment.
  soon(pause) {
    this.least = Number(pause) || this.least;
    this.again = this.busy;
    const since = Date.now() - this.updatedAt;
    this.schedule(Math.max(0, this.least - since) + Math.random() * SPREAD_MS);
  }

  // While changes arrive, a page asks by itself only to show how long what runs has run.
  pause() {
    const runs = document.querySelector("[data-part] :is(.badge.busy, tr.busy)");
    return this.live ? Math.max(runs ? this.least : QUIET_MS, this.interval) : this.interval;
  }

  setLive(live) {
    if (this.live === live) return;
    this.live = live;
    this.schedule(this.pause());
    this.show();
  }

  async refresh() {
    if (this.busy) return;
    this.busy = true;
    try {
      this.final = replaceParts(await loadPage(this.url));
      if (this.final) this.ended();
      this.failures = 0;
      this.updatedAt = new Date();
    } catch {
      this.failures += 1;
    } finally {
      this.busy = false;
    }
    this.show();
    if (this.again && !this.failures) this.soon();
    else this.schedule(Math.max(this.pause(), Math.min(MAX_DELAY_MS, this.interval * 2 ** Math.min(this.failures, 4))));
  }

  show() {
    const lost = this.failures > 0;
    this.notice.hidden = !lost;
    document.getElementById("leader-pill")?.toggleAttribute("data-away", lost);
    const time = this.updatedAt.toLocaleTimeString(document.documentElement.lang);
    const text = this.notice.dataset.text.replace("%", time);
    if (lost && this.notice.textContent !== text) this.notice.textContent = text;
    if (!this.label) return;
    this.label.hidden = lost || Boolean(this.final);
    const ago = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto", style: "narrow" });
    const seconds = Math.round((Date.now() - this.updatedAt) / 1000);
    this.label.textContent = this.label.dataset[this.live ? "live" : "polled"].replace("%", ago.format(-seconds, "second"));
    this.label.classList.toggle("on", this.live);
  }
}

// Follows the changes; without them, or until they are back, the page asks as often as before.
function follow(url, refresher) {
  let missed = false;
  const lose = () => {
    missed = true;
    refresher.setLive(false);
  };
  // What changed while the stream was away is not known.
  const find = () => {
    refresher.setLive(true);
    if (missed) refresher.soon();
    missed = false;
  };
  const away = () => refresher.setLive(false);
  const stream = new Stream(() => url, { live: find, away, change: ({ data }) => refresher.soon(data), error: lose });
  refresher.ended = () => stream.end();
}

// What the notice says was done now, and the language is kept: neither belongs into a link that is passed on.
const address = new URL(location.href);
for (const name of ["done", "was", "lang"]) if (address.searchParams.has(name)) address.searchParams.delete(name);
if (address.href !== location.href) history.replaceState(history.state, "", address);
showTimes(document);
showZone();
for (const event of ["click", "keydown"]) document.addEventListener(event, closeMenu);
for (const one of document.querySelectorAll("[data-scripts]")) one.hidden = false;
document.addEventListener("click", copy);
document.querySelector("[data-sign-out]")?.addEventListener("click", signOut);
// What an action has led to is where a person goes on: the focus was at a form that is gone, and a screen reader reads it out.
const result = document.querySelector("main :is(.message, .big)[role=status]");
// The browser takes the focus away when it scrolls to what is behind the # of the address.
if (result) addEventListener("load", () => result.focus({ preventScroll: Boolean(location.hash) }));
const main = document.querySelector("main[data-refresh]");
if (main) {
  const refresher = new Refresher(main);
  if (main.dataset.changes) follow(main.dataset.changes, refresher);
}

// A change of many runs goes on by itself, part after part, until it is done or the person leaves.
const going = document.querySelector("form[data-continue]");
if (going) setTimeout(() => going.requestSubmit(), 400);
