// The live log of a run: appends new lines until the output is complete, and reconnects after a lost connection.
const MAX_ROWS = 5000;
const RETRY_MS = 3000;
const NEAR_END_PX = 24;

const log = document.getElementById("log");
const status = document.getElementById("log-state");
const followButton = document.getElementById("log-follow");
const droppedNote = document.getElementById("log-dropped");
const endTemplate = document.getElementById("log-end");

function element(tag, className, text) {
  const created = document.createElement(tag);
  created.className = className;
  if (text !== undefined) created.textContent = text;
  return created;
}

class Rows {
  constructor() {
    this.last = null;
    this.lastStream = "";
    this.lastPartial = false;
    this.token = [...log.querySelectorAll(".attempt")].at(-1)?.dataset.token ?? "";
    const rows = log.querySelectorAll(".row");
    if (rows.length) {
      this.last = rows[rows.length - 1];
      this.lastStream = this.last.classList[1];
      this.lastPartial = log.dataset.partial === "yes";
    }
  }

  add({ token, attempt, lines }) {
    log.querySelector(".empty-log")?.remove();
    const fragment = document.createDocumentFragment();
    if (token !== this.token) {
      this.token = token;
      const heading = element("p", "attempt", log.dataset.attempt.replace("%", attempt || "?"));
      heading.dataset.token = token;
      fragment.append(heading);
      this.lastPartial = false;
    }
    for (const [seq, stream, at, text, partial] of lines) {
      if (!(this.lastPartial && this.lastStream === stream)) fragment.append(this.row(seq, stream, at));
      this.put(seq, stream, text);
      this.lastStream = stream;
      this.lastPartial = partial;
    }
    log.append(fragment);
    this.trim();
  }

  // Adds to the last row, of a long line only the beginning, with a link to all of it.
  put(seq, stream, text) {
    const shown = this.last.querySelector(".text");
    let whole = shown.querySelector(".whole");
    if (!whole) {
      const room = log.dataset.most - shown.textContent.length;
      shown.append(text.slice(0, room));
      if (text.length <= room) return;
      whole = element("a", "whole", log.dataset.whole);
      shown.append(whole);
    }
    const url = new URL(log.dataset.line, location.href);
    url.searchParams.set("stream", stream);
    url.searchParams.set("from", `${this.token}:${this.last.dataset.first ?? this.last.querySelector(".seq").textContent}`);
    url.searchParams.set("to", `${this.token}:${seq}`);
    whole.href = url;
  }

  row(seq, stream, at) {
    const row = element("p", `row ${stream}`);
    const number = element("span", "seq", String(seq));
    number.title = at;
    row.append(number);
    if (stream !== "stdout") row.append(element("span", "stream", log.dataset[stream]));
    row.append(element("span", "text"));
    this.last = row;
    return row;
  }

  trim() {
    const rows = log.getElementsByClassName("row");
    const excess = rows.length - MAX_ROWS;
    if (excess <= 0) return;
    for (let i = 0; i < excess; i += 1) rows[0].remove();
    if (!log.querySelector(".truncated")) log.prepend(element("p", "truncated", log.dataset.truncated));
  }
}

class Follower {
  constructor() {
    this.on = true;
    followButton.hidden = false;
    followButton.addEventListener("click", () => this.set(!this.on));
    // Scrolling up turns following off; the script itself only scrolls to the end.
    log.addEventListener("scroll", () => this.set(log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PX));
    this.scrollToEnd();
  }

  set(on) {
    if (on === this.on) return;
    this.on = on;
    followButton.setAttribute("aria-pressed", String(on));
    this.scrollToEnd();
  }

  scrollToEnd() {
    if (this.on) log.scrollTop = log.scrollHeight;
  }
}

class Stream {
  constructor() {
    this.cursor = log.dataset.cursor;
    this.rows = new Rows();
    this.follower = new Follower();
    this.source = null;
    this.timer = 0;
    document.querySelector("[data-static]")?.remove();
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
    this.rows.add(data);
    this.noteDropped(data.dropped);
    this.show("live");
    this.follower.scrollToEnd();
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
    this.follower.scrollToEnd();
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

if (log.dataset.stream) new Stream();
else log.scrollTop = log.scrollHeight;
