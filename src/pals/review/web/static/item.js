// One item at a time: keys, buttons, zoom, search, and the way to the next.
import { find, follow, key, newClass, notice, post, root, say, typing } from "./common.js";

const place = find("#place");
const help = find("#help");
let chosen = new Set();
let several = false;
let unsure = false;
let busy = false;
let zoom = 0;
let classes = null;

const card = () => find("#card");
const many = () => "many" in card().dataset;
const query = () => new URLSearchParams({ order: place.dataset.order, value: place.dataset.value });

// ---- from item to item
async function show(address, remember) {
  let response;
  try {
    response = await fetch(address, { headers: { "X-Part": "card" } });
  } catch {
    notice("The server is not responding. If it was stopped, start `pals review` again, then press the key or button again.");
    return;
  }
  if (!response.ok || response.redirected) { location.assign(address); return; }
  place.innerHTML = await response.text(); // the server has escaped all that comes from data
  [chosen, several, unsure, zoom] = [new Set(), false, false, 0];
  if (card().dataset.left && find("#left")) find("#left").textContent = card().dataset.left;
  if (remember) history.pushState({ depth: depth() + 1 }, "", card().dataset.key ? `${root}/item/${card().dataset.key}?${query()}` : `${root}/item?${query()}`);
  keepInstructions();
  scrollTo(0, 0);
  find("#question").focus({ preventScroll: true });
}

const depth = () => history.state?.depth ?? 0;
const back = () => { if (depth()) history.back(); else say("There is no earlier item"); };

function next() {
  const asked = query();
  if (card().dataset.key) asked.set("after", card().dataset.key);
  return show(`${root}/item?${asked}`, true);
}

async function once(work) {
  if (busy) return;
  busy = true;
  try { await work(); } finally { busy = false; }
}

const answer = (kind, labels = []) => once(async () => {
  const item = card().dataset.key;
  if (!item) return;
  const words = labels.length ? labels.map((label) => label + (unsure ? "?" : "")).join(" + ") : { "dont-know": "don't know", "none-of-these": "none of these", skip: "skipped" }[kind];
  const saved = await post("answer", { items: [item], kind, labels, sure: !unsure, settles: "settles" in card().dataset, key: key() });
  if (!saved) return;
  say(`Saved: ${words}`);
  await next();
});

const undo = () => once(async () => {
  const done = await post("undo", { key: key() });
  if (!done) return;
  if (!done.undone) { say("There is nothing to undo"); return; }
  say(`Undone: ${done.undone.said}`);
  if (done.undone.key) await show(`${root}/item/${done.undone.key}?${query()}`, true);
});

async function name() {
  const label = await newClass();
  classes = null; // asked for again
  if (label) pick(label);
}

const takeBack = () => once(async () => {
  const item = card().dataset.key;
  const done = await post("undo", { items: [item], key: key() });
  if (!done?.undone) return;
  say(`Undone: ${done.undone.said}`);
  await show(`${root}/item/${item}?${query()}`, false);
});

// Instructions stay open or closed from item to item; on a phone they begin closed.
function keepInstructions() {
  const box = find("#instructions");
  const chosen = localStorage.getItem("instructions");
  if (box) box.open = chosen === null ? !matchMedia("(max-width: 56rem)").matches : chosen === "open";
}
document.addEventListener("click", (event) => {
  const box = event.target.closest("#instructions > summary")?.parentElement;
  if (box) localStorage.setItem("instructions", box.open ? "closed" : "open"); // as it will be after the click
});

// ---- one class, or several
function pick(label) {
  if (!several) { answer("label", [label]); return; }
  if (chosen.has(label)) chosen.delete(label); else chosen.add(label);
  if (!card().querySelector(`.choice[data-label="${CSS.escape(label)}"]`)) offer(label);
  for (const button of document.querySelectorAll(".choice")) button.setAttribute("aria-pressed", chosen.has(button.dataset.label));
}

function offer(label) {
  const button = document.createElement("button");
  [button.type, button.className, button.dataset.label, button.textContent] = ["button", "choice", label, label];
  find(".choices").append(button);
}

function toggle(name) {
  if (name === "several") several = !several; else unsure = !unsure;
  find(`#${name}`).setAttribute("aria-pressed", name === "several" ? several : unsure);
  if (name !== "several") return;
  chosen = new Set();
  find("#several-hint").hidden = !several;
  for (const button of document.querySelectorAll(".choice")) {
    if (several) button.setAttribute("aria-pressed", "false"); else button.removeAttribute("aria-pressed");
  }
}

function enter() {
  if (!several) answer("label", [card().dataset.label]);
  else if (chosen.size) answer("label", [...chosen]);
  else say("Select the possible classes first");
}

// ---- zoom: fit, then 2, 4 and 8 times
function magnify(step) {
  const frame = find("#frame");
  const image = find("#image");
  if (!frame) return;
  zoom = Math.max(0, Math.min(3, zoom + step));
  frame.classList.toggle("zoomed", zoom > 0);
  image.style.width = zoom ? `${100 * 2 ** zoom}%` : "";
  find("#zoom-level").textContent = zoom ? `${2 ** zoom}×` : "fit";
  if (zoom) frame.scrollTo((frame.scrollWidth - frame.clientWidth) / 2, (frame.scrollHeight - frame.clientHeight) / 2);
}

