"""What is known of a term besides its axes, as egglog text: its carried type and a few facts.

Bits (`nautile.rules.egglog.TRAITS`) of one number a class, merged by union: what holds for a member
holds for all, as they are equal. Signs are meant over the real numbers, where exp never reaches
zero. One rule a constructor finds all bits that follow from those of its arguments, as the number
of rules is what a small region pays for; the rest look at the form of their arguments.

- **tame**: of ordinary size where the source is. Terms of the source are, and what is made of tame
  terms, but for two things. The exponential of something that may be positive may overflow. And the
  running value of a maximum (or minimum) is infinite before its first finite term, where the
  source's is not: it is tame only in what stays ordinary then, or is 0: a difference that is never
  positive, a step between two running values, a quotient by the largest magnitude.
- **rough**: its own rounding is in proportion to its size, as that of values of functions that are
  hardly ever exact, and of products and quotients of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nautile.operations import OPERATIONS
from nautile.rules.egglog import STORAGE, TRAITS, TYPES, number, type_bits
from nautile.terms import MONOIDS
from nautile.types import carried

from .masks import MOMENTS

__all__ = ["traits"]

_MOST, _LEAST = MONOIDS.index("max"), MONOIDS.index("min")
_ENDS = {"max": number(float("-inf")), "min": number(float("inf"))}
_PLACE = {name: bit.bit_length() - 1 for name, bit in TRAITS.items()}
_TYPE = (1 << len(TYPES)) - 1
_COMPARE = ("op_eq", "op_ne", "op_lt", "op_le", "op_gt", "op_ge")
_ROUGH = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf")


def _closed(name: str) -> int:
    """The bits of a trait and of those that it implies."""
    implied = {"pos": ("nonneg", "nonzero"), "neg": ("nonpos", "nonzero")}.get(name, ())
    return TRAITS[name] | sum(TRAITS[i] for i in implied)


# (result, what the arguments are): a constructor's laws; "-" asks nothing.
_Law = tuple[str, tuple[str, ...]]
_PRODUCT: tuple[_Law, ...] = (
    ("pos", ("pos", "pos")), ("neg", ("pos", "neg")), ("neg", ("neg", "pos")),
    ("pos", ("neg", "neg")), ("nonneg", ("nonneg", "nonneg")), ("nonpos", ("nonpos", "nonneg")),
    ("nonpos", ("nonneg", "nonpos")), ("rough", ("rough", "-")), ("rough", ("-", "rough")),
)  # fmt: skip
_KEPT: tuple[_Law, ...] = (("pos", ("pos",)), ("nonneg", ("nonneg",)))
_LAWS: dict[str, tuple[_Law, ...]] = {
    "op_mul": (*_PRODUCT, ("nonzero", ("nonzero", "nonzero"))),
    "op_div": _PRODUCT,
    "op_add": (
        ("pos", ("pos", "nonneg")), ("pos", ("nonneg", "pos")), ("nonneg", ("nonneg", "nonneg")),
        ("nonpos", ("nonpos", "nonpos")),
    ),
    "op_neg": (
        ("neg", ("pos",)), ("pos", ("neg",)), ("nonpos", ("nonneg",)), ("nonneg", ("nonpos",)),
        ("rough", ("rough",)),
    ),
    "op_where": tuple((s, ("-", s, s)) for s in ("pos", "nonneg", "nonpos")),
    "op_min": tuple((s, (s, s)) for s in ("pos", "nonneg")),
    "op_max": tuple((s, p) for s in ("pos", "nonneg") for p in ((s, "-"), ("-", s))),
    "op_sqrt": (*_KEPT, ("nonneg", ("-",))),
    "op_rsqrt": (("nonneg", ("-",)),),
    "op_abs": (("nonneg", ("-",)),),
    "r_sum": (*_KEPT, ("rough", ("rough",))),
    "Ix": (("nonneg", ()),),
}  # fmt: skip
_LAWS |= dict.fromkeys(("Num", "Int", "Truth", "Odd"), (("number", ()),))
_LAWS |= {f"r_{m}": _KEPT for m in ("max", "min", "prod")}
_LAWS |= {f"op_{f}": (("pos", ("-",)),) for f in ("exp", "exp2", "sigmoid")}


def traits(constructors: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The rules of all constructors, given the sorts of their arguments."""
    rules = [_composed(name, sorts) for name, sorts in constructors.items() if name != "Leaf"]
    return [*rules, *_constants(), *_forms(), *_running(), _idle()]


