"""Bitmasks of axes that the e-graph keeps for each class, as egglog text.

```
(fv T)      the free axes                                   merged by intersection
(rd T)      the axes of reductions that the term cannot do without        by intersection
(ra T)      the axes of running values inside                             by intersection
(loose T)   the axes that leave a factor, or the sign, of the term alone, so that it can leave a
            sum over them                                                 by union
(up T)      the axes of reductions whose body has the term as a factor    by union
```

One rule a constructor sets the first four, as the number of rules is what a small region pays for.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["MOMENTS", "masks", "tables"]

MOMENTS = ("Running", "Before", "RunningOnline", "BeforeOnline")
_ALL = (1 << 62) - 1


def tables() -> list[str]:
    """The functions that hold the masks."""
    merges = {"fv": "&", "rd": "&", "ra": "&", "loose": "|", "up": "|"}
    return [f"(function {name} (T) i64 :merge ({m} old new))" for name, m in merges.items()]


def masks(constructors: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The rules of all constructors, given the sorts of their arguments. Loads bring their masks
    along."""
    rules = [_rule(name, sorts) for name, sorts in constructors.items() if name != "Leaf"]
    rules.append(_text("(= e (op_neg a))", f"(set (loose e) {_ALL})"))
    for name in ("mul", "div"):
        query = f"(= e (op_{name} a b)) (= f (fv a)) (= g (fv b))"
        other = "(& g (^ -1 f))" if name == "mul" else "0"
        rules.append(_text(query, f"(set (loose e) (| (& f (^ -1 g)) {other}))"))
    return rules + _factors()


def _factors() -> list[str]:
    """What the body of a reduction is a product of, whatever reductions and masks stand between.
    Maxima are left out: a factor does not leave them, but for one beside an exponential."""
    rules = []
    for monoid in ("sum", "argmax", "argmin"):
        rules.append(_text(f"(= e (r_{monoid} i a))", "(set (up a) (<< 1 i))"))
        rules.append(_text(f"(= e (r_{monoid} i a)) (= u (up e))", "(set (up a) u)"))
    for form in ("(op_mul a b)", "(op_mul b a)", "(op_div a b)", "(op_neg a)", "(op_where c a b)"):
        rules.append(_text(f"(= e {form}) (= u (up e))", "(set (up a) u)"))
    return rules


def _text(query: str, action: str) -> str:
    return f"(rule ({query}) ({action}) :ruleset analysis)"


def _rule(name: str, sorts: tuple[str, ...]) -> str:
    places = [f"{'t' if sort == 'T' else 'i'}{k}" for k, sort in enumerate(sorts)]
    terms = [p for p in places if p[0] == "t"]
    lookups = [f"(= {f}_{t} ({f} {t}))" for t in terms for f in ("fv", "rd", "ra")]
    query = " ".join([f"(= e ({name} {' '.join(places)}))", *lookups])
    own = "(<< 1 i1)" if name in ("Running", "Before") else "(<< 1 i0)"
    reduces = name.startswith("r_") or name == "Online"
    free = _union("fv", terms, [own] if name in MOMENTS or name == "Ix" else [])
    if reduces:
        free = f"(& {free} (^ -1 {own}))"
    actions = [
        f"(set (fv e) {free})",
        f"(set (rd e) {_union('rd', terms, [own] if reduces else [])})",
        f"(set (ra e) {_union('ra', terms, [own] if name in MOMENTS else [])})",
        "(set (loose e) 0)",
    ]
    return _text(query, " ".join(actions))


def _union(function: str, terms: list[str], own: list[str]) -> str:
    masks_ = [*own, *(f"{function}_{t}" for t in terms)] or ["0"]
    union = masks_[0]
    for mask in masks_[1:]:
        union = f"(| {union} {mask})"
    return union
