"use strict";
(() => {
  // A theme that was chosen is remembered, where the browser lets a page remember anything.
  const root = document.documentElement, key = "packtrain-theme";
  const recall = () => { try { return localStorage.getItem(key); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem(key, theme); } catch { /* then for this visit only */ } };
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme || (preferred.matches ? "dark" : "light");
  const chosen = recall();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;

  const setUpTheme = () => {
    const button = document.getElementById("theme");
    const show = () => { button.textContent = current() === "dark" ? "Light theme" : "Dark theme"; };
    button.addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      keep(root.dataset.theme);
      show();
    });
    preferred.addEventListener("change", show);
    button.hidden = false;
    show();
  };

  const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const valueOf = (cell, number) => {
    if (!number) return cell.textContent;
    return cell.dataset.v === "" ? NaN : Number(cell.dataset.v);
  };
  // What is unknown comes last, in whatever direction.
  const compare = (a, b, number, sign) => {
    if (!number) return (a === "") - (b === "") || sign * words.compare(a, b);
    return Number.isNaN(a) - Number.isNaN(b) || sign * (a - b) || 0;
  };

  const sort = (table, column) => {
    const heads = [...table.tHead.rows[0].cells], head = heads[column];
    const number = head.classList.contains("number");
    const before = head.getAttribute("aria-sort");
    const first = number ? "descending" : "ascending";
    const other = number ? "ascending" : "descending";
    const direction = before === first ? other : first;
    for (const each of heads) each.setAttribute("aria-sort", each === head ? direction : "none");
    const sign = direction === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [valueOf(row.cells[column], number), row]);
    rows.sort((a, b) => compare(a[0], b[0], number, sign));
    body.append(...rows.map((pair) => pair[1]));
  };

  const setUpTable = (table) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => sort(table, column));
    });
  };

  const setUpFilter = (input) => {
    const table = document.getElementById(input.dataset.of), told = document.getElementById(input.dataset.told);
    const whole = told.textContent;
    const texts = [...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      let shown = 0;
      for (const [row, text] of texts) shown += !(row.hidden = !text.includes(wanted));
      told.textContent = wanted ? `${shown.toLocaleString("en")} found` : whole;
    });
  };

  document.addEventListener("DOMContentLoaded", () => {
    setUpTheme();
    document.querySelectorAll("table").forEach(setUpTable);
    document.querySelectorAll("input[data-of]").forEach(setUpFilter);
  });
})();
