"use strict";
// mount(element, data, page): the explorer in an empty element. `page` is what the page around it
// gives (all of it may be missing): theme changes, the link of the class, what is read aloud.

nautileExplorer.mount = (element, data, page = nautileExplorer.alone(element)) => {
  const { el } = nautileExplorer;
  const graph = nautileExplorer.egraph(data);
  const texts = nautileExplorer.texts(graph);
  const views = nautileExplorer.views(graph);
  const search = nautileExplorer.search(graph, texts);
  const steps = nautileExplorer.steps();
  const makeWorker = (source) => globalThis.nautile?.assets?.worker(source) ??
    new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  const route = views.program().open.size ? [...views.program().open.keys()] : [];
  const start = route[0] ?? graph.roots.at(-1); // what the program stores last
  let asList = false;
  let drawn = null;

  // ---- the frame -----------------------------------------------------------------------------------
  const button = (text, click, attributes = {}) => el("button", { type: "button", click, ...attributes }, text);
  const query = el("input", { type: "search", id: "x-query", autocomplete: "off", spellcheck: "false",
    placeholder: "sum[s](… · op:mul · rule:swap · class:17" });
  const found = el("ol", { class: "x-found", hidden: true, "aria-label": "Classes found" });
  const count = el("p", { class: "x-count", role: "status" });
  const hops = el("select", { id: "x-hops" }, [1, 2, 3, 4, 6, 9].map((n) => el("option", { value: n, selected: n === 2 }, n)));
  const buttons = {
    back: button("← Back", () => stepped(steps.back())),
    forth: button("Forward →", () => stepped(steps.forth())),
    root: button("Root", () => around(start)),
    program: graph.hasChosen ? button("Chosen program", () => go(views.program(), start, { whole: true })) : null,
    previous: route.length ? button("‹ Previous of it", () => follow(-1)) : null,
    next: route.length ? button("Next of it ›", () => follow(1)) : null,
    graph: button("Graph", () => display(false), { "aria-pressed": "true" }),
    list: button("List", () => display(true), { "aria-pressed": "false" }),
  };
  const stage = el("div", { class: "x-stage", tabindex: "0", role: "application", "aria-roledescription": "graph",
    "aria-label": "Neighbourhood of the selected class. Arrow keys go to the next box, Enter opens or closes it, " +
      "plus and minus zoom, 0 shows all, Backspace steps back. The list shows the same." });
  const zooms = el("div", { class: "x-zoom", role: "group", "aria-label": "Zoom" },
    button("−", () => canvas.zoom(0.8), { "aria-label": "Zoom out" }),
    button("+", () => canvas.zoom(1.25), { "aria-label": "Zoom in" }),
    button("All", () => canvas.fit(), { "aria-label": "Show all" }));
  const rows = el("div", { class: "x-rows", hidden: true });
  const aside = el("div", { class: "x-panel", role: "region", "aria-label": "The selected class", tabindex: "0" });
  element.classList.add("x-explorer");
  element.append(
    el("div", { class: "x-bar" },
      el("span", { class: "x-search" }, el("label", { for: "x-query" }, "Search"), query),
      buttons.back, buttons.forth, buttons.root, buttons.program, buttons.previous, buttons.next,
      el("span", {}, el("label", { for: "x-hops" }, "Hops "), hops),
      el("span", { role: "group", "aria-label": "Show as" }, buttons.graph, buttons.list)),
    found,
    el("div", { class: "x-body" }, el("div", { class: "x-left" }, stage, zooms, rows, count,
      el("p", { class: "x-legend" }, "A box is a class of equal terms, a small box one way to write it. ",
        el("span", { class: "x-mark x-chosen" }, "thick: chosen"), " ", el("span", { class: "x-mark x-double" }, "double: in the source"),
        " ▸3: closed, of three nodes. Double click opens and closes a class.")), aside));

  const act = {
    select: (c, n = null) => select(c, n), toggle, around, users, way, more,
    isOpen: (c) => views.isOpen(steps.now().view, c),
    selected: () => steps.now().selected,
    announce: page.announce,
  };
  const canvas = nautileExplorer.canvas(graph, texts, stage,
    { select: act.select, toggle, more, back: () => stepped(steps.back()), describe: page.announce, home: () => select(start), makeWorker });
  const panel = nautileExplorer.panel(graph, texts, aside, act);
  const list = nautileExplorer.list(graph, texts, rows, act);

  // ---- going about ---------------------------------------------------------------------------------
  function go(view, selected, { whole = false } = {}) {
    steps.push({ view, selected, node: null });
    refresh(whole);
  }

  function refresh(whole = false) {
    const { view, selected, node } = steps.now();
    drawn = views.drawn(view);
    count.textContent = `${drawn.classes.length.toLocaleString("en")} classes and ${(drawn.size - drawn.classes.length).toLocaleString("en")} ` +
      `nodes of ${graph.count.toLocaleString("en")} and ${graph.total.toLocaleString("en")}` +
      (drawn.left ? `; ${drawn.left.toLocaleString("en")} nodes of open classes are not drawn.` : ".");
    if (asList) list.show(drawn, view);
    else canvas.show(drawn, view, { whole, done: () => element.dispatchEvent(new CustomEvent("drawn")) });
    marked(selected, node);
  }

  function marked(c, n) {
    canvas.mark(c);
    if (asList) list.mark(c);
    panel.show(c, n);
    aside.scrollTop = 0;
    buttons.back.disabled = !steps.canBack();
    buttons.forth.disabled = !steps.canForth();
    const at = route.indexOf(c);
    if (buttons.next) {
      buttons.previous.disabled = at === 0;
      buttons.next.disabled = at === route.length - 1;
    }
    page.link.set(graph.key(c));
    page.announce(`Class ${graph.key(c)}: ${texts.brief(c, 2)}`);
  }

  // A class that is drawn is only marked; another one is gone to.
  function select(c, n = null) {
    if (!drawn.classes.includes(c)) return go(views.around(c, Number(hops.value)), c);
    steps.push({ ...steps.now(), selected: c, node: n });
    marked(c, n);
  }

  function around(c) {
    go(views.around(c, Number(hops.value)), c);
  }

  function toggle(c) {
    const view = steps.now().view;
    go(views.isOpen(view, c) ? views.collapsed(view, c) : views.expanded(view, c), c);
  }

  function users(c) {
    go(views.withUsers(steps.now().view, c), c);
  }

  function way(c) {
    const view = views.way(c);
    if (view) go(view, c, { whole: true });
    else page.announce("No root leads to this class.");
  }

  function more(c) {
    go(views.more(steps.now().view, c), c);
  }

  function follow(by) {
    const at = route.indexOf(steps.now().selected);
    const c = route[at < 0 ? 0 : at + by];
    if (c === undefined) return;
    if (drawn.classes.includes(c)) select(c, graph.nodesOf(c).find(graph.isChosen));
    else go(views.program(), c);
  }

  function stepped(step) {
    if (step) refresh();
  }

  function display(wanted) {
    asList = wanted;
    stage.hidden = zooms.hidden = asList;
    rows.hidden = !asList;
    buttons.graph.setAttribute("aria-pressed", String(!asList));
    buttons.list.setAttribute("aria-pressed", String(asList));
    if (!asList) list.clear();
    refresh();
  }

  // ---- search --------------------------------------------------------------------------------------
  function lookUp() {
    const text = query.value.trim();
    found.hidden = !text;
    if (!text) return found.replaceChildren();
    const { hits, total, share } = search.find(text);
    found.replaceChildren(...hits.map((n) => el("li", {}, button(`${graph.key(graph.owner[n])}`, () => chosenHit(n), { class: "x-class" }),
      " ", el("code", { class: "x-term" }, texts.ofNode(n, 1)))));
    const said = total === 0 ? "Nothing is found." : `${total.toLocaleString("en")} ${total === 1 ? "class is" : "classes are"} found.`;
    found.append(el("li", { class: "x-said" }, share < 1 ? `${said} (${Math.floor(share * 100)}% of the e-graph is searched)` : said));
    page.announce(said);
    if (share < 1) search.whenWhole(() => query.value.trim() === text && lookUp());
  }

  function chosenHit(n) {
    go(views.around(graph.owner[n], Number(hops.value)), graph.owner[n]);
    steps.amend({ node: n });
    panel.show(graph.owner[n], n);
  }

  const hits = () => [...found.querySelectorAll("button")];
  query.addEventListener("input", lookUp);
  query.addEventListener("keydown", (event) => {
    if (event.key === "Enter") hits()[0]?.click();
    else if (event.key === "ArrowDown") hits()[0]?.focus();
    else if (event.key === "Escape") {
      query.value = "";
      lookUp();
    } else return;
    event.preventDefault();
  });
  found.addEventListener("keydown", (event) => {
    const at = hits().indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    (to < 0 ? query : hits()[Math.min(to, hits().length - 1)]).focus();
  });
  hops.addEventListener("change", () => around(steps.now().selected));

  // ---- the start -----------------------------------------------------------------------------------
  const linked = (key) => (key === null ? undefined : graph.classOf(key));
  page.onTheme(() => canvas.recolour());
  page.onLink((key) => {
    const c = linked(key);
    if (c === undefined) page.announce(`There is no class ${key}.`);
    else if (c !== steps.now().selected) select(c);
  });
  const first = linked(page.link.get());
  if (first !== undefined) go(views.around(first, 2), first);
  else if (route.length) go(views.program(), start, { whole: true });
  else go(views.around(start, 2), start, { whole: true });
  search.start();
  return { graph, texts, views, search, canvas, steps, drawn: () => drawn, select, around };
};

// What a page that is the explorer alone gives it.
nautileExplorer.alone = (element) => {
  const live = nautileExplorer.el("p", { class: "x-unseen", "aria-live": "polite" });
  element.append(live);
  const read = () => new URLSearchParams(location.hash.slice(1)).get("class");
  return {
    onTheme(told) {
      new MutationObserver(told).observe(document.documentElement, { attributeFilter: ["data-theme"] });
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", told);
    },
    link: { get: read, set: (key) => history.replaceState(null, "", `#class=${encodeURIComponent(key)}`) },
    onLink: (told) => addEventListener("hashchange", () => read() !== null && told(read())),
    announce: (text) => (live.textContent = text),
  };
};
