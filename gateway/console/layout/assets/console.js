// A single-use link carries its token behind "#", where it reaches no server log. It is
// kept out of the history, too.
const token = document.querySelector("input[data-from-address]");
if (token && !token.value) {
  token.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  if (!token.value) {
    token.form.querySelector(".error").textContent = "The link is not complete. Copy the whole link and try again.";
  }
}
if (token?.value) {
  token.closest("[data-token]").hidden = true;
  // A link that is no good says so before anything is typed.
  if (token.form.dataset.check) fetch(token.form.dataset.check, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: token.value }) })
    .then(async (answer) => {
      if (answer.status !== 403) return;
      token.form.querySelector(".error").textContent = (await answer.json()).message + ".";
      for (const part of token.form.querySelectorAll("input, button")) part.disabled = true;
      token.form.querySelector("button").hidden = true;
    })
    .catch(() => {}); // then the form says it
}

// Another link, opened where this one was, changes nothing but what is behind "#".
if (token) addEventListener("hashchange", () => location.reload());

// On a narrow screen the menu is closed until it is asked for.
const menu = document.querySelector("details.menu");
if (menu && matchMedia("(max-width: 60rem)").matches) menu.open = false;
menu?.classList.add("ready");

// What is told once is copied by a button.
if (navigator.clipboard) for (const told of document.querySelectorAll("[data-copy]")) {
  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "second small";
  copy.textContent = "Copy";
  copy.addEventListener("click", () => navigator.clipboard.writeText(told.textContent).then(() => { copy.textContent = "Copied"; }, () => {}));
  (told.closest("a") ?? told).after(" ", copy);
}

// A form that was sent cannot be sent by a second click.
addEventListener("submit", (event) => setTimeout(() => {
  if (!event.defaultPrevented) for (const b of event.target.querySelectorAll("button")) b.disabled = true;
}));
addEventListener("pageshow", () => { for (const b of document.querySelectorAll("button:not([hidden])")) b.disabled = false; });

// One more row of fields when the last is written in.
addEventListener("input", (event) => {
  const all = event.target.closest(".rows"), rows = all?.querySelectorAll(".line"), last = rows?.[rows.length - 1];
  if (!last?.contains(event.target) || ![...last.querySelectorAll("input:not([type=checkbox]), select:first-child")].some((i) => i.value)) return;
  const next = last.cloneNode(true);
  const number = 1 + Math.max(...[...all.querySelectorAll("[name]")].map((part) => Number(part.name.match(/\d+/)[0])));
  for (const part of next.querySelectorAll("[name]")) {
    part.name = part.name.replace(/\d+/, number);
    part.setAttribute("aria-label", (part.getAttribute("aria-label") ?? "").replace(/\d+/, all.closest(".part") ? number + 1 : number));
    for (const own of ["aria-invalid", "aria-describedby", "id", "autofocus"]) part.removeAttribute(own);
    if (part.type === "checkbox") part.checked = false;
    else if (part.tagName === "INPUT") part.value = "";
    else if (part.options[0].value === "") part.value = "";
  }
  all.append(next);
});

// What is asked of the server while somebody types is answered in time or left out, and the last answer counts.
const deadline = 10000;
const under = {};
async function asked(form, address, what, more) {
  const body = new URLSearchParams(new FormData(form));
  for (const [name, value] of Object.entries(more)) body.set(name, value);
  under[what]?.abort();
  const asking = under[what] = new AbortController();
  const late = setTimeout(() => asking.abort(), deadline);
  try {
    const answer = await fetch(address, { method: "POST", body, signal: asking.signal });
    const text = await answer.text();
    return under[what] === asking ? new DOMParser().parseFromString(text, "text/html") : null;
  } catch {
    return null;
  } finally {
    clearTimeout(late);
  }
}

// Where parts of a form depend on others, it is made anew with what was typed.
async function again(form, part) {
  const written = (all) => [...all].filter((e) => e.name && e.matches("input:not([type=hidden], [type=checkbox]), select, textarea"));
  const before = new Map(written(form.elements).map((e) => [e.name, e.value]));
  const page = await asked(form, form.action, "again", { _more: part });
  const made = page?.querySelector(`form[action="${form.getAttribute("action")}"].form`);
  if (!made) return;
  const meanwhile = written(form.elements).filter((e) => e.value !== before.get(e.name)).map((e) => [e.name, e.value]);
  const focused = document.activeElement?.name;
  form.replaceChildren(...made.childNodes);
  for (const [name, value] of meanwhile) for (const e of written(form.elements)) if (e.name === name) e.value = value;
  const lines = form.querySelector(`button[name=_more][value="${part}"]`)?.closest(".part")?.querySelector(".rows");
  (focused === "_more" ? lines?.lastElementChild.querySelector("input, select") : written(form.elements).find((e) => e.name === focused))?.focus();
}
addEventListener("submit", (event) => {
  if (event.submitter?.name !== "_more") return;
  event.preventDefault();
  again(event.target, event.submitter.value);
}, true);
// Return in the field of a search searches.
addEventListener("keydown", (event) => {
  const part = event.target;
  if (event.key !== "Enter" || !part.dataset?.find) return;
  event.preventDefault();
  again(part.form, part.dataset.find);
});
addEventListener("change", (event) => {
  const part = event.target, form = part.form; // which the part is in no more once it is made anew
  if (form && "again" in part.dataset) again(form, part.name.replace(/\.\d+\..*/, "")).then(() => look(form));
});

