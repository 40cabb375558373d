// Turns one tree of elements into another one and leaves alone what is equal: focus, selections, open folds and typed text stay.

// What tells an element from its neighbours: its id or that of its title, or of a row the first link in it.
function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return "";
  return node.id || node.getAttribute("aria-labelledby") || (node.matches("tr, li") && node.querySelector("a[href]")?.getAttribute("href")) || "";
}

const isSame = (one, other) => one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

function later(node, wanted) {
  if (!keyOf(wanted)) return null;
  for (let one = node; one; one = one.nextSibling) if (isSame(one, wanted)) return one;
  return null;
}

const states = (row) => [...row.querySelectorAll(".badge, .state-mark")].map((one) => one.textContent).join();

function mark(row) {
  row.classList.remove("changed");
  // The animation begins again.
  void row.offsetWidth;
  row.classList.add("changed");
}

function patchAttributes(node, fresh) {
  for (const { name, value } of fresh.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  for (const { name } of [...node.attributes]) {
    // A fold that a person has opened stays open.
    if (!fresh.hasAttribute(name) && !(name === "open" && node.matches("details"))) node.removeAttribute(name);
  }
}

function patch(node, fresh) {
  if (node.nodeType !== Node.ELEMENT_NODE) {
    node.nodeValue = fresh.nodeValue;
    return;
  }
  const before = node.matches("tr") ? states(node) : null;
  patchAttributes(node, fresh);
  morph(node, fresh);
  if (before !== null && states(node) !== before) mark(node);
}

// The children of `current` become those of `fresh`, which loses some of its own.
export function morph(current, fresh) {
  // Those that are gone go first: the others need not be moved, and keep the focus.
  const staying = new Set([...fresh.children].map(keyOf));
  for (const one of [...current.children]) if (keyOf(one) && !staying.has(keyOf(one))) one.remove();
  let at = current.firstChild;
  for (const next of [...fresh.childNodes]) {
    const found = at && isSame(at, next) ? at : later(at, next);
    if (!found) {
      current.insertBefore(next, at);
      if (next.nodeName === "TR" && at?.nodeName === "TR") mark(next);
      continue;
    }
    if (found === at) at = at.nextSibling;
    else current.insertBefore(found, at);
    if (!found.isEqualNode(next)) patch(found, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}
