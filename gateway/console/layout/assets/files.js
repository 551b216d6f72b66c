// Files that are chosen or dropped on the page are uploaded by the protocol tus, so that an upload that the network cuts
// goes on where it was. Three are sent at a time. When all have ended, the list below shows the new ones.
const zone = document.querySelector(".zone[data-resumable]");
if (zone) {
  const atOnce = 3, longestWait = 30000, mostTries = 5;
  const control = zone.querySelector("input[type=file]"), box = document.querySelector("#uploads");
  const list = box.querySelector("ul"), summary = document.querySelector("#uploads-said");
  const uploads = [];
  const headers = { "Tus-Resumable": "1.0.0" };
  const encode = (text) => btoa(String.fromCodePoint(...new TextEncoder().encode(text)));
  const readable = (bytes) => {
    let at = 0;
    for (; bytes >= 1000 && at < 4; at++) bytes /= 1000;
    return `${bytes.toLocaleString(undefined, { maximumFractionDigits: at ? 1 : 0 })} ${["bytes", "kB", "MB", "GB", "TB"][at]}`;
  };

  // request sends a request and returns its answer. It rejects if the network fails or the upload is cancelled.
  const request = (upload, method, address, more = {}, body = null) => new Promise((done, fail) => {
    const r = new XMLHttpRequest();
    upload.request = r;
    r.open(method, address);
    for (const [name, value] of Object.entries({ ...headers, ...more })) r.setRequestHeader(name, value);
    if (body) r.upload.onprogress = (event) => show(upload, "sending", upload.offset + event.loaded);
    r.onload = () => done(r);
    r.onerror = r.onabort = r.ontimeout = () => fail(new Error("cut"));
    r.send(body);
  });

  // problem returns the text of a refusal for people.
  const problem = (answer) => {
    let text = "The file could not be uploaded";
    try {
      text = JSON.parse(answer.responseText).message.replace(/^Validation failed: /, "");
    } catch {} // something on the way has answered
    return text.charAt(0).toUpperCase() + text.slice(1).replace(/\.?$/, ".");
  };

  // The state of an upload is waiting, sending, cut, failed, done or cancelled. The last three have ended.
  const ended = (upload) => ["failed", "done", "cancelled"].includes(upload.state);
  function show(upload, state, sent = upload.offset, text = "") {
    if (upload.state === "cancelled") return;
    upload.state = state;
    upload.sent = sent;
    const { progress, said, cancel, retry } = upload.parts, size = upload.file.size;
    progress.value = size ? sent / size : Number(state === "done");
    const texts = {
      waiting: "Waiting.", done: `Uploaded, ${readable(size)}.`, cancelled: "Cancelled.",
      sending: `${readable(sent)} of ${readable(size)}`, cut: `The connection was cut at ${readable(sent)} of ${readable(size)}. It goes on by itself.`,
    };
    said.textContent = text || texts[state];
    said.className = state === "failed" ? "said error" : "said";
    cancel.hidden = ended(upload);
    retry.hidden = state !== "failed" || upload.file.folder;
    const count = (state) => uploads.filter((other) => other.state === state).length;
    const left = uploads.filter((other) => !ended(other)).length;
    let total = `${count("done")} of ${uploads.length} files were uploaded.`;
    if (left) total = `${left} of ${uploads.length} files are being uploaded.`;
    if (uploads.length === 1) total = left ? "The file is being uploaded." : `The file was ${count("done") ? "" : "not "}uploaded.`;
    if (summary.textContent !== total) summary.textContent = total; // is read aloud
  }

  // pause returns after some time, or at once when the network is back or the upload is cancelled.
  const pause = (upload, time) => new Promise((over) => {
    const end = () => { clearTimeout(timer); removeEventListener("online", end); over(); };
    const timer = setTimeout(end, time);
    addEventListener("online", end);
    upload.wake = end;
  });

  async function begin(upload) {
    const { file } = upload, values = { filename: file.name, filetype: file.type, folder_id: zone.dataset.folder };
    const metadata = Object.entries(values).filter(([, value]) => value).map(([name, value]) => `${name} ${encode(value)}`);
    const answer = await request(upload, "POST", zone.dataset.resumable, { "Upload-Length": file.size, "Upload-Metadata": metadata.join(",") });
    if (answer.status !== 201) return answer;
    upload.address = new URL(answer.getResponseHeader("Location"), location.href).pathname;
    upload.offset = 0;
    if (file.size === 0) upload.complete = true; // no byte follows
    return answer;
  }

  // advance makes one step of an upload and returns the answer.
  async function advance(upload) {
    if (!upload.address) return begin(upload);
    if (upload.offset < 0) { // after a cut
      const answer = await request(upload, "HEAD", upload.address);
      if (answer.status === 200) {
        upload.offset = Number(answer.getResponseHeader("Upload-Offset"));
        upload.complete = upload.offset === upload.file.size;
      }
      if (answer.status === 404) upload.address = ""; // it has expired
      return answer.status === 404 ? { status: 200 } : answer;
    }
    const rest = upload.offset ? upload.file.slice(upload.offset) : upload.file;
    const type = { "Upload-Offset": upload.offset, "Content-Type": "application/offset+octet-stream" };
    const answer = await request(upload, "PATCH", upload.address, type, rest);
    if (answer.status === 204) {
      upload.offset = Number(answer.getResponseHeader("Upload-Offset"));
      upload.complete = upload.offset === upload.file.size;
    }
    return answer;
  }

  async function run(upload) {
    show(upload, "sending", 0);
    for (let tries = 0, was = 0; !upload.complete && upload.state !== "cancelled";) {
      let answer = null;
      try {
        answer = await advance(upload);
      } catch {
        if (upload.state === "cancelled") return;
        if (upload.address) upload.offset = -1; // asked for next
        const readable = await upload.file.slice(0, 1).arrayBuffer().then(() => true, () => false);
        if (!readable) return show(upload, "failed", 0, "The file cannot be read. Choose it again.");
      }
      if (answer && answer.status < 300) {
        if (upload.offset > was) [was, tries] = [upload.offset, 0];
        continue;
      }
      if (upload.address) upload.offset = -1;
      const busy = answer && [409, 423, 429, 502, 503, 504].includes(answer.status);
      if (answer && (!busy || ++tries > mostTries)) return show(upload, "failed", was, problem(answer));
      show(upload, answer ? "sending" : "cut", upload.sent);
      if (!answer) tries++;
      const seconds = Number(answer?.getResponseHeader("Retry-After")) || 0;
      await pause(upload, Math.min(Math.max(seconds * 1000, 500 * 2 ** tries), longestWait));
    }
    if (upload.complete) show(upload, "done", upload.file.size);
  }

  // work sends the uploads that wait. Each of three workers takes the next one.
  let working = 0;
  async function work() {
    if (working >= atOnce) return;
    working++;
    for (let next; next = uploads.find((upload) => upload.state === "waiting");) await run(next);
    working--;
    if (working === 0) refresh();
  }

  // refresh shows the list as it is now, in place of the uploads that are done.
  async function refresh() {
    if (!uploads.some((upload) => upload.state === "done" && !upload.listed)) return;
    for (const upload of uploads) upload.listed ||= upload.state === "done";
    try {
      const answer = await fetch(location.href);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of answer.ok ? ["#stored", "main > .foot"] : []) {
        const now = page.querySelector(part);
        if (now) document.querySelector(part).replaceWith(now);
      }
      const focused = list.contains(document.activeElement);
      for (const upload of answer.ok ? uploads : []) if (upload.listed) upload.parts.line.remove();
      if (focused && !list.contains(document.activeElement)) control.focus();
      dispatchEvent(new Event("rows"));
    } catch {} // the reader can reload the page
  }

  const button = (title, name, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "second";
    made.textContent = title;
    made.ariaLabel = `${title}: ${name}`;
    made.addEventListener("click", act);
    return made;
  };
  function add(file) {
    const upload = { file, offset: 0, state: "" }, line = document.createElement("li"), name = document.createElement("span");
    name.textContent = file.name;
    name.dir = "auto";
    const progress = document.createElement("progress"), said = document.createElement("p"), buttons = document.createElement("span");
    progress.max = 1;
    progress.ariaLabel = file.name;
    const cancel = button("Cancel", file.name, () => {
      show(upload, "cancelled");
      upload.request?.abort();
      upload.wake?.();
      if (upload.address) request({}, "DELETE", upload.address).catch(() => {}); // what has arrived expires otherwise
      line.focus();
    });
    const retry = button("Try again", file.name, () => {
      show(upload, "waiting");
      line.focus();
      work();
    });
    buttons.append(cancel, retry);
    line.tabIndex = -1; // has the focus when its button is gone
    line.append(name, buttons, progress, said);
    progress.className = said.className = "said";
    upload.parts = { line, progress, said, cancel, retry };
    list.append(line);
    box.hidden = false;
    uploads.push(upload);
    if (file.folder) return show(upload, "failed", 0, "This is a folder. Choose the files in it.");
    if (file.size > Number(zone.dataset.most)) return show(upload, "failed", 0, `The file is larger than ${zone.dataset.limit}.`);
    show(upload, "waiting");
  }
  function take(files) {
    for (const file of files) add(file);
    for (let i = 0; i < atOnce; i++) work();
  }

  control.required = false;
  control.addEventListener("change", () => {
    take([...control.files]);
    control.value = "";
  });
  zone.addEventListener("submit", (event) => event.preventDefault());

  // The whole page takes files, because a browser would leave it for a file that misses the zone. Parts of the page that
  // are dragged are not files.
  let own = false;
  const has = (event) => !own && event.dataTransfer?.types.includes("Files");
  addEventListener("dragstart", () => own = true);
  addEventListener("dragend", () => own = false);
  addEventListener("dragover", (event) => {
    if (!has(event)) return;
    event.preventDefault();
    zone.classList.add("over");
  });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) zone.classList.remove("over"); });
  addEventListener("drop", (event) => {
    if (!has(event)) return;
    event.preventDefault();
    zone.classList.remove("over");
    const folders = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry?.isDirectory).map((entry) => entry.name);
    take([...event.dataTransfer.files].map((file) => folders.includes(file.name) ? { name: file.name, size: 0, folder: true } : file));
  });
  addEventListener("beforeunload", (event) => {
    if (uploads.some((upload) => !ended(upload))) event.preventDefault();
  });
}
