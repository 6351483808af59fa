"use strict";
(() => {
  // Remember the chosen theme, if the browser allows local storage.
  const root = document.documentElement, key = "packtrain-theme";
  const loadTheme = () => { try { return localStorage.getItem(key); } catch { return null; } };
  const saveTheme = (theme) => { try { localStorage.setItem(key, theme); } catch { /* forgotten on reload */ } };
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme || (preferred.matches ? "dark" : "light");
  const saved = loadTheme();
  if (saved === "dark" || saved === "light") root.dataset.theme = saved;

  const setUpTheme = () => {
    const button = document.getElementById("theme");
    const updateLabel = () => { button.textContent = current() === "dark" ? "Light theme" : "Dark theme"; };
    button.addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      saveTheme(root.dataset.theme);
      updateLabel();
    });
    preferred.addEventListener("change", updateLabel);
    button.hidden = false;
    updateLabel();
  };

  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const valueOf = (cell, isNumeric) => {
    if (!isNumeric) return cell.textContent;
    return cell.dataset.v === "" ? NaN : Number(cell.dataset.v);
  };
  // Unknown values come last in both directions.
  const compare = (a, b, isNumeric, sign) => {
    if (!isNumeric) return (a === "") - (b === "") || sign * collator.compare(a, b);
    return Number.isNaN(a) - Number.isNaN(b) || sign * (a - b) || 0;
  };

  const sort = (table, column) => {
    const headers = [...table.tHead.rows[0].cells], header = headers[column];
    const isNumeric = header.classList.contains("number");
    const first = isNumeric ? "descending" : "ascending";
    const second = isNumeric ? "ascending" : "descending";
    const direction = header.getAttribute("aria-sort") === first ? second : first;
    for (const each of headers) each.setAttribute("aria-sort", each === header ? direction : "none");
    const sign = direction === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [valueOf(row.cells[column], isNumeric), row]);
    rows.sort((a, b) => compare(a[0], b[0], isNumeric, sign));
    body.append(...rows.map((pair) => pair[1]));
  };

  const setUpTable = (table) => {
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      header.querySelector("button").addEventListener("click", () => sort(table, column));
    });
  };

  const setUpFilter = (input) => {
    const table = document.getElementById(input.dataset.table);
    const status = document.getElementById(input.dataset.status), initialStatus = status.textContent;
    const texts = [...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
    input.addEventListener("input", () => {
      const query = input.value.trim().toLowerCase();
      let found = 0;
      for (const [row, text] of texts) found += !(row.hidden = !text.includes(query));
      status.textContent = query ? `${found.toLocaleString("en")} found` : initialStatus;
    });
  };

  document.addEventListener("DOMContentLoaded", () => {
    setUpTheme();
    document.querySelectorAll("table").forEach(setUpTable);
    document.querySelectorAll("input[data-table]").forEach(setUpFilter);
  });
})();
