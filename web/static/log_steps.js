// Headings between the rows of a log: attempts, and steps, which a person can close. Lines of closed steps are not in the page.
import { compare, element, firstOf } from "./log_rows.js";

const log = document.getElementById("log");

export class Headings {
  // `toggled` is called with a step that was closed or opened.
  constructor(attempts, toggled) {
    this.attempts = attempts;
    this.toggled = toggled;
    this.closed = new Set();
    this.known = new Map();
    this.read();
  }

  // The steps, in order, as the refreshed part of the page has them now.
  read() {
    this.steps = [...document.querySelectorAll("#log-steps li")].map((item) => {
      const { token, first, last } = item.dataset;
      return { key: `${token}:${first}`, token, seq: Number(first), last: Number(last) || Infinity, nodes: item.childNodes };
    });
  }

  stepOf(at) {
    return this.steps.find((step) => step.token === at.token && step.seq <= at.seq && at.seq <= step.last);
  }

  closedStep(at) {
    const step = this.stepOf(at);
    return step && this.closed.has(step.key) ? step : null;
  }

  toggle(key) {
    const step = this.steps.find((one) => one.key === key);
    if (!step) return;
    if (!this.closed.delete(key)) this.closed.add(key);
    this.toggled(step, this.closed.has(key));
  }

  // Puts the headings between the rows of the window from `first` to `last`.
  place(rows, first, last) {
    const unused = new Map(this.known);
    const steps = this.steps.filter((step) => compare(step, last) <= 0 && compare({ token: step.token, seq: step.last }, first) >= 0);
    let [token, at, wanted] = ["", 0, []];
    const want = (key, make) => {
      const heading = this.known.get(key) ?? make();
      this.known.set(key, heading);
      unused.delete(key);
      wanted.push(heading);
      return heading;
    };
    const attempt = (next) => {
      if (next !== token) {
        const heading = want(`attempt ${next}`, () => element("p", "attempt", ""));
        // A part of the page that refreshes itself: a repeat after a lost executor changes it.
        const text = document.getElementById("log-heading").textContent.replace("%", this.attempts.number(next));
        if (heading.textContent !== text) heading.textContent = text;
      }
      token = next;
    };
    const before = (row) => {
      for (; at < steps.length && (!row || compare(steps[at], firstOf(row)) <= 0); at += 1) {
        const one = steps[at];
        attempt(one.token);
        this.write(want(`step ${one.key}`, () => this.heading(one)), one);
      }
      if (row) attempt(row.dataset.token);
      // What is in its place stays there: it may have the focus.
      let next = row ?? log.querySelector(".log-end");
      for (const heading of wanted.reverse()) {
        if (heading.parentNode !== log || heading.nextElementSibling !== next) log.insertBefore(heading, next);
        next = heading;
      }
      wanted = [];
    };
    for (const row of rows) before(row);
    before(null);
    for (const [key, heading] of unused) {
      heading.remove();
      this.known.delete(key);
    }
  }

  heading({ key }) {
    const heading = element("button", "step");
    heading.type = "button";
    heading.addEventListener("click", () => this.toggle(key));
    return heading;
  }

  write(heading, { key, nodes }) {
    heading.setAttribute("aria-expanded", String(!this.closed.has(key)));
    const fresh = [...nodes].map((node) => node.cloneNode(true));
    if (heading.textContent !== fresh.map((node) => node.textContent).join("")) heading.replaceChildren(...fresh);
  }
}
