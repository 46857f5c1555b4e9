"use strict";
// The derivation, one step at a time: a law at one place of the program, before and after, and how
// far the program then is from the source, measured.
{
  const { el, text, assets, link, announce, changes } = nautile;
  let show = null;

  function chart(steps, picked) {
    const found = [...new Set(steps.map((s) => s.rule))];
    return el("label", { class: "field" }, "Jump to a rule ", el("select", { id: "rule", change: (e) => e.target.value !== "" && picked(Number(e.target.value)) },
      el("option", { value: "" }, "choose"), ...found.flatMap((rule) => steps.flatMap((s, n) => (s.rule === rule ? [el("option", { value: n }, `${text.short(rule, 50)} (step ${n + 1})`)] : [])))));
  }

  function facts(step) {
    if (!step.facts?.length) return null;
    return el("details", { open: true }, el("summary", {}, `Facts that it stands on (${step.facts.length})`),
      el("ul", { class: "terms" }, ...step.facts.map((f) => (typeof f === "string" ? el("li", {}, el("code", {}, f)) : el("li", {}, el("b", {}, f.rule), " ", el("code", {}, f.text), typeof f.max_error === "number" ? el("span", { class: "muted" }, ` error ${f.max_error.toExponential(1)}`) : null)))));
  }

  // "line 9, in the definition of O, at 2 places"; a place may be told in words already.
  function where(place) {
    if (!place || typeof place === "string") return place ?? null;
    const parts = [place.line && `line ${place.line}`, place.definition && `in the definition of ${text.short(place.definition, 60)}`,
      place.count > 1 && `at ${place.count} places`];
    return parts.filter(Boolean).join(", ");
  }

  function side(title, nodes) {
    return el("div", {}, el("h4", {}, title), el("pre", { tabindex: 0, role: "region", "aria-label": title }, ...nodes));
  }

  function sides(title, before, after) {
    const [left, right] = changes.changes(before, after);
    return el("div", { class: "sides" }, side(`${title} before`, left), side(`${title} after`, right));
  }

  function accuracy(step) {
    if (typeof step.max_error === "number") return `Checked: the largest relative error against the source is ${step.max_error.toExponential(2)}.`;
    return step.check === "equal" ? "Checked: nothing but the writing changes." : "Not measured.";
  }

  function card(step, n, all) {
    const at = where(step.place);
    return [
      el("h3", { id: "step-title", tabindex: -1 }, `Step ${n + 1} of ${all}: ${step.rule}`),
      step.law && el("p", { class: "law" }, el("code", {}, step.law), step.numerics && el("span", { class: "tag" }, step.numerics), step.pack && el("span", { class: "tag" }, step.pack)),
      at && el("p", { class: "muted" }, `At ${at}${step.direction === "backward" ? ", from right to left" : ""}`),
      step.redex && step.contractum ? sides("Place", step.redex, step.contractum) : null,
      sides(step.redex ? "Program" : "", step.before, step.after),
      el("p", {}, accuracy(step)),
      facts(step),
    ];
  }

  // Brings the first change of each text into its view.
  function reveal(body) {
    for (const pre of body.querySelectorAll("pre")) {
      const changed = pre.querySelector("del, ins");
      if (changed) pre.scrollTop = Math.max(0, changed.offsetTop - pre.offsetTop - pre.clientHeight / 3);
    }
  }

  function needed(explanation) {
    const rules = (explanation.rules_needed ?? []).map((r) => (typeof r === "string" ? r : r.rule));
    const others = explanation.rules_alternatives ?? [];
    const gaps = explanation.derivation_gaps ?? [];
    return [
      rules.length ? el("p", {}, `${explanation.rules_smallest ? "The fewest rules that reach this program" : "Rules that reach this program"}: ${rules.join(", ")}.`) : null,
      others.length ? el("p", { class: "muted" }, `Others would do, too: ${others.map((o) => (Array.isArray(o) ? o.join(", ") : typeof o === "string" ? o : JSON.stringify(o))).join("; ")}.`) : null,
      gaps.length ? el("p", { class: "notice" }, `Not derived step by step: ${gaps.map((g) => (typeof g === "string" ? g : g.text ?? JSON.stringify(g))).join("; ")}`) : null,
    ].filter(Boolean);
  }

  async function draw(panel) {
    const [explanation, steps] = [await assets.data("explanation"), await assets.data("derivation") ?? []];
    panel.append(...needed(explanation));
    if (!steps.length) return panel.append(el("p", { class: "notice" }, explanation.derivation_note ?? "The chosen program is the source program as it stands: no step was taken, or no derivation was asked for."));
    let at = 0;
    const body = el("div", { class: "step", "aria-live": "off" });
    const buttons = [["First", "«", () => 0], ["Previous", "‹", () => at - 1], ["Next", "›", () => at + 1], ["Last", "»", () => steps.length - 1]]
      .map(([name, sign, to]) => el("button", { type: "button", "data-move": name, click: () => show(to()) }, el("span", { "aria-hidden": "true" }, `${sign} `), name));
    const place = el("input", { type: "range", min: 1, max: steps.length, step: 1, "aria-label": "Step", input: (e) => show(Number(e.target.value) - 1) });

    show = (n, { linked = true } = {}) => {
      at = Math.min(Math.max(n, 0), steps.length - 1);
      body.replaceChildren(...card(steps[at], at, steps.length).filter(Boolean));
      reveal(body);
      place.value = at + 1;
      buttons.forEach((b, k) => { b.disabled = k < 2 ? at === 0 : at === steps.length - 1; });
      if (linked) {
        link.set({ step: at + 1 });
        announce(`Step ${at + 1} of ${steps.length}: ${steps[at].rule}`);
      }
    };

    const pressed = (event) => {
      if (event.target.matches("input, select, textarea")) return;
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: steps.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show(to);
    };
    panel.append(el("div", { class: "stepper", keydown: pressed, tabindex: 0, role: "group", "aria-label": "Derivation; arrow keys step" },
      el("div", { class: "controls" }, ...buttons, place, chart(steps, (n) => show(n))), body));
    const asked = Number.parseInt(link.get("step") ?? "1", 10);
    show(Number.isFinite(asked) ? asked - 1 : 0, { linked: false });
  }

  link.on("step", "derivation", (value) => {
    const asked = Number.parseInt(value, 10);
    if (Number.isFinite(asked)) show?.(asked - 1, { linked: false });
  });
  nautile.views.set("derivation", { title: "Derivation", draw });
}
