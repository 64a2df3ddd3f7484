// One figure of a scenario over one of its parameters: a line for each algorithm; the distribution and the phases of the same runs.
const PARAMETERS = { __proto__: null, servers: "servers (S)", writers: "writers (W)", readers: "readers (R)", reconfigurers: "reconfigurers (G)", object_size: "object size",
  k: "fragments k", m: "parity m", topology: "places of servers (E: EU, U: US)", clients: "places of clients (w: writers, r: readers)" };
const FIGURES = { mean: "mean latency", p50: "p50 latency (median)", p99: "p99 latency", waited: "mean wait before the operation began (open loop)", throughput: "throughput of one client", failed: "failed operations" };
const parameterName = (name) => PARAMETERS[name] ?? (name === "algorithm" ? "algorithm" : name);
const parameterWord = (name, value) => (name === "object_size" ? bytes(value) : said(value));
const share = (operation) => (operation.ok + operation.failed ? (100 * operation.failed) / (operation.ok + operation.failed) : null);
const figureOf = (operation, figure) => (figure === "failed" ? share(operation) : operation[figure]);
const figureWord = (value, figure) => (value === null || value === undefined ? MINUS
  : figure === "failed" ? `${round(value)} %` : figure === "throughput" ? perSecond(value) : seconds(value));

// What is chosen, and the runs that it leaves. A parameter that differs among runs of one algorithm at one point has a selector.
function view() {
  const v = { scenario: choose("choices", "scenario", "Scenario", D.scenarios, D.scenarios.reduce((best, name) => (amountOf(name) > amountOf(best) ? name : best))) };
  let runs = D.runs.filter((run) => run.scenario === v.scenario);
  if (!runs.some((run) => Object.keys(run.operations).length) && runs.some((run) => run.load)) return { ...v, runs: [], lines: [], all: [], values: [], fixed: {}, onlyLoad: true };
  const operations = OPERATIONS.filter((name) => runs.some((run) => run.operations[name]));
  v.operation = choose("choices", "op", "Operation", operations, operations[0]);
  v.figure = choose("choices", "figure", "Figure", Object.keys(FIGURES).filter((name) => name !== "waited" || runs.some((run) => run.operations[v.operation]?.waited)), /topology|throughput/.test(v.scenario) ? "throughput" : "mean", (name) => FIGURES[name]);
  runs = runs.filter((run) => run.operations[v.operation]);
  const varying = D.parameters.filter((name) => variesWithin(runs, name) > 1);
  const most = Math.max(0, ...varying.map((name) => variesWithin(runs, name)));
  v.x = choose("choices", "x", "Along the axis", [...varying, "algorithm"], varying.find((name) => variesWithin(runs, name) === most) ?? "algorithm", parameterName);
  v.fixed = {};
  for (const name of varying.filter((each) => each !== v.x)) {
    const groups = new Map();
    for (const run of runs) if (at(run, name) !== null) add(groups, `${run.published} ${run.algorithm} ${at(run, v.x)}`, at(run, name));
    if (![...groups.values()].some((values) => unique(values).length > 1)) continue;
    const values = valuesOf(runs, name), reach = (value) => unique(runs.filter((run) => at(run, name) === value).map((run) => said(at(run, v.x)))).length;
    const preset = values.reduce((best, value) => (reach(value) > reach(best) ? value : best));
    v.fixed[name] = choose("choices", `p-${name}`, parameterName(name), values, preset, (value) => parameterWord(name, value));
    runs = withValue(runs, name, v.fixed[name]);
  }
  v.runs = runs.filter((run) => v.x === "algorithm" || at(run, v.x) !== null);
  v.withoutX = runs.length - v.runs.length;
  v.lines = linesOf(v);
  const printed = publishedLines(v);
  const hidden = new Set(chosen.getAll("hide").flatMap((text) => text.split("|")));
  v.all = v.lines.concat(printed.length && tick("choices", "published", "published figures") ? printed : []);
  v.lines = v.all.filter((line) => !hidden.has(line.key));
  v.hidden = hidden;
  const values = v.lines.flatMap((line) => line.points.map((point) => point.value)).filter((value) => value > 0);
  v.scale = choose("choices", "scale", "Scale", ["from 0", "logarithmic"], v.x !== "algorithm" && Math.max(...values) > 20 * Math.min(...values) ? "logarithmic" : "from 0");
  v.band = ["mean", "p50", "p99"].includes(v.figure) && tick("choices", "band", "p50 to p99");
  v.values = v.x === "algorithm" ? inOrder(unique(v.all.map((line) => line.algorithm)))
    : inOrder(unique(v.lines.flatMap((line) => line.points.map((point) => point.x))));
  return v;
}
const amountOf = (scenario) => D.runs.filter((run) => run.scenario === scenario && (run.load || Object.keys(run.operations).length)).length;
function add(groups, key, value) { if (!groups.has(key)) groups.set(key, []); groups.get(key).push(value); }
const at = (run, name) => (name === "algorithm" ? run.algorithm : run.parameters[name] ?? null);
const valuesOf = (runs, name) => inOrder(unique(runs.map((run) => at(run, name)).filter((value) => value !== null)));

