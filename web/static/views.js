// Saved views of the list of runs: a name for the filters in the URL, kept in this browser.
const KEY = "toban-views";
const MAX_VIEWS = 30;
const box = document.getElementById("views");

function load() {
  try {
    const views = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(views) ? views.filter((one) => typeof one?.name === "string" && typeof one?.query === "string") : [];
  } catch {
    return [];
  }
}

function store(views) {
  try {
    localStorage.setItem(KEY, JSON.stringify(views.slice(0, MAX_VIEWS)));
  } catch {
    // Storage is full or switched off: the list on the page stays as it was.
  }
  show();
}

function here() {
  const query = new URLSearchParams(location.search);
  for (const name of ["cursor", "part", "lang", "done"]) query.delete(name);
  return query.toString();
}

function entry(view, views) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = `${location.pathname}?${new URLSearchParams(view.query)}`;
  link.textContent = view.name;
  if (view.query === here()) link.setAttribute("aria-current", "true");
  const remove = document.createElement("button");
  remove.type = "button";
  remove.textContent = "×";
  remove.title = `${box.dataset.remove}: ${view.name}`;
  remove.setAttribute("aria-label", remove.title);
  remove.addEventListener("click", () => store(views.filter((one) => one !== view)));
  item.append(link, remove);
  return item;
}

function show() {
  const views = load();
  box.querySelector("ul").replaceChildren(...views.map((view) => entry(view, views)));
  box.querySelector("form").hidden = !here();
  box.hidden = !views.length && !here();
}

if (box) {
  box.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const input = event.target.querySelector("input");
    const name = input.value.trim();
    if (name) store([...load().filter((one) => one.name !== name), { name, query: here() }]);
    input.value = "";
  });
  show();
}
