// Runs, one by one: what they are made of, what happened over their time, who answered, and traces of single operations. Then everything is painted.
const OUTCOMES = ["ok", "failed", "unknown"];
const called = (run) => `${run.algorithm}: ${run.path}`;
const nearEnd = (text) => (text.length > 90 ? `…${text.slice(-88)}` : text);

function paintRuns(v) {
  const [, key, x] = (chosen.get("point") ?? "").match(/^(.*)\|(.*)$/s) ?? [], line = v.all.find((each) => each.key === key);
  const point = line && line.points.find((each) => said(each.x) === x), runs = point ? point.runs : v.runs, own = (run) => run.operations[v.operation];
  show("runs-caption", point ? [`Those of the point ${key}, ${parameterName(v.x)} ${parameterWord(v.x, point.x)}. `, make("a", { href: address({ point: null, show: "runs" }) }, "All runs chosen above")] : "All runs chosen above.");
  const rows = runs.slice(0, 60).map((run) => [[run.path, make("details", {}, make("summary", {}, "parameters and provenance"), Object.entries(run.parameters).map(([name, value]) => make("div", {}, `${parameterName(name)}: ${parameterWord(name, value)}`)),
      make("div", {}, `level that the figures are of: ${said(run.level)}`), run.settings && make("pre", {}, run.settings), make("pre", {}, run.provenance || "The run does not tell where it comes from."))], said(run.iteration), count(own(run).clients), count(own(run).ok), failures(own(run)), seconds(own(run).mean), seconds(own(run).p50),
    seconds(own(run).p99), perSecond(own(run).throughput), make("a", { href: address({ run: run.path, show: "timeline" }) }, "timeline")]);
  show("runs-table", rows.length ? table(`${plural(runs.length, "run")}, ${v.operation}s; throughput is that of one client`, [["path", "text path"], "iteration", "clients", "operations", "failed, left out", "mean", "p50", "p99", "throughput", "over time"], rows) : none("No runs."),
    runs.length > rows.length ? none(`${plural(runs.length - rows.length, "more run")} with these parameters: choose a point to see its runs.`) : null);
}

