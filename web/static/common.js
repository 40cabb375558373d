// What several scripts of the site share.
const TIMEOUT_MS = 15000;

// What this browser keeps under a name; `otherwise` when it keeps nothing, or nothing that can be read.
export function kept(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
  } catch {
    // Storage is full or switched off: the choice holds for this page.
  }
}

export function element(tag, properties = {}, ...content) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...content);
  return made;
}

// The address that a page has for a request, with further fields: pairs of names and values.
export function withFields(address, fields) {
  const url = new URL(address, location.href);
  for (const [name, value] of fields) url.searchParams.append(name, value);
  return url;
}

// Raises an error without a response, and for one that is none of success. `options` are those of fetch.
export async function load(url, { milliseconds = TIMEOUT_MS, signal, ...options } = {}) {
  const signals = [AbortSignal.timeout(milliseconds), signal].filter(Boolean);
  const response = await fetch(url, { cache: "no-store", ...options, signal: AbortSignal.any(signals) });
  // The session has ended: the page itself leads to the sign-in. What was typed into a form stays.
  if (response.status === 401 && !options.body) location.reload();
  if (!response.ok) throw new Error(String(response.status));
  return response;
}

export async function loadPage(url, options) {
  return new DOMParser().parseFromString(await (await load(url, options)).text(), "text/html");
}
