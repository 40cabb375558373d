// Headings between the rows of a log: attempts, and steps, which a person can close. The rows of closed steps are hidden.
import { element } from "./common.js";
import { compare, firstOf, log } from "./log_rows.js";

export class Headings {
  // `toggled` is called with a step that was closed or opened.
  constructor(attempts, toggled) {
    Object.assign(this, { attempts, toggled, closed: new Set(), known: new Map(), steps: [] });
  }

  // The steps, in order, as the refreshed part of the page has them now.
  read() {
    this.steps = [...document.querySelectorAll("#log-steps li")].map((item) => {
      const { token, first, last } = item.dataset;
      return { key: `${token}:${first}`, token, seq: Number(first), last: Number(last) || Infinity, nodes: item.childNodes };
    });
  }

  closedStep(at) {
    return this.steps.find((step) => this.closed.has(step.key) && step.token === at.token && step.seq <= at.seq && at.seq <= step.last);
  }

  // Returns whether the position was in a closed step.
  open(at) {
    return this.closed.delete(this.closedStep(at)?.key);
  }

  toggle(key) {
    const step = this.steps.find((one) => one.key === key);
    if (!step) return;
    if (!this.closed.delete(key)) this.closed.add(key);
    this.toggled(step, this.closed.has(key));
  }

  // Puts the headings between the rows of the window from `first` to `last`.
  place(rows, first, last) {
    this.read();
    const steps = this.steps.filter((step) => compare(step, last) <= 0 && compare({ token: step.token, seq: step.last }, first) >= 0);
    const order = [];
    let token = "";
    const add = (one, node) => {
      if (one.token !== token) order.push(this.attempt(one.token));
      token = one.token;
      order.push(node);
    };
    for (const row of rows) {
      while (steps.length && compare(steps[0], firstOf(row)) <= 0) add(steps[0], this.step(steps.shift()));
      add(row.dataset, row);
      row.hidden = this.closed.size > 0 && Boolean(this.closedStep(firstOf(row)));
    }
    for (const step of steps) add(step, this.step(step));
    for (const heading of log.querySelectorAll(".attempt, .step")) if (!order.includes(heading)) heading.remove();
    // What is in its place stays there: it may have the focus.
    let next = log.querySelector(".log-end");
    for (const one of order.reverse()) {
      if (one.parentNode !== log || one.nextElementSibling !== next) log.insertBefore(one, next);
      next = one;
    }
  }

  heading(key, make) {
    if (!this.known.has(key)) this.known.set(key, make());
    return this.known.get(key);
  }

  attempt(token) {
    const heading = this.heading(token, () => element("p", { className: "attempt" }));
    // A part of the page that refreshes itself: a repeat after a lost executor changes it.
    const text = document.getElementById("log-heading").textContent.replace("%", this.attempts.number(token));
    if (heading.textContent !== text) heading.textContent = text;
    return heading;
  }

  step({ key, nodes }) {
    const heading = this.heading(key, () => {
      const button = element("button", { className: "step", type: "button" });
      button.addEventListener("click", () => this.toggle(key));
      return button;
    });
    heading.ariaExpanded = String(!this.closed.has(key));
    const fresh = [...nodes].map((node) => node.cloneNode(true));
    if (heading.textContent !== fresh.map((node) => node.textContent).join("")) heading.replaceChildren(...fresh);
    return heading;
  }
}
