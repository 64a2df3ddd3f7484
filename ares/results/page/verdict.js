"use strict";
// What the runs say, before any figure: a sentence, the stores in their order, and each comparison that the order is made of.
// A comparison is one operation of a scenario, or one workload of load; only stores that were measured with the same settings meet in it.
const ALIKE = 1.05, COMPARED_MAX = 60; // stores whose times differ by less count as equally fast
const OWN = ["k", "m"]; // parameters of an algorithm itself: settings are the same whatever they are
const hasOurs = D.runs.some((run) => !run.published), judged = D.runs.filter((run) => !hasOurs || !run.published);
const plainPlural = (operation) => (operation === "recon" ? "reconfigurations" : `${operation}s`);
const geometric = (values) => Math.exp(mean(values.map(Math.log)));

// Costs of stores (less is better) at settings: for each store the geometric mean of its cost by the least one there, over the settings where others are.
function compared(title, link, cells) {
  const settings = new Map();
  for (const { store, setting, cost } of cells) {
    if (!settings.has(setting)) settings.set(setting, new Map());
    add(settings.get(setting), store, cost);
  }
  const shared = [...settings.values()].filter((stores) => stores.size > 1), ratios = new Map();
  for (const stores of shared) {
    const costs = [...stores].map(([store, all]) => [store, mean(all)]), least = Math.min(...costs.map(([, cost]) => cost));
    for (const [store, cost] of costs) add(ratios, store, cost / least);
  }
  const order = [...ratios].map(([store, all]) => [store, geometric(all)]).sort((a, b) => a[1] - b[1]);
  return { title, link, settings: shared.length, order, first: order.filter(([, ratio]) => ratio < ALIKE * order[0][1]).map(([store]) => store) };
}
function settingOf(runs) {
  const told = D.parameters.filter((name) => !OWN.includes(name) && unique(runs.map((run) => run.algorithm)).every((store) => runs.some((run) => run.algorithm === store && at(run, name) !== null)));
  return (run) => JSON.stringify(told.map((name) => at(run, name)));
}
function comparisons() {
  return D.scenarios.flatMap((scenario) => {
    const runs = judged.filter((run) => run.scenario === scenario), setting = settingOf(runs), loaded = runs.filter((run) => run.load);
    const timed = OPERATIONS.map((operation) => compared(`${scenario}: ${plainPlural(operation)}`, { scenario, op: operation },
      runs.filter((run) => run.operations[operation]?.mean).map((run) => ({ store: run.algorithm, setting: setting(run), cost: run.operations[operation].mean }))));
    const name = (run) => `${run.load.workload}${run.load.fault ? `, ${run.load.fault}: throughput kept` : ": most operations a second"}`;
    const most = (run) => Math.max(1e-3, ...run.load.points.map((point) => (run.load.fault ? point.kept : point.per_s) ?? 0));
    return [...timed, ...unique(loaded.map(name)).map((workload) => compared(`${scenario}, ${workload}`, { scenario },
      loaded.filter((run) => name(run) === workload).map((run) => ({ store: run.algorithm, setting: setting(run), cost: 1 / most(run) }))))];
  }).filter((each) => each.order.length > 1);
}
const COMPARED = comparisons();
const MEASURED = unique(COMPARED.flatMap((each) => each.order.map(([store]) => store))).map((store) => {
  const own = COMPARED.filter((each) => each.order.some(([name]) => name === store));
  return { store, of: own.length, first: own.filter((each) => each.first.includes(store)).length, ratio: geometric(own.map((each) => each.order.find(([name]) => name === store)[1])),
    failed: sum(judged.filter((run) => run.algorithm === store).flatMap((run) => Object.values(run.operations).map((operation) => operation.failed))),
    wrong: sum(judged.filter((run) => run.algorithm === store).map((run) => run.load?.wrong ?? 0)) };
}).sort((a, b) => a.ratio - b.ratio);
const [RANKED, SELDOM] = [true, false].map((often) => MEASURED.filter((each) => 2 * each.of >= COMPARED.length === often)); // a mean of few comparisons says little

function verdict() {
  const [best, next] = RANKED, stores = unique(judged.map((run) => run.algorithm)), published = hasOurs ? "" : "Published runs: ";
  if (stores.length < 2) return `${published}only ${stores[0]} was measured, so there is nothing to compare it with.`;
  if (!next) return `${published}the ${stores.length} stores have no order: too few were measured with the same settings.`;
  const often = COMPARED.length > 1 ? `, first in ${best.first} of ${COMPARED.length} comparisons` : ` (${COMPARED[0].title})`;
  const alike = RANKED.filter((each) => each.ratio < ALIKE * best.ratio).map((each) => each.store);
  if (alike.length > 1) return `${published}${alike.slice(0, -1).join(", ")} and ${alike.at(-1)} are equally fast.`;
  return `${published}${best.store} is the fastest${often}; ${next.store} takes ${slower(next, best)}.`;
}
const slower = (each, best) => `${round(each.ratio / best.ratio, 2)} times as long`;
function paintVerdict() {
  const best = RANKED[0], bar = ({ store, ratio }) => `width: ${Math.max(1, (100 * best.ratio) / ratio)}%; background: ${colour(store)}`;
  const words = (each) => [each.ratio < ALIKE * best.ratio ? "the fastest" : slower(each, best), COMPARED.length > 1 ? `; first in ${each.first} of ${each.of}` : "",
    [[each.failed, "failed"], [each.wrong, "wrong"]].map(([number, what]) => (number ? [", ", make("span", { class: "bad" }, `${count(number)} ${what}`)] : null))];
  show("verdict-sentence", verdict().replace(/^./, (letter) => letter.toUpperCase()));
  show("verdict-ranking", RANKED.map((each) => make("li", {}, make("b", {}, each.store), make("span", { class: "speed", "aria-hidden": "true" }, make("span", { style: bar(each) })), make("span", {}, words(each)))));
  show("verdict-hint", RANKED.length ? `Longer bars are faster. Only what was measured with the same settings is compared; what a store promises is not.${SELDOM.length
    ? ` Measured in few comparisons, so not ranked: ${SELDOM.map((each) => each.store).join(", ")}.` : ""}` : "");
  const shown = COMPARED.slice(0, COMPARED_MAX);
  $("verdict-comparisons").hidden = !shown.length;
  show("verdict-compared", shown.map(({ title, link, settings, order }) => make("li", {}, make("a", { href: address({ ...link, show: "figures" }) }, title), ` (${plural(settings, "setting")}): `,
    order.map(([store, ratio], i) => [i ? `, ${store} ×${round(ratio / order[0][1], 2)}` : make("b", {}, store)]))));
}
