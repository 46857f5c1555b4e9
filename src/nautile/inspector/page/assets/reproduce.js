"use strict";
// The command that gives this result again, and what it depends on.
{
  const { el, assets, announce, text } = nautile;

  async function copy(command, button) {
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "Copied";
      announce("The command was copied");
    } catch {
      const range = document.createRange(); // no clipboard here: select it, so that the keyboard copies
      range.selectNodeContents(document.getElementById("command"));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "Selected: copy it";
      announce("The command is selected");
    }
  }

  async function draw(panel) {
    const found = await assets.data("explanation");
    const facts = [["Program", found.program], ["Source", found.source], ["Key", found.key], ["Target", found.target], ["Numerics", found.numerics],
      ...Object.entries(found.timings ?? {}).map(([stage, seconds]) => [`Time to ${stage}`, text.quantity(seconds, "s")])];
    const command = found.reproduce ?? `nautile explain ${found.source}`;
    const button = el("button", { type: "button", click: () => copy(command, button) }, "Copy");
    panel.append(el("div", { class: "command" }, el("pre", { id: "command", tabindex: 0 }, command), button),
      el("dl", { class: "facts" }, ...facts.filter(([, v]) => v).map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v)))),
      el("p", { class: "muted" }, "The key depends on the program (up to names), the target, the numerics class, the rules and the version: equal keys give equal results."));
  }

  nautile.views.set("reproduce", { title: "Reproduce", draw });
}
