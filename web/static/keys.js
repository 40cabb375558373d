// Keys: ? shows them, / searches, g and a letter opens a page, Ctrl-K finds pages, runs, the rest by name, and what to do with it.
import { element, load, withFields } from "./common.js";

const WAIT_MS = 1500;
const SEARCH_MS = 150;
const palette = document.getElementById("palette");
const help = document.getElementById("keys");
const input = palette.querySelector("input");
const list = palette.querySelector("ul");
const pages = [...document.querySelectorAll("nav.side a")];
let known = { text: "", found: [] };
let timer = 0, asked = -Infinity;

function typing(target) {
  return target.isContentEditable || target.matches?.("input, textarea, select");
}

function show(dialog) {
  if (!document.querySelector("dialog[open]")) dialog.showModal();
}

function focusSearch() {
  const field = document.querySelector("main input[type=search], main .filters input:not([type=hidden], [type=checkbox])");
  if (field) field.focus();
  else openPalette();
}

// A name is the last word: "disable nightly".
const words = () => input.value.trim().split(/\s+/);

// What has the text in its name, a moment after the last key.
function search() {
  clearTimeout(timer);
  const text = words().at(-1);
  if (text) timer = setTimeout(() => loadNames(text), SEARCH_MS);
}

async function loadNames(text) {
  // Without an answer the palette has pages and runs, and it is not known that there is nothing else.
  const answer = await load(withFields("/find", [["q", text]])).then((response) => response.json()).catch(() => null);
  if (!answer || text !== words().at(-1)) return;
  known = { text, found: answer.found };
  suggest();
}

const entry = (text, path) => ({ text, path });

function candidates(text) {
  const fits = (one) => words().every((word) => one.text.toLowerCase().includes(word.toLowerCase()));
  const found = pages.map((link) => entry(link.textContent.trim(), link.getAttribute("href"))).filter(fits);
  if (!text) return found;
  const named = known.found.map(({ kind, name, path }) => entry(`${palette.dataset[kind]} ${name}`, path));
  // An action that the person has no right to has no text.
  const acts = known.found.flatMap(({ name, path, acts }) => acts.filter((act) => act in palette.dataset).map((act) => entry(`${palette.dataset[act]}: ${name}…`, `${path}/${act}`)));
  const [, id] = /^#?([0-9]{1,18})$/.exec(text) ?? [];
  const run = id ? [entry(`${palette.dataset.runs} ${id}`, `/runs/${id}`)] : [];
  return [...run, ...found, ...[...named, ...acts].filter(fits)];
}

function item({ text, path }, index) {
  return element("li", { role: "presentation" }, element("a", { id: `found-${index}`, role: "option", tabIndex: -1, href: path }, text));
}

function select(index) {
  const links = [...list.querySelectorAll("a")];
  const at = links.length && (index + links.length) % links.length;
  links.forEach((link, number) => link.setAttribute("aria-selected", String(number === at)));
  input.setAttribute("aria-activedescendant", links[at]?.id ?? "");
  links[at]?.scrollIntoView({ block: "nearest" });
}

const selected = () => [...list.querySelectorAll("a")].findIndex((link) => link.ariaSelected === "true");

function suggest() {
  const text = input.value.trim();
  const found = candidates(text);
  list.replaceChildren(...found.map(item));
  const none = text && !found.length && known.text === words().at(-1);
  palette.querySelector("[role=status]").textContent = none ? palette.dataset.none.replace("%", () => text) : "";
  select(0);
}

function openPalette() {
  document.querySelector("details.menu[open]")?.removeAttribute("open");
  show(palette);
  input.value = "";
  suggest();
}

input.addEventListener("input", () => {
  suggest();
  search();
});
input.addEventListener("keydown", (event) => {
  // Enter ends the composition of a Japanese or Chinese word.
  if (event.isComposing) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) select(selected() + step);
  else if (event.key === "Enter") list.querySelector('a[aria-selected="true"]')?.click();
  else return;
  event.preventDefault();
});

// A letter within a moment of g.
function second(key) {
  const link = performance.now() - asked < WAIT_MS && pages.find((one) => one.dataset.key === key);
  asked = key === "g" ? performance.now() : -Infinity;
  if (link) link.click();
  return Boolean(link);
}

// On a Mac Ctrl-K deletes to the end of the line.
const mac = navigator.platform.startsWith("Mac");
if (mac) document.querySelector("[data-open-palette] kbd").textContent = "⌘ K";

document.addEventListener("keydown", (event) => {
  const command = mac ? event.metaKey && !event.ctrlKey : event.ctrlKey && !event.metaKey;
  if (command && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
  const act = { "?": () => show(help), "/": focusSearch }[event.key];
  if (act) act();
  if (act || second(event.key)) event.preventDefault();
});
for (const [name, open] of [["palette", openPalette], ["keys", () => show(help)]]) {
  const opener = document.querySelector(`[data-open-${name}]`);
  opener.hidden = false;
  opener.addEventListener("click", open);
}
