"""Every exported form holds the same e-graph: read back by other programs and by plain readers."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import networkx as nx
import pytest

from nautile.errors import InputError
from nautile.extract.greedy import GreedyTree
from nautile.extract.selection import Column
from nautile.inspector.exports import FORMS, export
from nautile.inspector.exports.cheapest import cheapest
from nautile.inspector.exports.table import table
from nautile.lang import show_term
from nautile.snapshot import Snapshot, term_of
from nautile.stages import Optimization
from nautile.terms import Term

from .egraphs import HOSTILE, chosen, hostile, synthetic

EXAMPLES = ["attention", "swiglu", "transformer_block"]
Shape = dict[str, set[tuple[str, tuple[str, ...]]]]  # class -> (operation, argument classes)


def shape(source: Optimization | Snapshot) -> Shape:
    """What a reader should find, straight from the snapshots."""
    snapshots = (source,) if isinstance(source, Snapshot) else source.snapshots
    found: Shape = {}
    for r, snapshot in enumerate(snapshots):
        stem = "" if len(snapshots) == 1 else f"{r}."
        for c, nodes in snapshot.classes.items():
            found[f"{stem}{c}"] = {
                (operation(n), tuple(f"{stem}{k}" for k in n.children)) for n in nodes
            }
    return found


def operation(node: Any) -> str:
    if node.kind == "reduce":
        return str(node.payload[0])
    return str(node.payload) if node.kind in ("apply", "cast") else str(node.kind)


def read_network(graph: Any) -> Shape:
    found: Shape = {v: set() for v, d in graph.nodes(data=True) if d["kind"] == "class"}
    for a, b, d in graph.edges(data=True):
        if d["kind"] == "member":
            arguments = sorted(
                (e["position"], child) for _, child, e in graph.out_edges(b, data=True)
            )
            found[a].add((graph.nodes[b]["operation"], tuple(c for _, c in arguments)))
    return found


def from_node_link(source: Any) -> Any:
    return nx.node_link_graph(json.loads(export(source, "node-link")), edges="edges")


def from_graphml(source: Any) -> Any:
    return nx.read_graphml(io.BytesIO(export(source, "graphml").encode()), force_multigraph=True)


READERS = {"node-link": from_node_link, "graphml": from_graphml}


@pytest.fixture(params=[*EXAMPLES, "hostile", "synthetic"])
def source(request: pytest.FixtureRequest) -> Any:
    own: Mapping[str, Callable[[], Snapshot]] = {
        "hostile": hostile,
        "synthetic": lambda: synthetic(1500),
    }
    return own[request.param]() if request.param in own else chosen(request.param)


@pytest.mark.parametrize("form", READERS)
def test_networkx_reads_the_same_classes_nodes_and_roots(source: Any, form: str) -> None:
    graph = READERS[form](source)
    assert read_network(graph) == shape(source)
    roots = graph.graph["roots"]
    keys = [row.key for row in table(source).classes if row.outputs]
    assert sorted(set(roots.split() if isinstance(roots, str) else roots)) == sorted(keys)


@pytest.mark.parametrize("form", READERS)
def test_networks_mark_what_was_chosen_and_tell_rules_and_costs(form: str) -> None:
    result = chosen("attention")
    graph = READERS[form](result)
    marked = {v for v, d in graph.nodes(data=True) if d.get("chosen")}
    (column,) = result.plan.choice.taken.columns
    choice = result.plan.choice.pool.candidates[column][1].choice
    assert {f"{c}:{result.snapshots[0].classes[c].index(n)}" for c, n in choice.items()} <= marked
    for vertex in marked:  # what is chosen reads classes of which something is chosen
        for child in graph.successors(vertex):
            assert marked & set(graph.successors(child))
    online = [d for _, d in graph.nodes(data=True) if d.get("operation") == "online"]
    assert len(online) == 2
    assert all("O" in d["kernels"] and d["rules"] and d["cost"] > 0 for d in online)
    assert any("go_" in str(d["rules"]) or "online" in str(d["rules"]) for d in online)


def test_serialized_holds_the_same_graph_in_the_public_format(source: Any) -> None:
    data = json.loads(export(source, "serialized"))
    nodes, found = data["nodes"], shape(source)
    assert set(data) == {"nodes", "root_eclasses", "class_data"}
    assert {n["eclass"] for n in nodes.values()} == set(found) == set(data["class_data"])
    for node in nodes.values():
        assert set(node) == {"op", "children", "eclass", "cost", "subsumed"}
        assert isinstance(node["cost"], float)
        assert node["cost"] >= 0
    counted = {c: len(ns) for c, ns in found.items()}
    arguments = {c: sorted(a for _, a in ns) for c, ns in found.items()}
    for c in found:
        own = [n for n in nodes.values() if n["eclass"] == c]
        assert len(own) == counted[c]
        assert sorted(tuple(nodes[k]["eclass"] for k in n["children"]) for n in own) == arguments[c]
    assert all(isinstance(v, str) for d in data["class_data"].values() for v in d.values())


def test_an_extractor_reads_the_serialized_costs() -> None:
    """Over the file alone, an extractor finds the roots and the costs that the table states."""
    snapshot = synthetic(1500)
    data = json.loads(export(snapshot, "serialized"))
    ids = {c: i for i, c in enumerate(data["class_data"])}
    nodes = list(data["nodes"].values())
    owner = [ids[n["eclass"]] for n in nodes]
    children = [[ids[data["nodes"][k]["eclass"]] for k in n["children"]] for n in nodes]
    cost = [n["cost"] for n in nodes]
    stated = [row.cost for row in table(snapshot).classes]
    assert relaxed(owner, children, cost, len(ids)) == stated
    columns = [
        Column(frozenset({o}), frozenset(c), w)
        for o, c, w in zip(owner, children, cost, strict=True)
    ]
    assert GreedyTree()(columns, [ids[r] for r in data["root_eclasses"]]) is not None


def relaxed(owner: list[int], children: list[list[int]], cost: list[float], n: int) -> list[float]:
    """Least tree costs by relaxation until nothing changes."""
    least = [float("inf")] * n
    while True:
        new = list(least)
        for o, below, own in zip(owner, children, cost, strict=True):
            new[o] = min(new[o], own + sum(least[k] for k in below))
        if new == least:
            return least
        least = new


@pytest.mark.parametrize("seed", range(8))
def test_cheapest_terms_cost_what_relaxation_finds(seed: int) -> None:
    rows = table(synthetic(300, seed))
    owner = [n.owner for n in rows.nodes]
    children = [list(n.children) for n in rows.nodes]
    cost = [n.cost for n in rows.nodes]
    best, least, order = cheapest(owner, children, cost, len(rows.classes))
    assert least == relaxed(owner, children, cost, len(rows.classes))
    assert all(order.index(k) < order.index(c) for c in order for k in children[best[c]])


def test_a_class_without_a_finite_term_is_told_as_such() -> None:
    assert cheapest([0, 1], [[1], [0]], [1.0, 1.0], 2) == ([-1, -1], [float("inf")] * 2, [])


@pytest.mark.parametrize("example", EXAMPLES)
def test_short_texts_are_the_language_s_own(example: str) -> None:
    rows = table(chosen(example))
    terms: dict[int, Term] = {}
    compared = 0
    for c in rows.order:
        row = rows.nodes[rows.classes[c].best]
        terms[c] = term_of(row.node, tuple(terms[k] for k in row.children))
        text = show_term(terms[c])
        if len(text) <= 160:
            assert rows.classes[c].text == text
            compared += 1
        else:
            assert len(rows.classes[c].text) <= 160
            assert "…" in rows.classes[c].text
    assert compared > 8


# ---- Graphviz ----------------------------------------------------------------------------------


def drawn(text: str) -> Any:
    """What the real `dot` reads."""
    program = shutil.which("dot")
    if program is None:
        pytest.skip("Graphviz is not installed")
    done = subprocess.run(
        [program, "-Tjson0", "-Gnslimit=1", "-Gsplines=line"],
        input=text.encode(), capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr == b""
    return json.loads(done.stdout)


@pytest.mark.parametrize("example", ["attention", "transformer_block"])
def test_graphviz_reads_the_same_graph(example: str) -> None:
    result = chosen(example)
    graph = drawn(export(result, "dot"))
    objects = graph["objects"]
    names = {o["_gvid"]: o["name"] for o in objects}
    clusters = {
        o["name"].removeprefix("cluster_"): {names[n] for n in o["nodes"]}
        for o in objects
        if "nodes" in o
    }
    found = shape(result)
    assert {c: len(ns) for c, ns in clusters.items()} == {c: len(ns) for c, ns in found.items()}
    edges = sorted((names[e["tail"]].split(":")[0], names[e["head"]].split(":")[0])
                   for e in graph["edges"])  # fmt: skip
    assert edges == sorted((c, k) for c, ns in found.items() for _, below in ns for k in below)
    filled = [o for o in objects if "filled" in o.get("style", "")]
    assert len(filled) == sum(bool(n.kernels) for n in table(result).nodes)


def test_graphviz_draws_classes_that_hold_themselves_without_a_warning() -> None:
    snapshot = synthetic(250)
    own = [(c, n) for c, nodes in snapshot.classes.items() for n in nodes if c in n.children]
    assert own
    edges = drawn(export(snapshot, "dot"))["edges"]
    assert len(edges) == sum(len(n.children) for ns in snapshot.classes.values() for n in ns)


def test_graphviz_shows_hostile_names_as_text() -> None:
    graph = drawn(export(hostile(), "dot"))
    clusters = [o for o in graph["objects"] if "nodes" in o]
    boxes = [o for o in graph["objects"] if "nodes" not in o]
    assert len(clusters) == 2 * len(HOSTILE)
    assert len(boxes) == 3 * len(HOSTILE)
    assert len(graph["edges"]) == 3 * len(HOSTILE)
    labels = " ".join(o["label"] for o in boxes)
    for name in HOSTILE[:3]:
        quoted = name.replace("\\", "\\\\").replace("&", "&amp;")
        assert quoted in labels
    assert not re.search("[\x00-\x09\x0b-\x1f]", labels)


def test_graphml_of_hostile_names_is_xml_and_json_is_exact() -> None:
    read = {d["head"] for _, d in from_graphml(hostile()).nodes(data=True) if d["kind"] == "node"}
    exact = {
        d["head"] for _, d in from_node_link(hostile()).nodes(data=True) if d["kind"] == "node"
    }
    for i, name in enumerate(HOSTILE):
        assert f"{name}[{name}]" in exact
        if i != 5:  # XML has no place for these
            assert f"{name}[{name}]" in read
    assert f"{HOSTILE[5]}[{HOSTILE[5]}]".translate({0: "\ufffd", 7: "\ufffd"}) in read


def test_what_cannot_be_exported_says_so() -> None:
    with pytest.raises(InputError) as unknown:
        export(chosen("swiglu"), "svg")
    assert unknown.value.code == "unknown-form"
    with pytest.raises(InputError) as early:
        export(Optimization(chosen("swiglu").program, chosen("swiglu").options), "dot")
    assert early.value.code == "not-saturated"
    assert set(FORMS) == {"node-link", "graphml", "dot", "serialized"}
