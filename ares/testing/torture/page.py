"""The page of a timeline, with a place for its data: a canvas, drawn anew for what is in sight, so that 100,000 operations stay quick."""

PAGE = r"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>ares torture: timeline</title>
<style>
  :root { color-scheme: light; }
  html { overflow-x: hidden; overflow-y: auto; scrollbar-gutter: stable; }
  body { margin: 0; font: 13px/1.4 system-ui, sans-serif; color: #1d2433; background: #f6f7f9; }
  header { padding: 10px 14px 6px; }
  h1 { font-size: 16px; margin: 0 0 2px; }
  h1.bad { color: #b3151c; }
  header p { margin: 0; color: #566074; }
  .legend { margin: 6px 0 0; display: flex; flex-wrap: wrap; gap: 4px 14px; align-items: center; }
  .legend i { display: inline-block; width: 14px; height: 10px; margin-right: 5px; border-radius: 2px; }
  .legend button { font: inherit; padding: 0 8px; }
  details { margin: 4px 14px; color: #b3151c; } details pre { white-space: pre-wrap; }
  canvas { display: block; background: #fff; border-top: 1px solid #d9dde5; cursor: grab; touch-action: none; }
  #tip { position: fixed; display: none; max-width: 520px; padding: 6px 9px; background: #1d2433; color: #fff; border-radius: 4px;
         font-size: 12px; white-space: pre-wrap; overflow-wrap: anywhere; pointer-events: none; z-index: 2; }
</style>
</head>
<body>
<header>
  <h1></h1><p></p>
  <div class="legend"><span id="legend"></span>
    <button data-zoom="0.5">zoom in</button><button data-zoom="2">zoom out</button><button data-zoom="0">whole run</button>
    <span style="color:#566074">wheel: zoom &middot; drag: move &middot; hover: details</span></div>
</header>
<details hidden><summary></summary><pre></pre></details>
<canvas></canvas><div id="tip"></div>
<script id="data" type="application/json">/*DATA*/</script>
<script>
"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const KIND = ["#4c8bd6", "#3aa675", "#8a63c9"], BAD = ["", "#d7191c", "#ff8c00", "#9c8e78"];
const STATE = ["#cfe8d5", "#3b3f4a", "#f0b429", "#d6478b"], BAND = ["#b9cdea", "#dbe5f3"];
const LEFT = 128, AXIS = 22, CLIENT = 17, PROCESS = 15, GAP = 8;
const $ = (query) => document.querySelector(query);
const canvas = $("canvas"), tip = $("#tip"), pen = canvas.getContext("2d");
let from = 0, to = D.end, width = 0, height = 0;

$("h1").textContent = D.heading; $("h1").className = D.ok ? "" : "bad"; $("header p").textContent = D.facts;
if (D.findings.length) {
  $("details").hidden = false; $("details").open = D.findings.length < 4;
  $("summary").textContent = `${D.findings.length} findings`; $("details pre").textContent = D.findings.join("\n\n");
}
for (const [colour, text] of [...D.kinds.map((kind, i) => [KIND[i], kind]), ...D.outcomes.slice(1).map((name, i) => [BAD[i + 1], name]),
     ...D.states.map((name, i) => [STATE[i], i ? name : "process up"]), ["#11643a", "new life"], ["#e07b39", "reconfiguration under way"]]) {
  const item = document.createElement("span"), box = document.createElement("i");
  box.style.background = colour; item.append(box, text); item.style.marginRight = "12px"; $("#legend").append(item);
}

// Rows from the top: configurations, faults, processes, clients.
const rows = [];
let y = AXIS;
const row = (name, type, items, tall) => { rows.push({ name, type, items, y, tall }); y += tall; };
row("configuration", "configuration", D.configurations, 24);
row("faults", "mark", D.marks.filter((mark) => mark[4]), 18);
row("other events", "mark", D.marks.filter((mark) => !mark[4]), 18); y += GAP;
D.processes.forEach((name, i) => row(name, "process", D.spells[i], PROCESS)); y += GAP;
D.clients.forEach((name, i) => row(name, "client", D.operations[i], CLIENT));
const bottom = y + 6;

const x = (ms) => LEFT + (ms - from) / (to - from) * (width - LEFT);
const ms = (px) => from + (px - LEFT) / (width - LEFT) * (to - from);
// Items are in order of their begin; the longest tells how far back one may reach into sight.
for (const r of rows) r.longest = r.items.reduce((most, item) => Math.max(most, extent(r, item)[1] - extent(r, item)[0]), 0);

function extent(r, item) {
  if (r.type === "client") return [item[0], item[0] + item[1]];
  if (r.type === "process") return [item[0], item[1]];
  if (r.type === "mark") return [item[0], item[0]];
  return [item[0] === null ? item[1] : Math.min(item[0], item[1]), item[2]];
}
function first(r, at) {
  let low = 0, high = r.items.length;
  while (low < high) { const middle = (low + high) >> 1; if (extent(r, r.items[middle])[0] < at) low = middle + 1; else high = middle; }
  return low;
}
function* inSight(r) {
  for (let i = first(r, from - r.longest); i < r.items.length; i++) {
    const [begin, end] = extent(r, r.items[i]);
    if (begin > to) return;
    if (end >= from) yield r.items[i];
  }
}
function bar(left, right, top, tall, colour, least) {
  const a = Math.max(LEFT, left), b = Math.max(a + least, right);
  pen.fillStyle = colour; pen.fillRect(a, top, b - a, tall);
}
function drawClient(r) {
  const last = [-9, -9, -9], late = [];
  for (const item of inSight(r)) {
    const a = x(item[0]), b = x(item[0] + item[1]);
    if (item[3]) { late.push([a, b, item[3]]); continue; }
    if (b < last[item[2]] + 0.5) continue;  // nothing that would be seen
    bar(a, b, r.y + 3, r.tall - 5, KIND[item[2]], 1); last[item[2]] = Math.max(b, a + 1);
  }
  for (const [a, b, outcome] of late) {
    if (outcome === 3) bar(a, b, r.y + 9, r.tall - 10, BAD[outcome], 1.5);
    else bar(a, b, r.y, r.tall - 1, BAD[outcome], 3);
  }
}
function drawProcess(r) {
  let life = 0;
  for (const [begin, end, state, number] of inSight(r)) {
    bar(x(begin), x(end), r.y + 2, r.tall - 3, STATE[state], state ? 2 : 0);
    if (number !== life && life && x(begin) > LEFT) { pen.fillStyle = "#11643a"; pen.fillRect(x(begin), r.y, 2, r.tall); }
    if (state === 0 && x(end) - Math.max(LEFT, x(begin)) > 46) {
      pen.fillStyle = "#5f7f69"; pen.fillText(`life ${number}`, Math.max(LEFT, x(begin)) + 5, r.y + 11);
    }
    life = number;
  }
}
function drawConfiguration(r) {
  for (const [wished, finalized, until, index, text] of inSight(r)) {
    const a = Math.max(LEFT, x(finalized)), b = x(until);
    bar(a, b, r.y + 2, r.tall - 4, BAND[index % 2], 1);
    if (wished !== null) bar(x(wished), x(finalized), r.y + r.tall - 5, 4, "#e07b39", 1);
    if (b - a < 10) continue;
    const words = [`${index}: ${text}`, `${index}: ${text.split(" on ")[0]}`, `${index} ${text.split(" ")[0]}`, `${index}`];
    const label = words.find((word) => pen.measureText(word).width < b - a - 6);
    if (label) { pen.fillStyle = "#24406b"; pen.fillText(label, a + 4, r.y + 16); }
  }
}
function markColour(kind) {
  if (kind.includes("reconfigurer")) return "#8a63c9";
  if (kind.startsWith("kill") || kind.startsWith("ended")) return STATE[1];
  if (kind.startsWith("stop")) return STATE[2];
  if (kind.startsWith("partition")) return STATE[3];
  if (kind.includes("failed")) return BAD[1];
  return kind.includes("refused") ? "#ff8c00" : "#7d8798";
}
function drawMark(r) {
  for (const [at, kind] of inSight(r)) {
    const a = x(at); if (a < LEFT) continue;
    pen.fillStyle = markColour(kind); pen.beginPath();
    pen.moveTo(a, r.y + 3); pen.lineTo(a + 4, r.y + r.tall / 2); pen.lineTo(a, r.y + r.tall - 3); pen.lineTo(a - 4, r.y + r.tall / 2); pen.fill();
  }
}
const draw = { client: drawClient, process: drawProcess, configuration: drawConfiguration, mark: drawMark };

function step(span) {
  const rough = span / Math.max(2, (width - LEFT) / 110), power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
}
function paint() {
  const scale = window.devicePixelRatio || 1;
  width = document.body.clientWidth; height = Math.max(bottom, window.innerHeight - canvas.getBoundingClientRect().top - scrollY - 4);
  canvas.width = width * scale; canvas.height = height * scale; canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  pen.setTransform(scale, 0, 0, scale, 0, 0); pen.font = "11px system-ui, sans-serif";
  const size = step(to - from);
  for (let at = Math.ceil(from / size) * size; at <= to; at += size) {
    pen.fillStyle = "#e9ecf1"; pen.fillRect(x(at), AXIS, 1, bottom - AXIS);
    pen.fillStyle = "#566074"; pen.fillText(size >= 1000 ? `${at / 1000} s` : `${+(at / 1000).toFixed(4)} s`, x(at) + 2, 14);
  }
  rows.forEach((r, i) => {
    if (i % 2) { pen.fillStyle = "rgba(120,135,160,0.06)"; pen.fillRect(0, r.y, width, r.tall); }
    draw[r.type](r);
  });
  pen.fillStyle = "#fff"; pen.fillRect(0, 0, LEFT - 1, height); pen.fillStyle = "#d9dde5"; pen.fillRect(LEFT - 1, 0, 1, bottom);
  pen.fillStyle = "#1d2433";
  for (const r of rows) pen.fillText(r.name, 8, r.y + r.tall / 2 + 4);
}
let waiting = false;
function soon() { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; paint(); }); } }
function show(begin, end) {
  const span = Math.min(D.end, Math.max(0.5, end - begin));
  from = Math.min(Math.max(0, begin), D.end - span); to = from + span; soon();
}
function zoom(factor, at) { show(at - (at - from) * factor, at + (to - at) * factor); }

function describe(r, item) {
  const s = (value) => `${(value / 1000).toFixed(3)} s`;
  if (r.type === "client") {
    const [begin, length, kind, outcome, key, value, error] = item;
    const what = `${r.name}: ${D.kinds[kind]} ${key}${value === undefined ? (kind ? "" : " = (absent)") : value ? ` = ${value}` : ""}`;
    return `${what}\n${D.outcomes[outcome]}, at ${s(begin)}, ${length} ms${error ? `\n${error}` : ""}`;
  }
  if (r.type === "process") return `${r.name}: ${D.states[item[2]]}, life ${item[3]}\n${s(item[0])} to ${s(item[1])}`;
  if (r.type === "mark") return `${item[1]} ${item[2]}\nat ${s(item[0])}${item[3] ? `\n${item[3]}` : ""}`;
  return `configuration ${item[3]}: ${item[4]}\n${item[0] === null ? "" : `begun at ${s(item[0])}, `}finalized at ${s(item[1])}, until ${s(item[2])}`;
}
function under(px, py) {
  const r = rows.find((other) => py >= other.y && py < other.y + other.tall);
  if (!r || px < LEFT) return null;
  let best = null, nearest = 5;
  for (const item of inSight(r)) {
    const [begin, end] = extent(r, item), distance = Math.max(x(begin) - px, px - x(end), 0);
    if (distance < nearest || (distance === nearest && item[3])) { best = item; nearest = distance; }
  }
  return best && describe(r, best);
}
let grip = null;
canvas.addEventListener("pointerdown", (event) => { grip = { x: event.clientX, from, to }; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener("pointerup", () => { grip = null; });
canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
canvas.addEventListener("pointermove", (event) => {
  if (grip) {
    const moved = (event.clientX - grip.x) / (width - LEFT) * (grip.to - grip.from);
    return show(grip.from - moved, grip.to - moved);
  }
  const text = under(event.offsetX, event.offsetY);
  tip.style.display = text ? "block" : "none"; tip.textContent = text || "";
  tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 16, window.innerHeight - tip.offsetHeight - 8)}px`;
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const moved = event.deltaX / (width - LEFT) * (to - from);
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return show(from + moved, to + moved);
  zoom(event.deltaY > 0 ? 1.25 : 0.8, ms(Math.max(LEFT, event.offsetX)));
}, { passive: false });
document.querySelectorAll("button").forEach((button) => button.addEventListener("click", () => {
  const factor = +button.dataset.zoom; if (factor) zoom(factor, (from + to) / 2); else show(0, D.end);
}));
window.addEventListener("resize", soon);
const [, a, b] = location.hash.match(/^#([\d.]+)-([\d.]+)$/) || [];  // #12-15: show seconds 12 to 15
if (b) { from = a * 1000; to = b * 1000; }
paint();
</script>
</body>
</html>
"""
