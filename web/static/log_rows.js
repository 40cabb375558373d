// The rows of a log: one paragraph a line, its text in the colours that the job set.
import { element, withFields } from "./common.js";
import { localTime } from "./times.js";
import { AnsiUp } from "./vendor/ansi_up.js";

export const log = document.getElementById("log");
const LINE = /^#?(?:A(\d{1,6})-)?L?(\d{1,15})$/i;

// Positions are {token, seq}; tokens are texts of digits, which exceed 2^53.
export function compare(one, other) {
  return one.token.length - other.token.length || Number(one.token > other.token) - Number(one.token < other.token) || one.seq - other.seq;
}

export const position = (text) => ({ token: text.split(":")[0], seq: Number(text.split(":")[1]) });
export const written = ({ token, seq }) => `${token}:${seq}`;
export const firstOf = (row) => ({ token: row.dataset.token, seq: Number(row.dataset.first) });
export const lastOf = (row) => ({ token: row.dataset.token, seq: Number(row.dataset.last) });

// ansi_up reads the codes. It hands over nodes in place of its HTML: classes for its styles, and no markup at all.
class Colours extends AnsiUp {
  constructor() {
    super();
    this.use_classes = true;
    this.nodes = [];
  }

  transform_to_html({ text, bold, faint, italic, underline, fg, bg }) {
    const flags = Object.entries({ bold, faint, italic, underline }).filter(([, on]) => on);
    const names = flags.map(([name]) => `ansi-${name}`);
    if (fg) names.push(`${this.nearest(fg)}-fg`);
    if (bg) names.push(`${this.nearest(bg)}-bg`);
    this.nodes.push(names.length ? element("span", { className: names.join(" ") }, text) : text);
    return "";
  }

  process_hyperlink({ text }) {
    this.nodes.push(text);
    return "";
  }

  // Of the sixteen colours that have a contrast in both themes.
  nearest({ class_name: name, rgb }) {
    if (name !== "truecolor") return name;
    const distance = (one) => one.rgb.reduce((sum, part, at) => sum + (part - rgb[at]) ** 2, 0);
    return this.ansi_colors.flat().reduce((best, one) => (distance(one) < distance(best) ? one : best)).class_name;
  }

  draw(text) {
    this.nodes = [];
    this.ansi_to_html(text);
    return this.nodes;
  }
}

export class Attempts {
  constructor() {
    this.tokens = log.dataset.tokens.split(" ").filter(Boolean);
  }

  note(token, attempt) {
    if (attempt && !this.tokens.includes(token)) this.tokens[attempt - 1] = token;
  }

  number(token) {
    return this.tokens.indexOf(token) + 1 || "?";
  }

  anchor({ token, seq }) {
    return this.tokens.length > 1 ? `A${this.number(token)}-L${seq}` : `L${seq}`;
  }

  // The position that `120`, `#L120` or `#A2-L120` names; null for anything else.
  find(text) {
    const [, attempt, seq] = LINE.exec(text) ?? [];
    const token = attempt ? this.tokens[attempt - 1] : log.dataset.shown;
    return seq && token && token !== "0" ? { token, seq: Number(seq) } : null;
  }
}

export class RowMaker {
  constructor(attempts) {
    this.attempts = attempts;
    this.colours = new Colours();
  }

  // Of rows that came with the page.
  adopt(row) {
    this.addTime(row, row.dataset.at);
    row.querySelector(".seq").setAttribute("href", `#${row.id}`);
    if (row.dataset.coloured) row.querySelector(".text").replaceChildren(...new Colours().draw(JSON.parse(row.dataset.coloured)));
    delete row.dataset.coloured;
  }

  addTime(row, at) {
    const moment = new Date(at ?? "");
    if (Number.isNaN(moment.getTime())) return;
    const title = `${moment.toISOString().slice(0, 19).replace("T", " ")} UTC`;
    row.firstChild.title = title;
    row.firstChild.after(element("time", { className: "at", title }, localTime(moment)));
  }

  // The rows of lines of one attempt. The first lines may continue `open`, the row before them.
  rows({ token, lines }, open) {
    const made = [];
    let row = open;
    for (const [seq, stream, at, text, partial, level, marker] of lines) {
      if (!(row?.open && row.classList.contains(stream) && row.dataset.token === token)) {
        row = this.row({ token, seq }, stream, at, level, marker);
        made.push(row);
        this.colours = new Colours();
      }
      row.dataset.last = seq;
      row.open = partial;
      this.put(row, stream, text);
    }
    return made;
  }

  row(at, stream, time, level, marker) {
    const id = this.attempts.anchor(at);
    const row = element("p", { id, className: `row ${stream}${marker ? " marker" : ""}` });
    Object.assign(row.dataset, { token: at.token, first: at.seq, ...(level ? { level } : {}) });
    row.append(element("a", { className: "seq", href: `#${id}`, tabIndex: -1 }, String(at.seq)));
    this.addTime(row, time);
    if (stream !== "stdout") row.append(element("span", { className: "stream" }, log.dataset[stream]));
    row.append(element("span", { className: "text" }));
    return row;
  }

  // Adds to a row, of a long line only the beginning, with a link to all of it.
  put(row, stream, text) {
    const shown = row.lastChild;
    let whole = shown.querySelector(".whole");
    if (!whole) {
      const room = log.dataset.most - shown.textContent.length;
      shown.append(...this.colours.draw(text.slice(0, room)));
      if (text.length <= room) return;
      whole = element("a", { className: "whole" }, log.dataset.whole);
      shown.append(whole);
    }
    whole.href = withFields(log.dataset.line, Object.entries({ stream, from: written(firstOf(row)), to: written(lastOf(row)) }));
  }
}

// The piece of a text at an offset, and the offset in it: a line of several colours is in pieces.
function pieceAt(text, offset) {
  const pieces = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
  let left = offset;
  while (pieces.nextNode() && left > pieces.currentNode.length) left -= pieces.currentNode.length;
  return [pieces.currentNode, left];
}

// Marks what an expression finds in the rows, which stay as they are. Where a browser knows no highlights, only the line of a hit is marked.
export function markWords(rows, expression) {
  if (!CSS.highlights) return;
  const words = new Highlight();
  for (const row of expression ? rows : []) {
    const text = row.querySelector(".text");
    for (const { 0: word, index } of text.textContent.slice(0, log.dataset.most).matchAll(expression)) {
      const [[startContainer, startOffset], [endContainer, endOffset]] = [index, index + word.length].map((one) => pieceAt(text, one));
      words.add(new StaticRange({ startContainer, startOffset, endContainer, endOffset }));
    }
  }
  CSS.highlights.set("found", words);
}
