// A single-use link carries its token behind "#", which browsers do not send, so that no server logs it. It is removed
// from the history too.
const token = document.querySelector("input[data-from-address]");
if (token && !token.value) {
  token.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  if (!token.value) {
    token.form.querySelector(".error").textContent = "The link is incomplete. Copy the whole link and try again.";
  }
}
if (token?.value) {
  token.closest("[data-token]").hidden = true;
  // An invalid link is reported before anything is typed.
  if (token.form.dataset.check) fetch(token.form.dataset.check, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token: token.value }),
  })
    .then(async (answer) => {
      if (answer.status !== 403) return;
      token.form.querySelector(".error").textContent = (await answer.json()).message + ".";
      for (const part of token.form.querySelectorAll("input, button")) part.disabled = true;
      token.form.querySelector("button").hidden = true;
    })
    .catch(() => {}); // the form reports it when it is sent
}

// Opening another link in the same tab changes only the part behind "#", which loads nothing by itself.
if (token) addEventListener("hashchange", () => location.reload());

// On a narrow screen the menu is closed at first.
const menu = document.querySelector("details.menu");
if (menu && matchMedia("(max-width: 60rem)").matches) menu.open = false;
menu?.classList.add("ready");

// Values that are shown only once have a button that copies them.
const copies = () => {
  for (const value of navigator.clipboard ? document.querySelectorAll("[data-copy]:not([data-copied])") : []) addCopy(value);
};
function addCopy(value) {
  value.dataset.copied = "";
  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "second small";
  copy.textContent = "Copy";
  copy.addEventListener("click", () =>
    navigator.clipboard.writeText(value.textContent).then(() => { copy.textContent = "Copied"; }, () => {}));
  (value.closest("a") ?? value).after(" ", copy);
}
copies();
addEventListener("rows", copies); // others have come

// A second click cannot send a form again.
addEventListener("submit", (event) => setTimeout(() => {
  if (!event.defaultPrevented) for (const b of event.target.querySelectorAll("button")) b.disabled = true;
}));
addEventListener("pageshow", () => {
  for (const b of document.querySelectorAll("button:not([hidden])")) b.disabled = false;
});

