"use strict";
// The head of the page and the first section: what came out, what binds it, how sure the choice is.
{
  const { el, text, assets, theme, link } = nautile;
  const { quantity, percent, times, pairs } = text;

  function verdict(explanation) {
    const found = explanation.certificate;
    if (!found) return ["none", "no certificate was asked for"];
    const passed = found.checks.filter((c) => c.passed).length;
    return [found.verdict, `${passed} of ${found.checks.length} checks, ${found.samples} samples`];
  }

  function head(explanation) {
    const { chosen, baseline } = explanation;
    const facts = el("dl", { class: "facts" });
    const fact = (name, value, note) => facts.append(el("div", {}, el("dt", {}, name), el("dd", {}, value, note && el("span", { class: "note" }, note))));
    if (chosen) {
      const faster = baseline?.seconds ? `${times(baseline.seconds / chosen.seconds)} as fast` : null;
      fact("Predicted", `${quantity(baseline?.seconds, "s")} → ${quantity(chosen.seconds, "s")}`, faster);
      fact("Memory", `${quantity(baseline?.bytes, "B")} → ${quantity(chosen.bytes, "B")}`);
      fact("Kernels", `${baseline?.kernels ?? "–"} → ${chosen.kernels.length}`);
      fact("Bound", quantity(chosen.bound, "s"), `gap ${percent(chosen.gap, 2)}`);
      fact("Binds", binding(chosen));
    }
    const [result, note] = verdict(explanation);
    fact("Certificate", el("span", { class: `verdict ${result}` }, result), note);
    document.getElementById("top").append(
      el("div", { class: "title" }, el("h1", {}, el("span", { class: "name", title: explanation.program }, text.short(explanation.program ?? "no program", 80))),
        el("p", { class: "muted" }, `${text.short(explanation.source, 120)} · ${explanation.target ?? "–"} · numerics ${explanation.numerics ?? "–"}`), theme.button()),
      facts);
    document.title = `${text.short(explanation.program ?? "Nautile", 60)}: why this program`;
  }

  // The resources that bind, with the share of the predicted time of the kernels that they bind.
  function binding(chosen) {
    const total = new Map();
    for (const k of chosen.kernels) total.set(k.bound ?? "–", (total.get(k.bound ?? "–") ?? 0) + k.seconds);
    return [...total].sort((a, b) => b[1] - a[1]).map(([name, s]) => `${name} ${percent(s / chosen.seconds)}`).slice(0, 3).join(", ");
  }

  function failure(explanation) {
    const { error } = explanation;
    return el("div", { class: "notice", role: "alert" }, el("h3", {}, `Error: ${error.code ?? "unknown"}`),
      el("pre", { tabindex: 0 }, error.message ?? error.detail ?? JSON.stringify(error, null, 1)));
  }

  function margin(explanation) {
    const found = explanation.margin;
    const parts = [el("h3", {}, "How sure is the choice?")];
    if (!found) parts.push(el("p", {}, "No other program comes near: no factor on a single resource that was tried makes another one win."));
    else {
      parts.push(el("p", { class: "lead" }, sentence(found)));
      if (found.checked) parts.push(el("p", { class: "muted" }, "Checked by solving the choice again on both sides of that factor."));
      if (found.program) parts.push(el("details", {}, el("summary", {}, "The program that would win then"), el("pre", { tabindex: 0 }, found.program)));
    }
    const all = explanation.margins ?? [];
    if (all.length) {
      const list = nautile.table([
        { title: "Resource", value: (m) => (m.kernel ? `kernel ${m.kernel}` : m.resource), cell: (m) => text.short(m.kernel ? `kernel ${m.kernel}` : m.resource, 50) },
        { title: "Factor that flips the choice", number: true, value: (m) => m.factor, cell: (m) => (m.factor ? `${Number(m.factor.toPrecision(4))}×` : "none found") },
        { title: "Then wins", value: named, cell: wins },
        { title: "In words", value: (m) => m.text ?? "", cell: (m) => text.short(m.text ?? "", 200) },
      ], { caption: "Margins by resource: of the choice, then of each runner-up", rows: all, filter: all.length > 20 });
      parts.push(el("details", { open: all.length <= 8 }, el("summary", {}, `All ${all.length} margins`), list.element));
    }
    return el("section", {}, ...parts);
  }

  const named = (m) => m.runner_up ?? (m.factor && m.columns?.length ? m.columns.join(" ") : "–");
  const wins = (m) => (m.factor && m.columns?.length ? el("span", {}, ...m.columns.flatMap((c) => [el("a", { href: link.write({ candidate: c }) }, c), " "])) : named(m));
  const sentence = (m) => (m.text ? `The choice ${m.text}.` : `The choice would flip if ${m.resource} work were ${times(m.factor)} as dear as the model says.`);

  function shares(chosen) {
    const resources = [...new Set(chosen.kernels.flatMap((k) => Object.keys(k.shares ?? {})))];
    if (!resources.length) return null;
    const most = Math.max(...chosen.kernels.flatMap((k) => [k.seconds, ...Object.values(k.shares ?? {})]));
    const bar = (value, bound) => {
      const fill = el("span", { class: bound ? "fill bound" : "fill" });
      fill.style.width = `${Math.max(0.5, (100 * value) / most)}%`;
      return el("span", { class: "bar", "aria-hidden": "true" }, fill);
    };
    const rows = chosen.kernels.flatMap((k) => resources.filter((r) => (k.shares?.[r] ?? 0) > 0).map((r) => [k, r]));
    return el("section", {}, el("h3", {}, "Time that each resource would need alone"),
      el("p", { class: "muted" }, "A kernel takes about as long as its busiest resource; that one is marked ◆."),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Time by resource" }, el("table", { class: "bars" }, el("thead", {}, el("tr", {},
        ...["Kernel", "Resource", "Seconds", "Share"].map((t) => el("th", { scope: "col" }, t)))),
      el("tbody", {}, ...rows.map(([k, r]) => el("tr", {}, el("th", { scope: "row" }, el("a", { href: link.write({ kernel: k.name }) }, text.short(k.name, 30))),
        el("td", {}, r), el("td", { class: "number" }, quantity(k.shares[r], "s")),
        el("td", { class: "wide" }, bar(k.shares[r], k.bound === r), k.bound === r ? " ◆ binds" : "")))))));
  }

  function kernels(explanation) {
    const { chosen } = explanation;
    return el("section", {}, el("h3", {}, "Kernels"), nautile.table([
      { title: "Kernel", value: (k) => k.name, cell: (k) => el("a", { href: link.write({ kernel: k.name }) }, text.short(k.name, 40)) },
      { title: "Seconds", number: true, value: (k) => k.seconds, cell: (k) => quantity(k.seconds, "s") },
      { title: "Bound by", value: (k) => k.bound },
      { title: "Reads", number: true, value: (k) => k.reads_bytes, cell: (k) => quantity(k.reads_bytes, "B") },
      { title: "Writes", number: true, value: (k) => k.writes_bytes, cell: (k) => quantity(k.writes_bytes, "B") },
      { title: "Tensor cores", number: true, value: (k) => k.tensor_flops, cell: (k) => quantity(k.tensor_flops, "flop") },
      { title: "Vector", number: true, value: (k) => k.vector_flops, cell: (k) => quantity(k.vector_flops, "flop") },
      { title: "Special", number: true, value: (k) => k.special_ops, cell: (k) => quantity(k.special_ops, "op") },
      { title: "Tile", value: (k) => pairs(k.tile) },
      { title: "Streams", value: (k) => (k.streams ?? []).join(" ") || "none" },
    ], { caption: "Chosen kernels, in launch order", rows: chosen.kernels, key: (k) => k.name, filter: chosen.kernels.length > 8, detail: terms }).element);
  }

  const written = (k) => (k.terms ?? []).flatMap((t) => t.steps ?? [`${t.output}[${(t.axes ?? []).join(", ")}] = ${t.text}`]);

  // What each kernel computes, in the order of launch; the whole text where that is not known.
  function program(chosen) {
    const known = chosen.kernels.filter((k) => written(k).length);
    if (!known.length && !chosen.text) return null;
    const lines = known.flatMap((k) => [`# kernel ${k.name}`, ...written(k), ""]);
    return el("section", {}, el("h3", {}, "The chosen program"), el("pre", { tabindex: 0, id: "chosen" }, known.length ? lines.join("\n").trimEnd() : chosen.text));
  }

  function terms(k) {
    const lines = written(k);
    return el("div", {}, lines.length ? el("pre", { tabindex: 0 }, lines.join("\n")) : null,
      el("p", {}, `Rules: ${(k.rules ?? []).join(", ") || "none"}`),
      (k.columns ?? []).length ? el("p", {}, "Candidates: ", ...k.columns.flatMap((c) => [el("a", { href: link.write({ candidate: c }) }, c), " "])) : null,
      (k.reads ?? []).length ? el("p", {}, `Reads ${k.reads.map((r) => `${r.buffer} ${quantity(r.bytes, "B")}`).join(", ")}`) : null);
  }

  function certificate(explanation) {
    const found = explanation.certificate;
    if (!found) return null;
    return el("section", {}, el("h3", {}, "Certificate"), nautile.table([
      { title: "Check", value: (c) => c.name },
      { title: "Passed", value: (c) => (c.passed ? "✓ yes" : "✗ no") },
      { title: "Largest relative error", number: true, value: (c) => c.max_relative_error, cell: (c) => c.max_relative_error?.toExponential(2) },
      { title: "RMSE beside the source's own", number: true, value: (c) => c.rmse_ratio, cell: (c) => times(c.rmse_ratio) },
      { title: "Samples", number: true, value: (c) => c.samples },
      { title: "Detail", value: (c) => c.detail },
    ], { caption: "Checks of the chosen program against the source", rows: found.checks }).element);
  }

  function measured(explanation) {
    const rows = explanation.measured ?? [];
    if (!rows.length) return null;
    return el("section", {}, el("h3", {}, "Predicted against measured"), nautile.table([
      { title: "Kernel", value: (m) => m.kernel },
      { title: "Predicted", number: true, value: (m) => m.predicted, cell: (m) => quantity(m.predicted, "s") },
      { title: "Measured", number: true, value: (m) => m.measured, cell: (m) => quantity(m.measured, "s") },
      { title: "Measured / predicted", number: true, value: (m) => m.ratio, cell: (m) => times(m.ratio) },
      { title: "GPU", value: (m) => m.gpu }, { title: "Date", value: (m) => m.date },
    ], { caption: "Measured times", rows }).element);
  }

  async function draw(panel) {
    const explanation = await assets.data("explanation");
    explanation.margins = await assets.data("margins");
    if (explanation.error) panel.append(failure(explanation));
    const { chosen } = explanation;
    if (chosen) {
      panel.append(...[program(chosen), kernels(explanation), shares(chosen), margin(explanation)].filter(Boolean));
    }
    panel.append(...[measured(explanation), certificate(explanation)].filter(Boolean));
  }

  nautile.head = head;
  nautile.views.set("overview", { title: "Overview", draw });
}
