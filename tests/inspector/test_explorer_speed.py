"""The explorer at 50,000 e-nodes: it paints at once, answers in a tenth of a second, never draws
more than its limit and keeps its memory.

Times are those of the browser, to the second frame after an action, the best of three. On a machine
that is busy with other things a tenth of a second means nothing; so an action may also take FACTOR
times what a bare page takes to draw a thousand boxes with text and lay out two hundred rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from nautile import lang, rules
from nautile.egraph import Limits, saturate
from nautile.extract.regions import cut
from nautile.inspector.page.explorer import explorer_data

from .browser import Visit, browser, visit
from .egraphs import synthetic
from .explorers import explorer_folder, until

__all__ = ["browser", "visit"]

NODES = 50_000
LIMIT = 1000
INTERACTION = 0.1
PAINT = 1.0
FACTOR = 2.0
BARE = """
const old = document.getElementById("bare"); if (old) old.remove();
const part = document.createElement("div"); part.id = "bare";
const surface = document.createElement("canvas"); surface.width = 850; surface.height = 545;
part.append(surface); document.body.append(part);
const pen = surface.getContext("2d"); pen.font = "11px monospace";
for (let i = 0; i < 1000; i++) {
  const x = (i % 25) * 34, y = Math.floor(i / 25) * 14;
  pen.strokeRect(x, y, 30, 12); pen.fillText("a * b " + i, x, y + 10);
  pen.beginPath(); pen.moveTo(x, y);
  pen.bezierCurveTo(x, y + 90, 850 - x, y, 400, 300); pen.stroke();
}
for (let i = 0; i < 200; i++) {
  const row = document.createElement("p"); row.textContent = "exp(a * b) + " + i; part.append(row);
}
"""


def best(v: Visit, action: str, times: int = 3) -> float:
    """Seconds of the fastest of some tries."""
    return min(v.seconds(action) for _ in range(times))


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """50,000 nodes, the cheapest terms below the root marked as the chosen program."""
    found = explorer_data(synthetic(NODES))
    first, children = [0], found["nodes"]["children"]
    for arity in found["nodes"]["arity"]:
        first.append(first[-1] + arity)
    starts = [0]
    for size in found["classes"]["size"]:
        starts.append(starts[-1] + size)
    queue, seen = [c for c, _ in found["roots"]], set[int]()
    group = len(found["groups"])
    found["groups"].append([found["roots"][0][1]])
    while queue and len(seen) < 400:
        c = queue.pop(0)
        if c in seen:
            continue
        seen.add(c)
        n = starts[c] + found["classes"]["best"][c]
        found["chosen"].append([n, group])
        queue += children[first[n] : first[n + 1]]
    assert len(found["nodes"]["head"]) >= NODES
    return found


@pytest.fixture
def large(visit: Callable[..., Visit], tmp_path: Path, data: dict[str, Any]) -> tuple[Visit, float]:
    """The page, and the seconds that an action may take."""
    v = visit(explorer_folder(tmp_path, None, data=data))
    until(v.page, "explorer.canvas.boxes().length > 0")
    until(v.page, "explorer.search.isWhole()")
    return v, max(INTERACTION, FACTOR * best(v, BARE))


def test_it_paints_within_a_second(
    visit: Callable[..., Visit], tmp_path: Path, data: dict[str, Any]
) -> None:
    folder = explorer_folder(tmp_path, None, data=data)
    entry = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    times = []
    for _ in range(3):
        v = visit(folder)
        until(v.page, f"({entry}) > 0 && explorer.canvas.boxes().length > 0")
        mounted = v.page.evaluate("mounted") / 1000
        times.append(max(v.page.evaluate(entry) / 1000, mounted))
        allowed = max(PAINT, 10 * FACTOR * best(v, BARE))
        if times[-1] < allowed:
            return
    pytest.fail(f"first paint and start took {times} s")


ORDERS = """
with real:
    own_mul_swap  = a * b       == b * a
    own_mul_assoc = a * (b * c) == (a * b) * c
    own_add_swap  = a + b       == b + a
    own_add_assoc = a + (b + c) == (a + b) + c
    own_spread    = a * (b + c) == a * b + a * c
