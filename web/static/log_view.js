// The window of rows of a log that the page holds: it moves over the log by blocks from the server and never grows beyond MAX_ROWS.
import { load, withFields } from "./common.js";
import { Attempts, RowMaker, compare, firstOf, lastOf, log, position, written } from "./log_rows.js";
import { Headings } from "./log_steps.js";

const MAX_ROWS = 2500;
const NEAR_END_PX = 24;
const MARKED_MS = 300;
// Blocks in a row, while what they show does not fill the view.
const MAX_FILL = 6;
const START = { token: "0", seq: 0 };

const followButton = document.getElementById("log-follow");
const latest = document.getElementById("log-latest");

export class LogView {
  // `filter` has `query()`, the fields of the lines that are wanted, and `wants(stream, level)`. `tell` shows a name of a note.
  constructor(filter, tell) {
    Object.assign(this, { filter, tell, attempts: new Attempts(), turn: 0, busy: false, marked: -Infinity, changed: () => {} });
    this.maker = new RowMaker(this.attempts);
    this.headings = new Headings(this.attempts, (step, closed) => this.toggled(step, closed));
    this.cursor = this.last = position(log.dataset.cursor);
    this.rows = [...log.querySelectorAll(".row")];
    this.first = this.rows.length ? firstOf(this.rows[0]) : this.last;
    this.atStart = "wholeStart" in log.dataset;
    this.atEnd = this.following = true;
    for (const row of this.rows) this.maker.adopt(row);
    if (log.dataset.partial) this.rows.at(-1).open = true;
    for (const heading of log.querySelectorAll(".attempt, .step")) heading.remove();
    followButton.addEventListener("click", () => this.follow(!this.following));
    latest.addEventListener("click", () => this.toEnd());
    log.addEventListener("scroll", () => this.scrolled());
    const details = document.getElementById("run-details");
    // The page has steps as they were a moment ago: lines behind a closed step that ran may turn out to be another one's.
    new MutationObserver(() => this.regroup()).observe(details, { attributes: true, characterData: true, childList: true, subtree: true });
    this.regroup();
  }

  // New lines, which the stream has brought.
  live(part) {
    this.attempts.note(part.token, part.attempt);
    const [before, newest] = [this.cursor, part.lines.at(-1)];
    this.cursor = { token: part.token, seq: newest[0] };
    if (!this.atEnd) return;
    const fresh = part.lines.filter(([seq]) => compare({ token: part.token, seq }, this.last) > 0);
    this.add([{ ...part, lines: fresh.filter(([, stream, , , , level]) => this.filter.wants(stream, level)) }]);
    this.last = compare(this.cursor, before) > 0 ? this.cursor : this.last;
    this.toBottom();
  }

  async load(query) {
    return (await load(withFields(log.dataset.lines, [...Object.entries(query), ...this.filter.query()]))).json();
  }

  // One load at a time; a jump makes what is under way worthless. Returns whether the block was used.
  async move(query, use) {
    const turn = (this.turn += 1);
    const reached = this.cursor;
    this.busy = true;
    log.setAttribute("aria-busy", "true");
    try {
      const block = await this.load(query);
      if (turn !== this.turn) return false;
      for (const part of block.parts) this.attempts.note(part.token, part.attempt);
      use(block, reached);
      this.tell("");
      return true;
    } catch {
      if (turn === this.turn) this.tell("failed");
      return false;
    } finally {
      if (turn === this.turn) {
        this.busy = false;
        log.removeAttribute("aria-busy");
        latest.hidden = this.atEnd;
        log.classList.toggle("detached", !this.atEnd);
      }
    }
  }

  older() {
    const step = this.headings.closedStep(this.first);
    const before = step ? { token: step.token, seq: step.seq } : this.first;
    return this.move({ before: written(before) }, ({ parts, start }) => {
      const rows = parts.flatMap((part) => this.maker.rows(part));
      for (const row of rows) row.open = false;
      this.keep(this.rows.find((row) => !row.hidden), () => {
        this.rows.unshift(...rows);
        this.first = parts.length ? { token: parts[0].token, seq: parts[0].lines[0][0] } : before;
        this.atStart = start;
        for (const row of this.rows.splice(MAX_ROWS)) {
          row.remove();
          this.atEnd = false;
        }
        if (!this.atEnd) this.last = this.rows.length ? lastOf(this.rows.at(-1)) : this.last;
        this.regroup();
      });
    });
  }

  newer() {
    const step = this.headings.closedStep(this.last);
    const skipped = step && step.last !== Infinity;
    const after = skipped ? { token: step.token, seq: step.last } : this.last;
    return this.move({ after: written(after) }, (block, reached) => {
      // The rest of a line of a step that is skipped is not in the window.
      if (skipped && this.rows.length) this.rows.at(-1).open = false;
      this.ends(block, after, reached);
      this.add(block.parts);
    });
  }

  // A block from the end of what is stored has every line up to `reached`, where the stream was before.
  ends({ parts, end }, after, reached) {
    const part = parts.at(-1);
    this.last = part ? { token: part.token, seq: part.lines.at(-1)[0] } : after;
    if (end && compare(reached, this.last) > 0) this.last = reached;
    this.atEnd = end && compare(this.last, this.cursor) >= 0;
    this.behind = end && !this.atEnd;
    if (compare(this.last, this.cursor) > 0 && end) this.cursor = this.last;
  }

