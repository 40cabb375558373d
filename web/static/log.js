// The live log: lines as they come, to the end of the run, over lost connections.
const MAX_ROWS = 5000;
const RETRY_MS = 3000;
const NEAR_END_PX = 24;

const log = document.getElementById("log");
const state = document.getElementById("log-state");
const button = document.getElementById("log-follow");
const over = document.getElementById("log-over");

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
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
    log.querySelector(".nothing")?.remove();
    const fragment = document.createDocumentFragment();
    if (token !== this.token) {
      this.token = token;
      const head = element("p", "attempt", log.dataset.attempt.replace("%", attempt || "?"));
      head.dataset.token = token;
      fragment.append(head);
      this.lastPartial = false;
    }
    for (const [seq, stream, at, text, partial] of lines) {
      if (this.lastPartial && this.lastStream === stream) this.last.querySelector(".text").append(text);
      else fragment.append(this.row(seq, stream, at, text));
      this.lastStream = stream;
      this.lastPartial = partial;
    }
    log.append(fragment);
    this.trim();
  }

  row(seq, stream, at, text) {
    const row = element("p", `row ${stream}`);
    const number = element("span", "seq", String(seq));
    number.title = at;
    row.append(number);
    if (stream !== "stdout") row.append(element("span", "stream", stream === "stderr" ? log.dataset.err : log.dataset.sys));
    row.append(element("span", "text", text));
    this.last = row;
    return row;
  }

  trim() {
    const rows = log.getElementsByClassName("row");
    const extra = rows.length - MAX_ROWS;
    if (extra <= 0) return;
    for (let i = 0; i < extra; i += 1) rows[0].remove();
    if (!log.querySelector(".dropped")) log.prepend(element("p", "dropped", log.dataset.dropped));
  }
}

class Follower {
  constructor() {
    this.on = true;
    button.hidden = false;
    button.addEventListener("click", () => this.set(!this.on));
    // Only the reader's own scrolling tells what the reader wants: ours never leaves the end.
    log.addEventListener("scroll", () => this.set(log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PX));
    this.move();
  }

  set(on) {
    if (on === this.on) return;
    this.on = on;
    button.setAttribute("aria-pressed", String(on));
    this.move();
  }

  move() {
    if (this.on) log.scrollTop = log.scrollHeight;
  }
}

class Stream {
  constructor() {
    this.cursor = log.dataset.after;
    this.rows = new Rows();
    this.follower = new Follower();
    this.source = null;
    this.timer = 0;
    document.querySelector("[data-static]")?.remove();
    // A hidden page gives its connection back: a browser has few for one site.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.pause() : this.open()));
    if (!document.hidden) this.open();
  }

  say(name) {
    state.dataset.now = name;
    if (state.textContent !== state.dataset[name]) state.textContent = state.dataset[name];
  }

  open() {
    if (this.source || this.ended) return;
    this.say("connecting");
    const address = new URL(log.dataset.stream, location.href);
    address.searchParams.set("after", this.cursor);
    this.source = new EventSource(address);
    this.source.onopen = () => this.say("live");
    this.source.onerror = () => this.retry();
    this.source.addEventListener("lines", (event) => this.lines(event));
    this.source.addEventListener("trouble", () => this.say("retrying"));
    this.source.addEventListener("end", (event) => this.end(JSON.parse(event.data)));
  }

  lines(event) {
    this.cursor = event.lastEventId;
    this.rows.add(JSON.parse(event.data));
    this.say("live");
    this.follower.move();
  }

  end({ complete }) {
    this.ended = true;
    this.close();
    this.say(complete ? "ended" : "incomplete");
    log.append(over.content.cloneNode(true));
    this.follower.move();
  }

  // Our own cursor is used at each new opening, also after an answer that an EventSource would give up at.
  retry() {
    this.close();
    this.say("retrying");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => document.hidden || this.open(), RETRY_MS);
  }

  pause() {
    if (this.ended) return;
    clearTimeout(this.timer);
    this.close();
    this.say("paused");
  }

  close() {
    this.source?.close();
    this.source = null;
  }
}

if (log.dataset.stream) new Stream();
else log.scrollTop = log.scrollHeight;
