// Times of the server in the viewer's zone. The UTC text stays in the title.
const pad = (number) => String(number).padStart(2, "0");

export function localTime(moment) {
  const day = `${moment.getFullYear()}-${pad(moment.getMonth() + 1)}-${pad(moment.getDate())}`;
  return `${day} ${pad(moment.getHours())}:${pad(moment.getMinutes())}:${pad(moment.getSeconds())}`;
}

// The column of a schedule's own zone says nothing new to a viewer who lives there.
function hideOwnZone(root) {
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
  hideOwnZone(root);
}
