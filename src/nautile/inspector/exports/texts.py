"""Texts of bounded length for the classes of an e-graph, each written as its cheapest term.

A text of level i has at most LENGTHS[i] characters. A term that fits is written whole. Another is
its head over its arguments, each whole where it fits this level and else in its text of the next
one; while that is too long, the longest argument (of equal ones the first) takes a text of its next
level, at last an ellipsis. So a text takes a bounded number of steps, however deep the term is and
however much of it is shared.
"""

from __future__ import annotations

from collections.abc import Sequence

from .heads import Head, Text, length, written

__all__ = ["ELISION", "LENGTHS", "LONG", "Texts"]

ELISION = "…"
LENGTHS = (160, 112, 80, 56, 40, 28, 20, 14)
LONG = 1_000_000  # a whole text of this length or more is not measured further
_ELIDED = Text(ELISION)


class Texts:
    """The texts of classes, made when they are asked for. `heads` and `children` are those of each
    class' cheapest node (None and () where it has no finite term), `order` lists the classes with
    one, arguments first. `lengths` are those of the whole terms, LONG at most."""

    def __init__(
        self,
        heads: Sequence[Head | None],
        children: Sequence[Sequence[int]],
        order: Sequence[int],
    ) -> None:
        self.heads, self.children = heads, children
        self.lengths = [LONG] * len(heads)
        self._owns = [head.own if head else _ELIDED.own for head in heads]
        self._known: dict[tuple[int, int], Text] = {}
        for c in order:
            head = heads[c]
            assert head is not None
            parts = [(self.lengths[k], self._owns[k]) for k in children[c]]
            self.lengths[c] = min(LONG, length(head, parts))

    def of(self, c: int, level: int = 0) -> str:
        """The text of a class."""
        return self._text(c, level).text

    def _text(self, c: int, level: int) -> Text:
        head = self.heads[c]
        if level >= len(LENGTHS) or head is None:
            return _ELIDED
        whole = self.lengths[c] <= LENGTHS[level]
        key = (c, 0 if whole else level)
        if key not in self._known:
            self._known[key] = self._whole(c, head) if whole else self._short(c, head, level)
        return self._known[key]

    def _whole(self, c: int, head: Head) -> Text:
        return Text(written(head, [self._text(k, 0) for k in self.children[c]]), head.own)

    def _short(self, c: int, head: Head, level: int) -> Text:
        return shortened(head, self.children[c], level, self)

    def level_of(self, c: int, level: int) -> int:
        """The level that an argument of a text of `level` starts with."""
        return level if self.lengths[c] <= LENGTHS[level] else level + 1


def shortened(head: Head, children: Sequence[int], level: int, texts: Texts) -> Text:
    """The head over the arguments' texts, shortened until it is no longer than the level's text."""
    levels = [texts.level_of(k, level) for k in children]
    while True:
        parts = [texts._text(k, i) for k, i in zip(children, levels, strict=True)]
        whole = written(head, parts)
        if len(whole) <= LENGTHS[level]:
            return Text(whole, head.own)
        sizes = [len(p.text) if i < len(LENGTHS) else 0 for p, i in zip(parts, levels, strict=True)]
        if not any(sizes):
            return Text(whole[: LENGTHS[level] - 1] + ELISION)
        levels[sizes.index(max(sizes))] += 1
