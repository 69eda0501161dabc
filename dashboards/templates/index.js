"use strict";
const list = document.getElementById("list");
if (list) {
  const body = list.tBodies[0];
  const rows = [...body.rows];
  const filters = document.getElementById("filters");
  const fields = [...filters.querySelectorAll("input, select")];

  const sortKey = (row, column) => row.cells[column].dataset.sort;

  function isShown(row) {
    return fields.every(field => field.name === "text"
      ? row.textContent.toLowerCase().includes(field.value.trim().toLowerCase())
      : !field.value || row.querySelector(`[data-name=${field.name}]`).dataset.sort === field.value);
  }

  function filter() {
    for (const row of rows) row.hidden = !isShown(row);
    const count = rows.filter(row => !row.hidden).length;
    document.getElementById("shown").textContent = `${count} of ${rows.length} rows`;
  }

  function sort(heads, column) {
    const descends = heads[column].getAttribute("aria-sort") !== "descending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", descends ? "descending" : "ascending");
    // Rows without a value come last in both directions.
    body.append(...rows.toSorted((a, b) => {
      const [x, y] = [sortKey(a, column), sortKey(b, column)];
      if (!x || !y) return (x ? 0 : 1) - (y ? 0 : 1);
      const difference = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return descends ? -difference : difference;
    }));
  }

  const heads = [...list.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(heads, column));
    head.replaceChildren(button);
  });
  for (const field of fields) field.addEventListener("input", filter);
  filters.hidden = false;
  filter();
}