// A line for each algorithm, published runs apart; they are dashed where others are beside them.
function linesOf(v) {
  const groups = new Map(), mixed = v.runs.some((run) => !run.published);
  for (const run of v.runs) add(groups, `${run.algorithm}${run.published && mixed ? ", published runs" : ""}`, run);
  return [...groups.keys()].sort().map((key) => {
    const runs = groups.get(key), points = new Map();
    for (const run of runs) add(points, at(run, v.x), run);
    return { key, algorithm: runs[0].algorithm, published: runs[0].published && mixed, points: inOrder([...points.keys()]).map((x) => pointOf(v, x, points.get(x))) };
  });
}
function pointOf(v, x, runs) {
  const own = runs.map((run) => run.operations[v.operation]), of = (figure) => mean(own.map((operation) => figureOf(operation, figure)));
  return { x, runs, value: of(v.figure), p50: of("p50"), p99: of("p99"), mean: of("mean"), throughput: of("throughput"), clients: sum(own.map((o) => o.clients)),
    ok: sum(own.map((o) => o.ok)), failed: sum(own.map((o) => o.failed)), unknown: sum(own.map((o) => o.unknown)) };
}
// Figures that were printed, not runs: those of this scenario, operation and figure whose parameters are the ones looked at.
function publishedLines(v) {
  const offered = (name) => valuesOf(D.runs.filter((run) => run.scenario === v.scenario), name);
  const fits = (line) => line.scenario === v.scenario && line.operation === v.operation && line.figure === v.figure && (v.x === line.x || v.x === "algorithm")
    && Object.entries(line.at).every(([name, value]) => (offered(name).includes(value) ? (v.fixed[name] ?? value) === value : CLIENTS.includes(name)));
  return D.published.filter(fits).map((line) => ({ key: `${line.algorithm}, published figures`, source: line.source, algorithm: line.algorithm, published: true,
    points: line.points.filter(([x]) => v.x !== "algorithm" || v.fixed[line.x] === x || valuesOf(v.runs, line.x).join() === String(x))
      .map(([x, value]) => ({ x: v.x === "algorithm" ? line.algorithm : x, value, runs: [] })) })).filter((line) => line.points.length);
}

// Where values lie along the axis: numbers in proportion, logarithmic if they are far apart; texts side by side, where lines would mean nothing.
function along(values, left, right) {
  const numbers = values.every((value) => typeof value === "number"), places = new Map();
  if (!numbers || values.length < 2) { values.forEach((value, i) => places.set(value, left + ((i + 0.5) * (right - left)) / values.length)); return Object.assign((value) => places.get(value), { texts: !numbers }); }
  const logarithmic = values[0] > 0 && values.at(-1) / values[0] > 12, f = logarithmic ? Math.log : (value) => value, pad = Math.min(40, (right - left) / 12);
  const place = (value) => left + pad + ((f(value) - f(values[0])) / (f(values.at(-1)) - f(values[0]))) * (right - left - 2 * pad);
  return Object.assign(place, { logarithmic });
}
function describe(v, line, point) {
  const about = `${line.key}, ${v.x === "algorithm" ? "" : `${parameterName(v.x)} ${parameterWord(v.x, point.x)}, `}${v.operation}: ${FIGURES[v.figure]} ${figureWord(point.value, v.figure)}`;
  if (!point.runs.length) return `${about} (as printed)`;
  return `${about}; p50 ${seconds(point.p50)}, p99 ${seconds(point.p99)}; ${plural(point.runs.length, "run")}, ${plural(point.ok, "operation")}, ${count(point.failed)} failed`;
}
const unitOf = (v, most) => (v.figure === "throughput" ? [1, "operations a second"] : v.figure === "failed" ? [1, "% of the operations"] : timeUnit(most));

