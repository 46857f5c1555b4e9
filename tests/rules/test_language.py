"""The rule language: what a pack may say, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautile import rules
from nautile.errors import InputError, LimitError, SourceError
from nautile.rules.law import Call, Differs, Fold, Name, NotFree, Number, Rescaled, Size, Stream

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
        ("r = a * 1 >> a, a > 1", "unknown-condition", 21),
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
