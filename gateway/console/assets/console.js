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
if (token?.value) token.closest("[data-token]").hidden = true;

// On a narrow screen the menu is closed until it is asked for.
const menu = document.querySelector("details.menu");
if (menu && matchMedia("(max-width: 60rem)").matches) menu.open = false;

// A form that was sent cannot be sent by a second click.
for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", () => setTimeout(() => { for (const b of form.querySelectorAll("button")) b.disabled = true; }));
}
addEventListener("pageshow", () => { for (const b of document.querySelectorAll("button")) b.disabled = false; });

// One more row of fields when the last is written in.
for (const all of document.querySelectorAll(".rows")) {
  all.addEventListener("input", () => {
    const rows = all.querySelectorAll(".line");
    const last = rows[rows.length - 1];
    if (![...last.querySelectorAll("input:not([type=checkbox])")].some((i) => i.value)) return;
    const next = last.cloneNode(true);
    const number = all.querySelectorAll("[name$='.key'], [name$='.value']").length;
    for (const part of next.querySelectorAll("[name]")) {
      part.name = part.name.replace(/\d+/, number);
      part.setAttribute("aria-label", (part.getAttribute("aria-label") ?? "").replace(/\d+/, number));
      if (part.type === "checkbox") part.checked = false;
      else if (part.tagName === "INPUT") part.value = "";
    }
    all.append(next);
  });
}

// Ctrl-K finds a page or a record.
const find = document.querySelector("#find");
if (find) addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    location.assign(find.href);
  }
});

// A row is dragged into a folder: the form of its own page is sent with that folder.
const tree = document.querySelector("[data-move]");
if (tree) {
  for (const row of document.querySelectorAll("tr[data-key]")) {
    row.draggable = true;
    row.addEventListener("dragstart", (event) => event.dataTransfer.setData("text/plain", row.dataset.key));
  }
  for (const folder of tree.querySelectorAll("[data-folder]")) {
    const over = (is) => (event) => {
      if (is) event.preventDefault();
      folder.classList.toggle("over", is);
    };
    folder.addEventListener("dragover", over(true));
    folder.addEventListener("dragleave", over(false));
    folder.addEventListener("drop", (event) => {
      event.preventDefault();
      const form = document.createElement("form");
      form.method = "post";
      form.action = tree.dataset.move;
      const values = { "path.id": event.dataTransfer.getData("text/plain"), folder_id: folder.dataset.folder, "_has.folder_id": "choice" };
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
