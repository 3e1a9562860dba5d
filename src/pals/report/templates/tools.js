// Names come from people and files: they enter the page as text nodes and attribute values only, never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const SMALL = 64; // pictures with fewer pixels per side are shown pixel by pixel rather than blurred

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  return fill(element, attributes, children);
}

function makeSvg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function percent(share) {
  if (share === null) return "–";
  if (share > 0 && share < 0.0005) return "<0.1%";
  if (share >= 0.9995 && share < 1) return ">99.9%";
  return `${(100 * share).toFixed(1)}%`;
}

function count(value) {
  return value.toLocaleString("en", { maximumFractionDigits: 1 });
}

// Written from right to left, a name must not turn the sentence around it.
function isolated(name) {
  return `\u2068${name}\u2069`;
}

function name(text) {
  return make("bdi", { class: "name" }, text);
}

// The picture of an item, or null where the page has none.
function picture(item, words, size) {
  const source = Object.hasOwn(data.thumbs, item) ? data.thumbs[item] : null;
  return source === null ? null : show(make("img", { alt: words, width: size, height: size }), source);
}

function show(image, source) {
  image.addEventListener("load", () => {
    const longest = Math.max(image.naturalWidth, image.naturalHeight);
    image.classList.toggle("pixels", longest < SMALL);
  });
  image.decoding = "async";
  image.src = source;
  return image;
}

for (const image of document.querySelectorAll("img[data-item]")) {
  if (Object.hasOwn(data.thumbs, image.dataset.item)) show(image, data.thumbs[image.dataset.item]);
}

// ------------------------------------------------------------------------------------------------------------ copying
async function copy(text, button, ifRefused) {
  const words = button.dataset.words || button.textContent;
  button.dataset.words = words;
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    done = copyOldWay(text);
  }
  if (!done) return ifRefused();
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = words; }, 1600);
}

function copyOldWay(text) {
  const area = make("textarea", { class: "offscreen", readonly: "" });
  area.value = text;
  document.body.append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    area.remove();
  }
}

for (const button of document.querySelectorAll("[data-copy]")) {
  const source = byId(button.dataset.copy);
  button.addEventListener("click", () => copy(source.textContent, button, () => {
    getSelection().selectAllChildren(source);
  }));
}

// --------------------------------------------------------------------------------- addresses such as #doubtful?person=a1
const routes = {}; // section -> what to do with the part after the question mark

function followAddress() {
  const [section, query] = location.hash.slice(1).split("?", 2);
  if (query === undefined || !Object.hasOwn(routes, section)) return;
  routes[section](new URLSearchParams(query));
  byId(section).scrollIntoView();
  byId(`${section}-title`).focus({ preventScroll: true });
}

function writeAddress(section, parameters) {
  const query = parameters.toString();
  try {
    history.replaceState(null, "", query ? `#${section}?${query}` : `#${section}`);
  } catch {
    // Some viewers forbid it; the filters work all the same.
  }
}

window.addEventListener("hashchange", followAddress);

// ------------------------------------------------------------------------------------- where we are, in the navigation
const places = new Map();
for (const link of document.querySelectorAll(".contents a")) places.set(link.hash.slice(1), link);
const visible = new Set();
const watcher = new IntersectionObserver((changes) => {
  for (const change of changes) visible[change.isIntersecting ? "add" : "delete"](change.target.id);
  const current = [...places.keys()].find((key) => visible.has(key));
  if (current === undefined) return;
  for (const [key, link] of places) {
    if (key !== current) link.removeAttribute("aria-current");
    else if (!link.hasAttribute("aria-current")) {
      link.setAttribute("aria-current", "true");
      const list = link.closest("ul");
      list.scrollLeft = link.offsetLeft - list.offsetLeft - (list.clientWidth - link.offsetWidth) / 2;
    }
  }
}, { rootMargin: "-30% 0px -60% 0px" });
for (const key of places.keys()) watcher.observe(byId(key));
