"use strict";
// The sections as tabs (WAI-ARIA tabs pattern: arrows, Home and End move; the chosen one is in the
// tab order). A section is drawn when it is opened first, and all are before the page is printed.
{
  const { el, views, link, announce } = nautile;
  const shown = new Map();
  let current = null;

  function draw(name) {
    if (!shown.has(name)) {
      const panel = document.getElementById(`panel-${name}`);
      shown.set(name, Promise.resolve(views.get(name).draw(panel)).catch((error) => {
        panel.append(el("p", { class: "notice", role: "alert" }, `This section failed: ${error.message}`));
        console.error(error);
      }));
    }
    return shown.get(name);
  }

  function show(name, { focus = true, keep = false } = {}) {
    if (!views.has(name)) return;
    for (const tab of document.querySelectorAll("#tabs [role=tab]")) {
      const own = tab.dataset.section === name;
      tab.setAttribute("aria-selected", own);
      tab.tabIndex = own ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !own;
      if (own && focus) tab.focus();
      if (own) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    if (current !== name && !keep) link.set({ section: name }, { push: true });
    current = name;
    draw(name);
  }

  function pressed(event) {
    const tabs = [...document.querySelectorAll("#tabs [role=tab]")];
    const at = tabs.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0,
      End: tabs.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    show(tabs[(to + tabs.length) % tabs.length].dataset.section);
  }

  function build() {
    const list = el("div", { role: "tablist", "aria-label": "Sections", keydown: pressed });
    for (const [name, view] of views) {
      list.append(el("button", {
        type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`,
        "data-section": name, click: () => show(name),
      }, view.title));
      document.getElementById("main").append(el("section", {
        id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}`, hidden: true, tabindex: 0,
      }, el("h2", {}, view.title)));
    }
    document.getElementById("tabs").append(list);
    link.on("section", "overview", (name) => show(name, { focus: false, keep: true }));
  }

  addEventListener("beforeprint", () => [...views.keys()].forEach(draw));
  nautile.sections = { build, show, draw, announce };
}
