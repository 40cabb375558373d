// A stream of events that is open while the page is seen: browsers limit the connections to one site.
const REOPEN_MS = 5000;

export class Stream {
  // `address` returns the URL to open. `on` has a function for each event, with `open` and `error`, which is also that the page is hidden.
  constructor(address, on) {
    Object.assign(this, { address, on, source: null, ended: false });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.pause() : this.open()));
    this.open();
  }

  open() {
    if (this.source || this.ended || document.hidden) return;
    this.source = new EventSource(this.address());
    for (const [name, act] of Object.entries(this.on)) this.source.addEventListener(name, act);
    this.source.addEventListener("error", () => this.retry());
  }

  // An EventSource connects again by itself, but gives up after an error response, such as that of a site that has no more room for streams.
  retry() {
    if (this.source?.readyState !== EventSource.CLOSED) return;
    this.close();
    setTimeout(() => this.open(), REOPEN_MS);
  }

  pause() {
    if (!this.source) return;
    this.close();
    this.on.error();
  }

  end() {
    this.ended = true;
    this.close();
  }

  close() {
    this.source?.close();
    this.source = null;
  }
}