def _idle() -> str:
    """A factor that does not vary along the axis leaves the sum."""
    leaves = "(= l (loose e)) (!= 0 (& l (<< 1 i)))"
    return _rule(f"(= s (r_sum i e)) {leaves}", TRAITS["idle"])


def _rule(query: str, bits: int | str) -> str:
    return f"(rule ({query}) ((set (traits e) {bits})) :ruleset analysis)"


def _has(term: str, trait: str) -> str:
    return f"(= traits_{term} (traits {term})) (!= 0 (& {TRAITS[trait]} traits_{term}))"


def _composed(name: str, sorts: tuple[str, ...]) -> str:
    """All that follows from the arguments' traits."""
    places = [f"{'t' if sort == 'T' else 'i'}{k}" for k, sort in enumerate(sorts)]
    terms = [p for p in places if p[0] == "t"]
    lookups = [f"(= b{t} (traits {t}))" for t in terms]
    known = [f"b{t}" for t in terms]
    bits = [_type(name, known), *(_result(law, known) for law in _laws(name, len(terms)))]
    whole = bits[0]
    for other in bits[1:]:
        whole = f"(| {whole} {other})"
    return _rule(" ".join([f"(= e ({name} {' '.join(places)}))", *lookups]), whole)


def _laws(name: str, terms: int) -> Iterator[_Law]:
    yield from _LAWS.get(name, ())
    if name.removeprefix("op_") in _ROUGH:
        yield "rough", ("-",)
    if name in _COMPARE:
        yield "tame", ("-",) * terms
    elif name in ("op_exp", "op_exp2"):
        yield "tame", ("tame nonpos",)
    elif name not in ("Running", "Before"):
        yield "tame", ("tame",) * terms


def _result(law: _Law, known: list[str]) -> str:
    """The bits of a law's result, where the arguments have what it asks for."""
    result, asked = law
    bits = _closed(result)
    tests = [
        f"(>> {argument} {_PLACE[trait]})"
        for argument, words in zip(known, asked, strict=True)
        for trait in words.split()
        if trait != "-"
    ]
    if not tests:
        return str(bits)
    both = tests[0]
    for test in tests[1:]:
        both = f"(& {both} {test})"
    return f"(* {bits} (& 1 {both}))"


def _type(name: str, known: list[str]) -> str:
    """The bits of the carried type: fixed, or the widest of the arguments', or at least some."""
    operation = OPERATIONS.get(name.removeprefix("op_")) if name.startswith("op_") else None
    kind = operation.result if operation else _kind(name)
    if kind in TYPES:
        return str(type_bits(kind))
    floor = {"float": type_bits("f32"), "number": type_bits("i32")}.get(kind, _TYPE)
    widest = str(floor)
    for bits in known[1:] if name == "op_where" else known:
        widest = f"(& {widest} {bits})"
    return widest


def _kind(name: str) -> str:
    """How the carried type of a node that is no operation is found; constants have their own."""
    fixed = {"Ix": "i32", "Int": "i32", "Num": "f32", "Truth": "bool", "Odd": "f64"}
    fixed |= {"r_any": "bool", "r_all": "bool", "r_argmax": "i32", "r_argmin": "i32"}
    fixed |= {"Round": "f64", "Running": "same", "Before": "same"}
    return fixed.get(name, "float" if name.endswith("Online") else "number")


