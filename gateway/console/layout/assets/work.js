// A form that requires proof of work is sent once the work is done: for each file and for the form itself, a text that
// begins with a challenge and a colon and whose SHA-256 begins with as many zero bits as the challenge asks for. The
// hash is computed here, because browsers offer theirs only on pages that were served over TLS, and not at once.
const roots = (count, power) => {
  const found = [];
  for (let n = 2; found.length < count; n++) {
    if (found.every((p) => n % p.prime)) found.push({ prime: n, part: ((n ** power % 1) * 2 ** 32) | 0 });
  }
  return found.map((p) => p.part);
};
const first = roots(8, 1 / 2), added = roots(64, 1 / 3);
const schedule = new Int32Array(64);
const turn = (x, by) => (x >>> by) | (x << (32 - by));

// sha256 returns the first 32 bits of the hash of a text of ASCII.
function sha256(text) {
  const bytes = new Uint8Array(((text.length + 72) >> 6) << 6), words = new DataView(bytes.buffer);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  bytes[text.length] = 0x80;
  words.setUint32(bytes.length - 4, text.length * 8);
  const sum = [...first], w = schedule;
  for (let block = 0; block < bytes.length; block += 64) {
    let [a, b, c, d, e, f, g, h] = sum;
    for (let i = 0; i < 64; i++) {
      if (i < 16) w[i] = words.getInt32(block + 4 * i);
      else {
        const x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (turn(x, 7) ^ turn(x, 18) ^ (x >>> 3)) + w[i - 7] + (turn(y, 17) ^ turn(y, 19) ^ (y >>> 10));
      }
      const p = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + added[i] + w[i]) | 0;
      const q = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [a, b, c, d, e, f, g, h] = [(p + q) | 0, a, b, c, (d + p) | 0, e, f, g];
    }
    [a, b, c, d, e, f, g, h].forEach((part, i) => { sum[i] = (sum[i] + part) | 0; });
  }
  return sum[0] >>> 0;
}

// prove returns the proof of a challenge. It works for moments, between which the page stays usable.
async function prove({ challenge, bits }) {
  for (let n = 0; bits; ) {
    for (const end = performance.now() + 30; performance.now() < end; ) {
      for (const stop = n + 100; n < stop; n++) if (Math.clz32(sha256(`${challenge}:${n}`)) >= bits) return `${challenge}:${n}`;
    }
    await new Promise((go) => setTimeout(go));
  }
  return "";
}

for (const form of document.querySelectorAll("form[data-work]")) {
  const said = form.querySelector("output");
  let busy = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (busy) return;
    busy = true;
    const button = form.querySelector("button");
    button.disabled = true;
    said.textContent = "Your browser is doing some work, which keeps programs from sending this form. It is sent by itself.";
    for (const old of form.querySelectorAll("input[name=_proof]")) old.remove();
    try {
      const files = [...form.querySelectorAll("input[type=file]")].reduce((n, control) => n + control.files.length, 0);
      for (let left = files + 1; left > 0; left--) {
        let answer = await fetch(form.dataset.work);
        for (let tries = 0; answer.status === 429 && tries < 20; tries++) {
          await new Promise((go) => setTimeout(go, 1000 * (Number(answer.headers.get("Retry-After")) || 1)));
          answer = await fetch(form.dataset.work);
        }
        if (!answer.ok) throw new Error((await answer.json()).message);
        const proof = document.createElement("input");
        proof.type = "hidden";
        proof.name = "_proof";
        proof.value = await prove((await answer.json()).data);
        form.prepend(...form.querySelectorAll("input[name=_proof]"), proof);
      }
      HTMLFormElement.prototype.submit.call(form);
    } catch {
      said.textContent = "That did not work. Please try again in a moment.";
      button.disabled = false;
      busy = false;
    }
  });
}