  // Shows other lines in place of those of the window.
  async replace(query) {
    const used = await this.move(query, (block, reached) => {
      for (const row of this.rows) row.remove();
      this.rows = [];
      const part = block.parts[0];
      this.first = part ? { token: part.token, seq: part.lines[0][0] } : START;
      this.atStart = block.start;
      this.ends(block, START, reached);
      this.add(block.parts);
    });
    if (used) await this.fill();
    return used;
  }

  async toEnd() {
    this.setFollowing(true);
    // A jump that came meanwhile counts.
    if (!(await this.replace({ before: "end" }))) return;
    // Lines that came while a block was on its way are in the next one.
    for (let blocks = 0; blocks < MAX_FILL && !this.atEnd; blocks += 1) if (!(await this.newer())) return;
    this.setFollowing(true);
    this.toBottom();
  }

  // Shows the line and marks it.
  async jump(at) {
    this.setFollowing(false);
    if (this.headings.open(at) || !this.find(at)) await this.replace({ around: written(at) });
    const row = this.find(at);
    this.mark(row);
    // The page itself stays where it is, which scrollIntoView would move as well.
    this.marked = performance.now();
    if (row) log.scrollTop += row.getBoundingClientRect().top - log.getBoundingClientRect().top - log.clientHeight / 3;
    return row;
  }

  mark(row) {
    log.querySelector(".target")?.classList.remove("target");
    row?.classList.add("target");
  }

  find(at) {
    return this.rows.find((row) => row.dataset.token === at.token && compare(firstOf(row), at) <= 0 && compare(at, lastOf(row)) <= 0);
  }

  // Parts behind the last row.
  add(parts) {
    const rows = parts.flatMap((part) => this.maker.rows(part, this.rows.at(-1)));
    const anchor = this.following && this.atEnd ? null : this.rows.findLast((row) => !row.hidden);
    this.keep(anchor, () => {
      this.rows.push(...rows);
      // Hidden rows first: what is seen stays while a closed step writes.
      const excess = [...new Set([...this.rows.filter((row) => row.hidden), ...this.rows])].slice(0, Math.max(0, this.rows.length - MAX_ROWS));
      for (const row of excess) row.remove();
      this.rows = this.rows.filter((row) => !excess.includes(row));
      if (excess.length) {
        this.atStart = false;
        this.first = firstOf(this.rows[0]);
      }
      this.regroup();
    });
  }

  // Changes the rows while this one stays where it is in the view.
  keep(row, change) {
    const top = () => row.getBoundingClientRect().top - log.getBoundingClientRect().top;
    const before = row && top();
    change();
    if (row?.isConnected) log.scrollTop += top() - before;
  }

  // Changes how rows look while the marked row, or else the first one in sight, stays where it is.
  steady(change) {
    const box = log.getBoundingClientRect();
    const inSight = (row) => row.getBoundingClientRect().bottom > box.top && row.getBoundingClientRect().top < box.bottom && row.offsetHeight > 0;
    const marked = this.rows.find((row) => row.classList.contains("target"));
    this.keep(marked && inSight(marked) ? marked : this.rows.find(inSight), change);
    this.toBottom();
  }

  regroup() {
    if (this.rows.length) log.querySelector(".empty-log")?.remove();
    const last = this.rows.length && compare(lastOf(this.rows.at(-1)), this.last) > 0 ? lastOf(this.rows.at(-1)) : this.last;
    this.headings.place(this.rows, this.first, last);
    this.changed(this.rows);
    this.toBottom();
  }

  async toggled(step, closed) {
    if (closed) {
      this.regroup();
      await this.fill();
      return;
    }
    this.setFollowing(false);
    await this.replace({ around: written(step) });
    const heading = this.headings.known.get(step.key);
    if (heading) log.scrollTop += heading.getBoundingClientRect().top - log.getBoundingClientRect().top;
    heading?.focus({ preventScroll: true });
  }

  // Loads until the rows fill the view: lines may be hidden.
  async fill() {
    for (let blocks = 0; blocks < MAX_FILL && log.scrollHeight <= log.clientHeight; blocks += 1) {
      if (this.busy || (this.atStart && this.atEnd)) return;
      if (!(await (this.atStart ? this.newer() : this.older()))) return;
    }
  }

  async scrolled() {
    const below = log.scrollHeight - log.scrollTop - log.clientHeight;
    // A marked line near the end is not the wish to follow.
    const near = this.atEnd && below < NEAR_END_PX;
    if (!near || performance.now() - this.marked > MARKED_MS) this.setFollowing(near);
    if (this.busy) return;
    if (!this.atStart && log.scrollTop < log.clientHeight) await this.older();
    else if (!this.atEnd && below < log.clientHeight && (await this.newer()) && this.behind) await this.newer();
  }

  follow(on) {
    if (on && !this.atEnd) this.toEnd();
    this.setFollowing(on);
    this.toBottom();
  }

  setFollowing(on) {
    this.following = on;
    followButton.setAttribute("aria-pressed", String(on));
  }

  toBottom() {
    if (this.following && this.atEnd) log.scrollTop = log.scrollHeight;
  }
}