function paintFigure(v) {
  const width = Math.max(300, $("figure").clientWidth), height = 360, left = 62, right = width - 12, top = 12, bottom = height - (width < 560 ? 62 : 48);
  const points = v.lines.flatMap((line) => line.points).filter((point) => point.value !== null);
  const where = Object.entries(v.fixed).map(([name, value]) => `${parameterName(name)} ${parameterWord(name, value)}`).join(", ");
  const title = `${v.scenario}, ${v.operation}: ${FIGURES[v.figure]} by ${parameterName(v.x)}${where ? `; ${where}` : ""}`;
  show("figure-caption", title + (v.withoutX ? `; ${plural(v.withoutX, "run")} left out that do not tell it` : ""));
  if (!points.length || !v.values.length) { show("figure", none("No run tells this figure with these parameters.")); return; }
  const tall = points.flatMap((point) => [point.value, v.band && point.p99 ? point.p99 : 0, v.band && point.p50 ? point.p50 : 0]).filter((value) => value > 0);
  const logarithmic = v.scale === "logarithmic" && tall.length > 0, highest = Math.max(...points.map((point) => point.value), 1e-9);
  const most = logarithmic ? Math.max(...tall) : Math.min(Math.max(...tall, 1e-9), 3 * highest), least = Math.min(...tall, most), cut = tall.some((value) => value > most);
  const [factor, unit] = unitOf(v, most), low = logarithmic ? 0.8 * least : 0, high = logarithmic ? 1.25 * most : 1.06 * most;
  const ratio = (value) => (logarithmic ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : value / high);
  const y = (value) => bottom - ratio(value) * (bottom - top), x = along(v.values, left, right);
  const marks = logarithmic ? decades(low * factor, high * factor) : steps(high * factor), few = marks.length > 14 ? marks.filter((mark) => /^[0.]*1/.test(round(mark))) : marks;
  const picture = draw("svg", { width, height, role: "group", "aria-label": title },
    few.map((mark) => [draw("path", { d: `M${left},${y(mark / factor)}H${right}`, stroke: css("grid") }),
      draw("text", { x: left - 6, y: y(mark / factor) + 4, "text-anchor": "end" }, round(mark))]),
    draw("text", { x: 12, y: (top + bottom) / 2, transform: `rotate(-90 12 ${(top + bottom) / 2})`, "text-anchor": "middle", class: "soft" }, `${FIGURES[v.figure]} (${unit}${logarithmic ? ", logarithmic" : ""})`),
    draw("path", { d: `M${left},${top}V${bottom}H${right}`, fill: "none", stroke: css("soft") }), ticks(v, x, bottom, width),
    draw("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle", class: "soft" }, parameterName(v.x) + (x.logarithmic ? ", logarithmic" : "")));
  const wide = Math.min(34, (0.7 * (right - left)) / v.values.length / 2);
  picture.append(draw("clipPath", { id: "inside" }, draw("rect", { x: left, y: 0, width: right - left + 12, height })));
  const gap = x.texts && v.x !== "algorithm" ? Math.min(18, (0.7 * (right - left)) / v.values.length / v.lines.length) : 0; // lines stand side by side at a text
  const order = [...v.lines.keys()].sort((a, b) => v.lines[b].published - v.lines[a].published); // what was measured lies above what was printed
  order.forEach((i) => picture.append(...lineOf(v, v.lines[i], Object.assign((value) => x(value) + (i - (v.lines.length - 1) / 2) * gap, { texts: x.texts }), (value) => Math.max(y(value), -9), bottom, wide)));
  if (cut) picture.append(draw("text", { x: right, y: 10, "text-anchor": "end", class: "soft" }, "some p99 lie above the plot: see the table"));
  show("figure", picture);
}
function ticks(v, x, bottom, width) {
  let last = -1e9;
  const crowded = v.values.length * 9 * Math.max(...v.values.map((value) => parameterWord(v.x, value).length)) > width;
  return v.values.map((value) => {
    const place = x(value), text = parameterWord(v.x, value), needs = crowded ? 16 : 7 * text.length + 8;
    if (place - last < needs && !(crowded && v.values.length < 12)) return null;
    last = place;
    return crowded ? draw("text", { x: place, y: bottom + 14, "text-anchor": "end", transform: `rotate(-28 ${place} ${bottom + 14})` }, text.slice(0, 18))
      : draw("text", { x: place, y: bottom + 17, "text-anchor": "middle" }, text.slice(0, 24));
  });
}
function lineOf(v, line, x, y, bottom, wide) {
  const known = line.points.filter((point) => point.value !== null), hue = colour(line.algorithm), bars = v.x === "algorithm";
  const banded = v.band ? known.filter((point) => point.p50 !== undefined && point.p50 !== null) : [], shaded = !x.texts && banded.length > 1;
  const parts = [];
  if (shaded) parts.push(draw("path", { fill: hue, opacity: 0.1, d: `M${banded.map((p) => `${x(p.x)},${y(p.p99)}`).join("L")}L${banded.map((p) => `${x(p.x)},${y(p.p50)}`).reverse().join("L")}Z` }));
  else parts.push(...banded.map((p) => draw("path", { d: `M${x(p.x)},${y(p.p50)}V${y(p.p99)}M${x(p.x) - 5},${y(p.p99)}h10M${x(p.x) - 5},${y(p.p50)}h10`, stroke: hue, opacity: 0.6, fill: "none" })));
  if (!x.texts && known.length > 1) {
    parts.push(draw("path", { d: `M${known.map((p) => `${x(p.x)},${y(p.value)}`).join("L")}`, fill: "none", stroke: hue, "stroke-width": 2, "stroke-dasharray": line.published ? "6 4" : undefined }));
  }
  for (const point of known) {
    const words = describe(v, line, point), dashes = line.published ? "4 3" : undefined;
    const mark = bars
      ? draw("rect", { class: "mark", x: x(point.x) - wide + (line.published ? 4 : 0), y: y(point.value), width: Math.max(4, 2 * wide - (line.published ? 8 : 0)),
        height: Math.max(1, bottom - y(point.value)), fill: hue, "fill-opacity": line.published ? 0 : 0.55, stroke: hue, "stroke-dasharray": dashes, "stroke-width": 1.5 })
      : draw("path", { class: "mark", d: shape(line.algorithm), transform: `translate(${x(point.x)} ${y(point.value)})`, fill: line.published ? css("paper") : hue, stroke: hue, "stroke-width": 1.5 });
    parts.push(point.runs.length ? draw("a", { href: toRuns(line, point), "aria-label": words }, draw("title", {}, words), mark) : draw("g", { role: "img", "aria-label": words }, draw("title", {}, words), mark));
  }
  return parts;
}
const toRuns = (line, point) => address({ point: `${line.key}|${said(point.x)}`, show: "runs" });

