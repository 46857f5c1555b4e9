"""The e-graph explorer in a real browser: what it draws, finds, follows and says."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from nautile import lang
from nautile.extract.regions import cut
from nautile.inspector.exports.heads import Text, written
from nautile.inspector.exports.table import Table, table
from nautile.inspector.exports.texts import LENGTHS
from nautile.inspector.page import write_page
from nautile.inspector.page.explorer import explorer_data
from nautile.inspector.page.explorer.reasons import Reasons
from nautile.lang import show_term
from nautile.rules import parse as parse_pack
from nautile.snapshot import Node, term_of
from nautile.worker import Worker

from .browser import Visit, accessibility, browser, visit
from .egraphs import HOSTILE, chosen, hostile, synthetic
from .explorers import explorer_folder, until

__all__ = ["browser", "visit"]

Open = Callable[..., Visit]
EVERY = "[...Array(explorer.graph.count).keys()]"


@pytest.fixture
def opened(visit: Open, tmp_path: Path) -> Open:
    """`opened(source, fragment)`: the explorer of a source, drawn."""

    def go(source: Any, fragment: str = "", **options: Any) -> Visit:
        found = visit(explorer_folder(tmp_path, source), fragment, **options)
        until(found.page, "explorer.canvas.boxes().length > 0")
        return found

    return go


def drawn(v: Visit) -> dict[str, list[str]]:
    """The classes that are drawn, each with its drawn nodes."""
    found: dict[str, list[str]] = v.page.evaluate(
        """() => Object.fromEntries(explorer.drawn().classes.map(c => [explorer.graph.key(c),
             (explorer.drawn().nodes.get(c) ?? []).map(explorer.graph.nodeKey)]))"""
    )
    return found


def selected(v: Visit) -> str:
    return str(v.page.evaluate("explorer.graph.key(explorer.steps.now().selected)"))


def press(v: Visit, name: str) -> None:
    v.page.get_by_role("button", name=name, exact=True).click()


def children(rows: Table, c: int) -> set[int]:
    return {k for n in rows.classes[c].nodes for k in rows.nodes[n].children}


def numbers(rows: Table) -> dict[str, int]:
    return {row.key: i for i, row in enumerate(rows.classes)}


def following(rows: Table) -> Any:
    """Classes and what their nodes use, through what other regions store."""
    graph: Any = nx.DiGraph()
    home = {o: c for c in rows.roots for o in rows.classes[c].outputs}
    for row in rows.nodes:
        for k in row.children:
            graph.add_edge(row.owner, k)
        if row.node.kind == "load" and row.node.payload.buffer.name in home:
            graph.add_edge(row.owner, home[row.node.payload.buffer.name])
    return graph


def regions_that_read(rows: Table, c: int) -> set[int]:
    """The regions that load what a root stores."""
    names = rows.classes[c].outputs
    loads = (row for row in rows.nodes if row.node.kind == "load")
    return {rows.classes[r.owner].region for r in loads if r.node.payload.buffer.name in names}


# ---- data and texts ----------------------------------------------------------------------------


@pytest.mark.parametrize("example", ["attention", "transformer_block"])
def test_columns_hold_the_table(example: str) -> None:
    rows, data = table(chosen(example)), explorer_data(chosen(example))
    strings, heads, groups = data["strings"], data["heads"], data["groups"]
    assert sum(data["classes"]["size"]) == len(rows.nodes)
    ends = iter(data["nodes"]["children"])
    for n, row in enumerate(rows.nodes):
        assert tuple(next(ends) for _ in range(data["nodes"]["arity"][n])) == row.children
        head = data["nodes"]["head"][n]
        assert (strings[heads["text"][head]], strings[heads["name"][head]]) == (
            row.head.text,
            row.name,
        )
    for c, entry in enumerate(rows.classes):
        made = groups[data["classes"]["made"][c]]
        assert tuple(strings[s] for s in made) == entry.made
    assert {n for n, _ in data["chosen"]} == {n for n, r in enumerate(rows.nodes) if r.kernels}
    assert json.loads(json.dumps(data, allow_nan=False)) == json.loads(json.dumps(data))


def test_rules_are_told_of_nodes_of_their_form_alone() -> None:
    rows, data = table(chosen("attention")), explorer_data(chosen("attention"))
    strings, groups = data["strings"], data["groups"]
    by_rule: dict[str, set[str]] = {}
    for n, row in enumerate(rows.nodes):
        for s in groups[data["nodes"]["rules"][n]]:
            by_rule.setdefault(strings[s], set()).add(row.name)
    assert by_rule["go_online"] == {"online"}
    assert by_rule["div_in_sum"] == {"div"}
    told = {r for row in rows.classes for r in row.made}
    assert set(by_rule) == told  # every rule that put something somewhere is told of some node


PACK = """
with real:
    own_spread = a * (b + c) >> a * b + a * c
    own_twice  = a + a       >> 2.0 * a
    own_minus  = a - b       >> a + -b
    own_flip   = a + b       >> b + a