// What a form would show or reach is shown while it is typed.
const live = document.querySelector("#live");
let resting;
function look(form) {
  clearTimeout(resting);
  if (!live || !form?.dataset.live) return;
  resting = setTimeout(async () => {
    live.setAttribute("aria-busy", "true");
    const button = form.querySelector("[data-try]");
    const page = await asked(form, form.dataset.live, "live", button.name ? { _part: "true", [button.name]: "true" } : { _part: "true" });
    if (!page) return;
    live.removeAttribute("aria-busy");
    const part = page.querySelector("#tried");
    if (part) live.replaceChildren(part);
  }, 400);
}
for (const form of document.querySelectorAll("form.form")) {
  if (form.dataset.live) {
    form.addEventListener("input", () => look(form));
    if (!live?.childElementCount) look(form);
  }
}

// The call by curl follows what is typed, while somebody looks at it. What is secret stays here.
const curl = document.querySelector("details.curl");
let written, calling;
function call() {
  clearTimeout(calling);
  if (!curl.open || !written) return;
  calling = setTimeout(async () => {
    const secrets = [...written.querySelectorAll("input[type=password]")].map((s) => [s.name, ""]);
    const page = await asked(written, written.action, "curl", { ...Object.fromEntries(secrets), _more: "curl" });
    const said = page?.querySelector("details.curl pre");
    if (said) curl.querySelector("pre").replaceWith(said);
  }, 400);
}
if (curl) {
  curl.addEventListener("toggle", call);
  for (const kind of ["input", "change"]) addEventListener(kind, (event) => {
    if (!event.target.form?.matches("form.form[method=post]:not([enctype])")) return;
    written = event.target.form;
    call();
  });
}

// A file that is only checked stays chosen: what would be done with it is told beneath the form, which imports it next.
addEventListener("submit", async (event) => {
  const form = event.target, check = form.querySelector('input[type=checkbox][name="query.dry_run"]');
  if (!check?.checked || !form.querySelector("input[type=file]")) return;
  event.preventDefault();
  const body = new FormData(form), button = event.submitter;
  const told = document.querySelector("#checked") ?? document.createElement("section");
  told.id = "checked";
  told.ariaLive = "polite";
  told.textContent = "The file is being checked …";
  form.parentElement.after(told);
  button.disabled = true;
  try {
    let answer = await fetch(form.action, { method: "POST", body });
    if (!answer.redirected) { // what is wrong stands beside its field
      form.submit();
      return;
    }
    for (let wait; wait = Number(answer.headers.get("Refresh")); answer = await fetch(answer.url)) await new Promise((over) => setTimeout(over, wait * 1000));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    told.replaceChildren(...page.querySelectorAll("main > .error, main > .lead, main > .facts"));
    check.checked = Boolean(told.querySelector(".error"));
    told.firstElementChild?.scrollIntoView({ block: "nearest" });
  } catch {
    told.textContent = "It broke off. Try again.";
  }
  button.disabled = false;
}, true);

// Lists that were not looked into yet are, part by part, until the end is said.
const pending = document.querySelector("#pending");
async function lookOn() {
  const unasked = [...pending.querySelectorAll("[data-unasked]")];
  for (let next; next = pending.querySelector("[data-next]");) {
    const answer = await fetch(next.href).catch(() => null);
    if (!answer?.ok) return; // the link goes on
    const page = new DOMParser().parseFromString(await answer.text(), "text/html"), found = document.querySelector("#found");
    found.append(...page.querySelectorAll("#found section"));
    pending.replaceChildren(...page.querySelector("#pending").childNodes);
    unasked.push(...[...pending.querySelectorAll("[data-unasked]")].filter((part) => !unasked.some((told) => told.textContent === part.textContent)));
    const none = pending.querySelector("[data-none]");
    if (none && found.querySelector("section")) none.parentElement.remove();
    else if (none && !unasked.length) none.textContent = none.dataset.none;
  }
  for (const again of pending.querySelectorAll("[data-unasked]")) again.remove();
  pending.append(...unasked);
}
if (pending) lookOn();

