"use strict";
// Answers to "why not": one card a question that was asked.
{
  const { el, text, assets } = nautile;

  function figures(answer) {
    const plain = Object.entries(answer).filter(([k, v]) => !["question", "text", "program"].includes(k) && v !== null && typeof v !== "object");
    return plain.length ? el("dl", { class: "facts" }, ...plain.map(([k, v]) => el("div", {}, el("dt", {}, k.replaceAll("_", " ")), el("dd", {}, text.short(String(v), 300))))) : null;
  }

  function card(answer) {
    const program = typeof answer.program === "string" ? answer.program : null;
    return el("section", { class: "card" }, el("h3", {}, text.short(answer.question ?? "Why not?", 200)),
      el("p", { class: "told" }, answer.text ?? ""), figures(answer),
      program ? el("div", {}, el("h4", {}, "The program that it would have forced"), el("pre", { tabindex: 0 }, program)) : null);
  }

  async function draw(panel) {
    const found = (await assets.data("explanation")).why_not ?? [];
    const answers = Array.isArray(found) ? found : [found];
    panel.append(...answers.map(card));
    if (!answers.length) {
      panel.append(el("p", { class: "notice" }, "No question was asked. Ask one for a kernel, a term or a rule: "),
        el("pre", { tabindex: 0 }, "nautile explain FILE --why-not QUESTION --html DIR"));
    }
  }

  nautile.views.set("questions", { title: "Why not", draw });
}