// Operations over the time of a run. `each`: [begin, latency, outcome]; or bins: [bin, ok, failed, unknown, mean, slowest].
function binsOf(run, times) {
  const width = times.width || Math.max(run.length / 60, 1e-9), bins = new Map();
  if (times.bins) for (const [bin, ...counts] of times.bins) bins.set(bin, counts);
  else for (const [begin, latency, outcome] of times.each) {
    const bin = Math.min(Math.floor(begin / width), 59), own = bins.get(bin) ?? [0, 0, 0, null, null];
    own[outcome] += 1;
    if (!outcome) { own[3] = ((own[3] ?? 0) * (own[0] - 1) + latency) / own[0]; own[4] = Math.max(own[4] ?? 0, latency); }
    bins.set(bin, own);
  }
  return [width, [...bins.entries()].sort((a, b) => a[0] - b[0])];
}
function seriesOf(run, name, over, factor) {
  const times = run.times[name], hue = operationColour(name), points = { show: true, size: 5, fill: hue }, cross = { show: true, size: 10, stroke: css("bad"), fill: "transparent", width: 2 };
  const none = { paths: () => null }, kept = (label, rows, look) => (rows.length ? [{ rows, look: { label, stroke: hue, ...look } }] : []), [width, bins] = binsOf(run, times);
  const middle = (bin) => (bin + 0.5) * width;
  if (over === "throughput") return OUTCOMES.flatMap((outcome, i) => kept(`${name}, ${outcome}`, bins.some(([, counts]) => counts[i]) ? bins.map(([bin, counts]) => [middle(bin), counts[i] / width]) : [],
    i ? { stroke: css("bad"), dash: i === 1 ? [4, 3] : [1, 3], width: 2, points: { show: false } } : { width: 2, points: { show: false } }));
  const single = times.each ? OUTCOMES.map((_, i) => times.each.filter((row) => row[2] === i && row[1] !== null).map(([begin, latency]) => [begin, latency * factor])) : null;
  if (single) return single.flatMap((rows, i) => kept(i ? `${name}, ${OUTCOMES[i]}` : `${name} (each)`, rows, i ? { ...none, stroke: css("bad"), points: cross } : { ...none, points }));
  const filled = bins.filter(([, counts]) => counts[3] !== null);
  return [...kept(`${name}, mean`, filled.map(([bin, counts]) => [middle(bin), counts[3] * factor]), { width: 2, points: { show: false } }),
    ...kept(`${name}, slowest`, filled.map(([bin, counts]) => [middle(bin), counts[4] * factor]), { width: 1, dash: [2, 3], points: { show: false } }),
    ...kept(`${name}, some failed`, bins.filter(([, counts]) => counts[1] + counts[2]).map(([bin]) => [middle(bin), 0]), { ...none, stroke: css("bad"), points: cross })];
}
function markings(run) {
  return (chart) => {
    const pen = chart.ctx, { left, top, width, height } = chart.bbox, scale = devicePixelRatio, x = (value) => chart.valToPos(value, "x", true);
    pen.save(); pen.beginPath(); pen.rect(left, top - 16 * scale, width, height + 16 * scale); pen.clip();
    pen.fillStyle = operationColour("recon"); pen.globalAlpha = 0.45;
    for (const [begin, latency] of run.times.recon?.each ?? []) pen.fillRect(x(begin), top, Math.max(2, x(begin + (latency ?? 0)) - x(begin)), 9 * scale);
    pen.globalAlpha = 1; pen.strokeStyle = pen.fillStyle = css("ink"); pen.lineWidth = 1.5 * scale; pen.setLineDash([5 * scale, 4 * scale]); pen.font = `${12 * scale}px system-ui`;
    let last = -1e9;
    run.events.forEach(([when], i) => {
      pen.beginPath(); pen.moveTo(x(when), top); pen.lineTo(x(when), top + height); pen.stroke();
      if (x(when) - last > 20 * scale) { pen.fillText(String(i + 1), x(when) + 2 * scale, top - 4 * scale); last = x(when); }
    });
    pen.restore();
  };
}
function paintTimeline(v) {
  const runs = v.ofScenario, preset = runs.find((run) => v.picked.some(([, picked]) => picked.includes(run))) ?? runs[0], byPath = new Map(runs.map((run) => [run.path, run]));
  const run = byPath.get(choose("timeline-choices", "run", "Run", [...byPath.keys()], preset.path, (path) => nearEnd(called(byPath.get(path)))));
  const over = choose("timeline-choices", "over", "Over time", ["latency", "throughput"], "latency"), timed = OPERATIONS.filter((name) => run.times[name]);
  v.run = run;
  const events = run.events.length ? table("Faults and steps (numbered dashed lines)", ["number", "seconds since the begin", ["what", "text"], ["server", "text"], ["detail", "text"]],
    run.events.map(([when, what, server, detail], i) => [String(i + 1), round(when, 4), what, server ?? "", detail ?? ""])) : none("No faults or steps are recorded of this run.");
  show("timeline-events", events, run.events_left ? none(`${plural(run.events_left, "later event")} not shown.`) : null);
  const tall = timed.flatMap((name) => (run.times[name].each ?? run.times[name].bins).map((row) => (run.times[name].each ? row[1] : row[5]) ?? 0)).filter((value) => value > 0).sort((a, b) => a - b);
  const most = tall.at(-1) ?? 0, [factor, unit] = timeUnit(most), scales = ["from 0", "logarithmic"];
  const logarithmic = over === "latency" && choose("timeline-choices", "tscale", "Scale", scales, scales[Number(most > 20 * tall[tall.length >> 1])]) === scales[1] && most > 0;
  const low = 0.8 * tall[0] * factor, raised = (value) => (logarithmic ? Math.max(value, low) : value);
  const lines = timed.flatMap((name) => seriesOf(run, name, over, factor)), untimed = run.untimed ? `; ${plural(run.untimed, "operation")} left out whose time is not known` : "";
  const strip = run.times.recon?.each ? "; the strip on top: reconfigurations" : run.times.recon ? "; reconfigurations are too many to be marked one by one" : "";
  show("timeline-caption", `${called(run)}: ${over} over the time of the run${strip}${untimed}`);
  if (!lines.length) { show("timeline-plot", none(`No operation of this run tells when it began${untimed}.`)); show("timeline-table"); return; }
  const data = uPlot.join(lines.map(({ rows }) => { const own = new Map(rows); const xs = [...own.keys()].sort((a, b) => a - b); return [xs, xs.map((x) => raised(own.get(x)))]; }));
  plot("timeline-plot", `Operations over time: ${timed.join(", ")}; the table below has the figures`, { padding: [20, 12, 0, 0], scales: { x: { time: false, range: [0, run.length] }, y: logarithmic ? { distr: 3, range: (_, least, high) => [low, high * 1.2] } : { range: (_, least, high) => [0, (high || 1) * 1.05] } },
    axes: [{ label: "seconds since the begin of the run" }, { ...(logarithmic ? logarithmicAxis : {}), label: over === "latency" ? `latency (${unit}${logarithmic ? ", logarithmic" : ""})` : "operations a second, all clients" }],
    series: [{ label: "seconds" }, ...lines.map(({ look }) => look)], hooks: { draw: [markings(run)] } }, data);
  const rows = timed.flatMap((name) => { const [width, bins] = binsOf(run, run.times[name]); return bins.map(([bin, counts]) => [name, `${round(bin * width)} to ${round((bin + 1) * width)} s`, ...counts.slice(0, 3).map(count), seconds(counts[3]), seconds(counts[4])]); });
  show("timeline-table", make("details", {}, make("summary", {}, "The same as a table"), table("operations that began in each interval", [["operation", "text"], ["seconds", "text"], "ok", "failed", "unknown", "mean", "slowest"], rows)));
}

