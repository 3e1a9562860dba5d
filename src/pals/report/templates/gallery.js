// ------------------------------------------------------------------------------------------------ the doubtful items
const PAGE = 24; // cards added at a time
const SHORT = 12; // letters of a name that fit under a small picture
const PRINTED = 12; // as many as the style sheet for print lets through
const PAGE_KEYS = ["result", "answer", "person", "status", "least", "text", "sort"];

// The answers that a filter by person, answer or probability is about: the doubted ones, or all where none is singled out.
function questioned(entry) {
  if (entry.doubtful.length) return entry.doubtful;
  return entry.votes.flatMap(({ label, voters }) => voters.map((annotator) => ({ annotator, answer: label, probability: null })));
}

function haystack(entry) {
  const words = [entry.item, entry.label, entry.status];
  for (const { label, voters } of entry.votes) words.push(label, ...voters);
  return words.join("\n").toLowerCase();
}

const natural = new Intl.Collator("en", { numeric: true });
const ORDERS = {
  doubt: null, // as they come
  confidence: (a, b) => (a.confidence ?? 2) - (b.confidence ?? 2),
  sure: (a, b) => (b.confidence ?? -1) - (a.confidence ?? -1),
  item: (a, b) => natural.compare(a.item, b.item),
};

function select(entries, wanted) {
  const found = entries.filter((entry) => {
    if (wanted.result !== null && entry.label !== wanted.result) return false;
    if (wanted.status !== null && entry.status !== wanted.status) return false;
    if (wanted.text && !entry.haystack.includes(wanted.text)) return false;
    return questioned(entry).some((one) =>
      (wanted.person === null || one.annotator === wanted.person) &&
      (wanted.answer === null || one.answer === wanted.answer) &&
      (one.probability ?? 0) >= wanted.least) || (
      wanted.person === null && wanted.answer === null && wanted.least === 0);
  });
  return ORDERS[wanted.sort] ? found.sort(ORDERS[wanted.sort]) : found;
}

// ---------------------------------------------------------------------------------------------------------- one card
function card(entry) {
  return make("li", null, make("article", { class: "card" },
    make("div", { class: "card-head" },
      picture(entry.item, `Picture of ${entry.item}`, 128),
      make("div", { class: "card-words" },
        make("p", { class: `badge ${Object.hasOwn(data.statusWords, entry.status) ? entry.status : ""}`,
          title: Object.hasOwn(data.statusWords, entry.status) ? data.statusWords[entry.status] : "" }, entry.status || "no status"),
        make("h3", null, name(entry.label || "no label")),
        make("p", { class: "sure" }, entry.confidence === null ? "" : `result, ${percent(entry.confidence)} sure`),
        votesOf(entry))),
    part("The classifier alone", modelOf(entry)),
    part("Why: the most similar items and their results", neighborsOf(entry)),
    make("p", { class: "path" }, make("bdi", null, entry.item))));
}

function part(title, content) {
  return content === null ? null : make("div", { class: "card-part" }, make("h4", null, title), content);
}

// Who said what; an answer in doubt carries the chance that it is wrong.
function votesOf(entry) {
  if (!entry.votes.length) return make("p", { class: "said" }, "Nobody answered.");
  return make("ul", { class: "votes" }, ...entry.votes.map(({ label, mark, voters, weight }) => {
    const doubts = entry.doubtful.filter((one) => one.answer === label);
    const kind = doubts.length ? "wrong" : label === entry.label ? "right" : "other";
    return make("li", { class: kind }, name(label), `${mark} `, votersOf(voters, weight), ...doubtOf(doubts));
  }));
}

const MOST_NAMES = 4;
function votersOf(voters, weight) {
  const shown = voters.slice(0, MOST_NAMES).map(isolated).join(", ");
  const left = voters.length - MOST_NAMES;
  const heavy = Math.abs(weight - voters.length) > 0.005 ? ` (weight ${count(weight)})` : "";
  const line = make("span", { class: "voters" }, (left > 0 ? `${shown} and ${left} more` : shown) + heavy);
  if (left > 0) line.title = voters.map(isolated).join(", ");
  return line;
}

function doubtOf(doubts) {
  const known = doubts.map((one) => one.probability).filter((probability) => probability !== null);
  if (!doubts.length) return [];
  const words = known.length ? `${percent(Math.max(...known))} likely wrong` : "probably wrong";
  return [" ", make("span", { class: "doubt" }, words)];
}

function modelOf(entry) {
  if (!entry.model.length) return null;
  const doubted = new Set(entry.doubtful.map((one) => one.answer));
  return make("ul", { class: "model" }, ...entry.model.map(([label, share]) => {
    const kind = label === entry.label ? "right" : doubted.has(label) ? "wrong" : "other";
    const filled = make("i", null);
    filled.style.width = `${100 * Math.min(1, share ?? 0)}%`;
    return make("li", { class: kind }, name(label),
      make("span", { class: "track", "aria-hidden": "true" }, filled), make("span", { class: "value" }, percent(share)));
  }));
}

