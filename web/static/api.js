// The forms of the page about the API: each sends one request, as the session or with the token that is typed in, and shows the answer.
import { load } from "./common.js";

const MAX_SHOWN = 100_000;
// A stream is shown as far as it came in this time.
const MAX_MS = 15_000;
const session = document.getElementById("api-token");
const token = document.getElementById("token");

async function request(form) {
  let { path } = form.dataset;
  const [query, headers] = [new URLSearchParams(), {}];
  for (const { name, value, dataset } of form.querySelectorAll("input")) {
    if (dataset.place === "path") path = path.replace(`{${name}}`, () => encodeURIComponent(value));
    else if (value && dataset.place === "header") headers[name] = value;
    else if (value) for (const one of "many" in dataset ? value.split(",") : [value]) query.append(name, one.trim());
  }
  const body = form.querySelector("textarea")?.value.trim() || undefined;
  if (body) headers["Content-Type"] = "application/json";
  if (token.value) headers.Authorization = `Bearer ${token.value.trim()}`;
  // Not in the page, which is long: what has a token of the session is not compressed.
  else if (form.dataset.verb !== "GET") headers["X-CSRF-Token"] = (await (await load("/api/v1/session")).json()).csrf_token;
  return fetch(`${path}?${query}`, { method: form.dataset.verb, headers, body, signal: AbortSignal.timeout(MAX_MS) });
}

// The text as it comes, and at its end with indentation.
async function show(response, content) {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (let part; reader && text.length < MAX_SHOWN && !(part = await reader.read()).done; ) {
      text = (text + part.value).slice(0, MAX_SHOWN);
      content.textContent = text;
    }
    content.textContent = JSON.stringify(JSON.parse(text), null, 2);
  } catch (error) {
    if (!["TimeoutError", "SyntaxError"].includes(error.name)) throw error;
  }
  reader?.cancel().catch(() => {});
}

async function send(form) {
  const [answer, title, content, button] = [".api-answer", "strong", "pre", "button"].map((one) => form.querySelector(one));
  button.disabled = true;
  content.textContent = title.textContent = "";
  answer.hidden = false;
  try {
    const response = await request(form);
    const tag = response.headers.get("ETag");
    title.textContent = `${response.status} ${response.statusText}${tag ? ` · ETag ${tag}` : ""}`;
    await show(response, content);
  } catch (error) {
    title.textContent = session.dataset.failed;
    content.textContent = String(error);
  }
  button.disabled = false;
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.target.dataset.verb) send(event.target);
});
// A link to an operation opens it.
function openTarget() {
  const found = document.getElementById(location.hash.slice(1));
  if (found?.matches("details")) found.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();
