"""The e-graph's sorts and analyses as egglog text (grammar: `nautile.rules.egglog`).

Analyses hold for every member of a class, as its members are equal: a class is free of an axis when
one member is (`fv` merges by intersection), and positive when one member is seen to be. Signs are
meant over the real numbers, where exp never reaches zero.
"""

from __future__ import annotations

from functools import cache

from nautile.operations import OPERATIONS
from nautile.rules.egglog import STORAGE, TYPES
from nautile.terms import MONOIDS
from nautile.types import carried

from .masks import masks, tables
from .tame import tame

__all__ = ["CONSTRUCTORS", "LEAVES", "SIGNS", "schema"]

LEAVES = {"Num": "f64", "Int": "i64", "Truth": "i64", "Odd": "i64", "Ix": "i64", "Leaf": "i64"}
SIGNS = ("pos", "neg", "nonneg", "nonpos", "nonzero", "finite", "tame", "rough")


_RULESETS = ("analysis", "facts", "normal", "fold", "fold_real")
_PROBES = ("probe", "probe_facts", "probe_normal")


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
            *_types(),
            *_signs(),
            *tame(CONSTRUCTORS),
            *_rough(),
            *_folding(),
            *_clash(),
        ]
    )


def _sorts() -> str:
    lines = ["(sort T)"]
    lines += [f"(constructor {n} ({' '.join(sorts)}) T)" for n, sorts in CONSTRUCTORS.items()]
    lines += ["(function N (i64) T :no-merge)", "(function ext (i64) f64 :no-merge)"]
    lines += tables()
    lines.append("(function ty (T) i64 :merge (min old new))")
    lines += [f"(constructor {name} (T T T) T)" for name in ("shift", "scale", "power", "drop")]
    lines.append("(constructor bend (T T T T) T)")
    lines.append("(relation made (T i64))")
    lines += ["(function bounded (T) i64 :merge (max old new))"]
    lines += [f"(relation {sign} (T))" for sign in ("clash", *(f"is_{s}" for s in SIGNS))]
    lines += [f"(ruleset {name})" for name in (*_RULESETS, *_PROBES)]
    lines.append("(relation hit ())")
    return "\n".join(lines)


def _rule(query: str, action: str, ruleset: str = "analysis") -> str:
    return f"(rule ({query}) ({action}) :ruleset {ruleset})"


def _arguments(name: str) -> tuple[str, list[str]]:
    """`name` applied to variables, and the variables that are terms."""
    sorts = CONSTRUCTORS[name]
    variables = [f"{'t' if sort == 'T' else 'i'}{k}" for k, sort in enumerate(sorts)]
    terms = [v for v, sort in zip(variables, sorts, strict=True) if sort == "T"]
    return f"({name} {' '.join(variables)})", terms


def _types() -> list[str]:
    code = TYPES.index
    rules = [
        _rule(f"(= e ({c} i))", f"(set (ty e) {code(t)})")
        for c, t in (("Num", "f32"), ("Truth", "bool"), ("Ix", "i32"), ("Int", "i32"))
    ]
    rules.append(_rule("(= e (Odd i)) (< i 2)", f"(set (ty e) {code('f32')})"))
    rules.append(_rule("(= e (Odd i)) (>= i 2)", f"(set (ty e) {code('i64')})"))
    for storage, dtype in enumerate(STORAGE):
        rules.append(_rule(f"(= e (Round {storage} t))", f"(set (ty e) {code(carried(dtype))})"))
    for name, operation in OPERATIONS.items():
        rules.append(_type_rule(f"op_{name}", operation.result, skip=int(name == "where")))
    for monoid in MONOIDS:
        kind = {"any": "bool", "all": "bool", "argmax": "index", "argmin": "index"}
        rules.append(_type_rule(f"r_{monoid}", kind.get(monoid, "number")))
    rules += [_type_rule(f"{moment}Online", "float") for moment in ("", "Running", "Before")]
    rules += [_type_rule(name, "same") for name in ("Running", "Before")]
    return rules


def _type_rule(name: str, result: str, skip: int = 0) -> str:
    """The carried type of a node: bool, an index, the widest of its operands, or at least f32."""
    form, terms = _arguments(name)
    floor = {"float": TYPES.index("f32"), "number": TYPES.index("i32")}.get(result, 0)
    if result in ("bool", "index"):
        fixed = TYPES.index("bool" if result == "bool" else "i32")
        return _rule(f"(= e {form})", f"(set (ty e) {fixed})")
    query = f"(= e {form}) " + " ".join(f"(= y{t} (ty {t}))" for t in terms[skip:])
    widest = str(floor)
    for t in terms[skip:]:
        widest = f"(max {widest} y{t})"
    return _rule(query, f"(set (ty e) {widest})")