"""
SOURCE = """
def f(a: f32[N], b: f32[N], c: f32[N], *, N=8) -> f32[N]:
    y[i] = a[i] * (b[i] + c[i]) + (b[i] + b[i]) - c[i]
    return y
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


@pytest.mark.parametrize("known", [3, 4])
def test_a_node_of_one_rule_is_gone_without_the_rule(worker: Worker, known: int) -> None:
    """What is told of each node, against saturation with that rule left out."""
    rules = parse_pack(PACK)[:known]
    laws = {rule.name: rule for rule in rules}
    outputs = cut(lang.parse(SOURCE)[0])[0].outputs
    rows = table(worker.saturate(outputs, rules))
    full, none = Reasons(rows, laws), Reasons(rows, laws, steps=0)
    told: dict[str, set[str]] = {}
    for n, row in enumerate(rows.nodes):
        why = full.of(n)
        assert set(why) <= set(none.of(n)) <= set(rows.classes[row.owner].made)
        if len(why) == 1 and not row.source:
            told.setdefault(why[0], set()).add(text_of(rows, n))
    assert len(told) >= 3 if known == 3 else "own_flip" in told
    for name, texts in told.items():
        rest = table(worker.saturate(outputs, [rule for rule in rules if rule.name != name]))
        assert texts.isdisjoint({text_of(rest, n) for n in range(len(rest.nodes))}), name
    sharper = [n for n in range(len(rows.nodes)) if len(full.of(n)) < len(none.of(n))]
    assert bool(sharper) == (known == 4)  # where two rules' results have one form


def test_a_rule_whose_other_side_is_not_there_is_not_told() -> None:
    rules = parse_pack("with real:\n    one = a * b >> a + b\n    two = a - b >> b + a\n")
    first, second = synthetic(64).classes[0], synthetic(64).classes[1]
    kinds = [("mul", (0, 1)), ("sub", (0, 1)), ("add", (0, 1)), ("add", (1, 0))]
    nodes = tuple(Node("apply", operation, below) for operation, below in kinds)
    snapshot = replace(
        synthetic(64),
        classes={0: first, 1: second, 2: nodes},
        roots=(2,),
        made={2: ("one", "two")},
        source={},
    )
    reasons = Reasons(table(snapshot), {rule.name: rule for rule in rules})
    assert [reasons.of(n) for n in range(2, 6)] == [(), (), ("one",), ("two",)]


@pytest.mark.parametrize("source", ["attention", "synthetic"])
def test_texts_are_those_of_the_exports(opened: Open, source: str) -> None:
    graph = chosen(source) if source == "attention" else synthetic(1500)
    v = opened(graph)
    rows = table(graph)
    found = v.page.evaluate(f"{EVERY}.map(c => explorer.texts.brief(c))")
    assert found == [row.text for row in rows.classes]
    lengths = v.page.evaluate(
        f"{EVERY}.map(c => explorer.graph.lengths.map((_, l) => explorer.texts.brief(c, l).length))"
    )
    assert all(n <= most for row in lengths for n, most in zip(row, LENGTHS, strict=True))


def test_the_whole_term_is_the_language_s_text(opened: Open) -> None:
    result = chosen("attention")
    rows = table(result)
    v = opened(result)
    terms: dict[int, Any] = {}
    for c in rows.order:
        node = rows.nodes[rows.classes[c].best]
        terms[c] = term_of(node.node, tuple(terms[k] for k in node.children))
    found = v.page.evaluate(f"{EVERY}.map(c => explorer.texts.whole(c))")
    assert found == [show_term(terms[c]) for c in range(len(rows.classes))]
    assert v.page.evaluate(f"explorer.texts.whole({rows.roots[0]}, 100)") is None


