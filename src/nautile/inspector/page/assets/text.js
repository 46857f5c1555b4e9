"use strict";
// Figures and words as people read them.
{
  const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""],
    [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];

  // 0.000204, "s" -> "204 µs": three digits and a prefix; a dash where there is no figure.
  function quantity(value, unit) {
    if (typeof value !== "number") return "–";
    if (!Number.isFinite(value)) return value > 0 ? "∞" : String(value);
    if (value === 0) return `0 ${unit}`.trim();
    const size = Math.abs(value);
    if (size < 1e-12 || size >= 1e21) return `${value.toExponential(2)} ${unit}`.trim();
    const [factor, prefix] = PREFIXES.find(([f]) => size >= f * 0.9995) ?? PREFIXES.at(-1);
    return `${Number((value / factor).toPrecision(3))} ${prefix}${unit}`.trim();
  }

  const percent = (value, digits = 0) =>
    typeof value === "number" ? `${(value * 100).toFixed(digits)}%` : "–";
  const times = (value) =>
    typeof value === "number" ? `${Number(value.toPrecision(3))}×` : "–";
  const pairs = (object, text = (k, v) => `${k}=${v}`) =>
    Object.entries(object ?? {}).map(([k, v]) => text(k, v)).join(" ");

  // At most `most` characters; what is cut can be seen in full in the title of the element.
  function short(text, most = 60) {
    const characters = Array.from(String(text ?? ""));
    return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : characters.join("");
  }

  nautile.text = { quantity, percent, times, pairs, short };
}