// Who answered (the report's Figures 26 and 27): for each server and interval the share of the quorums of phase 1 that it was part of.
function paintQuorums({ run }) {
  const own = run.quorums;
  $("quorums").hidden = !own;
  show("quorums-table");
  if (!own) return;
  const width = Math.max(300, $("quorums-plot").clientWidth), left = 70, tall = 20, wide = (width - left - 10) / own.bins, height = own.servers.length * tall + 38;
  const cell = (i, bin, share, n) => draw("rect", { x: left + bin * wide, y: i * tall, width: Math.max(1, wide - 1), height: tall - 1, fill: colourAt(0), "fill-opacity": 0.06 + 0.94 * share },
    draw("title", {}, `${own.servers[i]}, ${round(bin * own.width)} to ${round((bin + 1) * own.width)} s: in ${round(100 * share)} % of ${plural(n, "quorum")}`));
  show("quorums-caption", "Who answered: the share of the quorums of phase 1 of reads and writes that a server was part of (dark: all, pale: none). A server that crashed turns pale; dashed: faults and steps.");
  show("quorums-plot", draw("svg", { width, height, role: "img", "aria-label": "Share of quorums of each server over time; the table below has the figures" },
    own.servers.map((name, i) => draw("text", { x: left - 6, y: i * tall + 14, "text-anchor": "end" }, name.slice(0, 10))), own.rows.map(([bin, n, shares]) => shares.map((share, i) => cell(i, bin, share, n))),
    run.events.map(([when], i) => draw("path", { d: `M${left + (when / own.width) * wide},0V${height - 34}`, stroke: css("ink"), "stroke-dasharray": "5 4" }, draw("title", {}, `event ${i + 1}`))),
    steps(own.bins * own.width, width < 560 ? 3 : 8).map((mark) => draw("text", { x: left + (mark / own.width) * wide, y: height - 20, "text-anchor": "middle" }, round(mark))),
    draw("text", { x: (left + width) / 2, y: height - 3, "text-anchor": "middle", class: "soft" }, "seconds since the begin of the run")));
  show("quorums-table", make("details", {}, make("summary", {}, "The same as a table"), table("% of the quorums that a server was part of", [["seconds", "text"], "quorums", ...own.servers],
    own.rows.map(([bin, n, shares]) => [`${round(bin * own.width)} to ${round((bin + 1) * own.width)}`, count(n), ...shares.map((share) => round(100 * share))]))));
}

