"use strict";
// The drawing of a neighbourhood: boxes of classes with their nodes inside, curves from each node to
// its arguments. Text is drawn where it can be read. Nodes of the chosen program have a thick border
// and are filled, those of the source a double one; kinds are never told by colour alone.

nautileExplorer.canvas = (graph, texts, place, { select, toggle, more, back, describe, home, makeWorker }) => {
  const FONT = 11;
  const LINE = 15;
  const CHIP = 20;
  const PAD = 8;
  const WIDEST = 330;
  const LEGIBLE = 0.45; // the scale from which on text is drawn
  const READABLE = 0.8; // the scale that a new picture has at least
  const layout = nautileExplorer.layouts(makeWorker);
  const surface = document.createElement("canvas");
  surface.setAttribute("aria-hidden", "true");
  place.append(surface);
  const pen = surface.getContext("2d");
  const family = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
  pen.font = `${FONT}px ${family}`;
  const glyph = pen.measureText("M").width;

  let scene = { boxes: [], edges: [], byClass: new Map() };
  let camera = { x: 0, y: 0, k: 1 };
  let selected = -1;
  let colours = {};
  let waiting = false;

  const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const measure = (text) => text.length * glyph;

  // ---- boxes ---------------------------------------------------------------------------------------
  function box(c, nodes, open) {
    const axes = graph.axesOf(c).map((a) => a.name).join(", ");
    const output = graph.outputOf(c);
    const count = graph.sizeOf(c);
    const head = cut(`${graph.key(c)} · ${graph.typeOf(c)}${axes ? `[${axes}]` : ""}${output ? ` → ${output}` : ""}`, 46);
    const tail = open ? "" : `  ▸${count}`;
    const term = texts.brief(c, 4);
    const chips = nodes.map((n) => ({ n, text: cut(graph.headText(n).trim(), 24) }));
    if (open && nodes.length < count) chips.push({ n: -1, text: `+${count - nodes.length}` });
    let width = Math.max(measure(head + tail), measure(term)) + 2 * PAD;
    let height = 2 * LINE + 2 * PAD - 4;
    let left = PAD;
    if (chips.length) {
      let row = height - 2;
      for (const chip of chips) {
        chip.w = measure(chip.text) + 12;
        if (left > PAD && left + chip.w + PAD > Math.max(width, WIDEST)) {
          left = PAD;
          row += CHIP + 6;
        }
        chip.dx = left;
        chip.dy = row;
        left += chip.w + 6;
        width = Math.max(width, left - 6 + PAD);
      }
      height = row + CHIP + PAD;
    }
    return { c, head, tail, term, chips, w: width, h: height, output: output !== null, x: 0, y: 0 };
  }

  function arranged(drawn, view) {
    const boxes = drawn.classes.map((c) => box(c, drawn.nodes.get(c) ?? [], view.open.has(c)));
    const at = new Map(boxes.map((b, i) => [b.c, i]));
    const edges = [];
    boxes.forEach((b, i) => b.chips.forEach((chip) => {
      if (chip.n < 0) return;
      const stored = graph.storedBy(chip.n);
      const ends = stored !== null ? [stored] : [...graph.childrenOf(chip.n)];
      for (const k of ends) if (at.has(k)) edges.push({ from: i, to: at.get(k), chip, chosen: graph.isChosen(chip.n) });
    }));
    return { boxes, edges, byClass: at };
  }

  // Shows what a view draws; `focus` is brought into sight, or all of it where that can be read.
  function show(drawn, view, { whole = false, done = () => {} } = {}) {
    const fresh = arranged(drawn, view);
    const job = {
      widths: Float64Array.from(fresh.boxes, (b) => b.w),
      heights: Float64Array.from(fresh.boxes, (b) => b.h),
      from: Int32Array.from(fresh.edges, (e) => e.from),
      to: Int32Array.from(fresh.edges, (e) => e.to),
      gapX: 18, gapY: 34,
    };
    layout(job, (found) => {
      fresh.boxes.forEach((b, i) => {
        b.x = found.x[i] - b.w / 2;
        b.y = found.y[i] - b.h / 2;
      });
      fresh.edges.forEach((e, i) => Object.assign(e, { bends: found.bends[i], turned: found.turned[i] === 1 }));
      const before = anchor();
      scene = fresh;
      look(view.focus, whole, before);
      paint();
      done();
    });
  }

  // Where the selected box is on the screen, to keep it there.
  function anchor() {
    const b = scene.boxes[scene.byClass.get(selected)];
    return b ? { x: (b.x + b.w / 2 - camera.x) * camera.k, y: (b.y - camera.y) * camera.k } : null;
  }

  function look(focus, whole, before) {
    const at = scene.byClass.get(scene.byClass.has(selected) ? selected : focus);
    if (whole || at === undefined) return fit(READABLE);
    const b = scene.boxes[at];
    if (before && scene.byClass.has(selected)) {
      camera.x = b.x + b.w / 2 - before.x / camera.k;
      camera.y = b.y - before.y / camera.k;
    }
    reveal(b);
  }

  function reveal(b) {
    const { width, height } = extent();
    const k = camera.k;
    if (k < LEGIBLE) camera.k = READABLE;
    const inside = (b.x - camera.x) * k > 0 && (b.x + b.w - camera.x) * k < width &&
      (b.y - camera.y) * k > 0 && (b.y + b.h - camera.y) * k < height;
    if (inside && k === camera.k) return;
    camera.x = b.x + b.w / 2 - width / 2 / camera.k;
    camera.y = b.y - height / 4 / camera.k;
  }

  const extent = () => ({ width: place.clientWidth, height: place.clientHeight });

  // Shows all, or as much from the top as fits at the `least` scale.
  function fit(least = 0.05) {
    if (!scene.boxes.length) return;
    const left = Math.min(...scene.boxes.map((b) => b.x));
    const right = Math.max(...scene.boxes.map((b) => b.x + b.w));
    const top = Math.min(...scene.boxes.map((b) => b.y));
    const bottom = Math.max(...scene.boxes.map((b) => b.y + b.h));
    const { width, height } = extent();
    const k = Math.min(1.25, (width - 24) / (right - left), (height - 24) / (bottom - top));
    camera.k = Math.max(least, k);
    const first = scene.boxes[scene.byClass.get(selected)];
    const middle = first && k < camera.k ? first.x + first.w / 2 : (left + right) / 2;
    camera.x = middle - width / 2 / camera.k;
    camera.y = k < camera.k ? top - 12 / camera.k : (top + bottom) / 2 - height / 2 / camera.k;
  }

  function zoom(factor, px = extent().width / 2, py = extent().height / 2) {
    const k = Math.min(3, Math.max(0.05, camera.k * factor));
    camera.x += px / camera.k - px / k;
    camera.y += py / camera.k - py / k;
    camera.k = k;
    later();
  }

  // ---- painting ------------------------------------------------------------------------------------
  function later() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      paint();
    });
  }

  function recolour() {
    const style = getComputedStyle(place);
    for (const name of ["text", "muted", "surface", "raised", "line", "accent", "chosen", "fill", "select"]) {
      colours[name] = style.getPropertyValue(`--x-${name}`).trim();
    }
  }

  function resize() {
    const { width, height } = extent();
    const scale = devicePixelRatio || 1;
    surface.width = Math.max(1, Math.round(width * scale));
    surface.height = Math.max(1, Math.round(height * scale));
    later();
  }

  function paint() {
    const scale = devicePixelRatio || 1;
    const { width, height } = extent();
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = colours.surface;
    pen.fillRect(0, 0, surface.width, surface.height);
    const k = camera.k * scale;
    pen.setTransform(k, 0, 0, k, -camera.x * k, -camera.y * k);
    const window_ = { l: camera.x, t: camera.y, r: camera.x + width / camera.k, b: camera.y + height / camera.k };
    strokeEdges(scene.edges.filter((e) => !e.chosen), colours.muted, 0.8);
    strokeEdges(scene.edges.filter((e) => e.chosen), colours.chosen, 2);
    pen.font = `${FONT}px ${family}`;
    pen.textBaseline = "middle";
    for (const b of scene.boxes) {
      if (b.x > window_.r || b.y > window_.b || b.x + b.w < window_.l || b.y + b.h < window_.t) continue;
      paintBox(b, camera.k >= LEGIBLE);
    }
  }

  function strokeEdges(edges, colour, width) {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = width / Math.min(1, Math.max(camera.k, 0.3));
    pen.beginPath();
    for (const e of edges) trace(e);
    pen.stroke();
    pen.beginPath();
    for (const e of edges) arrow(e);
    pen.fill();
  }

  // the points of an edge, from the node to the argument's class
  function ends(e) {
    const a = scene.boxes[e.from];
    const b = scene.boxes[e.to];
    const sx = a.x + e.chip.dx + e.chip.w / 2;
    const up = e.turned;
    return { sx, sy: up ? a.y : a.y + a.h, tx: b.x + b.w / 2, ty: up ? b.y + b.h : b.y, up, self: a === b };
  }

  function trace(e) {
    const { sx, sy, tx, ty, up, self } = ends(e);
    if (self) {
      const b = scene.boxes[e.from];
      pen.moveTo(sx, sy);
      pen.bezierCurveTo(sx, sy + 26, b.x + b.w + 30, sy + 26, b.x + b.w, b.y + b.h / 2);
      return;
    }
    const points = [sx, sy];
    for (let i = 0; i < e.bends.length; i += 2) {
      const j = up ? e.bends.length - 2 - i : i;
      points.push(e.bends[j], e.bends[j + 1]);
    }
    points.push(tx, ty);
    pen.moveTo(sx, sy);
    for (let i = 2; i < points.length; i += 2) {
      const half = (points[i + 1] - points[i - 1]) / 2;
      pen.bezierCurveTo(points[i - 2], points[i - 1] + half, points[i], points[i + 1] - half, points[i], points[i + 1]);
    }
  }

  function arrow(e) {
    const { tx, ty, up, self } = ends(e);
    if (self) return;
    const d = up ? 6 : -6;
    pen.moveTo(tx, ty);
    pen.lineTo(tx - 3.5, ty + d);
    pen.lineTo(tx + 3.5, ty + d);
  }

  function paintBox(b, legible) {
    const isSelected = b.c === selected;
    pen.beginPath();
    pen.roundRect(b.x, b.y, b.w, b.h, 6);
    pen.fillStyle = colours.raised;
    pen.fill();
    pen.lineWidth = isSelected ? 3 : b.output ? 2 : 1;
    pen.strokeStyle = isSelected ? colours.select : b.output ? colours.text : colours.line;
    pen.stroke();
    if (legible) {
      pen.fillStyle = colours.muted;
      pen.fillText(b.head + b.tail, b.x + PAD, b.y + PAD + 4);
      pen.fillStyle = colours.text;
      pen.fillText(b.term, b.x + PAD, b.y + PAD + 4 + LINE);
    }
    for (const chip of b.chips) paintChip(b, chip, legible);
  }

  function paintChip(b, chip, legible) {
    const x = b.x + chip.dx;
    const y = b.y + chip.dy;
    const chosen = chip.n >= 0 && graph.isChosen(chip.n);
    const source = chip.n >= 0 && graph.isSource(chip.n);
    pen.fillStyle = chosen ? colours.fill : colours.surface;
    pen.fillRect(x, y, chip.w, CHIP);
    pen.strokeStyle = chosen ? colours.chosen : colours.muted;
    pen.lineWidth = chosen ? 2.5 : 1;
    if (chip.n < 0) pen.setLineDash([3, 3]);
    pen.strokeRect(x, y, chip.w, CHIP);
    pen.setLineDash([]);
    if (source) {
      pen.lineWidth = 1;
      pen.strokeRect(x + 2.5, y + 2.5, chip.w - 5, CHIP - 5);
    }
    if (!legible) return;
    pen.fillStyle = colours.text;
    pen.fillText(chip.text, x + 6, y + CHIP / 2 + 0.5);
  }

  // ---- pointer and keys ----------------------------------------------------------------------------
  function hit(event) {
    const bounds = surface.getBoundingClientRect();
    const x = (event.clientX - bounds.left) / camera.k + camera.x;
    const y = (event.clientY - bounds.top) / camera.k + camera.y;
    const b = scene.boxes.findLast((o) => x >= o.x && x <= o.x + o.w && y >= o.y && y <= o.y + o.h);
    if (!b) return null;
    const chip = b.chips.find((o) => x >= b.x + o.dx && x <= b.x + o.dx + o.w && y >= b.y + o.dy && y <= b.y + o.dy + CHIP);
    return { c: b.c, n: chip ? chip.n : null };
  }

  let drag = null;
  surface.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, moved: false };
    surface.setPointerCapture(event.pointerId);
  });
  surface.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const dx = event.clientX - drag.x;
    const dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    Object.assign(drag, { x: event.clientX, y: event.clientY, moved: true });
    camera.x -= dx / camera.k;
    camera.y -= dy / camera.k;
    later();
  });
  surface.addEventListener("pointerup", (event) => {
    const moved = drag?.moved;
    drag = null;
    const found = moved ? null : hit(event);
    if (!found) return;
    if (found.n === -1) more(found.c);
    else select(found.c, found.n);
  });
  surface.addEventListener("pointercancel", () => (drag = null));
  surface.addEventListener("dblclick", (event) => {
    const found = hit(event);
    if (found && found.n !== -1) toggle(found.c);
  });
  place.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== place) return;
    event.preventDefault();
    const bounds = surface.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 500), event.clientX - bounds.left, event.clientY - bounds.top);
  }, { passive: false });

  // Down and up go along edges, to the nearest box of those; aside to the nearest box of any.
  function neighbour(dx, dy) {
    const at = scene.byClass.get(selected) ?? 0;
    const from = scene.boxes[at];
    const joined = scene.edges.flatMap((e) => (dy > 0 && e.from === at ? [e.to] : dy < 0 && e.to === at ? [e.from] : []));
    const near = dx ? scene.boxes : joined.map((i) => scene.boxes[i]);
    let found = null;
    let least = Infinity;
    for (const b of near) {
      const x = b.x + b.w / 2 - from.x - from.w / 2;
      const y = Math.abs(b.y - from.y);
      if (b === from || (dx && x * dx <= 4)) continue;
      const distance = dx ? x * dx + 4 * y : Math.abs(x) + y;
      if (distance < least) [found, least] = [b, distance];
    }
    return found;
  }

  const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
  const KEYS = {
    Enter: () => toggle(selected), " ": () => toggle(selected), "+": () => zoom(1.25), "=": () => zoom(1.25),
    "-": () => zoom(0.8), 0: () => (fit(), later()), Backspace: back, Home: home,
  };
  place.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const arrow_ = ARROWS[event.key];
    if (!arrow_ && !(event.key in KEYS)) return;
    event.preventDefault();
    if (!arrow_) return KEYS[event.key]();
    const found = neighbour(...arrow_);
    if (found) select(found.c);
    else describe("No class in this direction.");
  });

  function mark(c) {
    selected = c;
    const b = scene.boxes[scene.byClass.get(c)];
    if (b) reveal(b);
    later();
  }

  new ResizeObserver(resize).observe(place);
  recolour();
  resize();
  return {
    show, mark, fit: () => (fit(), later()), zoom,
    recolour: () => (recolour(), paint()),
    holds: (c) => scene.byClass.has(c),
    boxes: () => scene.boxes.map((b) => ({ c: b.c, x: (b.x - camera.x) * camera.k, y: (b.y - camera.y) * camera.k, w: b.w * camera.k, h: b.h * camera.k })),
  };
};
