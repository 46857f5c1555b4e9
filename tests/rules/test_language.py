"""The rule language: what a pack may say, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautile import rules
from nautile.errors import InputError, LimitError, SourceError
from nautile.rules.egglog import print_rule
from nautile.rules.law import (
    Access,
    Bound,
    Call,
    Compare,
    Differs,
    Fold,
    Kind,
    Name,
    NotFree,
    Number,
    Position,
    Rescaled,
    Size,
    Stream,
    parts,
)

LAW = "with real:\n    {}\n"


def one(law: str, section: str = "real") -> rules.Rule:
    (rule,) = rules.parse(f"with {section}:\n    {law}\n")
    return rule


def test_a_two_way_law_with_a_condition() -> None:
    rule = one("factor = sum[j](a * b) == sum[j](a) * b, j not in b")
    a, b = Name("a"), Name("b")
    assert rule.left == Fold("sum", "j", Call("mul", (a, b)))
    assert rule.right == Call("mul", (Fold("sum", "j", a), b))
    assert (rule.two_way, rule.conditions) == (True, (NotFree("j", "b"),))
    assert rule.text == "sum[j](a * b) == sum[j](a) * b, j not in b"


def test_a_law_of_the_online_sum() -> None:
    rule = one("go = sum[j](a) >> online[j](m, k, r), scale(a, m, k, r), m == max[j](b), k < 0")
    assert rule.right == Rescaled("j", "m", Name("k"), Name("r"))
    assert [p.relation for p in rule.premises] == ["scale"]


def test_a_fact_names_its_conclusion_first() -> None:
    rule = one("top = shift(max[j](a), max[j](a), 1, running[j](a))", "facts")
    assert rule.conclusion is not None
    assert rule.conclusion.running == Stream("running", "max", "j", Name("a"))
    assert rule.conclusion.slope == Number(1)


def test_extents_can_be_named() -> None:
    rule = one("constant = sum[j: J](a) >> J * a, j not in a")
    assert rule.right == Call("mul", (Size("j"), Name("a")))


def test_comments_above_and_behind_document_a_law() -> None:
    text = "with exact:\n    # Two signs\n    # cancel.\n    n = -(-a) >> a  # always\n"
    assert rules.parse(text)[0].doc == "Two signs cancel. always"


@pytest.mark.parametrize(
    ("law", "code", "column"),
    [
        ("r = a + a >> 2 * b", "unbound", 22),
        ("r = sum[j](a) + sum[j](b) == sum[j](a)", "unbound", 28),
        ("r = sum[j](a) >> max[k](a)", "unbound", 26),
        ("r = sum[j](a) >> a, j not in c", "unbound", 34),
        ("r = sum[j](a) >> a, k not in a", "unbound", 25),
        ("r = expp(a) >> exp(a)", "unknown-operation", 9),
        ("r = total[j](a) >> a", "unknown-operation", 9),
        ("r = exp(a, b) >> exp(a)", "arity", 9),
        ("r = where(a, b) >> a", "arity", 9),
        ("r = sum[j](a, b) >> a", "arity", 9),
        ("r = a * 1 >> a, a is small", "unknown-condition", 21),
        ("r = a * 1 >> a, prime(a)", "unknown-condition", 21),
        ("r = a * 1 >> a, a > b", "unknown-condition", 21),
        ("r = a * 1 >> a, size(j) > 1", "unbound", 26),
        ("r = a * 1 >> a, type(a) == f8", "unknown-condition", 32),
        ("r = a * 1 >> a, directed", "syntax", 21),
        ("r = a * 1 >> a, backoff(0)", "arity", 21),
        ("r = a * 1 >> a, within(1e-3)", "syntax", 21),
        ("r = a * 1 >> P * a", "unbound", 18),
        ("r = cumsum[j](a) >> a", "unsupported", 9),
        ("r = softmax(a) >> a", "arity", 9),
        ("r = sum[j](x[2 * j]) >> a", "syntax", 5),
        ("r = sum[j](x[j]) >> x[exp(j)]", "syntax", 5),
        ("r = a >> a * 1", "syntax", 9),
        ("r = a * 1 == a", "syntax", 18),
        ("r = a * 1", "syntax", 9),
        ("r = 'text' >> a", "syntax", 9),
        ("r = a.b >> a", "syntax", 9),
        ("r = sum[j](a) >> online[j](m, k, a), j not in a", "unbound", 32),
        ("r = online[j](m, k, a) >> a", "syntax", 5),
        ("r = (lambda: a) >> a", "syntax", 10),
        ("x.y = a * 1 >> a", "syntax", 5),
        ("r = a @ b >> a", "unknown-operation", 9),
        ("r = a * 1 >> a, shift(a, b * 2, k, c)", "syntax", 30),
        ("r = a * 1 >> a, __import__('os')", "unknown-condition", 21),
    ],
)
def test_mistakes_are_refused_at_their_place(law: str, code: str, column: int) -> None:
    with pytest.raises(SourceError) as caught:
        rules.parse(LAW.format(law), filename="mine.nau")
    error = caught.value
    assert (error.code, error.line, error.column) == (code, 2, column)
    assert str(error).splitlines()[1].strip() == law


def test_a_misspelt_operation_gets_a_suggestion() -> None:
    with pytest.raises(SourceError, match="did you mean exp"):
        one("r = expp(a) >> exp(a)")


@pytest.mark.parametrize(
    "text", ["r = a * 1 >> a", "with quick:\n    r = a * 1 >> a", "with (", "x"]
)
def test_laws_stand_in_known_sections(text: str) -> None:
    with pytest.raises(SourceError):
        rules.parse(text)


def test_duplicate_names_are_refused() -> None:
    with pytest.raises(SourceError) as caught:
        rules.parse("with exact:\n    r = a - 0 >> a\n    r = -(-a) >> a\n")
    assert (caught.value.code, caught.value.line) == ("duplicate", 3)


def test_packs_cannot_share_a_name(tmp_path: Path) -> None:
    other = tmp_path / "other.nau"
    other.write_text("with exact:\n    mul_comm = a * b == b * a\n")
    with pytest.raises(SourceError, match=r"mul_comm is already defined in .*algebra\.nau"):
        rules.load(["algebra", other])


@pytest.mark.parametrize(
    "law",
    [
        "r = " + "(" * 100_000 + "a" + ")" * 100_000 + " >> a",
        "r = " + "-" * 100_000 + "a >> a",
        "r = " + "a + " * 20_000 + "a >> a",
        "r = " + "exp(" * 70 + "a" + ")" * 70 + " >> a",
        "r = " + "not " * 50_000 + "a >> a",
    ],
    ids=["parentheses", "signs", "sums", "calls", "nots"],
)
def test_deep_laws_are_refused(law: str) -> None:
    with pytest.raises((LimitError, SourceError)):
        rules.parse(LAW.format(law))


def test_large_and_unreadable_files_are_refused(tmp_path: Path) -> None:
    large, binary = tmp_path / "large.nau", tmp_path / "binary.nau"
    large.write_text("#" * (1 << 20) + "\n")
    binary.write_bytes(bytes(range(256)))
    with pytest.raises(LimitError):
        rules.load([large])
    with pytest.raises(InputError):
        rules.load([binary])
    with pytest.raises(InputError, match="no rule pack missing"):
        rules.load(["missing"])
    with pytest.raises(SourceError):
        rules.parse("with exact:\n    a = b\0")


def test_classes_choose_the_rules() -> None:
    everything = rules.load()
    by_class = {c: {r.name for r in rules.select(everything, c)} for c in rules.CLASSES}
    assert "mul_comm" in by_class["exact"]
    assert "factor_sum" not in by_class["exact"]
    assert "exp_scale" not in by_class["exact"]
    assert {"factor_sum", "go_online", "exp_scale"} <= by_class["real"]
    assert "self_div" not in by_class["real"]
    assert "self_div" in by_class["fast"]
    assert rules.load(classes=("exact", "real")) == rules.select(everything, "real")


def test_a_rule_describes_itself() -> None:
    rule = next(r for r in rules.load() if r.name == "sub_zero")
    text = rules.describe(rule)
    assert "a - 0 >> a" in text
    assert "-0 into +0" in text
    assert "(op_sub v_a (Num 0.0))" in text


def test_a_constant_may_be_asked_to_differ() -> None:
    (rule,) = rules.parse("with real:\n    a = x * y >> y * x, x != 1\n")
    assert rule.conditions == (Differs("x", 1.0),)


def test_brackets_say_what_a_term_may_depend_on() -> None:
    rule = one("swap = sum[j](sum[k](a[j] * b[k])) >> sum[j](a[j]) * sum[k](b[k])")
    assert rule.left == Fold("sum", "j", Fold("sum", "k", Call("mul", (Name("a"), Name("b")))))
    assert set(rule.conditions) == {NotFree("k", "a"), NotFree("j", "b")}


def test_terms_stand_at_other_positions() -> None:
    rule = one("split = sum[j: J](x[j]) >> sum[p: P](sum[q: Q](x[p*Q + q])), J == P*Q")
    place = Call("add", (Call("mul", (Position("p"), Size("q"))), Position("q")))
    inner = Access("x", ("j",), (place,))
    assert rule.right == Fold("sum", "p", Fold("sum", "q", inner))
    assert rule.extents == (("p", Size("p")), ("q", Size("q")))
    assert Compare(Size("j"), "==", Call("mul", (Size("p"), Size("q")))) in rule.conditions
    assert not rule.is_applied
    assert print_rule(rule, 0) == ()


def test_index_variables_are_numbers() -> None:
    rule = one("r = sum[j](where(j <= j, a, 0)) >> sum[j](a)")
    assert Call("le", (Position("j"), Position("j"))) in parts(rule.left)
    assert "(op_le (Ix x_j) (Ix x_j))" in print_rule(rule, 0)[0].text


def test_named_operations_unfold() -> None:
    named = one("r = softmax[j](a) >> silu(a)")
    written = one("r = exp(a - max[j](a)) / sum[j](exp(a - max[j](a))) >> a * sigmoid(a)")
    assert (named.left, named.right) == (written.left, written.right)


def test_a_pack_defines_operations() -> None:
    text = (
        "def soft(x: f32[N], t: f32 = 2.0) -> f32[N]:\n"
        "    e[i] = exp(x[i] / t)\n"
        "    y[i] = e[i] / sum[k](e[k])\n"
        "    return y\n\n"
        "with real:\n    r = soft[j](a) >> exp(a / 2.0) / sum[j](exp(a / 2.0))\n"
    )
    (rule,) = rules.parse(text)
    assert rule.left == rule.right


@pytest.mark.parametrize(
    ("law", "text"),
    [
        ("r = (n // P) // Q >> n // (P * Q), P > 0 and Q > 0", "made0 (* c_P c_Q)"),
        ("r = a ** n >> a * a ** (n - 1), finite(n), n > 1", "made0 (- c_n 1.0)"),
    ],
)
def test_constants_are_computed(law: str, text: str) -> None:
    assert text in print_rule(one(law), 0)[0].text


def test_operands_of_integer_division_are_integers_and_sizes() -> None:
    kinds = {(c.kind, c.name) for c in one("r = (n * P + m) // P >> n + m // P").conditions
             if isinstance(c, Kind)}  # fmt: skip
    assert kinds == {("size", "P"), ("integer", "n"), ("integer", "m")}


def test_conditions_on_extents_ranges_and_types() -> None:
    rule = one("r = sum[j](a) >> sum[j](a * 1), size(j) > 1, a <= 2, type(a) == f64")
    assert rule.conditions == (
        Compare(Size("j"), ">", Number(1)), Bound("a", "<=", 2.0), Kind("f64", "a"),
    )  # fmt: skip


def test_hints() -> None:
    text = (
        "with exact:\n    'Swaps.'\n"
        "    old = a + b == b + a, directed, backoff(7), deprecated(new)\n"
        "    new = a * b == b * a\n"
        "with approx:\n    tiny = sin(a) >> a, within(1e-3), a < 0.1, a > -0.1\n"
    )
    old, _, tiny = rules.parse(text)
    assert (old.directed, old.limit, old.deprecated, old.doc) == (True, 7, "new", "Swaps.")
    assert tiny.bound == 1e-3
    assert tiny not in rules.select([tiny], "fast")
    assert [(p.two_way, p.limit) for p in print_rule(old, 0)] == [(False, 7)]


def test_approximate_laws_state_a_bound() -> None:
    with pytest.raises(SourceError, match="how far it is off"):
        one("r = sin(a) >> a, a < 1", "approx")


@pytest.mark.parametrize(
    "text",
    [
        "with exact:\n" + "".join(f"    r{i} = -(-a) >> a\n" for i in range(2100)),
        "with exact:\n    r = " + " + ".join(f"a{i}" for i in range(30)) + " >> a0\n",
        "with exact:\n    r = a + 0 >> a" + ", a > 0" * 40 + "\n",
        "with exact:\n    r = max[j, k](a) >> a\n",
        "def f(x: f32) -> f32:\n    return f(x)\nwith real:\n    r = f(a) >> a\n",
        "def f(x: f32) -> f32:\n"
        + "".join(f"    v{i + 1} = v{i} + v{i}\n" for i in range(39)).replace("v0", "x")
        + "    return v39\nwith real:\n    r = f(a) >> a\n",
        "with exact:\n    r = a ** (10 ** 400) >> a, a < 1" + "0" * 400 + "\n",
        "with exact:\n    r = a + 0 >> a, deprecated(r)\n",
    ],
    ids=["laws", "names", "conditions", "axes", "recursion", "doubling", "numbers", "deprecated"],
)
def test_hostile_laws_are_refused(text: str) -> None:
    with pytest.raises((LimitError, SourceError)):
        rules.parse(text)
