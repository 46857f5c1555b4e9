"use strict";
// The one global of the page: its data, and how elements are made. Every other script adds its part
// to it. Text enters the document as text nodes and nothing else; markup, style attributes and
// handlers in attributes are refused here, and by the page's security policy after that.

globalThis.nautile = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MATH = "http://www.w3.org/1998/Math/MathML";
  const stored = new Map();

  // A data file calls this with its name and its content as JSON text: parsed when it is asked for,
  // so that what nobody opens costs nothing. JSON.parse knows no `__proto__`.
  function put(name, text) {
    stored.set(name, { text });
  }

  function get(name) {
    const entry = stored.get(name);
    if (entry === undefined) return undefined;
    if (!("value" in entry)) {
      entry.value = JSON.parse(entry.text);
      entry.text = null;
    }
    return entry.value;
  }

  function attribute(node, name, value) {
    if (/^on|^style$|^srcdoc$|^src$/i.test(name)) throw new TypeError(`attribute ${name}`);
    if (name === "href" && !/^#/.test(value)) throw new TypeError("a link leaves the page");
    node.setAttribute(name, value === true ? "" : value);
  }

  function make(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (value === undefined || value === null || value === false) continue;
      if (typeof value === "function") node.addEventListener(name, value);
      else attribute(node, name, value);
    }
    node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false)
      .map((c) => (c instanceof Node ? c : String(c))));
    return node;
  }

  // el("p", {class: "x", click: handler}, "text", child): an attribute that is a function listens.
  const el = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) =>
    make(document.createElementNS(SVG, tag), attributes, children);
  const math = (tag, attributes, ...children) =>
    make(document.createElementNS(MATH, tag), attributes, children);

  // Tells people who do not see the page what changed on it.
  function announce(text) {
    document.getElementById("live").textContent = text;
  }

  return { put, get, el, svg, math, announce, views: new Map() };
})();
