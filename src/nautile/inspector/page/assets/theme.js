"use strict";
// Light and dark: what the system prefers until somebody chooses.
{
  const { el } = nautile;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const listeners = [];
  let chosen = null;
  try {
    chosen = localStorage.getItem("nautile-theme");
  } catch {
    chosen = null; // storage may be closed to pages from disk
  }

  const theme = () => (chosen === "dark" || chosen === "light" ? chosen : system.matches ? "dark" : "light");

  function apply() {
    document.documentElement.dataset.theme = theme();
    listeners.forEach((told) => told(theme()));
  }

  function choose() {
    chosen = theme() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("nautile-theme", chosen);
    } catch {
      // chosen for this visit alone
    }
    apply();
  }

  function button() {
    const made = el("button", { type: "button", class: "quiet", id: "theme", click: choose });
    const label = () => {
      made.textContent = theme() === "dark" ? "☀ Light" : "☾ Dark";
      made.title = `Switch to the ${theme() === "dark" ? "light" : "dark"} theme`;
    };
    listeners.push(label);
    label();
    return made;
  }

  system.addEventListener("change", apply);
  apply();
  nautile.theme = { theme, button, onTheme: (told) => listeners.push(told) };
}
