"use strict";
// What is drawn. A view is a value: the class it is about (`focus`), the classes that are open and
// what each shows, the classes that stay drawn whatever is closed. Its classes and nodes are at most
// LIMIT; what has no room is counted. Going on from a view makes a new one, so that steps back and
// forth are a list.
//
// open: class -> "all" | "chosen" | Set of nodes

nautileExplorer.LIMIT = 1000;

nautileExplorer.views = (graph) => {
  const LIMIT = nautileExplorer.LIMIT;
  const MOST = 24; // nodes of one class that are drawn before more are asked for

  // Chosen nodes first, then the source's, then the rest.
  const order = (n) => (graph.isChosen(n) ? 0 : graph.isSource(n) ? 1 : 2);

  function shownNodes(c, shows, more) {
    if (shows instanceof Set) return [...shows];
    const all = graph.nodesOf(c);
    if (shows === "chosen") return all.filter(graph.isChosen);
    const most = more ?? MOST;
    if (all.length <= most) return all;
    return all.map((n) => [order(n), n]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).slice(0, most).map(([, n]) => n);
  }

  // {classes, nodes: class -> nodes, left: nodes that had no room or were not asked for}
  function drawn(view) {
    const classes = new Set();
    const nodes = new Map();
    let size = 0;
    let left = 0;
    const add = (c) => {
      if (!classes.has(c)) {
        classes.add(c);
        size++;
      }
    };
    for (const c of [view.focus, ...view.anchors]) if (size < LIMIT) add(c);
    for (const [c, shows] of view.open) {
      const wanted = shownNodes(c, shows, view.more.get(c));
      const kept = [];
      for (const n of wanted) {
        const fresh = new Set(graph.childrenOf(n));
        for (const k of [...fresh]) if (classes.has(k)) fresh.delete(k);
        if (!classes.has(c)) fresh.add(c);
        if (size + fresh.size + 1 > LIMIT) continue;
        add(c);
        for (const k of graph.childrenOf(n)) add(k);
        kept.push(n);
        size++;
      }
      if (kept.length) nodes.set(c, kept);
      const most = shows instanceof Set || shows === "chosen" ? wanted.length : graph.sizeOf(c);
      left += most - kept.length;
    }
    return { classes: [...classes], nodes, left, size };
  }

  const made = (focus, open, anchors = [], more = new Map()) => ({ focus, open, anchors, more });

  // Everything within `hops` steps below the class, as far as there is room.
  function around(c, hops) {
    const open = new Map();
    let size = 1;
    let front = [c];
    const seen = new Set(front);
    for (let hop = 0; hop < hops && front.length; hop++) {
      const next = [];
      for (const at of front) {
        const nodes = shownNodes(at, "all");
        const fresh = new Set();
        for (const n of nodes) for (const k of graph.childrenOf(n)) if (!seen.has(k)) fresh.add(k);
        size += nodes.length + fresh.size;
        if (size > LIMIT && open.size) return made(c, open);
        open.set(at, "all");
        for (const k of fresh) {
          seen.add(k);
          next.push(k);
        }
      }
      front = next;
    }
    return made(c, open);
  }

  // The chosen program from its roots down, through what other regions store.
  function program() {
    const open = new Map();
    const starts = graph.roots.filter((r) => graph.nodesOf(r).some(graph.isChosen));
    const queue = [...starts].reverse();
    for (let i = 0; i < queue.length && open.size < LIMIT; i++) {
      const c = queue[i];
      if (open.has(c)) continue;
      const nodes = graph.nodesOf(c).filter(graph.isChosen);
      if (!nodes.length) continue;
      open.set(c, "chosen");
      for (const n of nodes) queue.push(...graph.childrenOf(n));
    }
    return made(queue[0] ?? graph.roots[0], open, starts);
  }

  function expanded(view, c) {
    const open = new Map(view.open);
    open.delete(c);
    open.set(c, "all");
    return made(view.focus, open, view.anchors, view.more);
  }

  // Without the class' nodes, and without what was there for them alone.
  function collapsed(view, c) {
    const open = new Map(view.open);
    open.delete(c);
    return kept(made(view.focus, open, view.anchors, view.more));
  }

  function kept(view) {
    const seen = new Set([view.focus, ...view.anchors]);
    const stack = [...seen];
    while (stack.length) {
      const c = stack.pop();
      if (!view.open.has(c)) continue;
      for (const n of shownNodes(c, view.open.get(c), view.more.get(c))) {
        for (const k of graph.childrenOf(n)) {
          if (!seen.has(k)) {
            seen.add(k);
            stack.push(k);
          }
        }
      }
    }
    const open = new Map([...view.open].filter(([c]) => seen.has(c)));
    return made(view.focus, open, view.anchors, view.more);
  }

  // With more of the class' nodes: all that there are, where only some were asked for.
  function more(view, c) {
    if (view.open.get(c) !== "all") return expanded(view, c);
    const wanted = new Map(view.more).set(c, (view.more.get(c) ?? MOST) * 4);
    return made(view.focus, view.open, view.anchors, wanted);
  }

  // With some nodes of each class shown too.
  function pinned(view, nodes, anchors) {
    const open = new Map(view.open);
    for (const n of nodes) {
      const c = graph.owner[n];
      const shows = open.get(c);
      if (shows === "all") continue;
      const before = shows === "chosen" ? graph.nodesOf(c).filter(graph.isChosen) : shows ?? [];
      open.set(c, new Set([...before, n]));
    }
    return made(view.focus, open, [...new Set([...view.anchors, ...anchors])], view.more);
  }

  function withUsers(view, c, most = 30) {
    const users = graph.usersOf(c).sort((a, b) => order(a) - order(b) || a - b).slice(0, most);
    return pinned(view, users, [c, ...users.map((n) => graph.owner[n])]);
  }

  // The way from a root to the class alone, or null where there is none.
  function way(c) {
    const nodes = graph.wayTo(c);
    if (nodes === null) return null;
    const open = new Map();
    for (const n of nodes) open.set(graph.owner[n], new Set([n]));
    open.set(c, "all");
    return made(c, open, nodes.map((n) => graph.owner[n]));
  }

  return { drawn, around, program, expanded, collapsed, more, withUsers, way, isOpen: (v, c) => v.open.has(c) };
};

// Steps back and forth; a new step forgets those ahead, and the oldest beyond a hundred.
nautileExplorer.steps = () => {
  const MOST = 100;
  const list = [];
  let at = -1;
  return {
    push(step) {
      list.splice(at + 1, list.length, step);
      if (list.length > MOST) list.shift();
      at = list.length - 1;
    },
    amend: (change) => Object.assign(list[at], change),
    now: () => list[at],
    canBack: () => at > 0,
    canForth: () => at < list.length - 1,
    back: () => (at > 0 ? list[--at] : null),
    forth: () => (at < list.length - 1 ? list[++at] : null),
  };
};