# ---- drawing -----------------------------------------------------------------------------------


def test_it_opens_with_the_chosen_program(opened: Open) -> None:
    result = chosen("attention")
    rows = table(result)
    marked = {rows.key(n) for n, row in enumerate(rows.nodes) if row.kernels}
    v = opened(result)
    shown = drawn(v)
    assert {n for nodes in shown.values() for n in nodes} == marked
    assert selected(v) == rows.classes[rows.roots[0]].key
    panel = v.page.locator(".x-panel").inner_text()
    assert "chosen: O" in panel
    assert "div_in_sum" in panel
    assert "f32[b: 1, h: 32, t: 4096, e: 128]" in panel


def test_boxes_do_not_overlap_and_arguments_are_below(opened: Open) -> None:
    v = opened(chosen("attention"))
    boxes = v.page.evaluate("explorer.canvas.boxes()")
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
            assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    rows, top = table(chosen("attention")), {b["c"]: b["y"] for b in boxes}
    pairs = [(r.owner, k) for r in rows.nodes if r.kernels for k in r.children]
    assert all(top[c] < top[k] for c, k in pairs)


@pytest.mark.parametrize("hops", [1, 3])
def test_hops_draw_what_is_that_far_below(opened: Open, hops: int) -> None:
    snapshot = synthetic(1500, 3)
    rows = table(snapshot)
    v = opened(snapshot)
    v.page.select_option("#x-hops", str(hops))
    network = following(rows)
    compared = 0
    for c in random.Random(hops).sample(range(64, len(rows.classes)), 12):
        near = nx.single_source_shortest_path_length(network, c, cutoff=hops)
        if any(len(rows.classes[k].nodes) > 24 for k, far in near.items() if far < hops):
            continue  # of such a class only some nodes are drawn
        v.page.evaluate(f"explorer.around({c})")
        assert set(drawn(v)) == {rows.classes[k].key for k in near}
        compared += 1
    assert compared > 2


def test_classes_open_and_close(opened: Open) -> None:
    result = chosen("attention")
    rows = table(result)
    v = opened(result, "#class=17")
    key = numbers(rows)
    assert selected(v) == "17"
    before = drawn(v)
    press(v, "Collapse")
    assert drawn(v) == {"17": []}
    press(v, "Expand")
    assert set(drawn(v)) == {"17"} | {rows.classes[k].key for k in children(rows, key["17"])}
    assert len(drawn(v)["17"]) == 3
    press(v, "← Back")
    assert drawn(v) == {"17": []}
    press(v, "← Back")
    assert drawn(v) == before
    press(v, "Forward →")
    press(v, "Forward →")
    assert len(drawn(v)["17"]) == 3
    assert v.page.get_by_role("button", name="Forward →").is_disabled()


def test_the_chosen_program_can_be_followed_through_all_regions(opened: Open) -> None:
    result = chosen("transformer_block")
    rows = table(result)
    marked = {rows.classes[r.owner].key for r in rows.nodes if r.kernels}
    v = opened(result)
    met = [selected(v)]
    following_ = v.page.get_by_role("button", name="Next of it ›")
    while not following_.is_disabled():
        following_.click()
        met.append(selected(v))
        assert selected(v) in drawn(v)
    assert set(met) == marked
    assert len(met) == len(set(met))
    assert v.page.get_by_role("button", name="‹ Previous of it").is_enabled()


