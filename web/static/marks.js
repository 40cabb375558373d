// The marked runs of the list: how many there are. The list keeps a row that stays when it is read again, and its mark with it.
const form = document.querySelector("form.marked");
const actions = document.getElementById("marked-actions");
const buttons = [...(actions?.querySelectorAll("button") ?? [])].map((one) => [one, one.textContent]);

function count() {
  const marked = form.querySelectorAll("input[name=run]:checked").length;
  actions.hidden = !form.querySelector("input[name=run]");
  for (const [button, text] of buttons) {
    button.disabled = marked === 0;
    button.textContent = marked ? button.dataset.text.replace("#", marked) : text;
  }
}

// Who may change no run has no buttons.
if (actions) {
  count();
  form.addEventListener("change", count);
  new MutationObserver(count).observe(document.getElementById("runs"), { childList: true, subtree: true });
}
