"use strict";
// What every part of the page uses: the data, what was chosen (it stands in the address), elements, figures as words, colours, tables.
const D = JSON.parse(document.getElementById("data").textContent, (_, value) => (
  value && typeof value === "object" && !Array.isArray(value) ? Object.assign(Object.create(null), value) : value)); // a name in it finds nothing of JavaScript's own
const $ = (id) => document.getElementById(id);
const MINUS = "–";

// An element; every text from the data goes in as text, never as HTML.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const show = (id, ...children) => { $(id).replaceChildren(...children.flat(Infinity).filter((child) => child !== null)); };
const none = (text) => make("p", { class: "none" }, text);
const unique = (values) => [...new Set(values)];
const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => { const known = values.filter((value) => value !== null && value !== undefined); return known.length ? sum(known) / known.length : null; };
const inOrder = (values) => values.sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true })));

// What was chosen: in the part of the address behind #, so that a link shows the same.
let chosen = new URLSearchParams(location.hash.slice(1));
function address(changes) {
  const next = new URLSearchParams(chosen);
  for (const [name, value] of Object.entries(changes)) if (value === null) next.delete(name); else next.set(name, value);
  return `#${next}`;
}
function set(changes) { history.replaceState(null, "", address(changes)); chosen = new URLSearchParams(location.hash.slice(1)); paint(); }
const said = (value) => (value === null || value === undefined ? "not told" : String(value));

// A selector in `place` (an id). Returns what is chosen: that of the address if it is offered, else `preset`.
function choose(place, name, label, options, preset, words = said) {
  const id = `choose-${name}`, value = options.find((option) => said(option) === chosen.get(name)) ?? preset;
  let select = $(id);
  if (!select) {
    select = make("select", { id });
    select.addEventListener("change", () => set({ [name]: select.value }));
    $(place).append(make("label", {}, label, select));
  }
  select.replaceChildren(...options.map((option) => make("option", { value: said(option), selected: option === value }, words(option))));
  select.parentNode.dataset.used = paintings;
  select.parentNode.style.order = place === "choices" ? ++placed : "";
  return value;
}
function tick(place, name, label) {
  const id = `choose-${name}`;
  let box = $(id);
  if (!box) {
    box = make("input", { type: "checkbox", id });
    box.addEventListener("change", () => set({ [name]: box.checked ? null : "no" }));
    $(place).append(make("label", { class: "tick" }, box, label));
  }
  box.checked = chosen.get(name) !== "no";
  box.parentNode.dataset.used = paintings;
  return box.checked;
}