function paintFigureTable(v) {
  show("legend", v.all.map((line) => {
    const button = make("button", { type: "button", "aria-pressed": String(!v.hidden.has(line.key)), title: "show or hide" }, sample(line.algorithm, line.published), line.key);
    button.addEventListener("click", () => {
      const next = new Set(v.hidden);
      if (!next.delete(line.key)) next.add(line.key);
      set({ hide: next.size ? [...next].join("|") : null });
      [...$("legend").children].find((other) => other.textContent === line.key)?.focus();
    });
    return button;
  }));
  const all = v.values.flatMap((x) => v.lines.flatMap((line) => line.points.filter((point) => point.x === x).map((point) => [line, point])));
  const rows = all.filter(([, point]) => point.runs.length), printed = all.filter(([, point]) => !point.runs.length), bars = v.x === "algorithm", first = [...(bars ? [] : [[parameterName(v.x), "text"]]), ["algorithm", "text"]];
  const cells = rows.slice(0, 200).map(([line, point]) => [...(bars ? [] : [parameterWord(v.x, point.x)]), line.key, seconds(point.mean), seconds(point.p50), seconds(point.p99), perSecond(point.throughput), count(point.clients),
    count(point.ok), failures(point), make("a", { href: toRuns(line, point) }, plural(point.runs.length, "run"))]);
  show("figure-table", cells.length ? table(`${v.operation}s: the same as a table; clients, operations and failures are those of all runs of a point together`, [...first, "mean", "p50", "p99", "throughput of one client", "clients", "operations", "failed, left out", "runs"], cells) : none("No figures."),
    rows.length > cells.length ? none(`${plural(rows.length - cells.length, "more point")}: choose fewer to have them in the table.`) : null,
    printed.length ? make("details", {}, make("summary", {}, "The published figures as a table"), table("figures that were printed", [...first, FIGURES[v.figure], ["source", "text"]],
      printed.map(([line, point]) => [...(bars ? [] : [parameterWord(v.x, point.x)]), line.algorithm, figureWord(point.value, v.figure), line.source]))) : null);
}

