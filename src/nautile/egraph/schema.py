"""The e-graph's sorts, number folding and tripwire as egglog text.

The grammar is that of `nautile.rules.egglog`. Analyses (`masks`, `traits`) hold for every member of
a class, as its members are equal.
"""

from __future__ import annotations

from functools import cache

from nautile.operations import OPERATIONS
from nautile.terms import MONOIDS

from .masks import masks, tables
from .traits import traits

__all__ = ["CONSTRUCTORS", "LEAVES", "TABLES", "schema"]

# What analyses and facts know: the sorts of arguments and result.
TABLES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("fv", "rd", "ra", "loose", "up", "traits"), ("T", "i64")),
    **dict.fromkeys(("shift", "scale", "power", "drop"), ("T", "T", "T", "T")),
    "bend": ("T", "T", "T", "T", "T"),
    "ext": ("i64", "f64"),
}
LEAVES = {"Num": "f64", "Int": "i64", "Truth": "i64", "Odd": "i64", "Ix": "i64", "Leaf": "i64"}
_RULESETS = ("analysis", "facts", "normal", "fold", "fold_real", "probe")


def _constructors() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {name: (sort,) for name, sort in LEAVES.items()}
    table |= {f"op_{name}": ("T",) * o.arity for name, o in OPERATIONS.items()}
    table |= {f"r_{monoid}": ("i64", "T") for monoid in MONOIDS}
    table |= {"Round": ("i64", "T"), "Online": ("i64", "T", "T", "T")}
    table |= {"Running": ("i64", "i64", "T"), "Before": ("i64", "i64", "T")}
    table |= dict.fromkeys(("RunningOnline", "BeforeOnline"), ("i64", "T", "T", "T"))
    return table


CONSTRUCTORS = _constructors()


@cache
def schema() -> str:
    """Sorts, analyses, number folding and the tripwire on constants."""
    return "\n".join(
        [
            _sorts(),
            *masks(CONSTRUCTORS),
            *traits(CONSTRUCTORS),
            *_folding(),
            *_clash(),
        ]
    )


def _sorts() -> str:
    lines = ["(sort T)"]
    lines += [f"(constructor {n} ({' '.join(sorts)}) T)" for n, sorts in CONSTRUCTORS.items()]
    lines += ["(function N (i64) T :no-merge)", "(function ext (i64) f64 :no-merge)"]
    lines += tables()
    lines.append("(function traits (T) i64 :merge (| old new))")
    lines += [f"(constructor {name} (T T T) T)" for name in ("shift", "scale", "power", "drop")]
    lines.append("(constructor bend (T T T T) T)")
    lines.append("(relation made (T i64))")
    lines.append("(relation clash (T))")
    lines += [f"(ruleset {name})" for name in _RULESETS]
    lines.append("(relation hit ())")
    return "\n".join(lines)


def _folding() -> list[str]:
    """Arithmetic on numbers: negation always, the rest where real arithmetic is meant; sums that
    would cancel stay as they are."""

    def fold(form: str, value: str, *tests: str, ruleset: str = "fold_real") -> str:
        guard = f"(= r {value}) (< (abs r) 1e300) " + " ".join(tests)
        return f"(rule ((= e {form}) {guard}) ((union e (Num r))) :ruleset {ruleset})"

    larger = "(> (* 1000.0 (abs r)) (+ (abs a) (abs b)))"
    return [
        fold("(op_neg (Num a))", "(neg a)", "(!= a 0.0)", ruleset="fold"),
        fold("(op_mul (Num a) (Num b))", "(* a b)", "(> (abs r) 1e-300)"),
        fold("(op_mul (Num 0.0) (Num b))", "0.0", "(< (abs b) inf)"),
        fold("(op_div (Num a) (Num b))", "(/ a b)", "(!= b 0.0)", "(> (abs r) 1e-300)"),
        fold("(op_add (Num a) (Num b))", "(+ a b)", larger),
        fold("(op_sub (Num a) (Num b))", "(- a b)", larger),
    ]


def _clash() -> list[str]:
    """Two constants in one class: a rule is unsound. Rounding of folded numbers is forgiven."""

    def clash(*query: str) -> str:
        return f"(rule ({' '.join(query)}) ((clash e)) :ruleset analysis)"

    return [
        clash("(= e (Num a)) (= e (Num b)) (> a b)", "(> (- a b) (* 1e-6 (+ (abs a) (abs b))))"),
        clash("(= e (Num inf)) (= e (Num b)) (!= b inf)"),
        clash("(= e (Num -inf)) (= e (Num b)) (!= b -inf)"),
        clash("(= e (Int a)) (= e (Int b)) (!= a b)"),
        clash("(= e (Int a)) (= e (Num b)) (!= (to-f64 a) b)"),
        clash("(= e (Truth a)) (= e (Truth b)) (!= a b)"),
        clash("(= e (Truth a)) (= e (Num b))"),
        clash("(= e (Truth a)) (= e (Int b))"),
        clash("(= e (Odd 1)) (= e (Num b))"),
    ]
