// Sends a form as JSON to the operation it names and follows on where that succeeds.
for (const form of document.querySelectorAll("form[data-operation]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const error = form.querySelector(".error");
    const button = form.querySelector("button");
    const fields = Object.fromEntries(new FormData(form));
    button.disabled = true;
    if (error) error.textContent = "";
    try {
      const answer = await fetch(form.dataset.operation, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(fields),
      });
      const envelope = await answer.json();
      if (envelope.status === "ok") {
        location.assign(form.dataset.next);
        return;
      }
      if (error) error.textContent = envelope.message;
    } catch {
      if (error) error.textContent = "The server could not be reached. Please try again.";
    }
    button.disabled = false;
  });
}

// A single-use link carries its token behind "#", where it reaches no server log.
const token = document.querySelector("input[name=token]");
if (token) {
  token.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
}
