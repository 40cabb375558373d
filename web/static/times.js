// Shows server times in the viewer's time zone; the UTC text becomes the title. Who has chosen UTC sees it, and the other as title.
export const inUtc = document.documentElement.dataset.zone === "utc";
// Swedes write a time as Toban does: 2026-11-21 09:00:00.
export const localTime = (moment) => moment.toLocaleString("sv");

// Hides the column of a schedule's own zone when it equals the viewer's zone.
function hideSameZone(root) {
  for (const table of root.querySelectorAll("table[data-zoned]")) {
    const same = [...table.tBodies[0].rows].every(
      (row) => row.querySelector("time").textContent.slice(0, 19) === row.querySelector("td.in-zone").textContent.slice(0, 19)
    );
    table.classList.toggle("one-zone", same);
  }
}

// A usual time is taken with a click: so many hours from now, or 08:00 on another day.
function offerTime(chip) {
  chip.parentElement.hidden = false;
  chip.addEventListener("click", () => {
    const at = new Date(Date.now());
    const { hours, days } = chip.dataset;
    const utc = inUtc ? "UTC" : "";
    if (hours) at[`set${utc}Hours`](at[`get${utc}Hours`]() + Number(hours));
    else at[`set${utc}Hours`](24 * (days === "monday" ? (8 - at[`get${utc}Day`]()) % 7 || 7 : Number(days)) + 8, 0);
    chip.form.elements.until.value = (inUtc ? at.toISOString() : localTime(at).replace(" ", "T")).slice(0, 16);
  });
}

// Times in forms are of the viewer's zone too. What is sent is in UTC, as it is without scripts.
export function showInputs(root) {
  root.querySelectorAll(".chip:is([data-hours], [data-days])").forEach(offerTime);
  const zone = inUtc ? "" : Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const input of zone ? root.querySelectorAll("input[type=datetime-local]") : []) {
    const given = new Date(`${input.defaultValue}Z`);
    if (!Number.isNaN(given.getTime())) input.value = localTime(given).replace(" ", "T").slice(0, input.defaultValue.length);
    input.form.addEventListener("formdata", ({ formData }) => {
      const typed = new Date(input.value);
      if (!Number.isNaN(typed.getTime())) formData.set(input.name, typed.toISOString().slice(0, input.value.length));
    });
    for (const label of input.labels) label.querySelector("[data-zone-name]").textContent = `(${zone})`;
  }
}

export function showTimes(root) {
  for (const element of root.querySelectorAll("[data-clock]")) {
    if (!inUtc) element.textContent = localTime(new Date(element.dataset.clock)).slice(11, 16);
  }
  for (const element of root.querySelectorAll("time[datetime]:not([title])")) {
    const moment = new Date(element.dateTime);
    if (!Number.isNaN(moment.getTime())) {
      const [utc, local] = [element.textContent, localTime(moment)];
      element.title = inUtc ? local : utc;
      if (!inUtc) element.textContent = local;
    }
  }
  hideSameZone(root);
}
