// Sends a form as JSON to the operation it names and follows on where that succeeds.
for (const form of document.querySelectorAll("form[data-operation]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const error = form.querySelector(".error");
    const button = form.querySelector("button");
    const inputs = form.querySelectorAll("input:not([type=hidden])");
    const fail = (message) => {
      error.textContent = message;
      for (const input of inputs) input.setAttribute("aria-invalid", "true");
      button.disabled = false;
      (inputs[inputs.length - 1] ?? button).focus();
    };
    button.disabled = true;
    error.textContent = "";
    for (const input of inputs) input.removeAttribute("aria-invalid");
    try {
      const answer = await fetch(form.dataset.operation, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(Object.fromEntries(new FormData(form))),
      });
      const envelope = await answer.json();
      // Whoever signs out of a session that has ended already is signed out.
      if (envelope.status === "ok" || (inputs.length === 0 && answer.status === 403)) {
        location.assign(form.dataset.next);
        return;
      }
      fail(envelope.message);
    } catch {
      fail("The server could not be reached. Please try again.");
    }
  });
}

// A single-use link carries its token behind "#", where it reaches no server log. It is
// kept out of the history, too.
const token = document.querySelector("input[data-from-address]");
if (token) {
  token.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  if (!token.value) {
    token.form.querySelector(".error").textContent = "The link is not complete. Copy the whole link and try again.";
    token.form.querySelector("button").disabled = true;
  }
}
