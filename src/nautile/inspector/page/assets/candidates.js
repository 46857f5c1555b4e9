"use strict";
// Every kernel that was considered, whether it was taken and why not, and what it would have cost to
// take it: the cheapest program that uses it. Then the programs that came next.
{
  const { el, text, assets, link } = nautile;
  const { quantity, percent, pairs, short } = text;

  const reason = (c) => (c.taken ? "taken" : c.reason?.code ?? "not taken");
  const told = (c) => c.reason?.text ?? reason(c);
  const joined = (list) => (list ?? []).join(", ");

  function detail(c) {
    const list = (title, items) => (items?.length ? el("div", {}, el("h3", {}, title), el("ul", { class: "terms" }, ...items.map((t) => el("li", {}, el("code", {}, t))))) : null);
    const forced = c.forced;
    return el("div", {}, el("p", {}, told(c)),
      list("Makes", c.makes), list("Needs", c.needs),
      forced && el("p", {}, `The cheapest program that uses it takes ${quantity(forced.seconds, "s")}${typeof forced.slower_by === "number" ? `, ${percent(forced.slower_by, 2)} more than the chosen one` : ""}.`),
      forced?.text && el("pre", { tabindex: 0 }, forced.text),
      forced?.columns && el("p", { class: "muted" }, `Kernels: ${joined(forced.columns)}`));
  }

  // What the search left out before anything was chosen, as the extractor counts it.
  function counts(pruned) {
    const parts = Object.entries(pruned ?? {}).filter(([, n]) => n > 0);
    return parts.length ? el("p", { class: "muted" }, `On the way: ${parts.map(([what, n]) => `${n} ${what}`).join(", ")}.`) : null;
  }

  let shown = null;

  async function draw(panel) {
    const [explanation, rows] = [await assets.data("explanation"), await assets.data("candidates") ?? []];
    if (!rows.length) return panel.append(el("p", { class: "notice" }, "No candidates were recorded."));
    shown = nautile.table([
      { title: "No", value: (c) => c.id },
      { title: "Makes", value: (c) => joined(c.makes), cell: (c) => el("code", { title: short(joined(c.makes), 600) }, short(joined(c.makes), 70)) },
      { title: "Seconds", number: true, value: (c) => c.seconds, cell: (c) => quantity(c.seconds, "s") },
      { title: "Bound by", value: (c) => c.bound },
      { title: "Tile", value: (c) => pairs(c.tile) },
      { title: "Streams", value: (c) => joined(c.streams) || "none" },
      { title: "Split", value: (c) => pairs(c.split) || "none" },
      { title: "If forced, slower by", number: true, value: (c) => (c.taken ? 0 : c.forced?.slower_by), cell: (c) => (c.taken ? "–" : percent(c.forced?.slower_by, 1)) },
      { title: "Why", value: told, cell: (c) => el("span", { class: c.taken ? "verdict pass" : null, title: short(told(c), 600) }, short(told(c), 90)) },
    ], { caption: "Candidate kernels", rows, key: (c) => c.id, filter: true, detail, mark: (c) => (c.taken ? "taken" : null),
      choices: { label: "Reason", of: reason }, words: (c) => joined(c.needs) });
    panel.append(el("p", { class: "lead" }, `${rows.filter((c) => c.taken).length} of ${rows.length} candidates make up the chosen program. Open a row to see what it computes and what taking it would cost.`), counts(explanation.pruned) ?? "", shown.element);
    const asked = link.get("candidate");
    if (asked !== null) shown.reveal(asked);
  }

  const linked = (columns) => columns.flatMap((c) => [el("a", { href: link.write({ candidate: c }) }, c), " "]);

  function resources(more) {
    const parts = Object.entries(more ?? {}).filter(([, s]) => Math.abs(s) > 1e-12).sort((a, b) => b[1] - a[1]);
    return parts.length ? el("p", {}, `Beside the chosen program it needs ${parts.map(([r, s]) => `${s > 0 ? "+" : "−"}${quantity(Math.abs(s), "s")} of ${r}`).join(", ")}.`) : null;
  }

  const apart = (by) => (by < 0 ? `Faster by ${percent(-by, 2)}` : `Slower by ${percent(by, 2)}`);

  function runner(r) {
    const names = (r.kernels ?? []).map((k) => k.name);
    return el("section", { class: "card" },
      el("h3", {}, `${short(String(r.id), 40)}: ${quantity(r.seconds, "s")}`),
      el("p", {}, `${apart(r.slower_by)}, ${names.length} kernels${r.within_noise ? "; within the noise of the model, where fewer kernels are preferred" : ""}.`),
      resources(r.more),
      (r.only_here ?? []).length ? el("p", {}, "Only here: ", ...linked(r.only_here)) : null,
      (r.only_chosen ?? []).length ? el("p", {}, "Only in the chosen program: ", ...linked(r.only_chosen)) : null,
      r.text ? el("pre", { tabindex: 0 }, r.text) : null,
      (r.kernels ?? []).length ? nautile.table([
        { title: "Kernel", value: (k) => k.name, cell: (k) => short(k.name, 40) },
        { title: "Seconds", number: true, value: (k) => k.seconds, cell: (k) => quantity(k.seconds, "s") },
        { title: "Bytes", number: true, value: (k) => k.reads_bytes + k.writes_bytes, cell: (k) => quantity(k.reads_bytes + k.writes_bytes, "B") },
        { title: "Tile", value: (k) => pairs(k.tile) },
        { title: "Streams", value: (k) => joined(k.streams) || "none" },
      ], { caption: `Kernels of ${short(String(r.id), 40)}`, rows: r.kernels, key: (k) => k.name }).element : null);
  }

  async function drawRunners(panel) {
    const [explanation, rows] = [await assets.data("explanation"), await assets.data("runners_up") ?? []];
    if (!rows.length) return panel.append(el("p", { class: "notice" }, "No other program was found."));
    panel.append(el("p", { class: "lead" }, `The chosen program takes ${quantity(explanation.chosen.seconds, "s")}. These came next.`),
      ...rows.map(runner));
  }

  link.on("candidate", "candidates", (id) => shown?.reveal(id));
  nautile.views.set("candidates", { title: "Candidates", draw });
  nautile.views.set("runners", { title: "Runner-ups", draw: drawRunners });
}
