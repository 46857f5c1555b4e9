"use strict";
// One class in words: its term, its type, why it and its nodes are there, who uses it. Everything that
// the drawing shows can be read and reached here.

// Elements from text alone: el("p", {class: "x", click: handler}, "text", child).
nautileExplorer.el = (tag, attributes, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return node;
};

nautileExplorer.number = (value) => {
  if (value === null) return "infinite";
  return value < 1e6 ? value.toLocaleString("en") : value.toExponential(2).replace("e+", "e");
};

nautileExplorer.panel = (graph, texts, place, act) => {
  const { el, number } = nautileExplorer;
  const FIRST = 30;
  const LONGEST_WAY = 12;
  const code = (text) => el("code", { class: "x-term" }, text);
  const button = (text, click, attributes = {}) => el("button", { type: "button", click, ...attributes }, text);

  const classButton = (c, text = graph.key(c)) =>
    button(text, () => act.select(c), { class: "x-class", "aria-label": `Class ${graph.key(c)}: ${texts.brief(c, 2)}` });

  function facts(c) {
    const axes = graph.axesOf(c);
    const entries = [["Type", `${graph.typeOf(c)}${axes.length ? `[${axes.map((a) => `${a.name}: ${a.extent}`).join(", ")}]` : ""}`]];
    if (graph.outputOf(c)) entries.push(["Stored as", graph.outputOf(c)]);
    entries.push(["Cheapest term", `${number(graph.costOf(c))} evaluations`]);
    const kernels = [...new Set(graph.nodesOf(c).flatMap(graph.kernelsOf))];
    entries.push(["In the chosen program", kernels.length ? `computed by ${kernels.join(", ")}` : "no"]);
    const made = graph.madeOf(c);
    if (made.length) entries.push(["Rules that put something here", made.map(rule)]);
    return el("dl", { class: "x-facts" }, entries.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  }

  const rule = (name, at = 0) => [
    at ? ", " : null,
    el("span", { class: "x-rule", title: graph.laws.get(name) }, name),
  ];

  // Why a node is in its class, as far as the e-graph tells.
  function reason(n) {
    const rules = graph.rulesOf(n);
    const parts = [];
    if (graph.isSource(n)) parts.push("It stood in the source. ");
    if (rules.length) parts.push("Put here by ", rules.map(rule), ".");
    if (!parts.length) parts.push("No rule's own result: part of one, or equal through its arguments.");
    return el("p", { class: "x-why" }, parts.flat(2));
  }

  function nodeItem(n, marked) {
    const marks = [];
    if (graph.isChosen(n)) marks.push(el("span", { class: "x-mark x-chosen" }, `chosen: ${graph.kernelsOf(n).join(", ")}`));
    if (graph.isSource(n)) marks.push(el("span", { class: "x-mark" }, "source"));
    const stored = graph.storedBy(n);
    const below = stored === null ? [...graph.childrenOf(n)] : [stored];
    return el("li", { class: n === marked ? "x-marked" : null },
      code(texts.ofNode(n, 1)), " ", marks,
      below.length ? el("p", { class: "x-below" }, stored === null ? "of " : "stored by ", below.map((k) => classButton(k))) : null,
      reason(n));
  }

  function nodeList(c, marked) {
    const rank = (n) => (n === marked ? 0 : graph.isChosen(n) ? 1 : n === graph.bestOf(c) ? 2 : graph.isSource(n) ? 3 : 4);
    const nodes = graph.nodesOf(c).sort((a, b) => rank(a) - rank(b) || a - b);
    const list = el("ol", { class: "x-nodes" }, nodes.slice(0, FIRST).map((n) => nodeItem(n, marked)));
    return [el("h4", {}, nodes.length === 1 ? "One node" : `${nodes.length.toLocaleString("en")} equal nodes`), list,
      rest(nodes, FIRST, list, (n) => nodeItem(n, marked))];
  }

  function rest(entries, from, list, item) {
    if (entries.length <= from) return null;
    const left = entries.length - from;
    const next = button(`Show ${Math.min(left, FIRST)} more of ${left.toLocaleString("en")}`, () => {
      const first = list.children.length;
      list.append(...entries.slice(from, from + FIRST).map(item));
      const after = rest(entries, from + FIRST, list, item);
      if (after) next.replaceWith(after);
      else next.remove();
      list.children[first].querySelector("button")?.focus();
    }, { class: "x-more" });
    return next;
  }

  function userList(c) {
    const users = graph.usersOf(c);
    if (!users.length) return [];
    const item = (n) => el("li", {}, classButton(graph.owner[n]), " ", code(texts.ofNode(n, 3)));
    const list = el("ul", { class: "x-users" }, users.slice(0, FIRST).map(item));
    return [el("h4", {}, `Used by ${users.length.toLocaleString("en")} ${users.length === 1 ? "node" : "nodes"}`), list, rest(users, FIRST, list, item)];
  }

  function way(c) {
    const nodes = graph.wayTo(c);
    if (nodes === null) return el("p", {}, "No root leads here.");
    if (!nodes.length) return null;
    const classes = [...nodes.map((n) => graph.owner[n]), c];
    const shown = classes.length <= LONGEST_WAY ? classes : [...classes.slice(0, 6), null, ...classes.slice(-5)];
    return el("p", { class: "x-way" }, "From the root: ", shown.map((k, i) => [i ? " › " : "", k === null ? "…" : k === c ? graph.key(c) : classButton(k)]));
  }

  async function copy(text, from) {
    const label = from.textContent;
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      done = copyBySelection(text);
    }
    from.textContent = done ? "Copied" : "Not copied";
    act.announce(from.textContent);
    setTimeout(() => (from.textContent = label), 1500);
  }

  function copyBySelection(text) {
    const field = el("textarea", { class: "x-copy", "aria-hidden": "true" });
    field.value = text;
    place.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }

  function copyTerm(c, from) {
    const whole = texts.whole(c);
    if (whole === null) act.announce("The whole term is too long: its short form is copied.");
    copy(whole ?? texts.brief(c), from);
  }

  function show(c, marked = null) {
    const open = act.isOpen(c);
    place.replaceChildren(
      el("h3", {}, `Class ${graph.key(c)}`),
      el("p", {}, code(texts.brief(c))),
      el("div", { class: "x-actions" },
        button(open ? "Collapse" : "Expand", () => act.toggle(c), { "aria-expanded": String(open), "data-act": "toggle" }),
        button("Centre", () => act.around(c), { title: "Draw what is around this class", "data-act": "around" }),
        button("Users", () => act.users(c), { title: "Draw the nodes that use this class", "data-act": "users" }),
        button("Way from the root", () => act.way(c), { "data-act": "way" }),
        button("Copy term", (event) => copyTerm(c, event.currentTarget), { "data-act": "copy" }),
        button("Copy link", (event) => copy(`${location.href.split("#")[0]}#class=${graph.key(c)}`, event.currentTarget))),
      facts(c), ...[way(c)].filter(Boolean), ...nodeList(c, marked).filter(Boolean), ...userList(c).filter(Boolean));
  }

  return { show };
};