// Typing in the last row of fields adds another, with what stands below it.
addEventListener("input", (event) => {
  const all = event.target.closest(".rows"), rows = [...all?.querySelectorAll(".line") ?? []].filter((row) => !row.closest("details.files"));
  const last = rows.at(-1);
  if (!last?.contains(event.target)) return;
  if (![...last.querySelectorAll("input:not([type=checkbox]), select:first-child")].some((i) => i.value)) return;
  const next = document.createDocumentFragment();
  next.append(last.cloneNode(true));
  if (last.nextElementSibling?.matches("details.files")) next.append(last.nextElementSibling.cloneNode(true));
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

// fetchForm sends the form to an address and returns the page that it answers, or null if that fails, takes too long, or
// a later request for the same purpose has begun.
const fetchTimeout = 10000;
const pendingFetches = {};
async function fetchForm(form, address, purpose, more) {
  const body = new URLSearchParams(new FormData(form));
  for (const [name, value] of Object.entries(more)) body.set(name, value);
  pendingFetches[purpose]?.abort();
  const fetching = pendingFetches[purpose] = new AbortController();
  const timer = setTimeout(() => fetching.abort(), fetchTimeout);
  try {
    const answer = await fetch(address, { method: "POST", body, signal: fetching.signal });
    const text = await answer.text();
    return pendingFetches[purpose] === fetching ? new DOMParser().parseFromString(text, "text/html") : null;
  } catch {
    return null;
  } finally {
    clearTimeout(timer);
  }
}

// reloadForm asks the server for the form again because some of its parts depend on a value that has changed. Values that
// were typed in the meantime are kept.
async function reloadForm(form, part) {
  const editable = "input:not([type=hidden], [type=checkbox]), select, textarea";
  const fields = () => [...form.elements].filter((e) => e.name && e.matches(editable));
  const before = new Map(fields().map((e) => [e.name, e.value]));
  const page = await fetchForm(form, form.action, "reload", { _more: part });
  const reloaded = page?.querySelector(`form[action="${form.getAttribute("action")}"].form`);
  if (!reloaded) return;
  const typed = fields().filter((e) => e.value !== before.get(e.name)).map((e) => [e.name, e.value]);
  const focused = document.activeElement?.name;
  form.replaceChildren(...reloaded.childNodes);
  for (const [name, value] of typed) for (const e of fields()) if (e.name === name) e.value = value;
  const rows = form.querySelector(`button[name=_more][value="${part}"]`)?.closest(".part")?.querySelector(".rows");
  const target = focused === "_more"
    ? rows?.lastElementChild.querySelector("input, select")
    : fields().find((e) => e.name === focused);
  target?.focus();
}
addEventListener("submit", (event) => {
  if (event.submitter?.name !== "_more") return;
  event.preventDefault();
  reloadForm(event.target, event.submitter.value);
}, true);
// Enter in a search field searches instead of sending the form.
addEventListener("keydown", (event) => {
  const part = event.target;
  if (event.key !== "Enter" || !part.dataset?.find) return;
  event.preventDefault();
  reloadForm(part.form, part.dataset.find);
});
addEventListener("change", (event) => {
  const part = event.target, form = part.form; // after the reload, the part no longer has a form
  if (form && "again" in part.dataset) {
    reloadForm(form, part.name.replace(/\.\d+\..*/, "")).then(() => updatePreview(form));
  }
});

// The preview of a form follows what is typed.
const live = document.querySelector("#live");
let previewTimer;
function updatePreview(form) {
  clearTimeout(previewTimer);
  if (!live || !form?.dataset.live) return;
  previewTimer = setTimeout(async () => {
    live.setAttribute("aria-busy", "true");
    const button = form.querySelector("[data-try]"), more = { _part: "true" };
    if (button.name) more[button.name] = "true";
    const page = await fetchForm(form, form.dataset.live, "preview", more);
    if (!page) return;
    live.removeAttribute("aria-busy");
    const part = page.querySelector("#tried");
    if (part) live.replaceChildren(part);
  }, 400);
}
for (const form of document.querySelectorAll("form.form")) {
  if (form.dataset.live) {
    form.addEventListener("input", () => updatePreview(form));
    if (!live?.childElementCount) updatePreview(form);
  }
}

// The curl command follows what is typed while it is open. Secrets are not sent for it.
const curl = document.querySelector("details.curl");
let curlForm, curlTimer;
function updateCurl() {
  clearTimeout(curlTimer);
  if (!curl.open || !curlForm) return;
  curlTimer = setTimeout(async () => {
    const secrets = [...curlForm.querySelectorAll("input[type=password]")].map((s) => [s.name, ""]);
    const page = await fetchForm(curlForm, curlForm.action, "curl", { ...Object.fromEntries(secrets), _more: "curl" });
    const command = page?.querySelector("details.curl pre");
    if (command) curl.querySelector("pre").replaceWith(command);
  }, 400);
}
if (curl) {
  curl.addEventListener("toggle", updateCurl);
  for (const type of ["input", "change"]) addEventListener(type, (event) => {
    if (!event.target.form?.matches("form.form[method=post]:not([enctype])")) return;
    curlForm = event.target.form;
    updateCurl();
  });
}

// A file that is checked stays chosen, so that the form can import it next. The result of the check is shown below the
// form.
addEventListener("submit", async (event) => {
  const form = event.target, check = form.querySelector('input[type=checkbox][name="query.dry_run"]');
  if (!check?.checked || !form.querySelector("input[type=file]")) return;
  event.preventDefault();
  const body = new FormData(form), button = event.submitter;
  const result = document.querySelector("#checked") ?? document.createElement("section");
  result.id = "checked";
  result.ariaLive = "polite";
  result.textContent = "The file is being checked …";
  form.parentElement.after(result);
  button.disabled = true;
  try {
    let answer = await fetch(form.action, { method: "POST", body });
    if (!answer.redirected) { // the options are invalid, so the page shows the faults beside the fields
      form.submit();
      return;
    }
    for (let wait; wait = Number(answer.headers.get("Refresh")); answer = await fetch(answer.url)) {
      await new Promise((over) => setTimeout(over, wait * 1000));
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    result.replaceChildren(...page.querySelectorAll("main > .error, main > .lead, main > .facts"));
    check.checked = Boolean(result.querySelector(".error"));
    result.firstElementChild?.scrollIntoView({ block: "nearest" });
  } catch {
    result.textContent = "The check was interrupted. Try again.";
  }
  button.disabled = false;
}, true);

// The page of a search goes on with the lists that were not searched in time, until all are.
const pending = document.querySelector("#pending");
async function searchOn() {
  const unasked = [...pending.querySelectorAll("[data-unasked]")];
  for (let next; next = pending.querySelector("[data-next]");) {
    const answer = await fetch(next.href).catch(() => null);
    if (!answer?.ok) return; // the reader can still follow the link
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = document.querySelector("#found");
    found.append(...page.querySelectorAll("#found section"));
    pending.replaceChildren(...page.querySelector("#pending").childNodes);
    const isNew = (part) => !unasked.some((other) => other.textContent === part.textContent);
    unasked.push(...[...pending.querySelectorAll("[data-unasked]")].filter(isNew));
    const none = pending.querySelector("[data-none]");
    if (none && found.querySelector("section")) none.parentElement.remove();
    else if (none && !unasked.length) none.textContent = none.dataset.none;
  }
  for (const part of pending.querySelectorAll("[data-unasked]")) part.remove();
  pending.append(...unasked);
}
if (pending) searchOn();

// Ctrl-K opens the page that finds pages and records.
const find = document.querySelector("#find");
if (find) addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    location.assign(find.href);
  }
});

