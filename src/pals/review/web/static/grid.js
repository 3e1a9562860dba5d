// Many at once: choose, confirm, name, take back.
import { find, key, newClass, post, say, typing } from "./common.js";

const tiles = [...document.querySelectorAll(".tile")];
const chosen = () => tiles.filter((tile) => tile.getAttribute("aria-pressed") === "true");
let last = null;
let busy = false;

function press(tile, on) { tile.setAttribute("aria-pressed", on); }

function tell() {
  const number = chosen().length;
  find("#chosen").textContent = number ? `${number} selected` : "None selected";
  for (const id of ["#confirm", "#name", "#add-class", "#take-back"]) if (find(id)) find(id).disabled = !number;
}

async function answer(body) {
  const items = chosen().map((tile) => tile.dataset.key);
  if (!items.length || busy) return;
  busy = true;
  const saved = await post("answer", { items, key: key(), ...body });
  busy = false;
  if (!saved) return;
  say(`Saved: ${items.length}`);
  location.reload();
}

async function undo(items = []) {
  const done = await post("undo", { items, key: key() });
  if (!done) return;
  if (done.undone) location.reload(); else say("There is nothing to undo");
}

async function name() {
  const label = await newClass();
  if (label) await answer({ kind: "label", labels: [label] });
}

const all = () => { const on = chosen().length < tiles.length; tiles.forEach((tile) => press(tile, on)); tell(); };
const confirm = () => answer({ kind: "as-suggested" });

document.addEventListener("click", (event) => {
  const tile = event.target.closest(".tile");
  if (tile) {
    const on = tile.getAttribute("aria-pressed") !== "true";
    const [from, to] = [tiles.indexOf(event.shiftKey && last ? last : tile), tiles.indexOf(tile)].sort((one, other) => one - other);
    tiles.slice(from, to + 1).forEach((one) => press(one, on));
    last = tile;
    tell();
    return;
  }
  const id = event.target.closest("button")?.id;
  ({ all, confirm, "add-class": name, undo: () => undo(), "take-back": () => undo(chosen().map((tile) => tile.dataset.key)), name: () => answer({ kind: "label", labels: [find("#as").value] }) })[id]?.();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event) || !tiles.length) return;
  if (event.key === "a") all();
  else if (event.key === "u") undo();
  else if (event.key === "Enter" && find("#confirm") && !event.target.closest("button, a, summary")) confirm();
  else return;
  event.preventDefault();
});
