"use strict";
// Puts the page together: the head, the tabs, and the section that the address names.
{
  const { get, head, sections, link, el } = nautile;
  try {
    head(get("explanation"));
    sections.build();
    if (!link.read().size) sections.show("overview", { focus: false, keep: true });
    link.follow();
    if (!document.querySelector("[role=tabpanel]:not([hidden])")) sections.show("overview", { focus: false, keep: true });
  } catch (error) {
    document.getElementById("main").append(el("p", { class: "notice", role: "alert" }, `This page's data cannot be read: ${error.message}`));
    console.error(error);
  }
}