// ---- search where there are many classes
async function search() {
  const field = find("#find");
  const list = find("#found");
  classes ??= await (await fetch(`${root}/choices`)).json();
  const words = field.value.trim().toLowerCase();
  const rank = (one) => { const at = one.name.toLowerCase().indexOf(words); return at < 0 ? -1 : at === 0 ? 0 : 1; };
  const hits = words ? classes.filter((one) => rank(one) >= 0).sort((one, other) => rank(one) - rank(other)).slice(0, 50) : [];
  list.replaceChildren(...hits.map((one, number) => {
    const row = document.createElement("li");
    [row.role, row.id, row.textContent, row.dataset.label] = ["option", `found-${number}`, one.name, one.name];
    row.setAttribute("aria-selected", number === 0);
    if (!one.leaf) row.classList.add("inner");
    return row;
  }));
  if (words && !hits.length) list.append(nothing(words));
  list.hidden = !words;
  field.setAttribute("aria-expanded", words !== "");
  field.setAttribute("aria-activedescendant", hits.length ? "found-0" : "");
}

function nothing(words) {
  const row = document.createElement("li");
  [row.role, row.className, row.textContent] = ["option", "soft", `No class has “${words}” in its name`];
  row.setAttribute("aria-disabled", "true");
  return row;
}

function searchKey(event) {
  const rows = [...document.querySelectorAll("#found li[data-label]")];
  const at = rows.findIndex((row) => row.getAttribute("aria-selected") === "true");
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && rows.length) {
    event.preventDefault();
    const to = (at + step + rows.length) % rows.length;
    rows.forEach((row, number) => row.setAttribute("aria-selected", number === to));
    event.target.setAttribute("aria-activedescendant", rows[to].id);
    rows[to].scrollIntoView({ block: "nearest" });
  } else if (event.key === "Enter" && at >= 0) {
    event.preventDefault();
    choose(rows[at].dataset.label);
  } else if (event.key === "Escape") {
    event.target.value = "";
    event.target.blur();
    search();
  }
}

function choose(label) {
  const field = find("#find");
  field.value = "";
  field.blur();
  search();
  pick(label);
}

// ---- keys and clicks
const COMMANDS = {
  u: undo, "?": () => help.showModal(), z: () => magnify(zoom ? -zoom : 1), "+": () => magnify(1), "-": () => magnify(-1),
  c: () => toggle("several"), m: () => toggle("unsure"), d: () => answer("dont-know"), n: () => answer("none-of-these"), s: () => answer("skip"), w: name,
  Escape: () => { if (several) toggle("several"); if (unsure) toggle("unsure"); },
  Enter: enter, ArrowRight: () => once(next), ArrowLeft: back,
};

document.addEventListener("keydown", (event) => {
  if (help.open || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.id === "find") { searchKey(event); return; }
  const saving = several && chosen.size && event.target.closest(".choices, #several"); // where a click has left the focus
  if (typing(event) || (event.key === "Enter" && !saving && event.target.closest("button, a, summary"))) return;
  if (event.target.id === "frame" && event.key.startsWith("Arrow") && zoom) return; // scrolls the image
  const letter = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const button = find(`.choice[data-key="${CSS.escape(letter)}"]`);
  const typed = many() && !event.shiftKey && /^[a-z]$/.test(event.key) && event.key !== "u";
  if (event.key === "/" && many()) find("#find").focus();
  else if (typed) { find("#find").focus(); return; } // the letter goes into the field
  else if (button) button.click();
  else if (COMMANDS[letter]) COMMANDS[letter]();
  else return;
  event.preventDefault();
});

document.addEventListener("input", (event) => { if (event.target.id === "find") search(); });

document.addEventListener("click", (event) => {
  const target = event.target.closest("button, li[data-label], #frame");
  if (!target) return;
  if (target.matches(".choice")) pick(target.dataset.label);
  else if (target.matches("li[data-label]")) choose(target.dataset.label);
  else if (target.dataset.kind) answer(target.dataset.kind);
  else if (target.dataset.zoom) magnify(Number(target.dataset.zoom));
  else if (target.id === "frame") magnify(zoom ? -zoom : 1);
  else ({ undo, "take-back": takeBack, "add-class": name, several: () => toggle("several"), unsure: () => toggle("unsure"), back, later: () => once(next), "save-several": enter, "show-help": () => help.showModal() })[target.id]?.();
});

addEventListener("popstate", () => show(location.href, false));

keepInstructions();
let round = Number(document.body.dataset.round);
follow((state) => {
  if (state.round !== round) say("The run was updated, and the queue was rebuilt");
  round = state.round;
});

if (!history.state) history.replaceState({ depth: 0 }, "", card().dataset.key ? `${root}/item/${card().dataset.key}?${query()}` : location.href);