// Ctrl-K finds a page or a record.
const find = document.querySelector("#find");
if (find) addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    location.assign(find.href);
  }
});

// A row or a folder is dragged into a folder: the form of its own page is sent with that folder. What is dragged is kept here,
// since a link takes its address along instead, and things from outside are none of the page's.
const tree = document.querySelector("[data-move]");
if (tree) {
  let dragged = null;
  const drags = (part, key, action) => {
    part.addEventListener("dragstart", (event) => {
      dragged = key && action ? { key, action } : null;
      if (dragged) event.dataTransfer.setData("text/plain", key); // some browsers drag nothing that has no data
    });
    part.addEventListener("dragend", () => dragged = null);
  };
  for (const row of document.querySelectorAll("tr[data-key]")) {
    row.draggable = true;
    drags(row, row.dataset.key, tree.dataset.move);
  }
  for (const folder of tree.querySelectorAll("[data-folder]")) {
    drags(folder, folder.dataset.folder, tree.dataset.moveFolder);
    const into = () => dragged && !(dragged.action === tree.dataset.moveFolder && dragged.key === folder.dataset.folder);
    const over = (is) => (event) => {
      if (!into()) return;
      if (is) event.preventDefault();
      folder.classList.toggle("over", is);
    };
    folder.addEventListener("dragover", over(true));
    folder.addEventListener("dragleave", over(false));
    folder.addEventListener("drop", (event) => {
      if (!into()) return;
      event.preventDefault();
      const form = document.createElement("form");
      form.method = "post";
      form.action = dragged.action;
      const values = { "path.id": dragged.key, folder_id: folder.dataset.folder, "_has.folder_id": "choice" };
      for (const [name, value] of Object.entries(values)) {
        const input = document.createElement("input");
        input.type = "hidden";
        input.name = name;
        input.value = value;
        form.append(input);
      }
      document.body.append(form);
      form.submit();
    });
  }
}

// named returns the name of a file that a Content-Disposition gives, which writes it encoded, in quotation marks or bare.
function named(disposition) {
  const encoded = disposition.match(/filename\*\s*=\s*utf-8'[^']*'([^;\s]+)/i)?.[1];
  try {
    if (encoded) return decodeURIComponent(encoded);
  } catch {} // then the other says it
  const [, quoted, bare] = disposition.match(/filename\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))/i) ?? [];
  return quoted?.replace(/\\(.)/g, "$1") ?? bare;
}

// A file says beside its link how far it has come, and whether it broke off. One that is larger than memory should hold is left to the
// browser, and so is one that is opened elsewhere.
const heldBytes = 256e6, silence = 60000;
async function take(link, says) {
  const stop = new AbortController();
  let late, bytes = 0, lines = 0;
  const heard = () => { clearTimeout(late); late = setTimeout(() => stop.abort(), silence); };
  try {
    heard();
    const answer = await fetch(link.href, { signal: stop.signal }), parts = [];
    if (!answer.ok) {
      const said = await answer.json().catch(() => ({}));
      says.textContent = `${said.message ?? "It cannot be fetched now"}.`;
      return;
    }
    for (const reader = answer.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      heard();
      parts.push(value);
      bytes += value.length;
      for (const byte of value) if (byte === 10) lines++;
      says.textContent = `${lines.toLocaleString()} lines, ${(bytes / 1e6).toFixed(1)} MB …`;
      if (bytes < heldBytes) continue;
      stop.abort();
      says.textContent = "It is large: the browser fetches it by itself.";
      location.assign(link.href);
      return;
    }
    const file = document.createElement("a");
    file.href = URL.createObjectURL(new Blob(parts));
    file.download = named(answer.headers.get("Content-Disposition") ?? "") || "export";
    file.click();
    setTimeout(() => URL.revokeObjectURL(file.href), silence);
    says.textContent = `${file.download}: ${lines.toLocaleString()} lines, ${(bytes / 1e6).toFixed(1)} MB.`;
  } catch {
    says.textContent = "It broke off, and nothing was saved. Try again.";
  } finally {
    clearTimeout(late);
  }
}
addEventListener("click", async (event) => {
  const link = event.target.closest("main a[download]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (link.getAttribute("aria-busy")) return;
  let says = link.nextElementSibling;
  if (!says?.matches("output")) {
    says = document.createElement("output");
    link.after(says);
  }
  link.setAttribute("aria-busy", "true");
  await take(link, says);
  link.removeAttribute("aria-busy");
});
