"use strict";
// What differs between two texts of the expression language, token by token.
{
  const { el } = nautile;
  const TOKEN = /\s+|[\p{L}\p{N}_.]+|[^\s\p{L}\p{N}_.]+?/gu;
  const MOST = 1200; // tokens of the middle that are compared one by one

  const tokens = (text) => String(text ?? "").match(TOKEN) ?? [];

  // Marks for a and b: true where a token is not in the longest common subsequence. Common ends are
  // taken off first; a middle that is too long counts as changed.
  function differences(a, b) {
    let from = 0;
    while (from < a.length && from < b.length && a[from] === b[from]) from++;
    let end = 0;
    while (end < a.length - from && end < b.length - from && a.at(-1 - end) === b.at(-1 - end)) end++;
    const [left, right] = [a.slice(from, a.length - end), b.slice(from, b.length - end)];
    const [x, y] = left.length * right.length > MOST * MOST ? [left.map(() => true), right.map(() => true)] : compared(left, right);
    const around = (marks) => [...Array(from).fill(false), ...marks, ...Array(end).fill(false)];
    return [around(x), around(y)];
  }

  function compared(a, b) {
    const width = b.length + 1;
    const longest = new Uint16Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i--) {
      for (let j = b.length - 1; j >= 0; j--) {
        longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
      }
    }
    const [x, y] = [Array(a.length).fill(true), Array(b.length).fill(true)];
    for (let i = 0, j = 0; i < a.length && j < b.length;) {
      if (a[i] === b[j]) x[i++] = y[j++] = false;
      else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i++;
      else j++;
    }
    return [x, y];
  }

  // The text with changed runs in <del> or <ins>.
  function marked(parts, marks, tag) {
    const nodes = [];
    for (let n = 0; n < parts.length;) {
      let end = n;
      while (end < parts.length && marks[end] === marks[n]) end++;
      const text = parts.slice(n, end).join("");
      nodes.push(marks[n] && text.trim() ? el(tag, {}, text) : text);
      n = end;
    }
    return nodes;
  }

  // [nodes of before, nodes of after]
  function changes(before, after) {
    const [a, b] = [tokens(before), tokens(after)];
    const [x, y] = differences(a, b);
    return [marked(a, x, "del"), marked(b, y, "ins")];
  }

  nautile.changes = { changes, differences, tokens };
}