"""
PRESS = (
    "[...document.querySelectorAll('.x-explorer button')].find(b => b.textContent === '{}').click()"
)
ACTIONS = {
    "search": "const q = document.getElementById('x-query'); q.value = 'max(x' + (window.turn = "
    "(window.turn ?? 0) + 1); q.dispatchEvent(new Event('input'))",
    "search by rule": "const q = document.getElementById('x-query'); q.value = 'rule:mul op:exp';"
    "q.dispatchEvent(new Event('input'))",
    "go": "explorer.select((window.at = ((window.at ?? 0) + 3571) % 12000))",
    "expand and collapse": "document.querySelector('[data-act=toggle]').click()",
    "users": "document.querySelector('[data-act=users]').click()",
    "way": "document.querySelector('[data-act=way]').click()",
    "chosen program": PRESS.format("Chosen program"),
    "follow": PRESS.format("Next of it ›"),
    "back": PRESS.format("← Back"),
    "forward": PRESS.format("Forward →"),
    "nine hops": "document.getElementById('x-hops').value = 9; explorer.around((window.to = "
    "((window.to ?? 900) + 3571) % 12000))",
    "theme": "const d = document.documentElement.dataset;"
    "d.theme = d.theme === 'dark' ? '' : 'dark'",
    "zoom": PRESS.format("−"),
    "as a list": PRESS.format("List"),
    "follow in the list": PRESS.format("Next of it ›"),
    "as a graph": PRESS.format("Graph"),
}


def slow_actions(v: Visit, allowed: float, names: Iterable[str]) -> dict[str, float]:
    """The actions that take longer than is allowed; what they draw is counted."""
    slow = {}
    for name in names:
        if name == "follow in the list":
            v.page.evaluate(ACTIONS["chosen program"])
        taken = best(v, ACTIONS[name])
        if taken > allowed:
            slow[name] = taken
        assert v.page.evaluate("explorer.drawn().size") <= LIMIT, name
        assert v.page.evaluate("explorer.canvas.boxes().length") <= LIMIT, name
    return slow


def test_every_interaction_is_quick_and_draws_no_more_than_the_limit(
    large: tuple[Visit, float],
) -> None:
    v, allowed = large
    assert slow_actions(v, allowed, ACTIONS) == {}, allowed


@pytest.mark.slow
def test_an_e_graph_of_50_000_that_rules_made(visit: Callable[..., Visit], tmp_path: Path) -> None:
    """Eight sums multiplied, in all orders that the rules find within the row limit."""
    letters = "abcdefgh"
    terms = (f"({x}[i] + {y}[i])" for x, y in zip(letters, letters[1:] + "a", strict=True))
    head = ", ".join(f"{x}: f32[N]" for x in letters)
    text = f"def f({head}, *, N=64) -> f32[N]:\n    y[i] = {' * '.join(terms)}\n    return y\n"
    limits = Limits(rows=50_000, seconds=300)
    outputs = cut(lang.parse(text)[0])[0].outputs
    snapshot = saturate(outputs, rules.parse(ORDERS), limits=limits)
    assert sum(map(len, snapshot.classes.values())) > NODES
    v = visit(explorer_folder(tmp_path, snapshot))
    until(v.page, "explorer.canvas.boxes().length > 0")
    until(v.page, "explorer.search.isWhole()")
    allowed = max(INTERACTION, FACTOR * best(v, BARE))
    assert v.page.evaluate("mounted") / 1000 < max(PAINT, 10 * allowed)
    names = [n for n in ACTIONS if n != "chosen program" and "follow" not in n]
    assert slow_actions(v, allowed, names) == {}, allowed


def test_the_limit_is_reached_and_kept(large: tuple[Visit, float]) -> None:
    v, _ = large
    v.page.select_option("#x-hops", "9")
    sizes = []
    for c in range(600, 12_000, 2300):
        v.page.evaluate(f"explorer.around({c})")
        sizes.append(v.page.evaluate("explorer.drawn().size"))
        for _ in range(3):  # and opening what is drawn goes no further
            v.page.evaluate(
                "explorer.select(explorer.drawn().classes.at(-1));"
                "document.querySelector('[data-act=toggle]').click()"
            )
        sizes.append(v.page.evaluate("explorer.drawn().size"))
    assert max(sizes) <= LIMIT
    assert sorted(sizes)[len(sizes) // 2] > 0.9 * LIMIT


def test_layout_does_not_block_the_page(large: tuple[Visit, float]) -> None:
    """While a worker lays out a picture far above the limit, frames go on."""
    v, _ = large
    waited, longest = v.page.evaluate(
        """async () => {
        const n = 3000, from = [], to = [];
        for (let i = 1; i < n; i++)
          for (const k of [Math.floor(i / 2), Math.floor(i / 3), Math.floor(i / 2.5)])
            if (k !== i) { from.push(k); to.push(i); }
        const job = { widths: new Float64Array(n).fill(90), heights: new Float64Array(n).fill(40),
          from: Int32Array.from(from), to: Int32Array.from(to), gapX: 18, gapY: 34 };
        const layout = nautileExplorer.layouts(source => new Worker(URL.createObjectURL(
          new Blob([source], { type: "text/javascript" }))));
        const start = performance.now();
        let last = start, longest = 0, done = false;
        layout(job, () => (done = true));
        while (!done) {
          await new Promise(next => requestAnimationFrame(next));
          longest = Math.max(longest, performance.now() - last);
          last = performance.now();
        }
        return [last - start, longest];
      }"""
    )
    assert waited > 100  # as long as this is, the page would stand still
    assert longest < max(50, waited / 3)


def test_memory_is_bounded(large: tuple[Visit, float]) -> None:
    v, _ = large
    session = v.page.context.new_cdp_session(v.page)

    def used() -> float:
        session.send("HeapProfiler.collectGarbage")
        return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 2**20

    def wander(times: int) -> None:
        v.page.evaluate(
            f"""async () => {{ for (let i = 0; i < {times}; i++) {{
                explorer.around((i * 7919) % 12000);
                await new Promise(requestAnimationFrame); }} }}"""
        )

    wander(60)
    before = used()
    wander(60)
    assert used() < before + 16
    assert used() < 160
