// Reads the parts of a page again when something has changed and periodically, and shows a notice while the server does not respond.
import { morph } from "./morph.js";
import { inUtc, showInputs, showTimes } from "./times.js";

const TIMEOUT_MS = 15000;
const MAX_DELAY_MS = 15000;
// Between two reads after changes, and how far those of several pages are apart.
const LEAST_MS = 1000;
const SPREAD_MS = 300;
// A page that follows the changes and shows nothing that runs.
const QUIET_MS = 30000;
const REOPEN_MS = 10000;

// The zone of the times is that of the browser, or UTC, which the pages are in.
function showZone() {
  showInputs(document);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!zone || inUtc) return;
  const note = document.querySelector("[data-zone]:not(html)");
  if (note) note.textContent = note.dataset.zone.replace("%", zone);
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

function replaceParts(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
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
    this.failures = 0;
    this.timer = 0;
    this.live = false;
    this.least = LEAST_MS;
    this.ended = () => {};
    document.addEventListener("visibilitychange", () => this.schedule(document.hidden ? null : 0));
    setInterval(() => document.hidden || this.showAge(), 1000);
    this.schedule(this.interval);
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
    this.showAge();
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
      if (this.final) this.ended();
      this.failures = 0;
      this.updatedAt = new Date();
    } catch {
      this.failures += 1;
    } finally {
      this.busy = false;
    }
    this.showNotice();
    this.showAge();
    if (this.again && !this.failures) this.soon();
    else this.schedule(Math.max(this.pause(), Math.min(MAX_DELAY_MS, this.interval * 2 ** Math.min(this.failures, 4))));
  }

  showNotice() {
    this.notice.hidden = this.failures === 0;
    document.getElementById("leader-pill")?.toggleAttribute("data-away", this.failures > 0);
    const time = this.updatedAt.toLocaleTimeString(document.documentElement.lang);
    const text = this.notice.dataset.text.replace("%", time);
    if (this.failures && this.notice.textContent !== text) this.notice.textContent = text;
  }

  showAge() {
    if (!this.label) return;
    this.label.hidden = this.failures > 0 || Boolean(this.final);
    const seconds = Math.round((Date.now() - this.updatedAt) / 1000);
    const ago = new Intl.RelativeTimeFormat(document.documentElement.lang, { style: "narrow" }).format(-seconds, "second");
    const { live, polled, now } = this.label.dataset;
    this.label.textContent = (this.live ? live : polled).replace("%", seconds < 2 ? now : ago);
    this.label.classList.toggle("on", this.live);
  }
}

// Follows the changes while the page is seen; without it, or until it is back, the page asks as often as before.
class Feed {
  constructor(url, refresher) {
    this.url = url;
    this.refresher = refresher;
    this.source = null;
    this.lost = false;
    refresher.ended = () => this.close();
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    if (!document.hidden) this.open();
  }

  open() {
    if (this.source || this.refresher.final) return;
    this.source = new EventSource(this.url);
    this.source.addEventListener("live", () => this.find());
    this.source.addEventListener("away", () => this.refresher.setLive(false));
    this.source.addEventListener("change", ({ data }) => this.refresher.soon(data));
    this.source.onerror = () => this.lose();
  }

  // What changed while the stream was away is not known.
  find() {
    this.refresher.setLive(true);
    if (this.lost) this.refresher.soon();
    this.lost = false;
  }

  // An EventSource gives up after an error response, such as that of a site that has no more room for streams.
  lose() {
    this.lost = true;
    this.refresher.setLive(false);
    if (this.source.readyState !== EventSource.CLOSED) return;
    this.close();
    setTimeout(() => document.hidden || this.open(), REOPEN_MS);
  }

  close() {
    this.lost = true;
    this.source?.close();
    this.source = null;
    this.refresher.setLive(false);
  }
}

showTimes(document);
showZone();
closeMenus();
for (const one of document.querySelectorAll("[data-scripts]")) one.hidden = false;
document.querySelector("[data-sign-out]")?.addEventListener("click", signOut);
const main = document.querySelector("main[data-refresh]");
if (main) {
  const refresher = new Refresher(main);
  if (main.dataset.changes) new Feed(main.dataset.changes, refresher);
}

// A change of many runs goes on by itself, part after part, until it is done or the person leaves.
const going = document.querySelector("form[data-continue]");
if (going) setTimeout(() => going.requestSubmit(), 400);
