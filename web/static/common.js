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

// Raises an error without a response, and for one that is none of success.
export async function load(url, milliseconds = TIMEOUT_MS) {
  const response = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(milliseconds) });
  // The session has ended: the page itself leads to the sign-in.
  if (response.status === 401) location.reload();
  if (!response.ok) throw new Error(String(response.status));
  return response;
}

export async function loadPage(url) {
  return new DOMParser().parseFromString(await (await load(url)).text(), "text/html");
}