@pytest.mark.parametrize("source", ["transformer_block", "synthetic"])
def test_the_way_from_the_root_is_a_shortest_one(opened: Open, source: str) -> None:
    graph = chosen(source) if source != "synthetic" else synthetic(1500)
    rows = table(graph)
    v = opened(graph)
    network = following(rows)
    tops = {c for c in rows.roots if c not in network or not regions_that_read(rows, c)}
    distance = nx.multi_source_dijkstra_path_length(network, tops)
    for c in random.Random(1).sample(range(len(rows.classes)), 12):
        way = v.page.evaluate(f"explorer.graph.wayTo({c})")
        if c not in distance:
            assert way is None
            continue
        owners = [rows.nodes[n].owner for n in way] + [c]
        assert len(way) == distance[c]
        assert owners[0] in tops
        assert all(network.has_edge(a, b) for a, b in itertools.pairwise(owners))
        v.page.evaluate(f"explorer.select({c})")
        press(v, "Way from the root")
        shown = drawn(v)
        assert all(rows.key(n) in shown[rows.classes[rows.nodes[n].owner].key] for n in way)


def test_users_are_drawn_and_told(opened: Open) -> None:
    result = chosen("attention")
    rows = table(result)
    using = {rows.key(n) for n, row in enumerate(rows.nodes) if numbers(rows)["13"] in row.children}
    v = opened(result, "#class=13")
    press(v, "Users")
    assert using <= {n for nodes in drawn(v).values() for n in nodes}
    assert f"Used by {len(using)} nodes" in v.page.locator(".x-panel").inner_text()


def test_a_class_of_many_nodes_shows_some_and_then_more(opened: Open) -> None:
    snapshot = synthetic(3000)
    rows = table(snapshot)
    c = max(range(len(rows.classes)), key=lambda k: len(rows.classes[k].nodes))
    assert len(rows.classes[c].nodes) > 30
    v = opened(snapshot, f"#class={rows.classes[c].key}")
    assert len(drawn(v)[rows.classes[c].key]) == 24
    press(v, "List")
    v.page.get_by_role("button", name="more nodes").first.click()
    assert len(drawn(v)[rows.classes[c].key]) == len(rows.classes[c].nodes)
    listed = v.page.locator(".x-panel .x-nodes > li")
    assert listed.count() == 30
    v.page.locator(".x-panel .x-more").first.click()
    assert listed.count() == min(60, len(rows.classes[c].nodes))


# ---- search ------------------------------------------------------------------------------------


def results(v: Visit, text: str) -> list[str]:
    v.page.fill("#x-query", text)
    return v.page.locator(".x-found button").all_inner_texts()


@pytest.fixture
def searching(opened: Open) -> Visit:
    v = opened(chosen("attention"))
    until(v.page, "explorer.search.isWhole()")
    return v


QUERIES: dict[str, Callable[[Table, int], bool]] = {
    "Q[b,h,t,d] * K": lambda rows, n: "Q[b, h, t, d] * K" in text_of(rows, n),
    "RUNNING[s](max": lambda rows, n: "running[s](max" in text_of(rows, n),
    "op:online": lambda rows, n: rows.nodes[n].name == "online",
    "op:* rule:mul": lambda rows, n: rows.nodes[n].name == "mul" and "mul" in first_words(rows, n),
    "type:bool": lambda rows, n: rows.classes[rows.nodes[n].owner].dtype == "bool",
    "axis:e op:load": lambda rows, n: "V[" in text_of(rows, n) and rows.nodes[n].name == "load",
    "kernel:o op:exp": lambda rows, n: bool(rows.nodes[n].kernels) and rows.nodes[n].name == "exp",
}


def test_search_finds_what_a_plain_scan_finds(searching: Visit) -> None:
    """Texts are cut in the index: what stands in what was cut is found in its own class."""
    rows = table(chosen("attention"))
    for query, test in QUERIES.items():
        found = [n for n in range(len(rows.nodes)) if test(rows, n)]
        certain = [n for n in found if len(text_of(rows, n)) <= LENGTHS[0] or ":" in query]
        keys = set(results(searching, query))
        assert certain, query
        assert {rows.classes[rows.nodes[n].owner].key for n in certain} <= keys, query
        assert keys <= {rows.classes[rows.nodes[n].owner].key for n in found}, query


def text_of(rows: Table, n: int) -> str:
    """A node over the texts of its arguments."""
    row = rows.nodes[n]
    own = rows.classes[row.owner]
    if own.best == n:
        return own.text
    return written(row.head, [Text(rows.classes[k].text) for k in row.children])


def first_words(rows: Table, n: int) -> set[str]:
    """The first words of the rules that put something into the node's class."""
    return {rule.split("_")[0] for rule in rows.classes[rows.nodes[n].owner].made}


