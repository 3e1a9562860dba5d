// What every page does: talk to the server, say what happened, follow the live line.
export const root = document.body.dataset.root;

export const find = (selector, within = document) => within.querySelector(selector);

export function key() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export function notice(words) {
  const line = find("#notice");
  line.textContent = words;
  line.hidden = !words;
}

export function say(words) {
  const line = find("#said");
  if (!line) return;
  line.textContent = words;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { line.textContent = ""; }, 4000);
}

// Sent until the server has said that it is on disk. The same key again is the same answer, so nothing is counted twice.
export async function post(path, body) {
  for (let attempt = 0; ; attempt += 1) {
    let response;
    const again = () => pause(Math.min(5000, 500 * 2 ** attempt));
    try {
      response = await fetch(`${root}/${path}`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
      });
    } catch {
      notice("Not saved yet: the server is not responding. If it was stopped, start `pals review` again: this page then goes on. Retrying …");
      await again();
      continue;
    }
    if (response.status === 503) { // another program has the file with the answers
      notice("Not saved yet: another program is using the file with the answers. Retrying …");
      await again();
      continue;
    }
    notice("");
    const answer = (response.headers.get("content-type") || "").includes("json") ? await response.json() : {};
    if (!response.ok && response.status !== 409) notice(answer.error || `The server refused that (${response.status}).`);
    return response.ok || response.status === 409 ? answer : null;
  }
}

export const typing = (event) => event.target.closest("input, select, textarea, dialog[open]") !== null;

// Tiny images are shown with their pixels; an image that fails to load is replaced by a sentence, a thumbnail is hidden.
function failed(image) {
  if (image.id !== "image") { image.hidden = true; return; }
  const words = document.createElement("p");
  [words.className, words.textContent] = ["no-image", "This image cannot be shown: the file is damaged or gone."];
  find("#frame").replaceWith(words);
}

export function watchImages() {
  const sharpen = (image) => image.classList.toggle("pixels", image.naturalWidth > 0 && image.naturalWidth < 64);
  document.addEventListener("load", (event) => { if (event.target instanceof HTMLImageElement) sharpen(event.target); }, true);
  document.addEventListener("error", (event) => { if (event.target instanceof HTMLImageElement) failed(event.target); }, true);
  for (const image of [...document.images]) if (image.complete) { if (image.naturalWidth) sharpen(image); else failed(image); }
}

const listeners = [];
export const follow = (listener) => listeners.push(listener);

const WORDS = { running: "Updating …", failed: "The update failed" };
function live(state) {
  const line = find("#live");
  const waiting = state.waiting === 1 ? "1 item waiting" : `${state.waiting.toLocaleString("en")} items waiting`;
  line.textContent = WORDS[state.update] || (state.waiting ? waiting : "");
  for (const listener of listeners) listener(state);
}

// The name of a new class, from a dialog; null if it was cancelled or refused.
export async function newClass() {
  const dialog = find("#new-class");
  if (!dialog || dialog.open) return null;
  const field = find("#class-name");
  field.value = "";
  dialog.showModal();
  const name = await new Promise((resolve) => {
    find("#no-class").onclick = () => dialog.close();
    find("form", dialog).onsubmit = () => resolve(field.value); // which closes it
    dialog.onclose = () => resolve("");
  });
  return name.trim() ? (await post("class", { name }))?.name ?? null : null;
}

// A menu closes on Esc and on a click beside it.
function closeMenus(but = null) {
  for (const menu of document.querySelectorAll("details.orders[open]")) if (!menu.contains(but)) menu.open = false;
}
document.addEventListener("click", (event) => closeMenus(event.target));
document.addEventListener("keydown", (event) => {
  const menu = find("details.orders[open]");
  if (event.key !== "Escape" || !menu) return;
  closeMenus();
  find("summary", menu).focus();
  event.stopImmediatePropagation();
}, true);

if (find("#live")) {
  const source = new EventSource(`${root}/events`);
  let lost = false;
  source.onmessage = (event) => live(JSON.parse(event.data));
  source.onerror = () => { lost = true; find("#live").textContent = "Server not reached …"; };
  source.onopen = () => { if (lost) { lost = false; notice(""); } };
  addEventListener("pagehide", () => source.close());
}
watchImages();
