// The tools of a log: switches, which this browser keeps, the search, the way to a line, the full screen.
import { position } from "./log_rows.js";

const KEY = "toban-log";
const TIMEOUT_MS = 30000;
const LEVELS = ["trace", "debug", "info", "warning", "error", "fatal"];

const log = document.getElementById("log");
const section = document.getElementById("output");
const byId = (id) => document.getElementById(id);

function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    return {};
  }
}

export function tell(name) {
  const note = byId("log-note");
  note.textContent = name ? note.dataset[name] : "";
}

// Which lines are wanted. Streams are kept in the browser, the level holds for this page.
export class Filter {
  constructor() {
    this.changed = () => {};
    this.level = "";
    const streams = kept().streams;
    this.streams = new Set(Array.isArray(streams) && streams.length ? streams : ["stdout", "stderr", "system"]);
    this.streamButtons = [...document.querySelectorAll("[data-shows]")];
    this.levelButtons = [...document.querySelectorAll("[data-least]")];
    for (const button of this.streamButtons) button.addEventListener("click", () => this.toggleStream(button.dataset.shows));
    for (const button of this.levelButtons) button.addEventListener("click", () => this.toggleLevel(button.dataset.least));
    this.show();
  }

  get active() {
    return this.level !== "" || this.streams.size < this.streamButtons.length;
  }

  query() {
    const streams = this.streams.size < this.streamButtons.length ? [...this.streams].map((one) => ["stream", one]) : [];
    return this.level ? [...streams, ["level", this.level]] : streams;
  }

  wants(stream, level) {
    return this.streams.has(stream) && (!this.level || LEVELS.indexOf(level) >= LEVELS.indexOf(this.level));
  }

  toggleStream(name) {
    if (!this.streams.delete(name)) this.streams.add(name);
    // Without any stream there is nothing to see: all of them.
    if (!this.streams.size) this.streamButtons.forEach((button) => this.streams.add(button.dataset.shows));
    keep({ streams: [...this.streams] });
    this.show();
    this.changed();
  }

  toggleLevel(name) {
    this.level = this.level === name ? "" : name;
    this.show();
    this.changed();
  }

  show() {
    for (const button of this.streamButtons) button.setAttribute("aria-pressed", String(this.streams.has(button.dataset.shows)));
    for (const button of this.levelButtons) button.setAttribute("aria-pressed", String(button.dataset.least === this.level));
  }

  // Levels are offered once a line has one.
  offer(rows) {
    const found = new Set(rows.map((row) => row.dataset.level).filter(Boolean));
    for (const button of this.levelButtons) if (found.has(button.dataset.least)) button.hidden = byId("log-levels").hidden = false;
  }
}

function keep(choice) {
  try {
    localStorage.setItem(KEY, JSON.stringify({ ...kept(), ...choice }));
  } catch {
    // The choice holds for this page.
  }
}

// A button that sets a class while it is pressed.
function classSwitch(view, id, name, { on, inverted = false }) {
  const button = byId(id);
  const set = (pressed) => {
    button.setAttribute("aria-pressed", String(pressed));
    view.steady(() => log.classList.toggle(name, pressed !== inverted));
  };
  set(kept()[id] ?? on);
  button.addEventListener("click", () => {
    const pressed = button.getAttribute("aria-pressed") !== "true";
    set(pressed);
    keep({ [id]: pressed });
  });
}

export function showMarkers(rows) {
  const button = byId("log-markers");
  const count = rows.filter((row) => row.classList.contains("marker")).length;
  button.hidden = count === 0;
  button.textContent = button.dataset.text.replace("%", count.toLocaleString("en"));
}

export function addSwitches(view) {
  byId("log-switches").hidden = false;
  classSwitch(view, "log-wrap", "nowrap", { on: true, inverted: true });
  classSwitch(view, "log-times", "times", { on: false });
  classSwitch(view, "log-markers", "no-markers", { on: false, inverted: true });
  const full = byId("log-full");
  const set = (on) => {
    if (on === section.classList.contains("full")) return;
    view.steady(() => section.classList.toggle("full", on));
    full.setAttribute("aria-pressed", String(on));
  };
  full.hidden = false;
  full.addEventListener("click", () => set(!section.classList.contains("full")));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.isComposing && !document.querySelector("dialog[open]")) set(false);
  });
}