def test_search_ranks_ids_then_whole_terms_then_beginnings(searching: Visit) -> None:
    rows = table(chosen("attention"))
    assert results(searching, "17")[0] == "17"
    assert results(searching, "class:17") == ["17"]
    first = results(searching, "exp(")[0]
    assert rows.classes[numbers(rows)[first]].text.startswith("exp(")
    assert results(searching, "Q[b, h, t, d]")[0] == "3"
    by_rule = numbers(rows)[results(searching, "go_onl")[0]]
    assert "go_online" in rows.classes[by_rule].made
    assert results(searching, "no such term") == []
    assert "Nothing is found." in searching.page.locator(".x-found").inner_text()


def test_a_found_class_is_gone_to_by_keyboard(searching: Visit) -> None:
    searching.page.focus("#x-query")
    searching.page.keyboard.type("op:online")
    searching.page.keyboard.press("ArrowDown")
    searching.page.keyboard.press("ArrowDown")
    wanted = searching.page.evaluate("document.activeElement.textContent")
    searching.page.keyboard.press("Enter")
    assert selected(searching) == wanted
    assert searching.page.locator(".x-marked").inner_text().startswith("online[s]")
    assert searching.page.evaluate("location.hash") == f"#class={wanted}"
    searching.page.focus("#x-query")
    searching.page.keyboard.press("Escape")
    assert searching.page.locator(".x-found").is_hidden()


# ---- people ------------------------------------------------------------------------------------


def test_keys_walk_the_drawing(opened: Open) -> None:
    rows = table(chosen("attention"))
    v = opened(chosen("attention"))
    v.page.focus(".x-stage")
    v.page.keyboard.press("ArrowDown")
    first = selected(v)
    assert numbers(rows)[first] in children(rows, rows.roots[0])
    v.page.keyboard.press("ArrowUp")
    assert selected(v) == rows.classes[rows.roots[0]].key
    v.page.keyboard.press("ArrowDown")
    shown = drawn(v)
    v.page.keyboard.press("Enter")
    assert first not in {k for k, nodes in drawn(v).items() if nodes}
    v.page.keyboard.press("Backspace")
    assert drawn(v) == shown
    until(v.page, "document.querySelector('.x-unseen').textContent.startsWith('Class')")


def test_the_list_holds_what_is_drawn_and_opens_it_too(opened: Open) -> None:
    v = opened(chosen("transformer_block"))
    shown = drawn(v)
    press(v, "List")
    until(v.page, f"document.querySelectorAll('.x-list > li').length === {len(shown)}")
    rows = v.page.evaluate(
        """[...document.querySelectorAll('.x-list > li')].map(
             li => [li.dataset.class, li.querySelectorAll(':scope > ul > li').length])"""
    )
    assert dict(rows) == {k: len(nodes) for k, nodes in shown.items()}
    row = v.page.locator(f".x-list > li[data-class='{next(iter(shown))}'] .x-toggle")
    row.focus()
    v.page.keyboard.press("Enter")
    assert drawn(v) != shown


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["Graph", "List"])
def test_it_is_accessible(opened: Open, theme: str, kind: str) -> None:
    v = opened(chosen("attention"))
    v.page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    press(v, kind)
    v.page.fill("#x-query", "exp")
    assert accessibility(v.page) == []


def test_the_drawing_follows_the_theme(opened: Open) -> None:
    v = opened(chosen("attention"))
    corner = """() => { const c = document.querySelector(".x-stage canvas");
        return [...c.getContext("2d").getImageData(3, 3, 1, 1).data.slice(0, 3)]; }"""
    assert v.page.evaluate(corner) == [255, 255, 255]
    v.page.evaluate("document.documentElement.dataset.theme = 'dark'")
    until(v.page, f"({corner})()[0] < 40")


def test_links_lead_to_a_class_and_strange_ones_nowhere(opened: Open) -> None:
    rows = table(chosen("transformer_block"))
    v = opened(chosen("transformer_block"), "#class=2.3")
    assert selected(v) == "2.3"
    v.page.evaluate("location.hash = '#class=1.0'")
    until(v.page, "explorer.graph.key(explorer.steps.now().selected) === '1.0'")
    v.page.evaluate("location.hash = '#class=__proto__'")
    until(v.page, "document.querySelector('.x-unseen').textContent.includes('no class')")
    assert selected(v) == "1.0"
    assert rows.classes[numbers(rows)["2.3"]].region == 2


