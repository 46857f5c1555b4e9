"use strict";
// Search over all nodes' texts. `Q[b,h` finds terms with this in their text, spaces and case apart;
// op: rule: type: axis: kernel: class: narrow it; a number alone is a class, a rule's name a rule.
// The index is built in slices of a few milliseconds, so that nothing waits for it; a query before
// it is whole finds what is there so far.

nautileExplorer.search = (graph, texts) => {
  const SLICE = 6; // milliseconds
  const plain = (text) => text.replace(/\s+/g, "").toLowerCase();
  const index = []; // by node, its text without spaces
  const lower = new Map(); // a string's number -> it in lower case
  const listeners = [];

  const lowered = (s) => {
    if (!lower.has(s)) lower.set(s, graph.strings[s].toLowerCase());
    return lower.get(s);
  };

  function build() {
    const end = performance.now() + SLICE;
    while (index.length < graph.total) {
      const n = index.length;
      const c = graph.owner[n];
      index.push(plain(graph.bestOf(c) === n ? texts.brief(c) : texts.ofNode(n)));
      if ((n & 15) === 15 && performance.now() > end) return setTimeout(build, 4);
    }
    listeners.splice(0).forEach((told) => told());
  }

  const FILTERS = /(^|\s)(op|rule|type|axis|kernel|class):(\S+)/gi;

  function parsed(query) {
    const filters = [];
    const rest = query.replace(FILTERS, (_, before, name, value) => {
      filters.push([name.toLowerCase(), value.toLowerCase()]);
      return before;
    });
    return { filters, wanted: plain(rest), words: rest.trim().toLowerCase() };
  }

  const TESTS = {
    op: (n, v) => graph.nameOf(n).toLowerCase() === v || graph.headText(n).trim().toLowerCase().startsWith(v),
    rule: (n, v) => graph.rulesGroup(n).some((s) => lowered(s).startsWith(v)),
    type: (n, v) => graph.typeOf(graph.owner[n]).toLowerCase() === v,
    axis: (n, v) => graph.axesGroup(graph.owner[n]).some((s) => lowered(s) === v),
    kernel: (n, v) => graph.kernelsOf(n).some((k) => k.toLowerCase() === v),
    class: (n, v) => graph.key(graph.owner[n]) === v.replace(/^#/, ""),
  };

  // The smaller, the better; -1 where the node is not found.
  function rank(n, { wanted, words }) {
    if (!wanted) return 2;
    const text = index[n];
    if (text === wanted) return 0;
    const at = text.indexOf(wanted);
    if (at === 0) return 1;
    if (graph.nameOf(n).toLowerCase() === words) return 1;
    if (at > 0) return 2;
    return graph.rulesGroup(n).some((s) => lowered(s).includes(words)) ? 3 : -1;
  }

  // {hits: the best `limit` nodes, one a class, total: classes found, share: of the index searched}
  function find(query, limit = 30) {
    const asked = parsed(query);
    const tests = asked.filters.map(([name, value]) => (n) => TESTS[name](n, value));
    const best = new Map(); // class -> [rank, length, node]
    const single = graph.classOf(asked.words.replace(/^#|^class\s*/, ""));
    if (single !== undefined && !asked.filters.length) best.set(single, [-1, 0, graph.firstNode(single)]);
    for (let n = 0; n < index.length; n++) {
      if (!tests.every((test) => test(n))) continue;
      const found = rank(n, asked);
      if (found < 0) continue;
      const known = best.get(graph.owner[n]);
      const size = index[n].length;
      if (!known || found < known[0] || (found === known[0] && size < known[1])) {
        best.set(graph.owner[n], [found, size, n]);
      }
    }
    return { hits: leading([...best.values()], limit), total: best.size, share: index.length / graph.total };
  }

  function leading(found, limit) {
    const before = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
    const kept = [];
    for (const entry of found) {
      if (kept.length === limit && before(entry, kept[limit - 1]) >= 0) continue;
      let at = kept.length;
      while (at > 0 && before(entry, kept[at - 1]) < 0) at--;
      kept.splice(at, 0, entry);
      if (kept.length > limit) kept.pop();
    }
    return kept.map(([, , n]) => n);
  }

  return {
    find,
    start: () => setTimeout(build, 50),
    whenWhole: (told) => (index.length < graph.total ? listeners.push(told) : told()),
    isWhole: () => index.length === graph.total,
  };
};
