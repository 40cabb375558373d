// Shows server times in the viewer's time zone; the UTC text becomes the title.
const pad = (number) => String(number).padStart(2, "0");

export function localTime(moment) {
  const day = `${moment.getFullYear()}-${pad(moment.getMonth() + 1)}-${pad(moment.getDate())}`;
  return `${day} ${pad(moment.getHours())}:${pad(moment.getMinutes())}:${pad(moment.getSeconds())}`;
}

// Hides the column of a schedule's own zone when it equals the viewer's zone.
function hideSameZone(root) {
  for (const table of root.querySelectorAll("table[data-zoned]")) {
    const same = [...table.tBodies[0].rows].every(
      (row) => row.querySelector("time").textContent === row.querySelector("td.in-zone").textContent.slice(0, 19)
    );
    table.classList.toggle("one-zone", same);
  }
}

export function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([title])")) {
    const moment = new Date(element.dateTime);
    if (!Number.isNaN(moment.getTime())) {
      element.title = element.textContent;
      element.textContent = localTime(moment);
    }
  }
  hideSameZone(root);
}
