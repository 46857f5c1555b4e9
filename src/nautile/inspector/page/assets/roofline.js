"use strict";
// The roofline (Williams, Waterman and Patterson, 2009): what a kernel reaches, in operations a
// second, over how many operations it does for each byte from memory; both axes are logarithmic. A
// kernel is a numbered dot where it is predicted, and a diamond where it was measured.
{
  const { el, svg, text, assets } = nautile;
  const WIDTH = 860;
  const HEIGHT = 380;
  const EDGE = { left: 74, right: 168, top: 18, bottom: 48 };

  const work = (kernel) => kernel.tensor_flops + kernel.vector_flops + kernel.special_ops;
  const bytes = (kernel) => kernel.reads_bytes + kernel.writes_bytes;

  // [{name, number, intensity, predicted, measured?}]
  function points(kernels, measured) {
    return kernels.map((k, n) => {
      const seconds = (measured ?? []).find((m) => m.kernel === k.name)?.measured;
      return { name: k.name, number: n + 1, intensity: work(k) / bytes(k), predicted: work(k) / k.seconds,
        measured: seconds ? work(k) / seconds : null };
    }).filter((p) => p.intensity > 0 && Number.isFinite(p.intensity) && p.predicted > 0);
  }

  function scale(low, high, from, to) {
    const [a, b] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const place = (value) => from + ((Math.log10(value) - a) / (b - a || 1)) * (to - from);
    place.ticks = Array.from({ length: b - a + 1 }, (_, n) => 10 ** (a + n));
    place.range = [10 ** a, 10 ** b];
    return place;
  }

  function ceilings(device, kernels) {
    const tensor = kernels.some((k) => k.tensor_flops > 0);
    const rates = Object.entries(device.flops).filter(([name, rate]) => rate > 0 && (tensor || !name.startsWith("tensor")));
    const seen = new Map();
    for (const [name, rate] of rates) seen.set(rate, [...(seen.get(rate) ?? []), name.replace("tensor ", "")]);
    return [...seen].map(([rate, names]) => ({ rate, name: names.join(", ") }));
  }

  function chart(device, dots, flat) {
    const intensities = dots.flatMap((d) => [d.intensity]).concat([1, 1000]);
    const rates = dots.flatMap((d) => [d.predicted, d.measured].filter(Boolean)).concat(flat.map((f) => f.rate));
    const x = scale(Math.min(...intensities) / 2, Math.max(...intensities) * 2, EDGE.left, WIDTH - EDGE.right);
    const y = scale(Math.min(...rates) / 2, Math.max(...rates) * 1.2, HEIGHT - EDGE.bottom, EDGE.top);
    const description = `${dots.length} kernels under the ceilings of ${device.name}; the table after the chart has the figures`;
    const numbers = placed(dots, x, y);
    return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": `Roofline: ${description}` },
      grid(x, y), roofs(device, flat, dots, x, y), dots.map((d, n) => dot(d, numbers[n], x, y)));
  }

  function grid(x, y) {
    const bottom = HEIGHT - EDGE.bottom;
    const lines = [...x.ticks.map((t) => svg("line", { class: "grid", x1: x(t), x2: x(t), y1: EDGE.top, y2: bottom })),
      ...y.ticks.map((t) => svg("line", { class: "grid", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(t), y2: y(t) }))];
    const labels = [...x.ticks.map((t) => svg("text", { x: x(t), y: bottom + 17, "text-anchor": "middle" }, t < 1 && t >= 1e-3 ? t.toFixed(-Math.log10(t)) : text.quantity(t, ""))),
      ...y.ticks.map((t) => svg("text", { x: EDGE.left - 8, y: y(t) + 4, "text-anchor": "end" }, text.quantity(t, "")))];
    const names = [svg("text", { x: (EDGE.left + WIDTH - EDGE.right) / 2, y: HEIGHT - 8, "text-anchor": "middle", class: "axis" }, "operations a byte from memory"),
      svg("text", { x: 14, y: HEIGHT / 2, "text-anchor": "middle", class: "axis", transform: `rotate(-90 14 ${HEIGHT / 2})` }, "operations a second")];
    return svg("g", {}, lines, labels, names);
  }

  // Where on a slanted roof, as a part of its length, no dot hides the name.
  function free(from, to, rate, dots, x, y) {
    const hidden = (part) => dots.some((d) => Math.abs(x(from * (to / from) ** part) + 55 - x(d.intensity)) < 75
      && Math.abs(y(from * (to / from) ** part * rate) - y(d.predicted)) < 30);
    return [0.2, 0.35, 0.5, 0.65, 0.8].find((part) => !hidden(part)) ?? 0.2;
  }

  function roofs(device, flat, dots, x, y) {
    const [x0, x1] = x.range;
    const [y0, y1] = y.range;
    const top = Math.max(...flat.map((f) => f.rate));
    const slanted = Object.entries(device.bytes).map(([name, rate]) => {
      const [from, to] = [Math.max(x0, y0 / rate), Math.min(x1, top / rate, y1 / rate)];
      if (from >= to) return null;
      const left = rate === Math.max(...Object.values(device.bytes)); // names stand on the free sides
      const at = from * (to / from) ** (left ? 0.2 : free(from, to, rate, dots, x, y));
      return svg("g", {}, svg("line", { class: `roof ${name}`, x1: x(from), y1: y(from * rate), x2: x(to), y2: y(to * rate) }),
        svg("text", { x: x(at) + (left ? -8 : 10), y: y(at * rate) + (left ? -4 : 12), "text-anchor": left ? "end" : "start", class: "roofname" }, `${name} ${text.quantity(rate, "B/s")}`));
    });
    const beside = apart(flat.map(({ rate }) => y(rate) + 4));
    const level = flat.map(({ rate, name }, n) => svg("g", {},
      svg("line", { class: "roof", x1: x(Math.max(x0, Math.min(x1, rate / Math.max(...Object.values(device.bytes))))), y1: y(rate), x2: x(x1), y2: y(rate) }),
      svg("text", { x: x(x1) + 6, y: beside[n], class: "roofname" }, `${text.short(name, 16)} ${text.quantity(rate, "op/s")}`)));
    return svg("g", {}, slanted.filter(Boolean), level);
  }

  // Heights of lines of text, moved down as far as they need to be apart.
  function apart(heights) {
    const found = [...heights];
    let least = -Infinity;
    for (const n of heights.map((_, n) => n).sort((a, b) => heights[a] - heights[b])) {
      found[n] = Math.max(heights[n], least);
      least = found[n] + 14;
    }
    return found;
  }

  // Numbers stand above their dots, one above the other where they would meet.
  function placed(dots, x, y) {
    const taken = [];
    return dots.map((d) => {
      const place = { x: x(d.intensity), y: y(d.predicted) - 11 };
      while (taken.some((t) => Math.abs(t.x - place.x) < 17 && Math.abs(t.y - place.y) < 14) && place.y > EDGE.top + 8) place.y -= 14;
      taken.push(place);
      return place;
    });
  }

  function dot(d, at, x, y) {
    const label = `${d.name}: ${text.quantity(d.intensity, "op/B")}, predicted ${text.quantity(d.predicted, "op/s")}`;
    const [px, py] = [x(d.intensity), y(d.predicted)];
    const parts = [svg("title", {}, label), svg("line", { class: "leader", x1: px, y1: py, x2: at.x, y2: at.y }),
      svg("circle", { class: "dot", cx: px, cy: py, r: 5 }),
      svg("text", { class: "dotname", x: at.x, y: at.y, "text-anchor": "middle" }, d.number)];
    if (d.measured) {
      const [cx, cy] = [x(d.intensity), y(d.measured)];
      parts.push(svg("path", { class: "measured", d: `M${cx} ${cy - 7} l7 7 l-7 7 l-7 -7 z` }));
    }
    return svg("g", {}, parts);
  }

  function figures(dots, kernels) {
    return nautile.table([
      { title: "No", number: true, value: (d) => d.number },
      { title: "Kernel", value: (d) => d.name, cell: (d) => text.short(d.name, 40) },
      { title: "Operations a byte", number: true, value: (d) => d.intensity, cell: (d) => text.quantity(d.intensity, "op/B") },
      { title: "Predicted", number: true, value: (d) => d.predicted, cell: (d) => text.quantity(d.predicted, "op/s") },
      { title: "Measured", number: true, value: (d) => d.measured, cell: (d) => text.quantity(d.measured, "op/s") },
      { title: "Bound by", value: (d) => kernels[d.number - 1].bound ?? "–" },
    ], { caption: "Kernels on the roofline", rows: dots, key: (d) => d.number }).element;
  }

  function roofline(device, kernels, measured) {
    const dots = points(kernels, measured);
    return el("div", {}, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Roofline chart" }, chart(device, dots, ceilings(device, kernels))),
      figures(dots, kernels));
  }

  async function draw(panel) {
    const [explanation, program] = [await assets.data("explanation"), await assets.data("program")];
    if (!explanation.chosen || !program) return panel.append(el("p", { class: "notice" }, "No program was chosen."));
    panel.append(el("p", { class: "lead" }, `${program.device.description}. A dot on a ceiling uses all of that resource; below, another one binds or time is lost.`),
      roofline(program.device, explanation.chosen.kernels, explanation.measured));
  }

  nautile.views.set("roofline", { title: "Roofline", draw });
}
