// Times of the server in the viewer's zone. The UTC text stays in the title.
const pad = (number) => String(number).padStart(2, "0");

export function localTime(moment) {
  const day = `${moment.getFullYear()}-${pad(moment.getMonth() + 1)}-${pad(moment.getDate())}`;
  return `${day} ${pad(moment.getHours())}:${pad(moment.getMinutes())}:${pad(moment.getSeconds())}`;
}

export function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([title])")) {
    const moment = new Date(element.dateTime);
    if (!Number.isNaN(moment.getTime())) {
      element.title = element.textContent;
      element.textContent = localTime(moment);
    }
  }
}
