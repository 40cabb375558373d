// Checks a definition while a person types: a dry run at the coordinators, half a second after the last key.
const DELAY_MS = 500;
const TIMEOUT_MS = 30000;

class Checker {
  constructor(form) {
    this.form = form;
    this.result = document.getElementById("checked");
    this.timer = 0;
    this.request = null;
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
    const request = new AbortController();
    this.request = request;
    const limit = setTimeout(() => request.abort("late"), TIMEOUT_MS);
    try {
      const body = new URLSearchParams(new FormData(this.form));
      // The address of the form has a query of its own when the page was opened with one, such as `?lang=ja`.
      const url = new URL(this.form.action);
      url.searchParams.set("part", "1");
      const response = await fetch(url, { method: "POST", body, signal: request.signal });
      const text = await response.text();
      if (this.request !== request || request.signal.aborted) return;
      if (!response.ok) throw new Error(String(response.status));
      const fresh = new DOMParser().parseFromString(text, "text/html");
      this.result.replaceChildren(...fresh.body.childNodes);
    } catch {
      if (this.request !== request || (request.signal.aborted && request.signal.reason !== "late")) return;
      const note = document.createElement("p");
      note.className = "advice";
      note.textContent = this.form.dataset.check;
      this.result.replaceChildren(note);
    } finally {
      clearTimeout(limit);
      if (this.request === request) this.result.removeAttribute("aria-busy");
    }
  }
}

const form = document.querySelector("form[data-check]");
if (form) new Checker(form);
