"use strict";
// Terms as text. A class is written as its cheapest term, in a text of one of the lengths, so that a
// shared part is written once and a deep one gives way to an ellipsis: exports/texts.py has the same
// steps, and a test compares them.

nautileExplorer.texts = (graph) => {
  const { heads, strings, lengths, forms } = graph;
  const ELISION = "…";
  const elided = { text: ELISION, own: 100 };
  const known = lengths.map(() => new Map()); // by level: class -> text

  const within = (part, precedence) => (part.own >= precedence ? part.text : `(${part.text})`);

  function written(h, parts) {
    const text = strings[heads.text[h]];
    switch (forms[heads.form[h]]) {
      case "atom": return text;
      case "prefix": return text + within(parts[0], heads.left[h]);
      case "infix": return `${within(parts[0], heads.left[h])} ${text} ${within(parts[1], heads.right[h])}`;
      default: return `${text}(${parts.map((p) => p.text).join(", ")})`;
    }
  }

  function ofClass(c, level) {
    const best = graph.bestOf(c);
    if (level >= lengths.length || best < 0) return elided;
    const fits = graph.lengthOf(c) <= lengths[level];
    const texts = known[fits ? 0 : level];
    let found = texts.get(c);
    if (found === undefined) {
      found = fits ? entire(best) : shortened(best, level);
      texts.set(c, found);
    }
    return found;
  }

  function entire(n) {
    const h = graph.head[n];
    return { text: written(h, Array.from(graph.childrenOf(n), (k) => ofClass(k, 0))), own: heads.own[h] };
  }

  function shortened(n, level) {
    const h = graph.head[n];
    const below = graph.childrenOf(n);
    const longest = lengths[level];
    const levels = Array.from(below, (k) => (graph.lengthOf(k) <= longest ? level : level + 1));
    for (;;) {
      const parts = levels.map((l, i) => ofClass(below[i], l));
      const whole = written(h, parts);
      if (whole.length <= longest) return { text: whole, own: heads.own[h] };
      let widest = -1;
      for (let i = 0; i < parts.length; i++) {
        if (levels[i] < lengths.length && (widest < 0 || parts[i].text.length > parts[widest].text.length)) widest = i;
      }
      if (widest < 0) return { text: whole.slice(0, longest - 1) + ELISION, own: 100 };
      levels[widest]++;
    }
  }

  // A class' cheapest term, at most `lengths[level]` characters long.
  const brief = (c, level = 0) => ofClass(c, level).text;

  // A node over the cheapest terms of its arguments.
  const ofNode = (n, level = 0) => shortened(n, level).text;

  // The classes below `c` by their cheapest terms, arguments first.
  function below(c) {
    const order = [];
    const seen = new Set();
    const stack = [c];
    while (stack.length) {
      const at = stack.pop();
      if (at < 0) {
        order.push(~at);
      } else if (!seen.has(at)) {
        seen.add(at);
        stack.push(~at);
        for (const k of graph.childrenOf(graph.bestOf(at))) stack.push(k);
      }
    }
    return order;
  }

  // The whole cheapest term, or null where it has more than `limit` characters or there is none.
  function whole(c, limit = 100_000) {
    if (graph.bestOf(c) < 0 || graph.lengthOf(c) > limit) return null;
    const found = new Map();
    for (const at of below(c)) {
      const best = graph.bestOf(at);
      const h = graph.head[best];
      found.set(at, { text: written(h, Array.from(graph.childrenOf(best), (k) => found.get(k))), own: heads.own[h] });
    }
    return found.get(c).text;
  }

  return { brief, ofNode, whole };
};