// A trace as in ARES II, Figs. 2-16: its spans as nested bars on one axis of time. A row: [depth, name, begin ms, length ms, whose, remark].
function paintTraces(v) {
  const traces = v.ofScenario.flatMap((run) => run.traces.map((trace, i) => [`${run.path}#${i}`, trace, run]));
  ["sentence", "legend", "caption"].forEach((part) => show(`traces-${part}`)); show("traces-table");
  if (!traces.length) { show("traces-plot", none("The runs of this scenario have no traces (OTEL_TRACES_EXPORTER=file:PATH writes them).")); return; }
  const byKey = new Map(traces.map(([key, ...rest]) => [key, rest])), first = traces.filter(([, , run]) => run === v.run), here = first.length ? first : traces;
  const preset = (here.find(([, trace]) => trace.kind === v.operation) ?? here[0])[0];
  const [trace, run] = byKey.get(choose("traces-choices", "trace", "Trace", [...byKey.keys()], preset, (key) => { const [told, of] = byKey.get(key); return nearEnd(`${of.algorithm} ${told.kind}, ${told.why}: ${round(told.ms)} ms (${of.path})`); }));
  show("traces-sentence", trace.sentence);
  show("traces-caption", `${called(run)}: the ${trace.why} ${trace.kind} of ${plural(trace.of, "trace")}; of each kind of operation the slowest, the median, the fastest and the slowest that failed are here, of ${plural(run.traces_of, "trace")} of this run${trace.left ? `; its ${plural(trace.left, "shortest span")} left out` : ""}`);
  const width = Math.max(300, $("traces-plot").clientWidth), narrow = width < 620, left = narrow ? 8 : 340, tall = narrow ? 34 : 20, height = trace.rows.length * tall + 38;
  const begin = Math.min(...trace.rows.map((row) => row[2])), most = Math.max(...trace.rows.map((row) => row[2] + row[3])) - begin || 1, room = width - left - 16;
  const x = (ms) => left + ((ms - begin) / most) * room, fills = { client: css("bar"), server: css("server"), failed: css("bad") };
  show("traces-legend", Object.entries(fills).map(([whose, fill]) => make("span", {}, draw("svg", { width: 12, height: 12, "aria-hidden": "true" }, draw("rect", { width: 12, height: 12, fill })), whose)));
  show("traces-plot", draw("svg", { width, height, role: "img", "aria-label": `Spans over time; the table below has the figures. ${trace.sentence}` },
    steps(most, narrow ? 3 : 7).map((mark) => [draw("path", { d: `M${x(mark + begin)},0V${height - 34}`, stroke: css("grid") }), draw("text", { x: x(mark + begin), y: height - 20, "text-anchor": "middle" }, round(mark))]),
    draw("text", { x: left + room / 2, y: height - 3, "text-anchor": "middle", class: "soft" }, "milliseconds since the operation began"),
    trace.rows.map(([depth, name, from, length, whose, remark], i) => {
      const words = `${whose === "server" && remark ? `${remark.slice(0, 12)}: ` : ""}${name.slice(0, 30)} (${round(length)} ms)`;
      return draw("g", {}, draw("title", {}, `${name} (${round(length)} ms)${remark ? `: ${remark}` : ""}`), draw("text", { x: Math.min(depth, 8) * (narrow ? 6 : 12) + 8, y: i * tall + 14 }, words),
        draw("rect", { x: x(from), y: i * tall + (narrow ? 18 : 4), width: Math.max(2, (length / most) * room), height: 12, rx: 2, fill: fills[whose] }));
    })));
  show("traces-table", make("details", {}, make("summary", {}, "The same as a table"), table("the spans, each after the one that it is part of", [["span", "text"], "begin (ms)", "length (ms)", "whose", ["remark", "text"]],
    trace.rows.map(([depth, name, from, length, whose, remark]) => [`${" ".repeat(2 * depth)}${name}`, round(from - begin), round(length), whose, remark]))));
}

