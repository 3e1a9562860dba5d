// ------------------------------------------------------------------------------------------------ tables that can be sorted
const FEW = 15; // rows shown of a long table at first

function startTable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const search = document.querySelector(`[data-search="${table.id}"]`);
  const all = document.querySelector(`[data-all="${table.id}"]`);
  let whole = !all;

  const numeric = (head) => head.classList.contains("number");

  function sort(head) {
    const falling = head.getAttribute("aria-sort") === "none" ? numeric(head) : head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const column = heads.indexOf(head);
    const valueOf = (row) => row.cells[column].dataset.value;
    const compare = numeric(head) ? (a, b) => a - b : natural.compare;
    const rows = [...body.rows].sort((one, two) => {
      const [a, b] = [valueOf(one), valueOf(two)];
      if (a === "" || b === "") return (a === "") - (b === ""); // what is unknown comes last both ways
      return falling ? compare(b, a) : compare(a, b);
    });
    body.append(...rows);
    limit();
  }

  // A long table shows its first rows, or those that fit the search.
  function limit() {
    const text = search ? search.value.trim().toLowerCase() : "";
    let left = whole || text ? Infinity : FEW;
    for (const row of body.rows) {
      const fits = row.textContent.toLowerCase().includes(text);
      row.classList.toggle("beyond", !(fits && left-- > 0));
    }
  }

  for (const head of heads) {
    const button = head.querySelector("button.sort");
    if (button) button.addEventListener("click", () => sort(head));
  }
  if (all) {
    const more = all.textContent;
    all.addEventListener("click", () => {
      whole = !whole;
      all.textContent = whole ? "Show fewer" : more;
      limit();
    });
    search.addEventListener("input", limit);
    search.closest(".table-tools").hidden = false;
  }
  limit();
}

for (const table of document.querySelectorAll("table[id]")) startTable(table);

followAddress(); // now that everything listens
