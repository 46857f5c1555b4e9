"use strict";
// Where the e-graph explorer is mounted; its scripts and its data are loaded when it is opened.
{
  const { el, assets, link, theme, announce } = nautile;
  const listeners = [];

  async function draw(panel) {
    const parts = (await assets.data("assets")).explorer;
    if (!parts) return panel.append(el("p", { class: "notice" }, "No e-graph was kept with this page."));
    const place = el("div", { id: "explorer" });
    panel.append(place);
    await Promise.all(parts.styles.map(assets.load));
    for (const script of parts.scripts) await assets.load(script);
    const data = await assets.data("egraph");
    await nautileExplorer.mount(place, data, {
      theme: theme.theme, onTheme: theme.onTheme, announce,
      link: { get: () => link.get("class"), set: (value) => link.set({ class: value }) },
      onLink: (told) => listeners.push(told),
    });
  }

  link.on("class", "egraph", (value) => listeners.forEach((told) => told(value)));
  nautile.views.set("egraph", { title: "E-graph", draw });
}
