// Load: latency over throughput, a line for each store; waiting and service of open loops; throughput over time while a server is bad.
const MEASURES = { __proto__: null, clients: "clients", offered_per_s: "offered load", per_s: "throughput", read_p50_s: "read p50", read_p99_s: "read p99", read_mean_s: "read mean", write_p50_s: "write p50", write_p99_s: "write p99", write_mean_s: "write mean", wait_p50_s: "waiting p50", wait_p99_s: "waiting p99",
  service_p50_s: "service p50", service_p99_s: "service p99", kept: "kept under the fault", longest_pause_s: "longest pause", failed: "failed" };
const isTime = (name) => name.endsWith("_s") && !name.endsWith("per_s");
const measureOf = (point, name) => point[name] ?? point.figures[name] ?? null;
const measureWord = (name, value) => (value === null ? MINUS : isTime(name) ? seconds(value) : name.endsWith("per_s") ? perSecond(value) : round(value));
const measureName = (name) => MEASURES[name] ?? (name.startsWith("p:") ? parameterName(name.slice(2)) : name);

// Points of the same place in repeated runs become one, whose figures are their means.
function loadLines(runs) {
  const groups = new Map();
  for (const run of runs) {
    const order = { closed: 0, open: 0 };
    for (const point of run.load.points) {
      const key = `${run.algorithm}${run.load.fault ? `, ${run.load.fault}` : ""}${point.mode === "open" ? ", open loop" : ""}`, place = `${Object.values(run.parameters).join("|")} ${order[point.mode]++}`;
      if (!groups.has(key)) groups.set(key, { key, algorithm: run.algorithm, fault: run.load.fault, open: point.mode === "open", places: new Map() });
      add(groups.get(key).places, place, { run, point });
    }
  }
  return inOrder([...groups.keys()]).map((key) => {
    const line = groups.get(key);
    line.points = [...line.places.values()].map((all) => {
      const names = unique(all.flatMap(({ point }) => [...Object.keys(point), ...Object.keys(point.figures)])).filter((name) => typeof measureOf(all[0].point, name) === "number");
      const parameters = Object.fromEntries(Object.entries(all[0].run.parameters).map(([name, value]) => [`p:${name}`, value]));
      return { ...parameters, ...Object.fromEntries(names.map((name) => [name, mean(all.map(({ point }) => measureOf(point, name)))])), figures: {}, curve: all.at(-1).point.curve, runs: all.length };
    });
    return line;
  });
}

function paintLoad(v) {
  const loaded = v.ofScenario.filter((run) => run.load);
  $("load").hidden = !loaded.length;
  $("load-plot").replaceChildren();
  $("curves-plot").replaceChildren();
  if (!loaded.length) return;
  const workloads = inOrder(unique(loaded.map((run) => run.load.workload))), workload = choose("load-choices", "workload", "Workload", workloads, workloads[0]);
  const runs = loaded.filter((run) => run.load.workload === workload), lines = loadLines(runs), points = lines.flatMap((line) => line.points);
  const told = unique(points.flatMap((point) => Object.keys(point))).filter((name) => !["figures", "curve", "runs", "mode", "seconds", "read_share", "read_count", "write_count", "missed"].includes(name));
  const numbers = told.filter((name) => points.some((point) => typeof point[name] === "number")), varying = numbers.filter((name) => unique(points.map((point) => point[name] ?? null)).length > 1);
  const up = numbers.filter((name) => !name.startsWith("p:") && name !== "clients" && (name !== "failed" || points.some((point) => point.failed))), times = up.filter((name) => ["read_p50_s", "write_p50_s"].includes(name));
  const y = choose("load-choices", "up", "Figure", up, points.some((point) => point.kept !== undefined) ? "kept" : times[0] ?? up.find((name) => !(name in MEASURES)) ?? up[0], measureName);
  const along = unique(["per_s", "offered_per_s", "clients", ...varying.filter((name) => name.startsWith("p:"))]).filter((name) => name !== y && varying.includes(name));
  const own = along.filter((name) => name.startsWith("p:") && points.length === lines.length * unique(points.map((point) => point[name])).length);
  const x = choose("load-choices", "along", "Over", [...along, "store"], y === "kept" || !along.length ? "store" : own[0] ?? along[0], (name) => (name === "store" ? "the stores" : measureName(name)));
  const shown = lines.map((line) => ({ ...line, points: line.points.filter((point) => typeof point[y] === "number" && (x === "store" || typeof point[x] === "number")) })).filter((line) => line.points.length);
  show("load-caption", `${v.scenario}, ${workload}: ${measureName(y)} over ${x === "store" ? "the stores" : measureName(x)}${x === "per_s" ? "; more clients along each line" : ""}${shown.some((line) => line.open) ? "; dashed: open loop, latency from when an operation was due" : ""}`);
  show("load-legend", x === "store" ? [] : shown.map((line) => make("span", {}, sample(line.algorithm, line.open), line.key)));
  if (!shown.length) show("load-plot", none("No point tells both."));
  else if (x === "store") loadBars(shown, y);
  else loadCurves(shown, x, y);
  paintLoadTable(lines, numbers);
  paintCurves(lines);
  show("load-runs", make("details", {}, make("summary", {}, `Parameters and provenance of ${plural(runs.length, "run")}`),
    runs.slice(0, 60).map((run) => make("div", {}, make("h3", {}, `${run.algorithm}: ${run.path}`), make("pre", {}, run.settings), make("pre", {}, run.provenance)))));
}

