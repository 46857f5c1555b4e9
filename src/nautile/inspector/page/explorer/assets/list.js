"use strict";
// The neighbourhood as a list, the equal of the drawing for keyboards and screen readers: every class
// that is drawn, in the order of the drawing, with its nodes and buttons to what they use. Rows beyond
// the first screens are added while nothing else is to do.

nautileExplorer.list = (graph, texts, place, act) => {
  const { el } = nautileExplorer;
  const FIRST = 60; // lines that are there at once
  const SLICE = 30;
  let turn = 0;

  const button = (text, click, attributes = {}) => el("button", { type: "button", click, ...attributes }, text);

  function nodeRow(n) {
    const marks = [graph.isChosen(n) ? "chosen" : null, graph.isSource(n) ? "source" : null].filter(Boolean).join(", ");
    const below = [...graph.childrenOf(n)].map((k) =>
      button(graph.key(k), () => act.select(k), { class: "x-class", "aria-label": `Class ${graph.key(k)}` }));
    return el("li", {}, el("code", { class: "x-term" }, texts.ofNode(n, 3)), marks ? ` (${marks})` : null,
      below.length ? [" of ", below] : null);
  }

  function classRow(c, nodes, view) {
    const open = view.open.has(c);
    const left = open ? graph.sizeOf(c) - nodes.length : 0;
    return el("li", { "data-class": graph.key(c) },
      button(open ? "▾" : "▸", () => act.toggle(c), {
        class: "x-toggle", "aria-expanded": String(open), "aria-label": `${open ? "Collapse" : "Expand"} class ${graph.key(c)}` }),
      button(graph.key(c), () => act.select(c), { class: "x-class", "aria-current": c === act.selected() ? "true" : null,
        "aria-label": `Class ${graph.key(c)}` }),
      " ", el("code", { class: "x-term" }, texts.brief(c, 2)), ` ${graph.typeOf(c)}`,
      graph.outputOf(c) ? ` → ${graph.outputOf(c)}` : null,
      nodes.length ? el("ul", {}, nodes.map(nodeRow)) : null,
      left > 0 ? button(`${left.toLocaleString("en")} more ${left === 1 ? "node" : "nodes"}`, () => act.more(c), { class: "x-more" }) : null);
  }

  function show(drawn, view) {
    const own = ++turn;
    const rows = drawn.classes;
    const list = el("ul", { class: "x-list", "aria-label": "Classes that are drawn" });
    let next = 0;
    const add = (lines) => {
      for (let left = lines; left > 0 && next < rows.length; next++) {
        const nodes = drawn.nodes.get(rows[next]) ?? [];
        list.append(classRow(rows[next], nodes, view));
        left -= 1 + nodes.length;
      }
    };
    const rest = () => {
      if (own !== turn || next >= rows.length) return;
      add(SLICE);
      setTimeout(rest, 8);
    };
    add(FIRST);
    place.replaceChildren(list);
    setTimeout(rest, 60);
  }

  // Which row is the current one, without drawing the list again.
  function mark(c) {
    const key = graph.key(c);
    for (const known of place.querySelectorAll("[aria-current]")) known.removeAttribute("aria-current");
    for (const row of place.querySelectorAll(".x-list > li")) {
      if (row.dataset.class !== key) continue;
      const own = row.querySelector(":scope > .x-class");
      own.setAttribute("aria-current", "true");
      row.scrollIntoView({ block: "nearest" });
    }
  }

  return { show, mark, clear: () => (turn++, place.replaceChildren()) };
};