export class Search {
  constructor(view, filter) {
    this.view = view;
    this.filter = filter;
    this.form = document.querySelector(".log-search");
    this.shown = byId("log-hits");
    this.asked = "";
    this.clear();
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.step(1);
    });
    byId("log-find").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.step(-1);
    });
    byId("log-find").addEventListener("input", ({ target }) => target.value || this.clear());
    byId("log-previous").addEventListener("click", () => this.step(-1));
    byId("log-next").addEventListener("click", () => this.step(1));
  }

  clear() {
    this.hits = [];
    this.at = -1;
    this.asked = "";
    this.show("");
    this.highlight(this.view.rows);
  }

  show(text) {
    this.shown.textContent = text;
    const none = !this.hits.length;
    byId("log-steps-through").hidden = none;
    const all = byId("log-all-hits");
    all.hidden = none;
    if (!none) all.href = `${this.form.action}?${this.asked}`;
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
    this.highlight(this.view.rows);
  }

  async search(asked) {
    this.clear();
    this.asked = asked;
    this.show(this.shown.dataset.searching);
    let found;
    try {
      const url = new URL(log.dataset.search, location.href);
      url.search = asked;
      const response = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (!response.ok) throw new Error(String(response.status));
      found = await response.json();
    } catch {
      found = { hits: [], error: " " };
    }
    if (asked !== this.asked) return false;
    Object.assign(this, { hits: found.hits, count: found.count, at: -1 });
    this.show(found.error ? `${this.shown.dataset.failed} ${found.error}` : found.hits.length ? "" : this.shown.dataset.none);
    if (found.error) this.asked = "";
    return !found.error;
  }

  // Marks the text of the search in the rows with hits, without a change of the rows.
  highlight(rows) {
    if (!globalThis.CSS?.highlights) return;
    CSS.highlights.delete("log-hit");
    const fields = new URLSearchParams(this.asked);
    if (!this.hits.length) return;
    let pattern;
    try {
      const text = fields.get("find");
      pattern = new RegExp(fields.get("regex") ? text : text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"), fields.get("case") ? "g" : "gi");
    } catch {
      // An expression that only the server knows.
      return;
    }
    const hits = new Set(this.hits.map((hit) => hit.join(":")));
    const found = ({ dataset: { token, first, last } }) => {
      for (let seq = Number(first); seq <= Number(last); seq += 1) if (hits.has(`${token}:${seq}`)) return true;
      return false;
    };
    const ranges = rows.filter(found).flatMap((row) => [...rangesOf(row.lastChild, pattern)]);
    CSS.highlights.set("log-hit", new Highlight(...ranges));
  }
}

// A text may lie in several nodes, because of its colours.
function* rangesOf(element, pattern) {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const starts = [];
  for (let [node, at] = [walker.nextNode(), 0]; node; at += node.length, node = walker.nextNode()) starts.push([at, node]);
  for (const { 0: found, index } of element.textContent.matchAll(pattern)) {
    if (!found) continue;
    const range = new Range();
    const place = (offset) => starts.findLast(([at]) => at <= offset);
    const [[first, from], [last, to]] = [place(index), place(index + found.length - 1)];
    range.setStart(from, index - first);
    range.setEnd(to, index + found.length - last);
    yield range;
  }
}

// The address names a line; a click on its number puts the line there and copies the link.
export function addLinks(view) {
  const go = async (at) => tell(at && (await view.jump(at)) ? "" : "missing");
  const follow = () => location.hash.match(/^#(A\d+-)?L\d+$/) && go(view.attempts.find(location.hash));
  document.querySelector(".log-jump").addEventListener("submit", (event) => {
    event.preventDefault();
    const at = view.attempts.find(byId("log-line").value.trim());
    if (at) history.replaceState(null, "", `#${view.attempts.anchor(at)}`);
    go(at);
  });
  log.addEventListener("click", async (event) => {
    const number = event.target.closest(".seq");
    if (!number || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const row = number.parentElement;
    history.replaceState(null, "", `#${view.attempts.anchor({ token: row.dataset.token, seq: row.dataset.first })}`);
    log.querySelector(".target")?.classList.remove("target");
    row.classList.add("target");
    view.setFollowing(false);
    try {
      await navigator.clipboard.writeText(location.href);
      tell("copied");
    } catch {
      // The address has the link.
    }
  });
  addEventListener("hashchange", follow);
  follow();
}
