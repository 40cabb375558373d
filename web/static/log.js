// The log of a run: appends new lines until the output is complete, and reconnects after a lost connection.
import { Filter, Search, addLinks, addSwitches, showMarkers, tell } from "./log_tools.js";
import { LogView } from "./log_view.js";

const RETRY_MS = 3000;

const log = document.getElementById("log");
const status = document.getElementById("log-state");
const droppedNote = document.getElementById("log-dropped");
const endTemplate = document.getElementById("log-end");

class Stream {
  constructor(view) {
    this.cursor = log.dataset.cursor;
    this.view = view;
    this.source = null;
    this.timer = 0;
    document.getElementById("log-follow").hidden = false;
    // A hidden page closes its connection: browsers limit the connections to one site.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.pause() : this.open()));
    if (!document.hidden) this.open();
  }

  show(state) {
    status.dataset.state = state;
    if (status.textContent !== status.dataset[state]) status.textContent = status.dataset[state];
  }

  open() {
    if (this.source || this.ended) return;
    this.show("connecting");
    const url = new URL(log.dataset.stream, location.href);
    url.searchParams.set("after", this.cursor);
    this.source = new EventSource(url);
    this.source.onopen = () => this.show("live");
    this.source.onerror = () => this.retry();
    this.source.addEventListener("lines", (event) => this.lines(event));
    this.source.addEventListener("unavailable", () => this.show("retrying"));
    this.source.addEventListener("end", (event) => this.end(JSON.parse(event.data)));
  }

  lines(event) {
    this.cursor = event.lastEventId;
    const data = JSON.parse(event.data);
    this.view.live(data);
    this.noteDropped(data.dropped);
    this.show("live");
  }

  noteDropped(more) {
    if (!more) return;
    const count = Number(droppedNote.dataset.count) + more;
    droppedNote.dataset.count = count;
    droppedNote.textContent = droppedNote.dataset.text.replace("%", count.toLocaleString("en"));
    droppedNote.hidden = false;
  }

  end({ complete }) {
    this.ended = true;
    this.close();
    this.show(!complete ? "incomplete" : droppedNote.hidden ? "ended" : "dropped");
    log.append(endTemplate.content.cloneNode(true));
    this.view.toBottom();
  }

  // Reconnects with the own cursor. An EventSource alone would give up after an error response.
  retry() {
    this.close();
    this.show("lost");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => document.hidden || this.open(), RETRY_MS);
  }

  pause() {
    if (this.ended) return;
    clearTimeout(this.timer);
    this.close();
    this.show("paused");
  }

  close() {
    this.source?.close();
    this.source = null;
  }
}

for (const one of document.querySelectorAll("[data-static]")) one.remove();
const filter = new Filter();
const view = new LogView(filter, tell);
addSwitches(view);
const search = new Search(view, filter);
view.changed = (rows) => {
  showMarkers(rows);
  filter.offer(rows);
  search.highlight(rows);
};
filter.changed = () => view.toEnd();
view.changed(view.rows);
if (log.dataset.stream) new Stream(view);
// The block of a kept filter takes the place of the rows that came with the page: a line that the address names is looked for in it.
await (filter.active ? view.toEnd() : view.fill());
addLinks(view);
