"use strict";
// Published runs and figures beside ours: which runs are looked at together though their parameters differ, and the table of ratios.
const SIDES = [false, true], CLIENTS = ["writers", "readers"]; // printed figures are shown whatever the number of clients of ours
const FIRST = "the first point of each algorithm";
const ofSide = (runs, published) => runs.filter((run) => run.published === published);
const variesWithin = (runs, name) => Math.max(...SIDES.map((side) => valuesOf(ofSide(runs, side), name).length));

// Of each side the runs with this value of a parameter; of a side that has none with it, those with the nearest value.
function withValue(runs, name, value) {
  return SIDES.flatMap((side) => {
    const own = ofSide(runs, side), values = valuesOf(own, name), far = (each) => (typeof each === "number" && typeof value === "number" ? Math.abs(each - value) : 0);
    const taken = values.includes(value) ? value : values.reduce((best, each) => (best === undefined || far(each) < far(best) ? each : best), undefined);
    return own.filter((run) => at(run, name) === null || at(run, name) === taken);
  });
}
function differences(v) {
  const told = D.parameters.filter((name) => name !== v.x && !(name === "m" && v.x === "k")).map((name) => [name, ...SIDES.map((side) => valuesOf(ofSide(v.runs, side), name))]);
  const words = (values, name) => values.map((value) => parameterWord(name, value)).join(", ");
  return told.filter(([, ours, theirs]) => ours.length && theirs.length && ours.join() !== theirs.join())
    .map(([name, ours, theirs]) => `${parameterName(name)} ${words(ours, name)} (published: ${words(theirs, name)})`);
}

// What both sides are called: without runs of ours, published runs stand beside the figures that were printed.
const sidesOf = (v) => (v.runs.some((run) => !run.published) ? ["published", "ours"] : ["printed", "published runs"]);

function paintBeside(v) {
  const [other, own] = sidesOf(v), mixed = own === "ours";
  const sides = new Map(), key = (x, algorithm) => `${said(x)}|${algorithm}`, spot = (point) => (v.x === "algorithm" ? null : point.x);
  for (const line of v.all) for (const point of line.points) if (point.value !== null) { // runs come before figures that were printed
    const place = key(spot(point), line.algorithm), found = sides.get(place) ?? { x: spot(point), algorithm: line.algorithm };
    found[line.published ? "theirs" : "ours"] ??= point.value;
    sides.set(place, found);
  }
  const all = [...sides.values()], both = all.filter((each) => each.ours !== undefined && each.theirs !== undefined), ratio = (a, b) => (b ? a / b : null);
  $("beside").hidden = !all.some((each) => each.theirs !== undefined) || !all.some((each) => each.ours !== undefined) || v.figure === "failed";
  show("beside-table"); show("beside-differences");
  if ($("beside").hidden) return;
  if (!both.length) { show("beside-table", none("There is no algorithm of which both are known at one point.")); return; }
  const names = inOrder(unique(both.map((each) => each.algorithm))), most = names.reduce((best, name) => (amount(name) > amount(best) ? name : best));
  function amount(name) { return both.filter((each) => each.algorithm === name).length; }
  const xs = inOrder(unique(both.map((each) => each.x))), base = choose("beside-choices", "base", "Ratios are to", [...names, ...(xs.length > 1 ? [FIRST] : [])], names.length < 2 && xs.length > 1 ? FIRST : names.includes("ABD") ? "ABD" : most);
  const first = (name) => both.find((each) => each.algorithm === name && each.x === xs.find((x) => both.includes(sides.get(key(x, name))))), digits = (value) => (value === null ? MINUS : round(value));
  const rows = xs.flatMap((x) => names.map((name) => [sides.get(key(x, name)), base === FIRST ? first(name) : sides.get(key(x, base))]).filter(([place]) => both.includes(place)).map(([place, to]) => {
    const theirs = to?.theirs === undefined ? null : ratio(place.theirs, to.theirs), ours = to?.ours === undefined ? null : ratio(place.ours, to.ours);
    return [...(v.x === "algorithm" ? [] : [parameterWord(v.x, x)]), place.algorithm, figureWord(place.theirs, v.figure), figureWord(place.ours, v.figure), digits(theirs), digits(ours),
      place === to || theirs === null || ours === null ? MINUS : digits(ratio(ours, theirs))];
  }));
  const differ = differences(v), alone = all.length - both.length;
  show("beside-title", mixed ? "Published beside ours" : "Printed figures beside the published runs");
  show("beside-differences", mixed ? "Machines and networks differ, so their seconds and ours do not compare; ratios do. " : "Both come from the authors of ARES. ", differ.length ? `These runs differ in this, too: ${differ.join("; ")}.` : "");
  show("beside-table", table(`${v.operation}s, ${FIGURES[v.figure]}. The ratios are to ${base === FIRST ? FIRST : `${base} at the same point`}; in the last column 1 means that both ratios are the same, 2 that the ratio of ${mixed ? "ours" : "the runs"} is twice the other`,
    [...(v.x === "algorithm" ? [] : [[parameterName(v.x), "text"]]), ["algorithm", "text"], other, own, `${other}, as ratio`, `${own}, as ratio`, "ratio of the ratios"], rows),
    alone ? none(`${plural(alone, "more point")} in the figure ${alone === 1 ? "is" : "are"} known of one side only.`) : null);
}

// The claims that were judged from runs of this scenario.
function paintClaims(v) {
  const own = D.claims.filter((each) => each.scenario === v.scenario);
  $("claims").hidden = !own.length;
  show("claims-table", table("ratios of these runs with their 95 % interval, and the verdicts of docs/reproduction.md", [["where", "text"], ["claim", "text"], ["published", "text"], ["ours", "text"], ["verdict", "text"]],
    own.map((each) => [each.where, each.claim, each.published, each.ours, each.verdict])));
}
