"""The family of dependent reductions: what the rules make of it has the source's value, and one
pass over the axis is among it."""

from __future__ import annotations

import pytest

from nautile import lang, rules
from nautile.egraph import saturate
from nautile.extract.regions import cut
from nautile.snapshot import Node, Snapshot

from .test_sound import differs

REAL = rules.load(classes=("exact", "real"))
HEAD = "def p(x: f32[N,C], z: f32[N,C], w: f32[C], b: bool[C], s: f32[N], *, N=3, C=7) -> f32[N]:\n"
FAMILY = {
    "variance": "v[n] = variance[c](x[n,c])",
    "sample variance": "m[n] = sum[c](x[n,c]) * (1 / 7)\nv[n] = sum[c]((x[n,c] - m[n]) ** 2) / 6",
    "weighted variance": "a[c] = abs(w[c]) + 0.1\nm[n] = sum[c](a[c] * x[n,c]) / sum[c](a[c])\n"
    "v[n] = sum[c](a[c] * (x[n,c] - m[n]) ** 2) / sum[c](a[c])",
    "masked variance": "k = sum[c](where(b[c], 1.0, 0.0))\n"
    "m[n] = sum[c](where(b[c], x[n,c], 0.0)) / k\n"
    "v[n] = sum[c](where(b[c], (x[n,c] - m[n]) * (x[n,c] - m[n]), 0.0)) / k",
    "covariance": "m[n] = mean[c](x[n,c])\nl[n] = mean[c](z[n,c])\n"
    "v[n] = mean[c]((x[n,c] - m[n]) * (z[n,c] - l[n]))",
    "about a mean": "m[n] = mean[c](x[n,c])\nv[n] = sum[c](w[c] * (x[n,c] - m[n]))",
    "divergence": "p[n,c] = log_softmax[c](x[n,c])\nq[n,c] = log_softmax[c](z[n,c])\n"
    "v[n] = sum[c](exp(p[n,c]) * (p[n,c] - q[n,c]))",
    "entropy": "p[n,c] = softmax[c](x[n,c])\nv[n] = -sum[c](p[n,c] * log(p[n,c]))",
    "smoothed": "p[n,c] = log_softmax[c](x[n,c])\nv[n] = -mean[c](p[n,c])",
    "sink": "m[n] = max(max[c](x[n,c]), s[n])\ne[n,c] = exp(x[n,c] - m[n])\n"
    "v[n] = sum[c](e[n,c] * w[c]) / (sum[c](e[n,c]) + exp(s[n] - m[n]))",
    "difference": "p[n,c] = softmax[c](x[n,c])\nq[n,c] = softmax[c](z[n,c])\n"
    "v[n] = sum[c]((p[n,c] - s[n] * q[n,c]) * w[c])",
    "scaled norm": "t[n] = max[c](abs(x[n,c]))\n"
    "v[n] = t[n] * sum[c]((abs(x[n,c]) / t[n]) ** 3) ** 0.3",
    "top of a softmax": "p[n,c] = softmax[c](x[n,c])\nv[n] = max[c](p[n,c]) + argmax[c](p[n,c])",
    "through its logarithm": "l[n] = logsumexp[c](x[n,c])\n"
    "v[n] = sum[c](exp(x[n,c] - l[n]) * w[c])",
}
FAMILY["dropped"] = (
    "p[n,c] = softmax[c](x[n,c])\nv[n] = sum[c](where(b[c], p[n,c] / 0.9, 0.0) * w[c])"
)
FAMILY["two carriers"] = (
    "m[n] = max[c](x[n,c])\nl[n] = max[c](z[n,c])\n"
    "v[n] = sum[c](exp(x[n,c] - m[n]) * exp(z[n,c] - l[n]) * w[c])"
)
FAMILY = {
    k: HEAD + "".join(f"    {line}\n" for line in [*t.split("\n"), "return v"])
    for k, t in FAMILY.items()
}


def passes(snapshot: Snapshot, root: int) -> int:
    """The fewest passes, one after the other, that a class takes: a reduction's stage is the number
    of finished ones in its body; running values are there in their carrier's own pass."""
    best: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for c, nodes in snapshot.classes.items():
            found = [_passes(n, best) for n in nodes if all(k in best for k in n.children)]
            if found and min(found) < best.get(c, 99):
                best[c], changed = min(found), True
    return best[root]


def _passes(node: Node, best: dict[int, int]) -> int:
    below = max((best[c] for c in node.children), default=0)
    if node.kind in ("running", "before"):
        return below - 1
    return below + (node.kind in ("reduce", "online"))


@pytest.mark.parametrize("name", FAMILY)
def test_one_pass_is_found_and_all_is_sound(name: str) -> None:
    (program,) = lang.parse(FAMILY[name])
    for region in cut(program):
        snapshot = saturate(region.outputs, REAL, in_process=True)
        assert snapshot.report.stop == "saturated"
        assert snapshot.report.rows < 600
        assert [passes(snapshot, root) for root in snapshot.roots] == [1]
        assert not differs(region.outputs, REAL, draws=3)


def test_what_depends_on_a_finished_sum_takes_two_passes() -> None:
    text = (
        HEAD + "    s2[n] = sum[c](x[n,c])\n    v[n] = sum[c](tanh(x[n,c] * s2[n]))\n    return v\n"
    )
    (program,) = lang.parse(text)
    (region,) = cut(program)
    snapshot = saturate(region.outputs, REAL, in_process=True)
    assert passes(snapshot, snapshot.roots[0]) == 2
