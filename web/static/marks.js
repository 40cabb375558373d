// The marked runs of the list: how many there are, and that they stay marked when the list refreshes itself.
const form = document.querySelector("form.marked");
const buttons = [...form.querySelectorAll("#marked-actions button")].map((one) => [one, one.textContent]);
const marked = new Set();

function boxes() {
  return [...form.querySelectorAll("input[name=run]")];
}

function count() {
  for (const [button, text] of buttons) {
    button.disabled = marked.size === 0;
    const shown = marked.size ? button.dataset.text.replace("#", marked.size) : text;
    // Each change of the form is observed below, this one too.
    if (button.textContent !== shown) button.textContent = shown;
  }
}

form.addEventListener("change", ({ target }) => {
  if (target.name !== "run") return;
  if (target.checked) marked.add(target.value);
  else marked.delete(target.value);
  count();
});

// A run that has left the page is no longer marked.
function keep() {
  const here = boxes();
  const values = new Set(here.map((one) => one.value));
  for (const value of [...marked]) if (!values.has(value)) marked.delete(value);
  for (const box of here) box.checked = marked.has(box.value);
  count();
}

for (const box of boxes()) if (box.checked) marked.add(box.value);
count();
new MutationObserver(keep).observe(form, { childList: true, subtree: true });