def _signs() -> list[str]:
    def test(premise: str) -> str:
        return premise if premise[0] in "<>!" else f"is_{premise}"

    def law(result: str, form: str, *premises: str) -> str:
        return _rule(
            f"(= e {form}) " + " ".join(f"({test(p)})" for p in premises), f"(is_{result} e)"
        )

    rules = [
        _rule("(is_pos e)", "(is_nonneg e) (is_nonzero e)"),
        _rule("(is_neg e)", "(is_nonpos e) (is_nonzero e)"),
    ]
    for sign, sense in (
        ("pos", ">"),
        ("nonneg", ">="),
        ("neg", "<"),
        ("nonpos", "<="),
        ("nonzero", "!="),
    ):
        rules.append(law(sign, "(Num c)", f"{sense} c 0.0"))
    rules.append(_rule("(= e (Num c)) (< c inf) (> c -inf)", "(is_finite e)"))
    rules.append(law("nonneg", "(Ix i)"))
    most, least = MONOIDS.index("max"), MONOIDS.index("min")
    for form in ("(r_max i a)", f"(Running {most} i a)"):
        rules.append(law("nonpos", f"(op_sub a {form})"))
        rules.append(law("nonpos", f"(op_sub (op_where c a (Num -inf)) {form})"))
        for top in (f"(op_max {form} b)", f"(op_max b {form})"):
            rules.append(law("nonpos", f"(op_sub a {top})"))
            rules.append(law("nonpos", f"(op_sub (op_where c a (Num -inf)) {top})"))
    for inner in ("(r_max i a)", f"(Running {most} i a)"):
        for form in (f"(r_max k {inner})", f"(Running {most} k {inner})"):
            rules.append(law("nonpos", f"(op_sub a {form})"))
    rules.append(law("nonpos", f"(op_sub (Before {most} i a) (Running {most} i a))"))
    for form in ("(r_min i a)", f"(Running {least} i a)"):
        rules.append(law("nonpos", f"(op_sub {form} a)"))
    rules.append(_rule("(is_nonpos e) (= 0 (bounded e))", "(set (bounded e) 1)"))
    rules += [law("pos", f"(op_{f} a)") for f in ("exp", "exp2", "sigmoid")]
    rules += [law("nonneg", f"(op_{f} a)") for f in ("sqrt", "rsqrt", "abs")]
    rules.append(law("nonneg", "(op_mul a a)"))
    for p, q, r in (
        ("pos", "pos", "pos"),
        ("pos", "neg", "neg"),
        ("neg", "pos", "neg"),
        ("neg", "neg", "pos"),
        ("nonneg", "nonneg", "nonneg"),
        ("nonpos", "nonneg", "nonpos"),
        ("nonneg", "nonpos", "nonpos"),
        ("nonzero", "nonzero", "nonzero"),
    ):
        rules.append(law(r, "(op_mul a b)", f"{p} a", f"{q} b"))
        if r != "nonzero":
            rules.append(law(r, "(op_div a b)", f"{p} a", f"{q} b"))
    rules += [
        law("pos", "(op_add a b)", "pos a", "nonneg b"),
        law("pos", "(op_add a b)", "nonneg a", "pos b"),
    ]
    rules += [law("neg", "(op_neg a)", "pos a"), law("pos", "(op_neg a)", "neg a")]
    rules += [law("nonpos", "(op_neg a)", "nonneg a"), law("nonneg", "(op_neg a)", "nonpos a")]
    rules.append(law("nonpos", "(op_where c a b)", "nonpos a", "nonpos b"))
    rules.append(law("nonpos", "(op_add a b)", "nonpos a", "nonpos b"))
    for s in ("pos", "nonneg"):
        rules.append(law(s, "(op_where c a b)", f"{s} a", f"{s} b"))
        rules += [law(s, f"({m} i a)", f"{s} a") for m in ("r_sum", "r_max", "r_min", "r_prod")]
        rules += [law(s, "(op_min a b)", f"{s} a", f"{s} b"), law(s, "(op_sqrt a)", f"{s} a")]
        rules += [law(s, "(op_max a b)", f"{s} a"), law(s, "(op_max a b)", f"{s} b")]
    rules.append(law("nonneg", "(op_add a b)", "nonneg a", "nonneg b"))
    return rules


def _rough() -> list[str]:
    """Terms whose own rounding is in proportion to their size: values of functions that are hardly
    ever exact, and products and quotients of those."""
    functions = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf")
    forms = [f"(op_{f} a)" for f in functions]
    rules = [_rule(f"(= e {form})", "(is_rough e)") for form in forms]
    both = ("(op_mul a b)", "(op_div a b)")
    first = (*both, "(op_neg a)", "(op_where c a (Num 0.0))", "(r_sum i a)")
    rules += [_rule(f"(= e {form}) (is_rough a)", "(is_rough e)") for form in first]
    rules += [_rule(f"(= e {form}) (is_rough b)", "(is_rough e)") for form in both]
    return rules


def _folding() -> list[str]:
    """Arithmetic on numbers: negation always, the rest where real arithmetic is meant; sums that
    would cancel stay as they are."""

    def fold(form: str, value: str, *tests: str, ruleset: str = "fold_real") -> str:
        guard = f"(= r {value}) (< (abs r) 1e300) " + " ".join(tests)
        return _rule(f"(= e {form}) {guard}", "(union e (Num r))", ruleset)

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