// The distribution at one value of the parameter: of each algorithm's runs together, each run with the weight of its operations.
const SHARES = [1, 10, 25, 50, 75, 90, 99, 99.9, 100];
function pooled(runs, operation) {
  const steps = runs.flatMap((run) => {
    const own = run.operations[operation].quantiles ?? [];
    return own.map((value, i) => [value, ((D.percents[i] - (i ? D.percents[i - 1] : 0)) / 100) * run.operations[operation].ok]);
  }).sort((a, b) => a[0] - b[0]);
  const whole = sum(steps.map((step) => step[1]));
  let reached = 0;
  return steps.map(([value, weight]) => [value, (100 * (reached += weight)) / whole]);
}
function paintDistribution(v) {
  const values = v.x === "algorithm" ? ["all"] : v.values.filter((x) => v.lines.some((line) => line.points.some((point) => point.x === x && point.runs.length)));
  const amount = (x) => v.lines.filter((line) => line.points.some((point) => point.x === x && point.runs.length)).length;
  const x = values.length ? choose("distribution-choices", "at", v.x === "algorithm" ? "Runs" : parameterName(v.x), values, values.reduce((best, value) => (amount(value) > amount(best) ? value : best)), (value) => parameterWord(v.x, value)) : null;
  v.at = x;
  v.picked = v.lines.map((line) => [line, line.points.filter((point) => x === "all" || point.x === x).flatMap((point) => point.runs)]).filter(([, runs]) => runs.length);
  const curves = v.picked.map(([line, runs]) => [line, runs, pooled(runs, v.operation)]).filter(([, , steps]) => steps.length);
  show("distribution-caption", curves.length ? `${v.operation}s, ${v.x === "algorithm" ? "all runs chosen above" : `${parameterName(v.x)} ${parameterWord(v.x, x)}`}: which share took at most so long; failed operations are left out` : "");
  if (!curves.length) { show("distribution-plot", none("No successful operations.")); show("distribution-table"); return; }
  const most = Math.max(...curves.map(([, , steps]) => steps.at(-1)[0])), [factor, unit] = timeUnit(most);
  const data = uPlot.join(curves.map(([, , steps]) => { const own = new Map(thin(steps).map(([value, percent]) => [Math.max(value * factor, 1e-9), percent])); return [[...own.keys()], [...own.values()]]; }));
  const title = `Distribution: ${curves.map(([line]) => line.key).join(", ")}`;
  plot("distribution-plot", title, { scales: { x: { time: false, distr: 3, range: (_, least, high) => [least * 0.9, high * 1.1] }, y: { range: [0, 100] } },
    axes: [{ label: `latency (${unit}, logarithmic)`, ...logarithmicAxis }, { label: "operations that took at most so long (%)" }],
    series: [{ label: `latency (${unit})` }, ...curves.map(([line]) => ({ label: line.key, stroke: colour(line.algorithm), width: 2, dash: line.published ? [6, 4] : undefined, points: { show: false } }))] }, data);
  const read = (steps, percent) => (steps.find(([, reached]) => reached >= percent - 1e-6) ?? steps.at(-1))[0];
  show("distribution-table", table("latency that so many percent of the operations did not exceed", [["algorithm", "text"], ...SHARES.map((percent) => (percent === 100 ? "slowest" : `${percent} %`)), "operations", "failed, left out"],
    curves.map(([line, runs, steps]) => { const own = pointOf(v, x, runs); return [line.key, ...SHARES.map((percent) => seconds(read(steps, percent))), count(own.ok), failures(own)]; })));
}
const thin = (steps) => steps.filter((_, i) => i % Math.ceil(steps.length / 400) === 0 || i === steps.length - 1);