function neighborsOf(entry) {
  if (!entry.neighbors.length) return null;
  const doubted = new Set(entry.doubtful.map((one) => one.answer));
  const long = entry.neighbors.some((one) => one.label.length > SHORT); // whole names need a line each
  return make("ul", { class: long ? "neighbors listed" : "neighbors" }, ...entry.neighbors.map((one) => {
    const kind = one.label === entry.label ? "right" : doubted.has(one.label) ? "wrong" : "other";
    const similar = one.similarity === null ? "" : one.similarity.toFixed(2);
    const image = picture(one.item, `Similar item ${one.item}`, 64);
    return make("li", { class: image ? kind : `${kind} bare`, title: `${isolated(one.item)}: ${isolated(one.label)}, similarity ${similar || "unknown"}` },
      image || make("bdi", { class: "path" }, one.item), name(one.label), make("span", { class: "value" }, similar));
  }));
}

// --------------------------------------------------------------------------------------------- filters and their state
function startGallery() {
  const field = Object.fromEntries(PAGE_KEYS.map((key) => [key, byId(`f-${key}`)]));
  const choices = {
    result: tally((entry) => [entry.label]),
    answer: tally((entry) => questioned(entry).map((one) => one.answer)),
    person: tally((entry) => questioned(entry).map((one) => one.annotator)),
    status: tally((entry) => [entry.status]),
  };
  let found = [];
  let drawn = 0;
  let last = null; // the address that the cards belong to

  function tally(valuesOf) {
    const times = new Map();
    for (const entry of data.gallery) for (const value of new Set(valuesOf(entry))) times.set(value, (times.get(value) || 0) + 1);
    return [...times].sort((a, b) => natural.compare(a[0], b[0]));
  }

  function wanted() {
    const chosen = (key) => (field[key].selectedIndex > 0 ? choices[key][field[key].selectedIndex - 1][0] : null);
    return {
      result: chosen("result"), answer: chosen("answer"), person: chosen("person"), status: chosen("status"),
      least: Number(field.least.value) / 100, text: field.text.value.trim().toLowerCase(), sort: field.sort.value,
    };
  }

  function addressOf(state) {
    const parameters = new URLSearchParams();
    for (const key of Object.keys(choices)) if (state[key] !== null) parameters.set(key, state[key]);
    if (state.least > 0) parameters.set("least", field.least.value);
    if (state.text) parameters.set("text", field.text.value.trim());
    if (state.sort !== "doubt") parameters.set("sort", state.sort);
    return parameters;
  }

  function setFrom(parameters) {
    for (const [key, values] of Object.entries(choices)) {
      field[key].selectedIndex = parameters.has(key) ? values.findIndex(([value]) => value === parameters.get(key)) + 1 : 0;
    }
    field.least.value = parameters.get("least") || "0";
    field.text.value = parameters.get("text") || "";
    field.sort.value = Object.hasOwn(ORDERS, parameters.get("sort")) ? parameters.get("sort") : "doubt";
    update();
  }

  function update() {
    found = select(data.gallery, wanted());
    last = addressOf(wanted()).toString();
    byId("cards").replaceChildren();
    drawn = 0;
    drawMore();
    byId("f-least-words").textContent = `${field.least.value}%`;
    byId("shown").replaceChildren(make("b", null, count(found.length)), ` of ${count(data.gallery.length)} items`);
    byId("printed").textContent = `Printed: ${Math.min(PRINTED, found.length)} of ${count(data.gallery.length)} items. All are in labels.csv.`;
    byId("nothing").hidden = found.length > 0;
    byId("copy-items").disabled = found.length === 0;
    byId("by-hand").hidden = true;
  }

  function drawMore() {
    const next = found.slice(drawn, drawn + PAGE);
    byId("cards").append(...next.map(card));
    drawn += next.length;
    const left = found.length - drawn;
    byId("more").hidden = left === 0;
    byId("more").textContent = `Show ${Math.min(PAGE, left)} more (${count(left)} left)`;
  }

  // Browsers tell of one change by one event or by two; cards already drawn stay if nothing has changed.
  function changed() {
    const address = addressOf(wanted());
    if (address.toString() === last) return;
    update();
    writeAddress("doubtful", address);
  }

  function listByHand(text) {
    byId("by-hand").hidden = false;
    byId("by-hand-text").value = text;
    byId("by-hand-text").select();
  }

  for (const [key, values] of Object.entries(choices)) {
    field[key].append(make("option", null, "any"), ...values.map(([value, times]) =>
      make("option", null, `${value || "none"} (${times})`)));
  }
  for (const entry of data.gallery) entry.haystack = haystack(entry);
  const form = byId("filters");
  form.addEventListener("input", changed);
  form.addEventListener("change", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(changed)); // the fields are cleared only after the event
  byId("more").addEventListener("click", () => {
    const first = drawn;
    drawMore();
    byId("cards").children[first].querySelector("h3").setAttribute("tabindex", "-1");
    byId("cards").children[first].querySelector("h3").focus({ preventScroll: true });
  });
  byId("copy-items").addEventListener("click", (event) => {
    const text = found.map((entry) => entry.item).join("\n");
    copy(text, event.currentTarget, () => listByHand(text));
  });
  form.hidden = byId("toolbar").hidden = false;
  routes.doubtful = setFrom;
  setFrom(new URLSearchParams());
}

if (data.gallery.length) startGallery();
