// The log of a run: appends new lines until the output is complete, and reconnects after a lost connection.
import { withFields } from "./common.js";
import { log } from "./log_rows.js";
import { Filter, Search, addLinks, addSwitches, tell } from "./log_tools.js";
import { LogView } from "./log_view.js";
import { Stream } from "./stream.js";

const status = document.getElementById("log-state");
const droppedNote = document.getElementById("log-dropped");
const endTemplate = document.getElementById("log-end");

class LiveLog {
  constructor(view) {
    this.view = view;
    this.cursor = log.dataset.cursor;
    document.getElementById("log-follow").hidden = false;
    this.stream = new Stream(() => this.address(), {
      open: () => this.show("live"),
      error: () => this.show("lost"),
      lines: (event) => this.lines(event),
      unavailable: () => this.show("retrying"),
      end: ({ data }) => this.end(JSON.parse(data)),
    });
  }

  show(state) {
    status.dataset.state = state;
    if (status.textContent !== status.dataset[state]) status.textContent = status.dataset[state];
  }

  address() {
    this.show("connecting");
    return withFields(log.dataset.stream, [["after", this.cursor]]);
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
    this.stream.end();
    this.show(!complete ? "incomplete" : droppedNote.hidden ? "ended" : "dropped");
    log.append(endTemplate.content.cloneNode(true));
    this.view.toBottom();
  }
}

for (const one of document.querySelectorAll("[data-static]")) one.remove();
const filter = new Filter();
const view = new LogView(filter, tell);
addSwitches(view, filter);
const search = new Search(view, filter);
view.changed = (rows) => {
  filter.offer(rows);
  search.mark();
};
filter.changed = () => view.toEnd();
view.changed(view.rows);
if (log.dataset.stream) new LiveLog(view);
// The block of a kept filter takes the place of the rows that came with the page: a line that the address names is looked for in it.
await (filter.query().length ? view.toEnd() : view.fill());
addLinks(view);
