// The overview: start an update and follow it.
import { find, follow, post } from "./common.js";

const WORDS = { idle: "", running: "Working …", failed: "The update failed:", done: "Done." };
const round = Number(document.body.dataset.round);

find("#update").addEventListener("click", async () => {
  find("#update").disabled = true;
  find("#update-state").textContent = WORDS.running;
  await post("update", {});
});

find("#trust").addEventListener("change", async (event) => {
  await post("trust", { trusted: event.target.checked });
  location.reload();
});

document.addEventListener("click", async (event) => {
  const number = event.target.closest("button")?.dataset.use;
  if (number !== undefined && await post("round", { round: Number(number) })) location.reload();
});

follow((state) => {
  if (state.round !== round) { location.reload(); return; }
  find("#waiting").textContent = state.waiting.toLocaleString("en");
  find("#update").disabled = state.update === "running";
  find("#update-state").textContent = WORDS[state.update];
  const log = find("#log");
  log.hidden = !state.lines.length || !["running", "failed"].includes(state.update);
  log.textContent = state.lines.join("\n");
  log.scrollTop = log.scrollHeight;
});