// Figures as words, with their units.
const round = (value, digits = 3) => String(+value.toPrecision(digits));
const count = (value) => value.toLocaleString("en");
function seconds(value) {
  if (value === null || value === undefined) return MINUS;
  const [factor, unit] = timeUnit(value);
  return `${round(value * factor)} ${unit}`;
}
function timeUnit(most) { return Math.abs(most) >= 1 || !most ? [1, "s"] : Math.abs(most) >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"]; }
function bytes(value) {
  if (typeof value !== "number") return said(value);
  const power = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(([size]) => value >= size);
  return power ? `${round(value / power[0])} ${power[1]}` : `${value} B`;
}
const perSecond = (value) => (value === null || value === undefined ? MINUS : `${round(value)} /s`);
const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

// Colours that colour-blind readers can tell apart, and a shape for each algorithm besides. An algorithm has the same ones in every part of the page.
const COLOURS = { light: ["#0068a8", "#c94f00", "#00805c", "#a9478a", "#946300", "#2a8fc7", "#5a5f6b", "#7a3fb0"],
  dark: ["#5aaef0", "#ff8b4d", "#2fcf9f", "#ec9fcb", "#e6b84c", "#9bdcff", "#b8becb", "#c39bff"] };
const KNOWN = ["abd", "aresabd", "aresec", "aresmixed", "cassandra", "redisw", "redis", "etcd"];
const plainly = (name) => String(name).toLowerCase().replace(/[^a-z0-9]/g, "");
const names = unique([...D.runs.map((run) => run.algorithm), ...D.published.map((line) => line.algorithm)]);
const present = inOrder(unique(names.map(plainly))), others = present.filter((name) => !KNOWN.includes(name));
const free = KNOWN.map((_, i) => i).filter((i) => !present.includes(KNOWN[i])); // places of those known by name that are not here
const places = new Map([...KNOWN.map((name, i) => [name, i]), ...others.map((name, i) => [name, i < free.length ? free[i] : KNOWN.length + i])]);
const dark = () => document.documentElement.dataset.theme === "dark";
const colourAt = (i) => COLOURS[dark() ? "dark" : "light"][i % 8];
const colour = (algorithm) => colourAt(places.get(plainly(algorithm)));
const OPERATIONS = unique([...["read", "write", "recon"], ...inOrder(unique(D.runs.flatMap((run) => Object.keys(run.operations))))]);
const operationColour = (name) => colourAt([0, 1, 2, 3, 4, 5, 7, 6][OPERATIONS.indexOf(name) % 8]);
const SHAPES = ["M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z", "M-4.5,-4.5h9v9h-9z", "M0,-6L5.5,4.5H-5.5z", "M0,-6.5L6,0L0,6.5L-6,0z", "M-5.5,-4.5H5.5L0,6z",
  "M-2,-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z", "M-6,-3h12v6h-12z", "M-3,-6h6v12h-6z"];
function shape(algorithm) { const place = places.get(plainly(algorithm)); return SHAPES[(place + Math.floor(place / 8)) % 8]; }
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const sample = (algorithm, dashed) => draw("svg", { width: 30, height: 14, viewBox: "-15 -7 30 14", "aria-hidden": "true" },
  draw("path", { d: "M-15,0H15", stroke: colour(algorithm), "stroke-width": 2, "stroke-dasharray": dashed ? "5 3" : undefined }),
  draw("path", { d: shape(algorithm), fill: dashed ? css("paper") : colour(algorithm), stroke: colour(algorithm), "stroke-width": 1.5 }));

// A table: `heads` are texts, or [text, class] for a column of words; a cell is a text or an element.
function table(caption, heads, rows) {
  const kinds = heads.map((head) => (Array.isArray(head) ? head[1] : undefined));
  return make("table", { class: "figures" }, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, heads.map((head, i) => make("th", { scope: "col", class: kinds[i] }, Array.isArray(head) ? head[0] : head)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map((cell, i) => make("td", { class: kinds[i] }, cell))))));
}
const failures = (operation) => (operation.failed
  ? make("span", { class: "bad" }, count(operation.failed) + (operation.unknown ? ` (${count(operation.unknown)} unknown)` : "")) : "0");

// Steps of an axis from 0, or of a logarithmic one between two values.
function steps(most, wanted = 6) {
  const rough = most / wanted, power = 10 ** Math.floor(Math.log10(rough)), size = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  return Array.from({ length: Math.floor(most / size + 1e-9) + 1 }, (_, i) => i * size);
}
function decades(least, most) {
  const found = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power++) for (const factor of [1, 2, 5]) found.push(factor * 10 ** power);
  return found.filter((value) => value >= least * 0.999 && value <= most * 1.001);
}

// Of a logarithmic axis 1, 2, 5, 10, ... have their figures written.
const logarithmicAxis = { filter: (chart, marks) => { // of a narrow plot only 1, 10, ...
  const digits = (mark) => round(mark).replace(/[0.]/g, ""), some = marks.filter((mark) => mark && /^[125]$|e/.test(digits(mark)));
  return marks.map((mark) => (some.includes(mark) && (50 * some.length < chart.width || digits(mark) !== "2" && digits(mark) !== "5") ? mark : null));
},
  values: (_, marks) => marks.map((mark) => (mark === null ? "" : round(mark))) };
// A plot of uPlot in the place, as wide as it; `words` say what it shows to whom cannot see it.
function plot(place, words, options, data) {
  show(place);
  const axis = { stroke: css("ink"), grid: { stroke: css("grid"), width: 1 }, ticks: { stroke: css("line"), width: 1 } };
  const made = new uPlot({ width: Math.max(280, $(place).clientWidth), height: 330, legend: { live: false, markers: { dash: (chart, i) => (chart.series[i].dash ? "dashed" : "solid") } }, cursor: { drag: { setScale: false } }, ...options,
    axes: options.axes.map((own) => ({ ...axis, labelSize: 22, font: "12px system-ui", labelFont: "12px system-ui", ...own })) }, data, $(place));
  made.root.querySelector("canvas").setAttribute("role", "img");
  made.root.querySelector("canvas").setAttribute("aria-label", words);
}
