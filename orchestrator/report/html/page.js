// SPDX-License-Identifier: GPL-2.0-only
// What a page can do beyond being read: theme, filter, sorting, compressed texts, printing. Content is set as text only.
"use strict";

const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// --- Theme: the system's, light or dark; remembered where the browser lets a page of a file remember anything.
const THEMES = ["system", "light", "dark"];
const themeButton = document.getElementById("theme");

function remembered() {
  try { return localStorage.getItem("theme"); } catch { return null; }
}

function setTheme(theme) {
  if (theme === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", theme);
  themeButton.textContent = `Theme: ${theme}`;
  try { localStorage.setItem("theme", theme); } catch { /* it holds until the page is closed */ }
}

setTheme(THEMES.includes(remembered()) ? remembered() : "system");
themeButton.hidden = false;
themeButton.addEventListener("click", () => {
  const now = document.documentElement.getAttribute("data-theme") ?? "system";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});

// --- Filter: a row of the form's table, and the details that it leads to, are shown or hidden together.
function filterCells(form) {
  const wanted = Object.fromEntries(new FormData(form));
  const words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  const rows = all(form.dataset.table ? `#${form.dataset.table} tbody tr` : "tr[data-cell]");
  for (const row of rows) {
    const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
    const fits = words.every((word) => text.includes(word))
      && ["status", "probe", "kernel"].every((name) => !wanted[name] || row.dataset[name] === wanted[name]);
    row.hidden = !fits;
    if (row.dataset.cell) document.getElementById(row.dataset.cell).hidden = !fits;
    shown += fits;
  }
  form.querySelector("output").textContent = `${shown} of ${rows.length} ${form.dataset.what ?? "cells"}`;
}

for (const form of all("form#filter")) {
  form.hidden = false;
  form.addEventListener("input", () => filterCells(form));
  form.addEventListener("submit", (event) => event.preventDefault());
  filterCells(form);
}

// --- Sorting: figures by value, all else by text; what has no figure comes last in both directions.
const FIGURE = /^[+-]?\d+(\.\d+)?( |$)/;

function compared(one, other, direction) {
  const figures = [one, other].map((text) => (FIGURE.test(text) ? Number.parseFloat(text) : Number.NaN));
  const missing = figures.map(Number.isNaN);
  if (missing.every(Boolean)) return direction * one.localeCompare(other, "en", { numeric: true });
  if (missing.some(Boolean)) return missing[0] ? 1 : -1;
  return direction * (figures[0] - figures[1]);
}

function sortBy(table, heading) {
  const ascending = heading.getAttribute("aria-sort") !== "ascending";
  for (const other of all("th[aria-sort]", table)) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const column = heading.cellIndex;
  for (const body of table.tBodies) {
    const rows = [...body.rows].map((row) => [row.cells[column].textContent, row]);
    rows.sort(([one], [other]) => compared(one, other, ascending ? 1 : -1));
    body.append(...rows.map(([, row]) => row));
  }
}

for (const table of all("table.sortable")) {
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    button.addEventListener("click", () => sortBy(table, heading));
    heading.replaceChildren(button);
  }
}

// --- Compressed texts: expanded when they are opened for the first time.
async function expanded(encoded) {
  const packed = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new TextDecoder().decode(await new Response(stream).arrayBuffer());
}

for (const details of all("details[data-packed]")) {
  details.addEventListener("toggle", async () => {
    const text = details.querySelector("pre");
    if (!details.open || !text.hidden || !("DecompressionStream" in window)) return;
    text.textContent = await expanded(document.getElementById(details.dataset.packed).content.textContent);
    text.hidden = false;
    details.querySelector("p").hidden = true;
  });
}

// --- A link to something folded opens it.
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target === null) return;
  for (let around = target; around !== null; around = around.parentElement) {
    if (around instanceof HTMLDetailsElement) around.open = true;
  }
  target.scrollIntoView();
}

addEventListener("hashchange", openTarget);
if (location.hash) openTarget();

// --- Printing: what belongs to the report is open, and is folded again afterwards.
let opened = [];
addEventListener("beforeprint", () => {
  opened = all("details[data-print]:not([open]):not([hidden])");
  for (const details of opened) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
});
