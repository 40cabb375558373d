// The tools of a log: switches, which this browser keeps, the search, the way to a line, the full screen.
import { keep, kept, load, withFields } from "./common.js";
import { log, markWords, position } from "./log_rows.js";

const KEY = "toban-log";
const SEARCH_MS = 30000;
const LEVELS = ["trace", "debug", "info", "warning", "error", "fatal"];

const section = document.getElementById("output");
const byId = (id) => document.getElementById(id);

export function tell(name) {
  const note = byId("log-note");
  note.textContent = name ? note.dataset[name] : "";
}

// Which lines are wanted, and how they look: boxes with and without a name. This browser keeps the boxes, the level holds for this page.
export class Filter {
  constructor() {
    this.changed = () => {};
    this.form = byId("log-switches");
    this.form.hidden = false;
    this.boxes = [...this.form.querySelectorAll("[type=checkbox]")];
    const before = kept(KEY, {});
    for (const box of this.boxes) box.checked = before[box.id] ?? box.checked;
    this.form.addEventListener("change", ({ target }) => {
      keep(KEY, Object.fromEntries(this.boxes.map((box) => [box.id, box.checked])));
      if (target.name) this.changed();
    });
  }

  // Without any stream there is nothing to see: all of them.
  query() {
    const chosen = [...new FormData(this.form)].filter(([, value]) => value);
    const streams = chosen.filter(([name]) => name === "stream").length;
    return chosen.filter(([name]) => name !== "stream" || streams < this.form.elements.stream.length);
  }

  wants(stream, level) {
    const fields = new URLSearchParams(this.query());
    const [streams, least] = [fields.getAll("stream"), fields.get("level")];
    return (!streams.length || streams.includes(stream)) && (!least || LEVELS.indexOf(level) >= LEVELS.indexOf(least));
  }

  // Levels are offered once a line has one.
  offer(rows) {
    if (rows.some((row) => row.dataset.level)) this.form.elements.level.hidden = false;
  }
}

export function addSwitches(view, filter) {
  const looks = filter.boxes.filter((box) => !box.name);
  const look = () => view.steady(() => looks.forEach((box) => log.classList.toggle(box.id, box.checked)));
  filter.form.addEventListener("change", look);
  look();
  const full = byId("log-full");
  full.hidden = false;
  full.addEventListener("click", () => {
    view.steady(() => section.classList.toggle("full"));
    full.ariaPressed = String(section.classList.contains("full"));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.isComposing && full.ariaPressed === "true" && !document.querySelector("dialog[open]")) full.click();
  });
}

export class Search {
  constructor(view, filter) {
    Object.assign(this, { view, filter, form: document.querySelector(".log-search"), shown: byId("log-hits") });
    this.clear();
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.step(Number(event.submitter?.value || 1));
    });
    byId("log-find").addEventListener("input", ({ target }) => target.value || this.clear());
  }

  clear() {
    Object.assign(this, { hits: [], at: -1, asked: "", words: null });
    this.show("");
    this.mark();
  }

  mark() {
    markWords(this.view.rows, this.words);
  }

  show(text) {
    this.shown.textContent = text;
    const none = !this.hits.length;
    byId("log-steps-through").hidden = byId("log-all-hits").hidden = none;
    if (!none) byId("log-all-hits").href = `${this.form.action}?${this.asked}`;
  }

  // To the next or previous hit; first a search, when the form asks for something else than before.
  async step(by) {
    if (!byId("log-find").value) return;
    const fields = new URLSearchParams([...new FormData(this.form), ...this.filter.query()]);
    if (String(fields) !== this.asked && !(await this.search(String(fields)))) return;
    if (!this.hits.length) return;
    this.at = (this.at + by + this.hits.length) % this.hits.length;
    const of = this.shown.dataset.of.replace("%n", (this.at + 1).toLocaleString("en")).replace("%m", this.count);
    this.show(of);
    await this.view.jump(position(this.hits[this.at].join(":")));
  }

  async search(asked) {
    this.clear();
    this.asked = asked;
    this.show(this.shown.dataset.searching);
    const url = withFields(log.dataset.search, new URLSearchParams(asked));
    const found = await load(url, { milliseconds: SEARCH_MS }).then((response) => response.json()).catch(() => ({ hits: [], error: " " }));
    if (asked !== this.asked) return false;
    Object.assign(this, { hits: found.hits, count: found.count, at: -1 });
    this.show(found.error ? `${this.shown.dataset.failed} ${found.error}` : found.hits.length ? "" : this.shown.dataset.none);
    if (found.error) this.asked = "";
    else this.words = found.words && new RegExp(found.words, found.exact ? "gu" : "giu");
    this.mark();
    return !found.error;
  }
}

// The address names a line; a click on its number puts the line there, and the address into the clipboard.
export function addLinks(view) {
  const go = async (at) => tell(at && (await view.jump(at)) ? "" : "missing");
  const follow = () => location.hash.match(/^#(A\d+-)?L\d+$/) && go(view.attempts.find(location.hash));
  document.querySelector(".log-jump").addEventListener("submit", (event) => {
    event.preventDefault();
    const at = view.attempts.find(byId("log-line").value.trim());
    if (at) history.replaceState(null, "", `#${view.attempts.anchor(at)}`);
    go(at);
  });
  log.addEventListener("click", (event) => {
    const number = event.target.closest(".seq");
    if (!number || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    history.replaceState(null, "", number.hash);
    view.mark(number.parentElement);
    view.setFollowing(false);
    // Where the clipboard is closed to pages, the address has the link.
    navigator.clipboard?.writeText(location.href).then(() => tell("copied"), () => {});
  });
  addEventListener("hashchange", follow);
  follow();
}
