// The forms of the page about the API: each sends one request, as the session or with the token that is typed in, and shows the answer.
const MAX_SHOWN = 100_000;
// A stream is shown as far as it came in this time.
const MAX_MS = 15_000;

const session = document.getElementById("api-token");
const token = document.getElementById("token");

function request(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = {};
  for (const input of form.querySelectorAll("input[data-place]")) {
    const { name, value } = input;
    if (input.dataset.place === "path") path = path.replace(`{${name}}`, () => encodeURIComponent(value));
    if (!value) continue;
    if (input.dataset.place === "header") headers[name] = value;
    if (input.dataset.place !== "query") continue;
    const values = "many" in input.dataset ? value.split(",") : [value];
    for (const one of values) query.append(name, one.trim());
  }
  const body = form.querySelector("textarea")?.value.trim();
  if (body) headers["Content-Type"] = "application/json";
  if (token.value) headers.Authorization = `Bearer ${token.value.trim()}`;
  else if (form.dataset.verb !== "GET") headers["X-CSRF-Token"] = session.dataset.csrf;
  const address = query.size ? `${path}?${query}` : path;
  return [address, { method: form.dataset.verb, headers, body: body || undefined }];
}

function pretty(text, kind) {
  if (!/^application\/(problem\+)?json/.test(kind)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function read(response, show) {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    while (reader && text.length < MAX_SHOWN) {
      const { done, value } = await reader.read();
      if (done) break;
      text += value;
      show(text);
    }
  } catch (error) {
    if (error.name !== "TimeoutError" && error.name !== "AbortError") throw error;
  }
  await reader?.cancel().catch(() => {});
  return text.slice(0, MAX_SHOWN);
}

async function send(form) {
  const answer = form.querySelector(".api-answer");
  const [title, content] = [answer.querySelector("strong"), answer.querySelector("pre")];
  const button = form.querySelector("button");
  const show = (text) => {
    content.textContent = text;
  };
  button.disabled = true;
  try {
    const [address, given] = request(form);
    const response = await fetch(address, { ...given, signal: AbortSignal.timeout(MAX_MS) });
    const tag = response.headers.get("ETag");
    title.textContent = `${response.status} ${response.statusText}${tag ? ` · ETag ${tag}` : ""}`;
    answer.hidden = false;
    show("");
    show(pretty(await read(response, show), response.headers.get("Content-Type") ?? ""));
  } catch (error) {
    title.textContent = session.dataset.failed;
    answer.hidden = false;
    show(String(error));
  } finally {
    button.disabled = false;
  }
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