// Bars of the mean time in each phase (the report's Figure 19).
const PHASES = ["read-config", "phase 1", "phase 2: read-config", "phase 2: put-data", "phase 2: rest", "rest"];
const phaseColour = (i) => colourAt([5, 0, 2, 1, 4, 6][i]);
function paintPhases(v) {
  const rows = v.lines.flatMap((line) => line.points.map((point) => [line, point, point.runs.map((run) => run.operations[v.operation]).filter((own) => own.phases)]))
    .filter(([, , own]) => own.length).map(([line, point, own]) => [`${line.key}${v.x === "algorithm" ? "" : `, ${parameterWord(v.x, point.x)}`}`, PHASES.map((_, i) => mean(own.map((each) => each.phases[i]))), sum(own.map((each) => each.timed))]);
  show("phases-legend", rows.length ? PHASES.map((name, i) => make("span", {}, draw("svg", { width: 12, height: 12, "aria-hidden": "true" }, draw("rect", { width: 12, height: 12, fill: phaseColour(i) })), name)) : []);
  show("phases-caption", rows.length ? `${v.operation}s: mean time in each phase, of the successful operations whose logs tell` : "");
  if (!rows.length) { show("phases-plot", none("The logs of these runs do not tell phases.")); show("phases-table"); return; }
  const shown = rows.slice(0, 40), width = Math.max(300, $("phases-plot").clientWidth), narrow = width < 560, left = narrow ? 8 : 250, tall = narrow ? 42 : 26, height = shown.length * tall + 38;
  const most = Math.max(...shown.map(([, parts]) => sum(parts))), [factor, unit] = timeUnit(most), x = (value) => left + (value / most) * (width - left - 70);
  show("phases-plot", draw("svg", { width, height, role: "img", "aria-label": "Mean time in each phase; the table below has the figures" },
    steps(most * factor, narrow ? 3 : 6).map((mark) => [draw("path", { d: `M${x(mark / factor)},0V${height - 34}`, stroke: css("grid") }), draw("text", { x: x(mark / factor), y: height - 20, "text-anchor": "middle" }, round(mark))]),
    draw("text", { x: (left + width) / 2, y: height - 3, "text-anchor": "middle", class: "soft" }, `mean time of a ${v.operation} (${unit})`),
    shown.map(([name, parts], i) => {
      let reached = 0;
      const y = i * tall + (narrow ? 20 : 4);
      return [draw("text", { x: narrow ? left : left - 8, y: narrow ? y - 5 : y + 14, "text-anchor": narrow ? "start" : "end" }, name.slice(0, 42)),
        parts.map((part, j) => draw("rect", { x: x(reached), y, width: Math.max(0, x((reached += part)) - x(reached - part) - 0.5), height: 18, fill: phaseColour(j) }, draw("title", {}, `${name}, ${PHASES[j]}: ${seconds(part)}`))),
        draw("text", { x: x(reached) + 5, y: y + 14 }, seconds(reached))];
    })));
  show("phases-table", table("mean time in each phase", [["runs of", "text"], ...PHASES, "operations that tell"], shown.map(([name, parts, timed]) => [name, ...parts.map(seconds), count(timed)])),
    rows.length > shown.length ? none(`${plural(rows.length - shown.length, "more point")} above are not drawn here.`) : null);
}