def test_the_term_and_the_link_are_copied(opened: Open) -> None:
    v = opened(chosen("attention"), "#class=14", permissions=["clipboard-read", "clipboard-write"])
    press(v, "Copy term")
    v.page.get_by_role("button", name="Copied").wait_for()
    whole = v.page.evaluate("explorer.texts.whole(14)")
    assert v.page.evaluate("navigator.clipboard.readText()") == whole
    press(v, "Copy link")
    v.page.wait_for_timeout(100)
    assert v.page.evaluate("navigator.clipboard.readText()").endswith("#class=14")


def test_pointers_select_open_and_drag(opened: Open) -> None:
    v = opened(chosen("attention"))
    place = v.page.locator(".x-stage canvas").bounding_box()
    assert place is not None
    box = next(b for b in v.page.evaluate("explorer.canvas.boxes()") if b["c"] == 14)
    at = (place["x"] + box["x"] + 4, place["y"] + box["y"] + 4)
    v.page.mouse.click(*at)
    assert selected(v) == "14"
    v.page.mouse.dblclick(*at)
    assert drawn(v).get("14", []) == []
    v.page.evaluate("explorer.select(18)")
    before = {b["c"]: b["x"] for b in v.page.evaluate("explorer.canvas.boxes()")}
    v.page.mouse.move(place["x"] + 5, place["y"] + place["height"] - 5)
    v.page.mouse.down()
    v.page.mouse.move(place["x"] + 65, place["y"] + place["height"] - 5, steps=3)
    v.page.mouse.up()
    after = {b["c"]: b["x"] for b in v.page.evaluate("explorer.canvas.boxes()")}
    assert after[18] == pytest.approx(before[18] + 60, abs=5)


def test_hostile_names_are_text(opened: Open) -> None:
    v = opened(hostile())
    for c in range(2 * len(HOSTILE)):
        v.page.evaluate(f"explorer.select({c})")
        assert v.page.locator(".x-panel :is(img, b, script)").count() == 0
    v.page.fill("#x-query", HOSTILE[0])
    assert HOSTILE[0] in v.page.locator(".x-found").inner_text()
    press(v, "List")
    assert v.page.locator("img, main b, main script").count() == 0
    assert v.page.title() == "Explorer"
    width = v.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0
    assert not re.search("[\x00\x07]", v.page.locator(".x-panel code").first.inner_text())


@pytest.mark.parametrize("width", [400, 1280])
def test_it_fits_narrow_screens(opened: Open, width: int) -> None:
    v = opened(chosen("attention"), width=width)
    assert v.page.evaluate("document.documentElement.scrollWidth") <= width


def test_in_the_page_it_is_drawn_by_a_trusted_worker_and_follows_the_page(
    visit: Open, tmp_path: Path
) -> None:
    result = chosen("attention")
    told = {"program": "attention", "status": "ok", "target": "h200", "numerics": "real"}
    write_page(tmp_path, told, result)
    v = visit(tmp_path, "#class=14")
    place = v.page.locator(".x-panel h3")
    place.wait_for()
    assert place.inner_text() == "Class 14"
    corner = """() => { const c = document.querySelector(".x-stage canvas").getContext("2d");
        return c.getImageData(3, c.canvas.height - 3, 1, 1).data[0]; }"""
    assert v.page.evaluate(corner) == 255
    painted = """() => { const c = document.querySelector(".x-stage canvas");
        const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        return new Set(d.filter((_, i) => i % 4 === 0)).size > 8; }"""
    until(v.page, f"({painted})()")
    v.page.locator("#theme").click()
    until(v.page, f"({corner})() < 40")
    v.page.evaluate("location.hash = '#class=17'")
    until(v.page, "document.querySelector('.x-panel h3').textContent === 'Class 17'")
    press(v, "Next of it ›")
    assert v.page.evaluate("location.hash").startswith("#class=")
    assert "#class=17" not in v.page.evaluate("location.hash")
