"use strict";
// Source, kernels and CUDA side by side. What belongs together has one colour and one number: a
// definition of the source, the statements of tile programs that make it, the lines of CUDA that do
// those. To point at any of them lights up the others; a click (or Enter) keeps them lit and scrolls
// to them; Escape lets go.
{
  const { el, notation, link, announce, assets, text } = nautile;
  const HUES = 8;
  const hue = (piece) => (piece < 0 ? null : `hue hue-${piece % HUES}`);
  const mark = (piece) => el("span", { class: "badge", "aria-hidden": "true" }, piece < 0 ? "" : String(piece + 1));

  let data = null;
  let kernel = null; // {number, way, step, rows: {tile, cuda}}
  let pinned = null;
  let panes = {};

  const NOTHING = { pieces: new Set(), terms: new Set(), tile: new Set() };

  const stepOf = () => kernel.data.ways[kernel.way].steps[kernel.step];

  // What is lit when somebody points at a definition, a subterm, or a statement of the tile program.
  function ofPiece(piece) {
    const tile = stepOf().tile.flatMap((line, n) => (line.piece === piece ? [n] : []));
    return { pieces: new Set([piece]), terms: new Set(), tile: new Set(tile), said: `definition ${data.definitions[piece].name}` };
  }

  function ofTerm(id) {
    const tile = stepOf().tile.flatMap((line, n) => (line.equal.includes(id) ? [n] : []));
    const pieces = new Set(tile.map((n) => stepOf().tile[n].piece));
    return { pieces, terms: new Set([id]), tile: new Set(tile), said: "a part of a definition" };
  }

  function ofTile(n) {
    const line = stepOf().tile[n];
    if (line === undefined || line.piece < 0) return { ...NOTHING, tile: new Set([n]), said: "" };
    return { pieces: new Set([line.piece]), terms: new Set(line.equal), tile: new Set([n]),
      said: `definition ${data.definitions[line.piece].name}` };
  }

  function ofCuda(n) {
    const found = stepOf().origin[n].map(ofTile);
    const all = (key) => new Set(found.flatMap((lit) => [...lit[key]]));
    return found.length ? { pieces: all("pieces"), terms: all("terms"), tile: all("tile"), said: found[0].said } : NOTHING;
  }

  function light(lit) {
    const { tile, cuda } = kernel.rows;
    const pieces = lit.pieces;
    panes.root.classList.toggle("pointing", lit.tile.size > 0 || pieces.size > 0);
    panes.source.forEach((row, n) => row.classList.toggle("lit", pieces.has(panes.lineOf.get(n))));
    panes.definitions.forEach((row, n) => row.classList.toggle("lit", pieces.has(n)));
    panes.root.querySelectorAll(".term.lit").forEach((node) => node.classList.remove("lit"));
    for (const id of lit.terms) {
      panes.root.querySelectorAll(`[data-term="${id}"]`).forEach((node) => node.classList.add("lit"));
    }
    tile.forEach((row, n) => row.classList.toggle("lit", lit.tile.has(n)));
    const { origin } = stepOf();
    cuda.forEach((row, n) => row.classList.toggle("lit", origin[n].some((o) => lit.tile.has(o))));
    panes.kernels.forEach((button, n) => button.classList.toggle("lit",
      [...pieces].some((p) => data.pieces[n]?.includes(p))));
  }

  const unlight = () => light(pinned ?? NOTHING);

  const DECLARED = /^\s*[\w ]+(?:\[\w+\])*;/; // registers, which stand before all that is done

  // Keeps what is lit, and brings its first line into view in the panes other than `from`.
  function pin(lit, from) {
    pinned = lit.tile.size || lit.pieces.size ? lit : null;
    light(lit);
    for (const [name, rows] of Object.entries({ source: panes.source, definitions: panes.definitions, ...kernel.rows })) {
      const found = rows.filter((row) => row.classList.contains("lit"));
      const first = found.find((row) => !DECLARED.test(row.querySelector(".text")?.textContent ?? "")) ?? found[0];
      if (first && name !== from) reveal(first);
    }
    if (pinned) announce(`${lit.said}: ${lit.tile.size} statements, ${kernel.rows.cuda.filter((r) => r.classList.contains("lit")).length} lines of CUDA`);
  }

  function reveal(row) {
    const pane = row.closest(".pane");
    const top = row.offsetTop; // from the top of the pane, which is positioned
    if (top < pane.scrollTop || top > pane.scrollTop + pane.clientHeight - row.offsetHeight) {
      pane.scrollTop = Math.max(0, top - pane.clientHeight / 3);
    }
  }

  // A list of lines that is one stop in the tab order: arrows move in it, Enter keeps.
  function lines(name, label, rows, lit) {
    let at = 0;
    const box = el("div", { class: "pane code", role: "listbox", tabindex: 0, "aria-label": label, id: `pane-${name}`,
      keydown: pressed, focus: () => move(at), blur: unlight,
      mouseover: (e) => { const n = index(e); if (n !== null) light(lit(n)); },
      mouseleave: unlight,
      click: (e) => { const n = index(e); if (n !== null) { move(n); pin(lit(n), name); } },
    }, ...rows);
    rows.forEach((row, n) => { row.id = `${name}-${n}`; row.dataset.n = n; });

    function index(event) {
      const row = event.target.closest("[data-n]");
      return row === null ? null : Number(row.dataset.n);
    }

    function move(n) {
      if (!rows.length) return;
      rows[at]?.setAttribute("aria-selected", "false");
      at = Math.min(Math.max(n, 0), rows.length - 1);
      rows[at].setAttribute("aria-selected", "true");
      box.setAttribute("aria-activedescendant", rows[at].id);
    }

    function pressed(event) {
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1, PageDown: at + 20, PageUp: at - 20 }[event.key];
      if (to !== undefined) {
        event.preventDefault();
        move(to);
        reveal(rows[at]);
        light(lit(at));
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        pin(lit(at), name);
      }
    }
    return box;
  }

  const row = (content, piece, number) => el("div", { class: ["line", hue(piece)].filter(Boolean).join(" "), role: "option", "aria-selected": "false", "aria-label": content ? null : "empty line" },
    mark(piece), number === null ? null : el("span", { class: "no", "aria-hidden": "true" }, number), el("span", { class: "text" }, content || " "));

  // ---- the source ------------------------------------------------------------------------------

  function source() {
    panes.lineOf = new Map(data.definitions.flatMap((d, n) => (d.line === null ? [] : [[d.line, n]])));
    panes.source = data.lines.map((line, n) => row(line, panes.lineOf.get(n) ?? -1, n + 1));
    return lines("source", "Source", panes.source, (n) => (panes.lineOf.has(n) ? ofPiece(panes.lineOf.get(n)) : NOTHING));
  }

  function definitions() {
    panes.definitions = data.definitions.map((d, n) => definition(d, n));
    return el("div", { class: "pane notation", id: "pane-definitions", tabindex: 0, role: "region", "aria-label": "Definitions in index notation" }, ...panes.definitions);
  }

  // The button takes the whole definition; arrows on it walk through its parts.
  function definition(d, n) {
    const drawn = notation.definition(d);
    const parts = [...drawn.querySelectorAll("[data-term]")];
    let at = -1;
    const walk = (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      at = Math.min(Math.max(at + by, -1), parts.length - 1);
      const lit = at < 0 ? ofPiece(n) : ofTerm(Number(parts[at].dataset.term));
      light(lit);
      announce(at < 0 ? d.name : `${parts[at].textContent}: ${lit.tile.size} statements compute it`);
    };
    const button = el("button", { type: "button", class: "quiet piece", title: `Light up ${text.short(d.name)}`,
      "aria-label": `Light up definition ${d.name}; arrow keys walk through its parts`,
      click: () => pin(ofPiece(n), "definitions"), keydown: walk, focus: () => light(ofPiece(n)), blur: () => { at = -1; unlight(); },
    }, mark(n));
    const pointed = (event) => {
      const node = event.target.closest("[data-term]");
      return node === null ? ofPiece(n) : ofTerm(Number(node.dataset.term));
    };
    return el("div", { class: `equation ${hue(n)}`,
      mouseover: (e) => light(pointed(e)), mouseleave: unlight,
      click: (e) => { if (!e.target.closest("button, a")) follow(e, n, pointed(e)); },
    }, button, drawn, home(d));
  }

  const home = (d) => (d.class ? el("a", { class: "home", href: `#class=${encodeURIComponent(d.class)}`,
    title: `Show ${text.short(d.name)} in the e-graph`, "aria-label": `${d.name} in the e-graph: class ${d.class}` }, `class ${d.class}`) : null);

  // A part that the shown kernel does not compute may be computed by another one.
  async function follow(event, n, lit) {
    if (lit.tile.size === 0) {
      const other = data.pieces.findIndex((pieces) => pieces.includes(n));
      if (other >= 0 && !data.pieces[kernel.number]?.includes(n)) {
        await open(other);
        return pin(ofPiece(n), "definitions");
      }
    }
    return pin(lit.tile.size ? lit : ofPiece(n), "definitions");
  }

  // ---- the kernels -----------------------------------------------------------------------------

  function kernels() {
    panes.kernels = data.kernels.map((name, n) => el("button", {
      type: "button", class: "chip", "aria-pressed": "false", click: () => open(n, true),
    }, text.short(name, 40), ...(data.pieces[n] ?? []).map((p) => el("span", { class: `dot ${hue(p)}` }, String(p + 1)))));
    return el("div", { class: "chips", role: "group", "aria-label": "Kernels" }, ...panes.kernels);
  }

  async function open(number, linked = false) {
    const loaded = await assets.data(`kernel-${number}`);
    pinned = null;
    kernel = { number, way: 0, step: 0, data: loaded, rows: { tile: [], cuda: [] } };
    panes.kernels.forEach((b, n) => b.setAttribute("aria-pressed", String(n === number)));
    drawKernel();
    if (linked) link.set({ kernel: data.kernels[number] });
  }

  function drawKernel() {
    const step = stepOf();
    const tile = step.tile.map((line) => row(line.text, line.piece, null));
    const cuda = step.cuda.map((line, n) => row(line, step.origin[n].length ? step.tile[step.origin[n][0]].piece : -1, n + 1));
    kernel.rows = { tile, cuda };
    const tileBox = lines("tile", "Tile program", tile, ofTile);
    const cudaBox = lines("cuda", "CUDA", cuda, ofCuda);
    panes.tile.replaceChildren(...ways(), tileBox);
    panes.cuda.replaceChildren(...steps(), cudaBox);
    const start = step.cuda.findIndex((line) => line.includes("__global__"));
    cudaBox.scrollTop = start > 0 ? Math.max(0, cuda[start].offsetTop - 4) : 0;
    light(NOTHING);
  }

  function picker(label, names, chosen, picked) {
    if (names.length < 2) return el("p", { class: "muted" }, names[0] ?? "");
    return el("label", { class: "field" }, `${label} `, el("select", { change: (e) => picked(Number(e.target.value)) },
      ...names.map((name, n) => el("option", { value: n, selected: n === chosen }, text.short(name, 90)))));
  }

  const ways = () => [picker("Runs as", kernel.data.ways.map((w) => w.schedule), kernel.way, (n) => {
    kernel.way = n;
    kernel.step = 0;
    pinned = null;
    drawKernel();
  })];

  const steps = () => [picker("Kernel", kernel.data.ways[kernel.way].steps.map((s) => s.name), kernel.step, (n) => {
    kernel.step = n;
    pinned = null;
    drawKernel();
  })];

  // ---- the section -----------------------------------------------------------------------------

  async function draw(panel) {
    data = await assets.data("program");
    if (!data) return panel.append(el("p", { class: "notice" }, "The program was not read."));
    panes = { tile: el("div", { class: "stack" }), cuda: el("div", { class: "stack" }) };
    panes.root = el("div", { class: "columns", keydown: (e) => { if (e.key === "Escape") { pinned = null; light(NOTHING); } } },
      el("section", { class: "column" }, el("h3", {}, "Source"), source(), el("h4", {}, "In index notation"), definitions()),
      el("section", { class: "column" }, el("h3", {}, "Tile program"), panes.tile),
      el("section", { class: "column" }, el("h3", {}, "CUDA"), panes.cuda));
    panel.append(el("p", { class: "lead" }, "A colour and number is one definition, from the source down to the lines of CUDA. Point at a line to see what it belongs to; click or press Enter to keep it, Escape to let go."),
      kernels(), panes.root);
    if (!data.kernels.length) {
      panel.append(el("p", { class: "notice" }, "No kernel was built."));
      return;
    }
    const asked = data.kernels.indexOf(link.get("kernel"));
    await open(Math.max(0, asked));
  }

  link.on("kernel", "program", (name) => {
    const number = data?.kernels.indexOf(name) ?? -1;
    if (number >= 0 && number !== kernel?.number) open(number);
  });
  nautile.views.set("program", { title: "Source → CUDA", draw });
}
