"use strict";
// Deep links: `#step=5`, `#kernel=O&line=12`. The first key tells which section opens; a section
// listens for its keys. The page replaces the hash without adding steps to the history, except where
// a person goes to another section.
{
  const listeners = new Map();
  const section = new Map();

  // key -> value, in order; a text that is no link has none.
  function read(hash = location.hash) {
    const found = new Map();
    for (const part of hash.replace(/^#/, "").split("&")) {
      const at = part.indexOf("=");
      if (at < 1) continue;
      try {
        found.set(decodeURIComponent(part.slice(0, at)), decodeURIComponent(part.slice(at + 1)));
      } catch {
        continue; // a broken escape: not a link of this page
      }
    }
    return found;
  }

  const write = (values) => "#" + Object.entries(values).filter(([, v]) => v !== null && v !== undefined)
    .map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(v)}`).join("&");

  function set(values, { push = false } = {}) {
    const hash = write(values);
    if (hash === location.hash) return;
    history[push ? "pushState" : "replaceState"](null, "", hash);
  }

  function follow() {
    for (const [key, value] of read()) {
      if (section.has(key)) nautile.sections?.show(section.get(key), { focus: false, keep: true });
      (listeners.get(key) ?? []).forEach((told) => told(value));
    }
  }

  // `name` is the section that opens when a link has the key.
  function on(key, name, told) {
    section.set(key, name);
    if (!listeners.has(key)) listeners.set(key, []);
    if (told) listeners.get(key).push(told);
  }

  addEventListener("hashchange", follow);
  nautile.link = { read, write, set, follow, on, get: (key) => read().get(key) ?? null };
}
