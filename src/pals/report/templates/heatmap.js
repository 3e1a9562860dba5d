// -------------------------------------------------------------------------------------------------------- the heat map
function startHeatmap(heat) {
  const cells = document.querySelector(".grid .cells");
  const readout = byId("readout");
  const whose = byId("whose");
  const HINT = "Point at a cell to read it; click it to see the items.";

  // As the drawing that comes with the page, for one person.
  function squaresOf(person) {
    return person.cells.flatMap(([row, column, times, shade]) => {
      const [x, y] = [column * heat.size, row * heat.size];
      const share = times / person.totals[row];
      const words = `Result ${isolated(heat.names[row])}, answered ${isolated(heat.names[column])}: ` +
        `${count(times)} of ${count(person.totals[row])} answers (${percent(share)})`;
      const square = makeSvg("rect", { class: shade, x: x + 1, y: y + 1, width: heat.size - 1, height: heat.size - 1 },
        makeSvg("title", null, words));
      if (!heat.numbers) return [square];
      const middle = { x: x + heat.size / 2, y: y + heat.size / 2 + 4, "text-anchor": "middle" };
      return [square, makeSvg("text", { class: `on-${shade}`, ...middle }, (100 * share).toFixed(1))];
    });
  }

  function cellAt(event) {
    return event.target.closest(".cells rect:not(.frame)");
  }

  cells.addEventListener("pointerover", (event) => {
    const cell = cellAt(event);
    if (cell) readout.textContent = cell.querySelector("title").textContent;
  });
  cells.addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (!cell || !routes.doubtful) return;
    const place = (axis) => heat.names[Math.floor(cell.getAttribute(axis) / heat.size)];
    const filters = new URLSearchParams({ result: place("y"), answer: place("x") });
    if (whose && whose.selectedIndex > 0) filters.set("person", heat.people[whose.selectedIndex - 1].name);
    location.hash = `doubtful?${filters}`;
  });
  readout.textContent = HINT;
  if (!whose) return;
  const [frame, ...everybody] = cells.children;
  const choose = (index) => {
    whose.selectedIndex = index + 1;
    cells.replaceChildren(frame, ...(index < 0 ? everybody : squaresOf(heat.people[index])));
    readout.textContent = HINT;
  };
  whose.addEventListener("change", () => {
    const index = whose.selectedIndex - 1;
    choose(index);
    writeAddress("confusion", new URLSearchParams(index < 0 ? {} : { person: heat.people[index].name }));
  });
  routes.confusion = (parameters) => choose(heat.people.findIndex((one) => one.name === parameters.get("person")));
}

if (data.heat) startHeatmap(data.heat);