// An axis for numbers: logarithmic where they are far apart. Returns [place, marks, whether it is logarithmic].
function loadAxis(values, from, to, wanted) {
  const positive = values.filter((value) => value > 0), least = Math.min(...positive), most = Math.max(...positive, 1e-9);
  if (positive.length && most / least > 8) {
    const low = least / 1.15, high = most * 1.15, all = decades(low, high), few = all.length > wanted ? all.filter((mark) => /^[0.]*1/.test(round(mark))) : all;
    return [(value) => from + (Math.log(Math.max(value, low) / low) / Math.log(high / low)) * (to - from), few, true];
  }
  const high = positive.length ? 1.08 * most : 1;
  return [(value) => from + (value / high) * (to - from), steps(high, wanted), false];
}
function loadCurves(lines, x, y) {
  const width = Math.max(300, $("load-plot").clientWidth), height = 360, left = 62, right = width - 14, top = 12, bottom = height - 48;
  const points = lines.flatMap((line) => line.points), [factor, unit] = isTime(y) ? timeUnit(Math.max(...points.map((point) => point[y]))) : [1, y.endsWith("per_s") ? "operations a second" : ""];
  const [placeX, marksX, logX] = loadAxis(points.map((point) => point[x]), left + 14, right, width < 560 ? 5 : 10), [placeY, marksY, logY] = loadAxis(points.map((point) => point[y] * factor), bottom, top, 12);
  const worded = (name, logarithmic, extra) => `${measureName(name)}${[extra, logarithmic && "logarithmic"].filter(Boolean).length ? ` (${[extra, logarithmic && "logarithmic"].filter(Boolean).join(", ")})` : ""}`;
  const picture = draw("svg", { width, height, role: "group", "aria-label": $("load-caption").textContent },
    marksY.map((mark) => [draw("path", { d: `M${left},${placeY(mark)}H${right}`, stroke: css("grid") }), draw("text", { x: left - 6, y: placeY(mark) + 4, "text-anchor": "end" }, round(mark))]),
    marksX.map((mark) => [draw("path", { d: `M${placeX(mark)},${top}V${bottom}`, stroke: css("grid") }), draw("text", { x: placeX(mark), y: bottom + 17, "text-anchor": "middle" }, mark >= 1e4 ? `${round(mark / 1000)}k` : round(mark))]),
    draw("path", { d: `M${left},${top}V${bottom}H${right}`, fill: "none", stroke: css("soft") }),
    draw("text", { x: 12, y: (top + bottom) / 2, transform: `rotate(-90 12 ${(top + bottom) / 2})`, "text-anchor": "middle", class: "soft" }, worded(y, logY, unit)),
    draw("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle", class: "soft" }, worded(x, logX, x.endsWith("per_s") ? "operations a second" : "")));
  for (const line of lines) {
    const hue = colour(line.algorithm), at = line.points.map((point) => [placeX(point[x]), placeY(point[y] * factor)]);
    picture.append(draw("path", { d: `M${at.map((place) => place.join(",")).join("L")}`, fill: "none", stroke: hue, "stroke-width": 2, "stroke-dasharray": line.open ? "6 4" : undefined }),
      ...line.points.map((point, i) => draw("path", { class: "mark", d: shape(line.algorithm), transform: `translate(${at[i].join(" ")})`, fill: line.open ? css("paper") : hue, stroke: hue, "stroke-width": 1.5 },
        draw("title", {}, `${line.key}, ${plural(point.clients, "client")}: ${measureName(y)} ${measureWord(y, point[y])}, ${measureName(x)} ${measureWord(x, point[x])}`))));
  }
  show("load-plot", picture);
}
function loadBars(lines, y) {
  const rows = lines.flatMap((line) => line.points.map((point) => [line, point])).slice(0, 40), width = Math.max(300, $("load-plot").clientWidth), narrow = width < 560, left = narrow ? 8 : 250, tall = narrow ? 42 : 26;
  const most = Math.max(...rows.map(([, point]) => point[y]), 1e-9), height = rows.length * tall + 8;
  show("load-plot", draw("svg", { width, height, role: "img", "aria-label": $("load-caption").textContent }, rows.map(([line, point], i) => {
    const top = i * tall + (narrow ? 20 : 4), length = (point[y] / most) * (width - left - 90);
    return [draw("text", { x: narrow ? left : left - 8, y: narrow ? top - 5 : top + 14, "text-anchor": narrow ? "start" : "end" }, line.key.slice(0, 42)),
      draw("rect", { class: "mark", x: left, y: top, width: Math.max(1, length), height: 18, fill: colour(line.algorithm) }), draw("text", { x: left + length + 5, y: top + 14 }, measureWord(y, point[y]))];
  })));
}
function paintLoadTable(lines, numbers) {
  const all = lines.flatMap((line) => line.points), known = Object.keys(MEASURES).filter((name) => all.some((point) => point[name])), columns = [...known.filter((name) => numbers.includes(name)), ...numbers.filter((name) => !(name in MEASURES) && !name.startsWith("p:"))];
  const varied = numbers.filter((name) => name.startsWith("p:") && unique(lines.flatMap((line) => line.points.map((point) => point[name]))).length > 1);
  const missed = lines.some((line) => line.points.some((point) => point.missed)), rows = lines.flatMap((line) => line.points.map((point) => [line.key, ...varied.map((name) => parameterWord(name.slice(2), point[name])),
    ...columns.map((name) => measureWord(name, point[name] ?? null)), ...(missed ? [count(Math.round(point.missed ?? 0))] : [])]));
  show("load-table", make("details", { open: rows.length <= 12 }, make("summary", {}, `All ${plural(rows.length, "point")} as a table`),
    table("means of repeated runs", [["store", "text"], ...varied.map(measureName), ...columns.map(measureName), ...(missed ? ["never begun"] : [])], rows.slice(0, 400))));
}
// Throughput over time of points that have it.
function paintCurves(lines) {
  const faults = unique(lines.flatMap((line) => (line.points.some((point) => point.curve) ? [line.fault ?? "no fault"] : [])));
  $("curves").hidden = !faults.length;
  if (!faults.length) return;
  const fault = choose("load-choices", "fault", "Over time", faults, faults[0]);
  const curves = lines.filter((line) => (line.fault ?? "no fault") === fault).flatMap((line) => line.points.filter((point) => point.curve).map((point) => [line, point]));
  show("curves-caption", `Throughput over time: ${fault}${curves.some(([, point]) => point["fault at (s)"] !== undefined) ? `, from ${unique(curves.map(([, point]) => round(point["fault at (s)"], 2))).join(" and ")} s on` : ""}`);
  const data = uPlot.join(curves.map(([, { curve: [step, ...values] }]) => [values.map((_, i) => Math.round(1e3 * (i + 0.5) * step) / 1e3), values]));
  plot("curves-plot", $("curves-caption").textContent, { scales: { x: { time: false }, y: { range: (_, least, most) => [0, (most || 1) * 1.05] } }, axes: [{ label: "seconds since the begin of the run" }, { label: "operations a second", size: 64 }],
    series: [{ label: "seconds" }, ...curves.map(([line]) => ({ label: line.algorithm, stroke: colour(line.algorithm), width: 2, points: { show: false } }))] }, data);
}
