// The list of runs. Saved views: a name for the filters in the URL, kept in this browser. Suggestions for the line of filters.
import { element, keep, kept } from "./common.js";

const KEY = "toban-views";
const MAX_VIEWS = 30;
const box = document.getElementById("views");

function saved() {
  const views = kept(KEY, []);
  return Array.isArray(views) ? views.filter((one) => typeof one?.name === "string" && typeof one?.query === "string") : [];
}

function save(views) {
  keep(KEY, views.slice(0, MAX_VIEWS));
  show();
}

function here() {
  const query = new URLSearchParams(location.search);
  for (const name of ["cursor", "part", "lang", "done"]) query.delete(name);
  return query.toString();
}

function entry(view, views) {
  const link = element("a", { href: `${location.pathname}?${new URLSearchParams(view.query)}` }, view.name);
  if (view.query === here()) link.ariaCurrent = "true";
  const title = `${box.dataset.remove}: ${view.name}`;
  const onclick = () => save(views.filter((one) => one !== view));
  return element("li", {}, link, element("button", { type: "button", title, ariaLabel: title, onclick }, "×"));
}

function show() {
  const views = saved();
  box.querySelector("ul").replaceChildren(...views.map((view) => entry(view, views)));
  box.querySelector("form").hidden = !here();
  box.hidden = !views.length && !here();
}

box.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const input = event.target.querySelector("input");
  const name = input.value.trim();
  if (name) save([...saved().filter((one) => one.name !== name), { name, query: here() }]);
  input.value = "";
});
show();

// Without this the suggestions are of a whole line, and not of its last part.
const line = document.getElementById("f-line");
const parts = [...line.list.options].map((option) => [option, option.value]);
line.addEventListener("input", () => {
  const before = line.value.slice(0, line.value.lastIndexOf(" ") + 1);
  for (const [option, part] of parts) option.value = before + part;
});
