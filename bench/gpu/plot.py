"""What was reached of the goals, as an SVG figure: no package is needed to draw it.

One line for each threshold: the range of the figures of its cases on a logarithmic axis, a dot for
the figure that is compared, a tick at the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from .goals import Judged, judge
from .store import Record

__all__ = ["figure"]

LABELS, AXIS, LINE, TOP = 470, 420, 24, 46  # pixels
COLOURS = {"reached": "#2e7d32", "partly": "#b26a00", "missed": "#c62828"}
KEY = "line: all cases; dot: what is compared; tick: the goal"
MARKS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def figure(records: Sequence[Record], title: str = "") -> str:
    """The figure of a result file; thresholds without any figure are left out."""
    rows = [j for j in judge(records) if j.figures and not math.isnan(j.value)]
    scale = _Scale([v for j in rows for v in (*j.figures.values(), j.need.least) if v > 0])
    height = TOP + LINE * len(rows) + 34
    width = LABELS + AXIS + 30
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(12, 20, title, size=14),
        *_grid(scale, height),
        *(part for n, j in enumerate(rows) for part in _line(j, TOP + LINE * (n + 0.5), scale)),
        _text(
            LABELS,
            height - 8,
            "line: all cases; dot: what is compared; tick: the goal",
            fill="#555",
        ),
        "</svg>",
    ]
    return "\n".join(body) + "\n"


class _Scale:
    """Figures to pixels, logarithmically."""

    def __init__(self, values: Sequence[float]) -> None:
        self.low = min([0.5, *values]) / 1.1
        self.high = max([2.0, *values]) * 1.1

    def __call__(self, value: float) -> float:
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return LABELS + AXIS * min(1.0, share)

    def marks(self) -> list[float]:
        return [m for m in MARKS if self.low <= m <= self.high]


def _grid(scale: _Scale, height: float) -> list[str]:
    bottom, parts = height - 28, []
    for mark in scale.marks():
        x, colour = scale(mark), "#888" if mark == 1.0 else "#ddd"
        parts.append(_stroke(x, TOP, x, bottom, colour, 1))
        parts.append(_text(x, TOP - 6, f"{mark:g}", fill="#555", anchor="middle"))
    return parts


def _line(judged: Judged, y: float, scale: _Scale) -> list[str]:
    colour = COLOURS[judged.verdict]
    values = list(judged.figures.values())
    tick = scale(judged.need.least)
    label = f"{judged.goal.work}: {judged.need.text()}"
    return [
        _text(12, y + 4, label if len(label) <= 78 else f"{label[:75]}..."),
        _stroke(scale(min(values)), y, scale(max(values)), y, colour, 5),
        _stroke(tick, y - 8, tick, y + 8, "#222", 2),
        f'<circle cx="{scale(judged.value):.1f}" cy="{y:.1f}" r="5" fill="{colour}">'
        f"<title>{escape(f'{judged.value:.3f}, {judged.verdict}')}</title></circle>",
    ]


def _stroke(x1: float, y1: float, x2: float, y2: float, colour: str, width: int) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="{width}"/>'
    )


def _text(
    x: float, y: float, text: str, fill: str = "#111", anchor: str = "start", size: int = 12
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}" '
        f'font-size="{size}">{escape(text)}</text>'
    )
