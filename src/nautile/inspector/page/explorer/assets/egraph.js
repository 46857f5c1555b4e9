"use strict";
// The columns of data.py as arrays. A class and a node are numbers; whatever is asked of them is
// looked up, and what only some people ask (who uses a class, the way from a root) is made once,
// when it is asked for first.

const nautileExplorer = {};

nautileExplorer.egraph = (data) => {
  const { strings, groups, heads, axes, costs, classes, nodes } = data;
  const count = classes.size.length;
  const total = nodes.head.length;

  // where each entry of a column of sizes begins; the end after the last
  function starts(sizes) {
    const found = new Int32Array(sizes.length + 1);
    for (let i = 0; i < sizes.length; i++) found[i + 1] = found[i] + sizes[i];
    return found;
  }

  const firstNode = starts(classes.size);
  const firstChild = starts(nodes.arity);
  const children = new Int32Array(nodes.children);
  const head = new Int32Array(nodes.head);
  const owner = new Int32Array(total);
  for (let c = 0; c < count; c++) owner.fill(c, firstNode[c], firstNode[c + 1]);
  const source = new Set(data.source);
  const chosen = new Map(data.chosen);
  const links = new Map(data.links);
  const laws = new Map(data.laws.map(([rule, law]) => [strings[rule], strings[law]]));
  const roots = [...new Set(data.roots.map(([c]) => c))];
  const read = new Set(links.values());
  const tops = roots.some((r) => !read.has(r)) ? roots.filter((r) => !read.has(r)) : roots;
  const outputs = new Map(data.roots.map(([c, name]) => [c, strings[name]]));
  const byKey = new Map();
  const key = (c) => (data.regions > 1 ? `${classes.region[c]}.${classes.number[c]}` : `${classes.number[c]}`);
  for (let c = 0; c < count; c++) byKey.set(key(c), c);

  const texts = (group) => groups[group].map((s) => strings[s]);
  const childrenOf = (n) => children.subarray(firstChild[n], firstChild[n + 1]);
  const once = (make) => {
    let made;
    return () => (made ??= make());
  };

  // users: for each class the nodes that have it as an argument, as offsets and a list
  const users = once(() => {
    const offsets = new Int32Array(count + 1);
    for (const c of children) offsets[c + 1]++;
    for (let c = 0; c < count; c++) offsets[c + 1] += offsets[c];
    const found = new Int32Array(children.length);
    const next = offsets.slice();
    for (let n = 0, i = 0; n < total; n++) for (; i < firstChild[n + 1]; i++) found[next[children[i]]++] = n;
    return { offsets, found };
  });

  function usersOf(c) {
    const { offsets, found } = users();
    return [...new Set(found.subarray(offsets[c], offsets[c + 1]))];
  }

  // by: the node through which a shortest way comes to each class from the roots that no other region
  // reads (-1 at these, -2 where there is none). A load of what another region stores leads there.
  const reached = once(() => {
    const by = new Int32Array(count).fill(-2);
    const queue = [...tops];
    for (const r of tops) by[r] = -1;
    const reach = (k, n) => {
      if (by[k] !== -2) return;
      by[k] = n;
      queue.push(k);
    };
    for (let i = 0; i < queue.length; i++) {
      const c = queue[i];
      for (let n = firstNode[c]; n < firstNode[c + 1]; n++) {
        if (links.has(n)) reach(links.get(n), n);
        for (let j = firstChild[n]; j < firstChild[n + 1]; j++) reach(children[j], n);
      }
    }
    return by;
  });

  // The nodes on a shortest way from a root to the class, from the root on; null where none leads.
  function wayTo(c) {
    const by = reached();
    if (by[c] === -2) return null;
    const way = [];
    for (let at = c; by[at] >= 0; at = owner[by[at]]) way.push(by[at]);
    return way.reverse();
  }

  return {
    count, total, roots, laws, key, childrenOf, usersOf, wayTo, head, owner, heads, strings,
    lengths: data.lengths,
    forms: data.forms,
    classOf: (text) => byKey.get(text),
    nodesOf: (c) => Array.from({ length: firstNode[c + 1] - firstNode[c] }, (_, i) => firstNode[c] + i),
    firstNode: (c) => firstNode[c],
    sizeOf: (c) => firstNode[c + 1] - firstNode[c],
    bestOf: (c) => (classes.best[c] < 0 ? -1 : firstNode[c] + classes.best[c]),
    axesOf: (c) => groups[classes.axes[c]].map((a) => ({ name: strings[axes.name[a]], extent: axes.extent[a] })),
    lengthOf: (c) => classes.length[c],
    typeOf: (c) => strings[classes.dtype[c]],
    madeOf: (c) => texts(classes.made[c]),
    madeGroup: (c) => groups[classes.made[c]],
    axesGroup: (c) => groups[classes.axes[c]].map((a) => axes.name[a]),
    costOf: (c) => costs[classes.cost[c]],
    outputOf: (c) => outputs.get(c) ?? null,
    headText: (n) => strings[heads.text[head[n]]],
    nameOf: (n) => strings[heads.name[head[n]]],
    nodeCost: (n) => costs[nodes.cost[n]],
    rulesOf: (n) => texts(nodes.rules[n]),
    rulesGroup: (n) => groups[nodes.rules[n]],
    isSource: (n) => source.has(n),
    isChosen: (n) => chosen.has(n),
    hasChosen: chosen.size > 0,
    kernelsOf: (n) => (chosen.has(n) ? texts(chosen.get(n)) : []),
    storedBy: (n) => links.get(n) ?? null,
    nodeKey: (n) => `${key(owner[n])}:${n - firstNode[owner[n]]}`,
  };
};
