"use strict";
// Layers from the top down: Sugiyama, Tagawa, Toda, "Methods for visual understanding of hierarchical
// system structures", IEEE Transactions on Systems, Man, and Cybernetics 11, 1981. Arguments are below
// what uses them; of a knot, the edges that close a circle are turned round. Edges to one box that
// pass other layers share their bends. Order in layers by barycentres, the sweep with the fewest
// crossings kept; places by least squares in that order (pool adjacent violators).
//
// One function without a free name, so that its text can run in a worker.
// {widths, heights, from, to, gapX, gapY} -> {x, y: centres, bends: by edge [x, y, ..] from upper to
// lower end, turned: by edge, width, height}

nautileExplorer.layered = function layered({ widths, heights, from, to, gapX, gapY }) {
  const n = widths.length;
  const edges = from.length;
  const SWEEPS = 12;
  const ROUNDS = 12;
  const WIDE = 1500;
  const MOST_BENDS = 4000;

  // ---- no circles: an edge to a box that is being visited is turned --------------------------------
  const turned = new Uint8Array(edges);
  {
    const out = Array.from({ length: n }, () => []);
    const entered = new Uint8Array(n);
    for (let e = 0; e < edges; e++) {
      if (from[e] !== to[e]) {
        out[from[e]].push(e);
        entered[to[e]] = 1;
      }
    }
    const state = new Uint8Array(n); // 1: on the way here, 2: done
    const next = new Int32Array(n);
    const visit = (start) => {
      const stack = [start];
      state[start] = 1;
      while (stack.length) {
        const u = stack[stack.length - 1];
        if (next[u] === out[u].length) {
          state[u] = 2;
          stack.pop();
          continue;
        }
        const e = out[u][next[u]++];
        if (state[to[e]] === 1) turned[e] = 1;
        else if (state[to[e]] === 0) {
          state[to[e]] = 1;
          stack.push(to[e]);
        }
      }
    };
    for (let u = 0; u < n; u++) if (!entered[u]) visit(u);
    for (let u = 0; u < n; u++) if (state[u] === 0) visit(u);
  }
  const upper = (e) => (turned[e] ? to[e] : from[e]);
  const lower = (e) => (turned[e] ? from[e] : to[e]);

  // ---- layers: the longest way from the top; what nothing uses stands right above what it uses -----
  const layer = new Int32Array(n);
  {
    const below = Array.from({ length: n }, () => []);
    const waiting = new Int32Array(n);
    for (let e = 0; e < edges; e++) {
      if (from[e] === to[e]) continue;
      below[upper(e)].push(lower(e));
      waiting[lower(e)]++;
    }
    const tops = [];
    for (let u = 0; u < n; u++) if (!waiting[u]) tops.push(u);
    const queue = [...tops];
    for (let i = 0; i < queue.length; i++) {
      for (const v of below[queue[i]]) {
        layer[v] = Math.max(layer[v], layer[queue[i]] + 1);
        if (--waiting[v] === 0) queue.push(v);
      }
    }
    for (const u of tops) if (below[u].length) layer[u] = Math.min(...below[u].map((v) => layer[v])) - 1;
  }

  // ---- a layer that is much wider than the picture is tall goes in several rows, its leaves last ----
  {
    const leaf = new Uint8Array(n).fill(1);
    for (let e = 0; e < edges; e++) if (from[e] !== to[e]) leaf[upper(e)] = 0;
    let area = 0;
    for (let u = 0; u < n; u++) area += (widths[u] + gapX) * (heights[u] + gapY);
    const widest = Math.max(WIDE, 1.6 * Math.sqrt(area));
    const boxes = [];
    for (let u = 0; u < n; u++) (boxes[layer[u]] ??= []).push(u);
    let level = 0;
    for (const row of boxes) {
      let filled = 0;
      for (const u of (row ?? []).sort((a, b) => leaf[a] - leaf[b] || a - b)) {
        if (filled && filled + widths[u] > widest) {
          level++;
          filled = 0;
        }
        filled += widths[u] + gapX;
        layer[u] = level;
      }
      level++;
    }
  }

  // ---- items: boxes, then bends, which edges to one box share --------------------------------------
  const place = Array.from(layer);
  const size = Array.from(widths);
  const up = Array.from({ length: n }, () => []);
  const down = Array.from({ length: n }, () => []);
  const bendOf = new Map();
  const linked = new Set();
  const chains = Array.from({ length: edges }, () => []);
  const bend = (box, level) => {
    const name = box * 65536 + level;
    if (!bendOf.has(name)) {
      bendOf.set(name, place.length);
      place.push(level);
      size.push(2);
      up.push([]);
      down.push([]);
    }
    return bendOf.get(name);
  };
  const link = (a, b) => {
    const name = a * 1048576 + b;
    if (linked.has(name)) return;
    linked.add(name);
    down[a].push(b);
    up[b].push(a);
  };
  const span = (e) => layer[lower(e)] - layer[upper(e)];
  const shortest = Array.from({ length: edges }, (_, e) => e).sort((a, b) => span(a) - span(b) || a - b);
  for (const e of shortest) {
    if (from[e] === to[e]) continue;
    if (place.length - n + span(e) > MOST_BENDS) break; // the longest edges go straight
    let last = upper(e);
    for (let level = layer[upper(e)] + 1; level < layer[lower(e)]; level++) {
      const item = bend(lower(e), level);
      chains[e].push(item);
      link(last, item);
      last = item;
    }
    link(last, lower(e));
  }
  const items = place.length;
  const levels = [];
  for (let i = 0; i < items; i++) (levels[place[i]] ??= []).push(i);
  for (let l = 0; l < levels.length; l++) levels[l] ??= [];

  // ---- order ---------------------------------------------------------------------------------------
  const rank = new Float64Array(items);
  const ranked = () => levels.forEach((row) => row.forEach((i, at) => (rank[i] = at)));
  ranked();
  const mean = (of, values, otherwise) => {
    if (!of.length) return otherwise;
    let sum = 0;
    for (const i of of) sum += values[i];
    return sum / of.length;
  };
  const sweep = (towards, rows) => {
    for (const row of rows) {
      const key = new Map(row.map((i) => [i, mean(towards[i], rank, rank[i])]));
      row.sort((a, b) => key.get(a) - key.get(b) || rank[a] - rank[b]);
      row.forEach((i, at) => (rank[i] = at));
    }
  };
  // crossings between a layer and the next: inversions, counted with a binary indexed tree
  const crossings = () => {
    let found = 0;
    for (let l = 0; l + 1 < levels.length; l++) {
      const width = levels[l + 1].length;
      const tree = new Int32Array(width + 1);
      let seen = 0;
      for (const i of levels[l]) {
        const ends = down[i].map((j) => rank[j]).sort((a, b) => a - b);
        for (const end of ends) {
          let upto = 0;
          for (let k = end + 1; k > 0; k -= k & -k) upto += tree[k];
          found += seen - upto;
        }
        for (const end of ends) for (let k = end + 1; k <= width; k += k & -k) tree[k]++;
        seen += ends.length;
      }
    }
    return found;
  };
  let best = levels.map((row) => [...row]);
  let fewest = crossings();
  for (let s = 0; s < SWEEPS && fewest; s++) {
    if (s % 2) sweep(down, [...levels].reverse());
    else sweep(up, levels);
    const now = crossings();
    if (now < fewest) {
      fewest = now;
      best = levels.map((row) => [...row]);
    }
  }
  best.forEach((row, l) => (levels[l] = row));
  ranked();

  // ---- places --------------------------------------------------------------------------------------
  const x = new Float64Array(items);
  // The x nearest to what is wanted (weighted squares) that keep the row's order and distances.
  const settle = (row, wanted) => {
    const shift = new Float64Array(row.length);
    for (let i = 1; i < row.length; i++) {
      shift[i] = shift[i - 1] + (size[row[i - 1]] + size[row[i]]) / 2 + gapX;
    }
    const blocks = []; // [mean, weight, count]
    row.forEach((item, i) => {
      const weight = item < n ? 1 : 3;
      blocks.push([wanted(item) - shift[i], weight, 1]);
      while (blocks.length > 1 && blocks.at(-2)[0] > blocks.at(-1)[0]) {
        const [value, w, count] = blocks.pop();
        const into = blocks.at(-1);
        into[0] = (into[0] * into[1] + value * w) / (into[1] + w);
        into[1] += w;
        into[2] += count;
      }
    });
    let at = 0;
    for (const [value, , count] of blocks) for (let i = 0; i < count; i++, at++) x[row[at]] = value + shift[at];
  };
  for (const row of levels) settle(row, () => 0);
  for (let round = 0; round < ROUNDS; round++) {
    const towards = round % 2 ? down : up;
    for (const row of round % 2 ? [...levels].reverse() : levels) {
      settle(row, (i) => mean(towards[i], x, mean(round % 2 ? up[i] : down[i], x, x[i])));
    }
  }
  for (const row of levels) settle(row, (i) => mean([...up[i], ...down[i]], x, x[i]));

  const top = new Float64Array(levels.length + 1);
  levels.forEach((row, l) => {
    const tall = row.reduce((most, i) => Math.max(most, i < n ? heights[i] : 0), 0);
    top[l + 1] = top[l] + tall + gapY;
  });
  const y = Float64Array.from(layer, (l, i) => top[l] + heights[i] / 2);
  const middle = (i) => top[place[i]] + (top[place[i] + 1] - gapY - top[place[i]]) / 2;
  const bends = chains.map((chain) => chain.flatMap((i) => [x[i], middle(i)]));
  return { x: x.slice(0, n), y, bends, turned };
};

// Lays out in a worker; an order that is overtaken by the next is never told of. Where no worker can
// be made, here.
nautileExplorer.layouts = (makeWorker) => {
  const source = `"use strict";
const layered = ${nautileExplorer.layered};
onmessage = ({ data: { id, job } }) => postMessage({ id, found: layered(job) });`;
  let worker = null;
  let last = 0;
  let busy = false;
  let next = null;
  let told = () => {};
  try {
    worker = makeWorker(source);
    worker.onmessage = ({ data }) => {
      busy = false;
      if (next) send(next);
      else if (data.id === last) told(data.found);
    };
  } catch {
    worker = null;
  }
  function send(order) {
    next = null;
    busy = true;
    worker.postMessage(order);
  }
  return (job, done) => {
    last++;
    told = done;
    if (worker === null) done(nautileExplorer.layered(job));
    else if (busy) next = { id: last, job };
    else send({ id: last, job });
  };
};