let paintings = 0, placed = 0;
function paint() {
  const theme = chosen.get("theme") ?? "";
  document.documentElement.dataset.theme = printing ? "light" : theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  $("theme").value = theme;
  if (D.runs.length) paintVerdict();
  else { show("choices", none("This database has no runs: `ares-cli results import DIR --into FILE` brings them in.")); document.querySelectorAll("main section:not(#figures):not(#about)").forEach((part) => { part.hidden = true; }); return; }
  paintings += 1; placed = 0;
  const v = view();
  v.ofScenario = D.runs.filter((run) => run.scenario === v.scenario);
  for (const part of ["distribution", "phases", "runs", "timeline", "traces"]) $(part).hidden = Boolean(v.onlyLoad);
  for (const part of $("figures").querySelectorAll(".hint, figure, #figure-table, #beside")) part.hidden = Boolean(v.onlyLoad);
  if (!v.onlyLoad) { paintFigure(v); paintFigureTable(v); paintBeside(v); paintDistribution(v); paintPhases(v); paintRuns(v); paintTimeline(v); paintQuorums(v); paintTraces(v); }
  paintLoad(v);
  paintClaims(v);
  document.querySelectorAll(".choices label").forEach((label) => { if (label.dataset.used !== String(paintings)) label.remove(); });
}
function follow() {
  const named = location.hash.slice(1);
  if ($(named) && !named.includes("=")) { history.replaceState(null, "", `#${chosen}`); $(named).scrollIntoView(); return; }
  chosen = new URLSearchParams(named);
  const to = chosen.get("show");
  chosen.delete("show");
  history.replaceState(null, "", `#${chosen}`);
  paint();
  if ($(to)) { $(to).scrollIntoView(); $(`${to}-title`)?.focus({ preventScroll: true }); }
}
let printing = false, waiting = 0;
addEventListener("hashchange", follow);
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(paint, 120); });
addEventListener("beforeprint", () => { printing = true; document.querySelectorAll("details").forEach((part) => { part.dataset.was = part.open ? "open" : ""; }); paint(); });
addEventListener("afterprint", () => { printing = false; paint(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
$("theme").addEventListener("change", () => set({ theme: $("theme").value || null }));
document.title = `ares: results of ${D.file}`;
show("facts", `${D.file}: ${plural(D.totals.runs, "run")}${D.runs.length && !hasOurs ? " that the authors of ARES published" : ""}, ${plural(D.totals.operations, "operation")}, ${count(D.totals.failed)} of them failed, ${plural(D.totals.malformed, "malformed line")} in the logs${D.totals.points ? `; ${plural(D.totals.points, "point")} of load` : ""}`);
show("made", `Made by ares ${D.version} on ${D.made}. Plots over time and of distributions by uPlot (MIT licence, in the source of this page).`);
show("notes", D.notes.map((note) => make("li", {}, note)));
$("rejected").hidden = !D.rejected.length;
show("rejected-caption", "Lines that could not be read, by file");
show("rejected-table", table(`the first of each file; ${plural(D.rejected.length, "file")} of ${count(D.totals.rejected_files)}`, [["file", "text path"], "lines", "first", ["why", "text"]],
  D.rejected.map(([file, lines, first, why]) => [file, count(lines), first ? `line ${count(first)}` : MINUS, why])));
follow();
