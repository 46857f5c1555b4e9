"use strict";
// Trees of terms (see typeset.py) as index notation in MathML. A subterm that something is linked to
// becomes an <mrow> with its number in `data-term`.
{
  const { math } = nautile;
  const SIGNS = { "*": "⋅", "-": "−", "<=": "≤", ">=": "≥", "!=": "≠", "==": "=", and: "∧", or: "∨", not: "¬" };
  const FOLDS = { sum: "∑", prod: "∏", any: "⋁", all: "⋀" };
  const TIGHT = { or: 1, and: 2, not: 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "==": 4, "!=": 4, "+": 5, "-": 5,
    "*": 6, "/": 6, "//": 6, "%": 6, "**": 8 };
  const ATOM = 100;
  const FOLD = 5.5;

  const mo = (text, form) => math("mo", { form: form ?? null }, text);
  // The second index over one family is spelt `t__1`, and set as t₁.
  const spelt = (name) => name.replace(/__(\d+)$/, (_, digits) => digits.replace(/\d/g, (d) => "₀₁₂₃₄₅₆₇₈₉"[d]));
  const mi = (text) => math("mi", { mathvariant: /^.[₀-₉]*$/u.test(spelt(text)) ? null : "normal" }, spelt(text));
  const fenced = (inner, open = "(", close = ")") => math("mrow", {}, mo(open, "prefix"), inner, mo(close, "postfix"));
  const listed = (nodes) => nodes.flatMap((n, i) => (i ? [mo(","), n] : [n]));

  function tightness(tree) {
    if (tree.k === "fold" && tree.t in FOLDS) return FOLD;
    if (tree.k !== "op") return tree.k === "num" && tree.t.startsWith("-") ? 7 : ATOM;
    if (tree.t === "//" || tree.t === "/") return ATOM;
    return tree.c.length === 1 && tree.t === "-" ? 7 : TIGHT[tree.t] ?? 0;
  }

  function inside(tree, least) {
    const drawn = term(tree);
    return tightness(tree) < least ? fenced(drawn) : drawn;
  }

  function operation(tree) {
    const [a, b] = tree.c;
    if (b === undefined) return math("mrow", {}, mo(SIGNS[tree.t] ?? tree.t, "prefix"), inside(a, 7));
    if (tree.t === "/") return math("mfrac", {}, math("mrow", {}, term(a)), math("mrow", {}, term(b)));
    if (tree.t === "//") return fenced(math("mrow", {}, inside(a, 6), mo("/"), inside(b, 7)), "⌊", "⌋");
    if (tree.t === "**") return math("msup", {}, inside(a, 9), math("mrow", {}, term(b)));
    if (tree.t === "%") return math("mrow", {}, inside(a, 6), mi(" mod "), inside(b, 7));
    const own = TIGHT[tree.t] ?? 0;
    return math("mrow", {}, inside(a, own), mo(SIGNS[tree.t] ?? tree.t, "infix"), inside(b, own + 0.6));
  }

  function where([condition, yes, no]) {
    const row = (value, when) => math("mtr", {}, math("mtd", {}, value), math("mtd", {}, ...when));
    return math("mrow", {}, mo("{", "prefix"), math("mtable", { columnalign: "left" },
      row(term(yes), [mi("if"), mo(" "), term(condition)]), row(term(no), [mi("else")])));
  }

  function call(tree) {
    if (tree.t === "where" && tree.c.length === 3) return where(tree.c);
    if (tree.t === "sqrt") return math("msqrt", {}, term(tree.c[0]));
    if (tree.t === "abs") return fenced(term(tree.c[0]), "|", "|");
    if (tree.t === "floor") return fenced(term(tree.c[0]), "⌊", "⌋");
    return math("mrow", {}, mi(tree.t), fenced(math("mrow", {}, ...listed(tree.c.map(term)))));
  }

  function fold(tree) {
    const sign = tree.t in FOLDS ? math("mo", { largeop: "true", movablelimits: "false" }, FOLDS[tree.t]) : mi(tree.t);
    const over = math("munder", {}, sign, mi(tree.a));
    const body = tree.t in FOLDS ? inside(tree.c[0], FOLD) : fenced(term(tree.c[0]));
    return math("mrow", {}, over, body);
  }

  function online(tree) {
    const [repair, body, offset] = tree.c;
    const parts = [term(repair), term(body), ...(offset ? [term(offset)] : [])];
    return math("mrow", {}, math("munder", {}, mi("online"), mi(tree.a)), fenced(math("mrow", {}, ...listed(parts))));
  }

  const kinds = {
    num: (tree) => math("mn", {}, tree.t.replace(/^-/, "−")),
    idx: (tree) => mi(tree.t),
    load: (tree) => (tree.c.length ? math("msub", {}, mi(tree.t), math("mrow", {}, ...listed(tree.c.map(term)))) : mi(tree.t)),
    op: operation,
    call,
    cast: (tree) => math("mrow", {}, mi(tree.t), fenced(term(tree.c[0]))),
    fold,
    run: (tree) => math("mrow", {}, math("munder", {}, mi("running"), mi(tree.a)), fenced(term(tree.c[0]))),
    before: (tree) => math("mrow", {}, math("munder", {}, mi("before"), mi(tree.a)), fenced(term(tree.c[0]))),
    online,
    "...": () => mi("…"),
  };

  function term(tree) {
    const drawn = kinds[tree.k]({ ...tree, c: tree.c ?? [] });
    return tree.id === undefined ? drawn : math("mrow", { "data-term": tree.id, class: "term" }, drawn);
  }

  // One definition: name with its axes, and the term.
  function definition({ name, axes, tree }) {
    const head = axes.length ? math("msub", {}, mi(name), math("mrow", {}, ...listed(axes.map(mi)))) : mi(name);
    return math("math", { display: "inline", class: "definition" }, math("mrow", {}, head, mo("=", "infix"), term(tree)));
  }

  nautile.notation = { definition, term };
}
