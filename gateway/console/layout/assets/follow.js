// A page that shows records follows the stream of their events. When something happened to them, it fetches itself again
// and replaces the parts that show records, unless the reader is at work in them, who is then told instead.
const main = document.querySelector("main[data-kinds]");
const least = 2000, most = 300000; // milliseconds between two fetches at least, and between two connections at most
const unattended = 600000; // after that time without the reader, the page does not prolong the session
let source, connecting, fetching, timer, changed, dragging;
let after = main.dataset.after, wait = least, next = 0, seen = Date.now();

const parts = (page) => [...page.querySelectorAll("[data-records]")];
const said = document.createElement("p");
said.className = "changed note";
said.ariaLive = "polite";
(parts(document)[0] ?? main.querySelector(".head").nextSibling).before(said);

// atWork reports whether the reader would lose something with the parts.
function atWork() {
  const focused = document.activeElement, selected = getSelection();
  return dragging || parts(document).some((part) =>
    part.contains(focused) && focused.matches("input, select, textarea, iframe") ||
    !selected.isCollapsed && selected.containsNode(part, true) ||
    part.querySelector("details[open], dialog[open], input:checked, [aria-busy=true], audio, video, iframe"));
}
addEventListener("dragstart", () => dragging = true);
addEventListener("dragend", () => dragging = false);

// typed reports whether a form has values that are not sent.
function typed() {
  const chosen = (options) => Math.max(0, options.findIndex((o) => o.defaultSelected)) !== options.findIndex((o) => o.selected);
  return [...main.querySelectorAll("form.form")].flatMap((form) => [...form.elements]).some((e) =>
    e.matches("select") ? chosen([...e.options])
      : e.matches("textarea, input:not([type=hidden])") && (e.value !== e.defaultValue || e.checked !== e.defaultChecked));
}

function tell() {
  if (said.firstChild) return;
  const show = document.createElement("button");
  show.type = "button";
  show.className = "second small";
  show.textContent = "Show";
  show.addEventListener("click", () => {
    if (parts(document).length) return look(true);
    if (typed()) open(location.href, "_blank", "noopener"); // what was typed stays here
    else location.reload();
  });
  said.append(parts(document).length ? "Changed – " : "This was changed meanwhile – ", show);
}

// same returns the element of a new part that stands for one of the old part.
function same(part, old) {
  const name = (e) => [e.tagName, e.className, e.id, e.getAttribute("href"), e.getAttribute("aria-label"),
    ...[...e.form?.elements ?? []].map((field) => field.name === "_once" ? "" : field.value)].join();
  return [...part.querySelectorAll(old.tagName)].find((e) => name(e) === name(old)) ?? part.querySelector("[tabindex], a");
}

function replace(page) {
  const fresh = parts(page), x = scrollX, y = scrollY;
  if (fresh.length !== parts(document).length) return tell();
  parts(document).forEach((part, i) => {
    const focused = part.contains(document.activeElement) && document.activeElement;
    const before = [...part.querySelectorAll(".scroll")].map((region) => [region.scrollLeft, region.scrollTop]);
    part.replaceChildren(...fresh[i].childNodes);
    part.querySelectorAll(".scroll").forEach((region, j) => region.scrollTo(...before[j] ?? [0, 0]));
    if (focused) same(part, focused)?.focus({ preventScroll: true });
  });
  scrollTo(x, y);
  if (said.contains(document.activeElement)) main.querySelector("[data-records] [tabindex], [data-records] a")?.focus();
  said.replaceChildren();
  dispatchEvent(new Event("rows"));
}

// look shows the page as it is now. anyway: even while the reader is at work.
async function look(anyway) {
  clearTimeout(timer);
  timer = changed = false;
  if (!parts(document).length || !anyway && atWork()) return tell();
  fetching?.abort();
  const now = fetching = new AbortController(), began = Date.now();
  try {
    const signal = AbortSignal.any([now.signal, AbortSignal.timeout(10000)]);
    const answer = await fetch(location.pathname + location.search, { signal });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (now !== fetching) return;
    if (!answer.ok || answer.redirected || !anyway && atWork()) tell();
    else replace(page);
    if (answer.redirected) disconnect(); // the session has ended
  } catch {
    if (now === fetching) tell();
  }
  if (now !== fetching) return;
  fetching = null;
  next = Date.now() + Math.max(least, 10 * (Date.now() - began)); // a slow page is asked for less often
  if (changed) soon();
}

// soon looks when the page is visible and was not fetched lately. What happens until then needs no other look.
function soon() {
  changed = true;
  if (!document.hidden && !timer && !fetching) timer = setTimeout(look, Math.max(300, next - Date.now()));
}

function disconnect() {
  clearTimeout(connecting);
  source?.close();
  connecting = source = null;
}

function connect() {
  if (source || document.hidden) return;
  clearTimeout(connecting);
  const asked = new URLSearchParams({ kinds: main.dataset.kinds });
  if (after) asked.set("after", after);
  const stream = new EventSource(`/api/events/stream?${asked}`);
  let opened = 0;
  source = stream;
  stream.addEventListener("open", () => {
    opened = Date.now();
    if (!after) soon(); // nobody knows what happened before
  });
  stream.addEventListener("error", () => {
    disconnect();
    if (!opened) after = ""; // the events after it may be gone
    wait = opened && Date.now() - opened > 10 * least ? least : Math.min(2 * wait, most);
    connecting = setTimeout(connect, wait * (0.5 + Math.random()));
  });
  for (const kind of main.dataset.kinds.split(",")) for (const what of ["created", "updated", "deleted", "restored", "purged"]) {
    stream.addEventListener(`${kind}.${what}`, (event) => {
      after = event.lastEventId;
      const { record } = main.dataset;
      if (!record || JSON.parse(event.data).record === record) soon();
    });
  }
}

// The connection is closed while nobody looks at the page: browsers allow few of them, and keep a page with one out of
// the cache for going back.
addEventListener("visibilitychange", () => {
  if (document.hidden) return disconnect();
  seen = Date.now();
  connect();
  if (changed) soon();
});
addEventListener("pagehide", () => {
  disconnect();
  changed ||= Boolean(fetching);
  fetching?.abort();
  fetching = null;
  clearTimeout(timer);
  timer = 0;
});
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  connect();
  if (changed) soon();
});
for (const type of ["pointermove", "pointerdown", "keydown", "wheel", "touchstart"]) addEventListener(type, () => {
  const away = Date.now() - seen > unattended;
  seen = Date.now();
  if (away) connect();
}, { passive: true });
setInterval(() => {
  if (Date.now() - seen > unattended) disconnect();
}, 60000);
connect();
