// Takes the secret of the one-time link out of the address (behind the #, which is never sent) into the form.
function takeSecret() {
  const field = document.getElementById("link");
  const secret = location.hash.slice(1);
  if (field && secret) {
    field.value = secret;
    history.replaceState(null, "", location.pathname + location.search);
    document.getElementById("user").focus();
  }
}

takeSecret();
// The link opened while this page is shown changes only the part behind the #: the browser loads nothing.
addEventListener("hashchange", takeSecret);
