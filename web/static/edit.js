// Checks a definition while a person types: a dry run at the coordinators, half a second after the last key.
import { element, loadPage, withFields } from "./common.js";

const DELAY_MS = 500;
const TIMEOUT_MS = 30000;

class Checker {
  constructor(form) {
    Object.assign(this, { form, result: document.getElementById("checked"), timer: 0, request: null });
    form.querySelector("[data-typed]").addEventListener("input", () => this.schedule());
    this.schedule();
  }

  schedule() {
    // What was checked before is of another text: it does not count for applying.
    this.request?.abort();
    this.result.querySelector("[name=seen]")?.remove();
    this.result.setAttribute("aria-busy", "true");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), DELAY_MS);
  }

  async check() {
    const request = (this.request = new AbortController());
    const body = new URLSearchParams(new FormData(this.form));
    try {
      const fresh = await loadPage(withFields(this.form.action, [["part", 1]]), { method: "POST", body, milliseconds: TIMEOUT_MS, signal: request.signal });
      if (request.signal.aborted) return;
      this.result.replaceChildren(...fresh.body.childNodes);
    } catch {
      if (request.signal.aborted) return;
      this.result.replaceChildren(element("p", { className: "advice" }, this.form.dataset.check));
    }
    this.result.removeAttribute("aria-busy");
  }
}

const form = document.querySelector("form[data-check]");
if (form) new Checker(form);
