"use strict";
// Tables that are sorted by a click on a heading and filtered by a word; rows can be opened.
// At most `PAGE` rows are drawn at first, so that thousands of candidates stay quick.
{
  const { el, announce } = nautile;
  const PAGE = 60;
  const collator = new Intl.Collator("en", { numeric: true });

  const rank = (value) => (value === null || value === undefined ? [1, 0] : [0, value]);

  function compare(a, b) {
    const [missingA, x] = rank(a);
    const [missingB, y] = rank(b);
    if (missingA || missingB) return missingA - missingB;
    if (typeof x === "number" && typeof y === "number") return x - y;
    return collator.compare(String(x), String(y));
  }

  // columns: [{title, value(row), cell(row)?, number?}]; options: {caption, rows, filter, detail(row)?,
  // choices: {label, of(row)}?, key(row)?}. Returns the element; `reveal(key)` opens a row.
  function table(columns, options) {
    const state = { column: options.sorted ?? null, down: false, text: "", choice: "", drawn: PAGE };
    const body = el("tbody");
    const opened = new Set();
    const count = el("p", { class: "muted", "aria-live": "polite" });
    const more = el("button", { type: "button", click: () => { state.drawn += 10 * PAGE; draw(); } }, "Show more rows");
    const words = new Map();

    const searched = (row) => {
      if (!words.has(row)) words.set(row, columns.map((c) => String(c.value(row) ?? "")).join(" ").toLowerCase()
        + (options.words?.(row) ?? "").toLowerCase());
      return words.get(row);
    };

    function visible() {
      const found = options.rows.filter((row) =>
        (!state.choice || options.choices.of(row) === state.choice) && searched(row).includes(state.text));
      if (state.column !== null) {
        const { value } = columns[state.column];
        found.sort((a, b) => {
          const order = compare(value(a), value(b));
          const missing = value(a) == null || value(b) == null;
          return state.down && !missing ? -order : order;
        });
      }
      return found;
    }

    function row(item) {
      const key = options.key?.(item);
      const cells = columns.map((c, n) => {
        const inner = c.cell ? c.cell(item) : c.value(item) ?? "–";
        const first = n === 0 && options.detail ? [opener(item, key), " ", inner] : [inner];
        return n === 0
          ? el("th", { scope: "row", class: c.number ? "number" : options.detail ? "opens" : null }, ...first)
          : el("td", { class: c.number ? "number" : null }, ...first);
      });
      return el("tr", { class: options.mark?.(item), "data-key": key }, ...cells);
    }

    function opener(item, key) {
      const open = opened.has(item);
      return el("button", {
        type: "button", class: "opener", "aria-expanded": String(open), "aria-label": `Details of ${key}`,
        click: () => { toggle(item); },
      }, open ? "▾" : "▸");
    }

    // Only the row itself is drawn anew.
    function toggle(item) {
      const old = body.querySelector(`[data-key="${CSS.escape(options.key(item))}"]`);
      if (opened.delete(item)) old.nextElementSibling.remove();
      else opened.add(item);
      const drawn = row(item);
      old.replaceWith(drawn);
      if (opened.has(item)) drawn.after(detail(item));
      drawn.querySelector(".opener").focus();
    }

    const detail = (item) => el("tr", { class: "detail" }, el("td", { colspan: columns.length }, options.detail(item)));

    function draw() {
      const rows = visible();
      const parts = [];
      for (const item of rows.slice(0, state.drawn)) {
        parts.push(row(item));
        if (opened.has(item)) parts.push(detail(item));
      }
      body.replaceChildren(...parts);
      more.hidden = rows.length <= state.drawn;
      count.textContent = rows.length === options.rows.length
        ? `${rows.length} rows` : `${rows.length} of ${options.rows.length} rows`;
      heads.forEach((head, n) => head.setAttribute("aria-sort",
        n !== state.column ? "none" : state.down ? "descending" : "ascending"));
    }

    function sort(n) {
      state.down = state.column === n ? !state.down : false;
      state.column = n;
      draw();
      announce(`Sorted by ${columns[n].title}, ${state.down ? "descending" : "ascending"}`);
    }

    const heads = columns.map((c, n) => el("th", { scope: "col", class: c.number ? "number" : null, "aria-sort": "none" },
      el("button", { type: "button", class: "sorter", click: () => sort(n) }, c.title)));
    const filter = options.filter && el("label", { class: "field" }, "Filter ",
      el("input", { type: "search", input: (e) => { state.text = e.target.value.toLowerCase(); draw(); } }));
    const choices = options.choices && el("label", { class: "field" }, `${options.choices.label} `,
      el("select", { change: (e) => { state.choice = e.target.value; draw(); } }, el("option", { value: "" }, "all"),
        ...[...new Set(options.rows.map(options.choices.of))].sort().map((c) => el("option", { value: c }, c))));
    const element = el("div", { class: "table" },
      (filter || choices) && el("div", { class: "controls" }, filter, choices, count),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": options.caption },
        el("table", {}, el("caption", {}, options.caption), el("thead", {}, el("tr", {}, ...heads)), body)),
      more);
    draw();
    return {
      element,
      reveal(key) {
        const item = options.rows.find((r) => String(options.key(r)) === String(key));
        if (item === undefined) return;
        opened.add(item);
        state.drawn = Math.max(state.drawn, visible().indexOf(item) + 1);
        draw();
        body.querySelector(`[data-key="${CSS.escape(String(key))}"]`)?.scrollIntoView({ block: "center" });
      },
    };
  }

  nautile.table = table;
}
