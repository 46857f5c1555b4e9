"use strict";
// How the e-graph grew: rows after each iteration, and which rules matched how often.
{
  const { el, svg, text, assets } = nautile;
  const { quantity, short } = text;
  const WIDTH = 720;
  const HEIGHT = 220;

  function chart(course) {
    const regions = new Map();
    for (const c of course) {
      const region = String(c.region ?? 0);
      if (!regions.has(region)) regions.set(region, []);
      regions.get(region).push(c);
    }
    const most = Math.max(...course.map((c) => c.rows), 1);
    const last = Math.max(...course.map((c) => c.iteration), 1);
    const x = (i) => 60 + (i / last) * (WIDTH - 84);
    const y = (rows) => HEIGHT - 40 - (rows / most) * (HEIGHT - 60);
    const lines = [...regions].map(([region, points]) => svg("g", {},
      svg("title", {}, `Region ${region}`),
      svg("polyline", { class: "course", points: points.map((p) => `${x(p.iteration)},${y(p.rows)}`).join(" ") }),
      points.map((p) => svg("circle", { class: "dot small", cx: x(p.iteration), cy: y(p.rows), r: 3.5 }))));
    return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": `Rows by iteration, up to ${most}; the table after the chart has the figures` },
      svg("line", { class: "grid", x1: 60, x2: WIDTH - 24, y1: y(0), y2: y(0) }), svg("line", { class: "grid", x1: 60, x2: WIDTH - 24, y1: y(most), y2: y(most) }),
      svg("text", { x: 54, y: y(0) + 4, "text-anchor": "end" }, "0"), svg("text", { x: 54, y: y(most) + 4, "text-anchor": "end" }, quantity(most, "")),
      svg("text", { x: x(0), y: HEIGHT - 22, "text-anchor": "middle" }, "0"), svg("text", { x: x(last), y: HEIGHT - 22, "text-anchor": "middle" }, last),
      svg("text", { x: WIDTH / 2, y: HEIGHT - 6, "text-anchor": "middle", class: "axis" }, "iteration"), lines);
  }

  const busiest = (matches) => Object.entries(matches ?? {}).sort((a, b) => b[1] - a[1]);
  const total = (matches) => Object.values(matches ?? {}).reduce((a, b) => a + b, 0);

  function iterations(course) {
    return nautile.table([
      { title: "Region", number: true, value: (c) => c.region },
      { title: "Iteration", number: true, value: (c) => c.iteration },
      { title: "Rows", number: true, value: (c) => c.rows },
      { title: "Added", number: true, value: (c) => c.added },
      { title: "Seconds", number: true, value: (c) => c.seconds, cell: (c) => quantity(c.seconds, "s") },
      { title: "Matches", number: true, value: (c) => total(c.matches) },
      { title: "Busiest rules", value: (c) => busiest(c.matches).slice(0, 4).map(([r, n]) => `${r} ${n}`).join(", ") },
    ], { caption: "Iterations", rows: course.map((c, n) => ({ ...c, n })), key: (c) => c.n, filter: course.length > 20, detail: (c) => el("p", {}, busiest(c.matches).map(([r, n]) => `${r} ${n}`).join(", ") || "no matches", (c.rests ?? []).length ? `; resting: ${c.rests.map((r) => (typeof r === "string" ? r : r.rule ?? JSON.stringify(r))).join(", ")}` : "") }).element;
  }

  function rules(course) {
    const count = new Map();
    for (const c of course) for (const [rule, n] of Object.entries(c.matches ?? {})) count.set(rule, (count.get(rule) ?? 0) + n);
    if (!count.size) return null;
    return nautile.table([{ title: "Rule", value: ([r]) => r }, { title: "Matches", number: true, value: ([, n]) => n }],
      { caption: "Matches by rule", rows: [...count].sort((a, b) => b[1] - a[1]), key: ([r]) => r, filter: true }).element;
  }

  async function draw(panel) {
    const explanation = await assets.data("explanation");
    const found = explanation.saturation;
    if (!found) return panel.append(el("p", { class: "notice" }, "No e-graph was made."));
    const grown = Object.entries(found.growth ?? {}).map(([r, n]) => `${r} (${n})`).join(", ");
    panel.append(el("p", { class: "lead" }, `Stopped because: ${found.stop}. ${found.rows} rows after ${found.iterations} iterations, ${quantity(found.seconds, "s")}.`),
      grown ? el("p", {}, `Most terms came from ${short(grown, 300)}.`) : "");
    const course = await assets.data("course") ?? [];
    if (course.length) panel.append(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Course of the saturation" }, chart(course)), iterations(course), rules(course) ?? "");
  }

  nautile.views.set("saturation", { title: "Saturation", draw });
}