// Dropping a row or a folder on a folder sends the form that moves it. The dragged record is kept in a variable, because
// the data of a dragged link is its address, and because things dragged from outside the page must be ignored.
const tree = document.querySelector("[data-move]");
if (tree) {
  let dragged = null;
  const makeDraggable = (part, key, action) => {
    part.addEventListener("dragstart", (event) => {
      dragged = key && action ? { key, action } : null;
      if (dragged) event.dataTransfer.setData("text/plain", key); // some browsers do not drag without data
    });
    part.addEventListener("dragend", () => dragged = null);
  };
  const rows = () => {
    for (const row of document.querySelectorAll("tr[data-key]:not([draggable])")) {
      row.draggable = true;
      makeDraggable(row, row.dataset.key, tree.dataset.move);
    }
  };
  rows();
  addEventListener("rows", rows); // others have come
  for (const folder of tree.querySelectorAll("[data-folder]")) {
    makeDraggable(folder, folder.dataset.folder, tree.dataset.moveFolder);
    const isItself = () => dragged.action === tree.dataset.moveFolder && dragged.key === folder.dataset.folder;
    const accepts = () => dragged && !isItself();
    const over = (is) => (event) => {
      if (!accepts()) return;
      if (is) event.preventDefault();
      folder.classList.toggle("over", is);
    };
    folder.addEventListener("dragover", over(true));
    folder.addEventListener("dragleave", over(false));
    folder.addEventListener("drop", (event) => {
      if (!accepts()) return;
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

// fileName returns the name of a file from a Content-Disposition header, where it is encoded, quoted or bare.
function fileName(disposition) {
  const encoded = disposition.match(/filename\*\s*=\s*utf-8'[^']*'([^;\s]+)/i)?.[1];
  try {
    if (encoded) return decodeURIComponent(encoded);
  } catch {} // the other parameter has a name too
  const [, quoted, bare] = disposition.match(/filename\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))/i) ?? [];
  return quoted?.replace(/\\(.)/g, "$1") ?? bare;
}

// The progress of a download is shown beside its link, and so is its failure. A file that is too large to be held in
// memory is left to the browser, and so is one that is opened in another window.
const maxHeldBytes = 256e6, stallTimeout = 60000;
async function download(link, status) {
  const stop = new AbortController();
  let timer, bytes = 0, lines = 0;
  const restartTimer = () => { clearTimeout(timer); timer = setTimeout(() => stop.abort(), stallTimeout); };
  try {
    restartTimer();
    const answer = await fetch(link.href, { signal: stop.signal }), parts = [];
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      status.textContent = `${problem.message ?? "The file cannot be downloaded now. Try again later"}.`;
      return;
    }
    for (const reader = answer.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      restartTimer();
      parts.push(value);
      bytes += value.length;
      for (const byte of value) if (byte === 10) lines++;
      status.textContent = `${lines.toLocaleString()} lines, ${(bytes / 1e6).toFixed(1)} MB …`;
      if (bytes < maxHeldBytes) continue;
      stop.abort();
      status.textContent = "The file is large. See the downloads of your browser.";
      location.assign(link.href);
      return;
    }
    const file = document.createElement("a");
    file.href = URL.createObjectURL(new Blob(parts));
    file.download = fileName(answer.headers.get("Content-Disposition") ?? "") || "export";
    file.click();
    setTimeout(() => URL.revokeObjectURL(file.href), stallTimeout);
    status.textContent = `${file.download}: ${lines.toLocaleString()} lines, ${(bytes / 1e6).toFixed(1)} MB.`;
  } catch {
    status.textContent = "The download was interrupted, and nothing was saved. Try again.";
  } finally {
    clearTimeout(timer);
  }
}
addEventListener("click", async (event) => {
  const link = event.target.closest("main a[download]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (link.getAttribute("aria-busy")) return;
  let status = link.nextElementSibling;
  if (!status?.matches("output")) {
    status = document.createElement("output");
    link.after(status);
  }
  link.setAttribute("aria-busy", "true");
  await download(link, status);
  link.removeAttribute("aria-busy");
});

// A small picture that is not made yet is asked for again, a few times.
function watchPicture(image) {
  image.dataset.watched = "";
  let left = 10;
  const again = () => {
    if (left-- > 0) setTimeout(() => image.src = image.src, 3000);
    else image.classList.add("missing"); // such as of a damaged picture
  };
  image.addEventListener("error", again);
  if (image.complete && image.currentSrc && !image.naturalWidth) again();
}
const pictures = () => {
  for (const image of document.querySelectorAll("img[data-small]:not([data-watched])")) watchPicture(image);
};
pictures();
addEventListener("rows", pictures);