def _constants() -> list[str]:
    """Types and signs of numbers; roundings have the type of what they round to."""
    rules = [_rule("(= e (Odd i)) (< i 2)", type_bits("f32"))]
    rules.append(_rule("(= e (Odd i)) (>= i 2)", type_bits("i64")))
    for storage, dtype in enumerate(STORAGE):
        rules.append(_rule(f"(= e (Round {storage} t))", type_bits(carried(dtype))))
    for sign, test in (("pos", ">"), ("neg", "<"), ("nonneg", ">="), ("nonpos", "<=")):
        rules.append(_rule(f"(= e (Num c)) ({test} c 0.0)", _closed(sign)))
    rules.append(_rule("(= e (Num c)) (< c inf) (> c -inf)", TRAITS["finite"]))
    return rules


def _forms() -> list[str]:
    """Signs and roughness that the form of an argument shows."""
    rules = [_rule("(= e (op_mul a a))", TRAITS["nonneg"])]
    rules.append(_rule(f"(= e (op_where c a (Num 0.0))) {_has('a', 'rough')}", TRAITS["rough"]))
    tops = ("(r_max i a)", f"(Running {_MOST} i a)")
    above = [f(top) for top in tops for f in (str, "(op_max {} b)".format, "(op_max b {})".format)]
    masked = "(op_where c a (Num -inf))"
    forms = [f"(op_sub {part} {top})" for top in above for part in ("a", masked)]
    for inner in tops:
        forms += [f"(op_sub a {o} {inner}))" for o in ("(r_max k", f"(Running {_MOST} k")]
    forms += [f"(op_sub {low} a)" for low in ("(r_min i a)", f"(Running {_LEAST} i a)")]
    forms.append(f"(op_sub (Before {_MOST} i a) (Running {_MOST} i a))")
    return rules + [_rule(f"(= e {form})", TRAITS["nonpos"]) for form in forms]


def _running() -> list[str]:
    """Running values, and what stays tame where one may be infinite."""
    rules = []
    for moment in MOMENTS[:2]:
        query = f"(= e ({moment} m i a)) {_has('a', 'tame')} (!= m {_MOST}) (!= m {_LEAST})"
        rules.append(_rule(query, TRAITS["tame"]))
    return [*rules, *_differences(), *_steps(), *_masked(), *_scaled()]


def _differences() -> list[str]:
    """a - mu <= 0 with a tame (or mu - a, of a minimum): where mu is infinite, so is a."""
    known = f"(= e (op_sub a b)) {_has('e', 'nonpos')}"
    return [_rule(f"{known} {_has(side, 'tame')}", TRAITS["tame"]) for side in "ab"]


def _steps() -> list[str]:
    """Steps between a carrier's values before and at the position, where there was a value."""
    rules = []
    for monoid, code in (("max", _MOST), ("min", _LEAST)):
        old, new = (f"({moment} {code} i a)" for moment in ("Before", "Running"))
        compare = "op_gt" if monoid == "max" else "op_lt"
        guard = f"({compare} {old} {_ENDS[monoid]})"
        step = f"(= e (op_where {guard} (op_sub {new} {old}) (Num 0.0)))"
        rules.append(_rule(step, TRAITS["tame"]))
        rules.append(_rule(f"(= e (op_sub {old} {new}))", TRAITS["tame"]))
    return rules


def _masked() -> list[str]:
    """A masked term that exceeds the maximum of the others is dropped by its mask."""
    over = f"(Running {_MOST} i (op_where c a (Num -inf)))"
    masked = (f"(op_where c (op_{f} (op_sub a {over})) (Num 0.0))" for f in ("exp", "exp2"))
    return [_rule(f"(= e {form}) {_has('a', 'tame')}", TRAITS["tame"]) for form in masked]


def _scaled() -> list[str]:
    """a / max|a|: while the maximum is 0, so is a."""
    top = f"(Running {_MOST} i (op_abs a))"
    forms = [f"(op_div {part} {top})" for part in ("a", "(op_abs a)")]
    return [_rule(f"(= e {form}) {_has('a', 'tame')}", TRAITS["tame"]) for form in forms]
