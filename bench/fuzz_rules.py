"""Random rules against the checker: none may crash it, or hold it beyond its limit.

Of five rules two are shipped laws with a few parts exchanged (operations, names, axes, whole terms
put in, conditions left out, added and borrowed from other laws), two are made from the language's
grammar, and one is a rule of these kinds damaged as text: characters and words exchanged, brackets
lost, numbers made large. A malformed rule must be refused with an error of `nautile.errors`; a
well-formed one gets a verdict within the limit, which is of processor time, as `check`'s is (and
`_GRACE` for what is under way then). Results are one JSON object: outcomes, and of each kind how
many were laws.

    python bench/fuzz_rules.py --count 10000 --seconds 2 -o bench/results/fuzz_rules.json
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from nautile import rules
from nautile.errors import NautileError
from nautile.rules.check import check

_NAMES = ("a", "b", "c", "n", "P", "m", "k", "r")
_AXES = ("j", "k2", "d")
_UNARY = (
    "-{}", "exp({})", "log({})", "sqrt({})", "abs({})", "tanh({})", "floor({})", "bf16({})",
    "(not {})", "sign({})", "f8e4m3({})", "i32({})", "silu({})", "rsqrt({})", "erf({})",
)  # fmt: skip
_BINARY = ("+", "-", "*", "/", "//", "%", "**", "<", ">=", "==", "and", "or")
_FOLDS = ("sum", "max", "min", "prod", "any", "all", "argmax", "mean", "softmax", "logsumexp")
_NUMBERS = ("0", "1", "2", "-1", "0.5", "1e30", "inf", "-inf", "1e-300", "10**9", "True", "7")
_CONDITIONS = ("j not in a", "j not in b", "a > 0", "b >= 0", "c != 0", "a <= 1", "a < -3",
               "size(j) > 1", "finite(a)", "integer(n)", "boolean(c)", "P % 2 == 0", "a != 1",
               "type(a) == f64", "tame(r)", "m == max[j](b)", "scale(a, m, k, r)", "directed",
               "shift(a, m, k, r)", "instead", "backoff(3)", "j in a", "apart(a, m)")  # fmt: skip
_SECTIONS = ("exact", "real", "fast", "facts", "approx")
_SWAPS = (("+", "-"), ("-", "+"), ("*", "/"), ("/", "*"), ("exp", "log"), ("log", "exp"),
          ("max", "min"), ("sum", "max"), ("sum", "prod"), ("max", "sum"), ("min", "sum"),
          ("exp", "tanh"), ("sqrt", "abs"), ("abs", "sqrt"), ("0", "1"), ("1", "0"), ("2", "1e30"),
          ("running", "before"), ("before", "running"), ("shift", "scale"), ("scale", "power"),
          ("where", "max"), ("sum", "argmax"), ("max", "argmin"), ("bf16", "f8e4m3"),
          (">", "<"), ("<", ">="), ("and", "or"))  # fmt: skip
_GRACE = 2.0  # seconds beyond the limit: one instance, or one formula of z3, and a little shrinking
_DAMAGE = "()[],:=<>*/-+.'\"#\\\n \t0aJ€\x00"


def main() -> int:
    """Try the rules and print what happened; the status is 1 where anything went wrong."""
    options = _options()
    report = fuzz(options.count, options.seed, options.seconds)
    text = json.dumps(report, indent=1)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    return int(bool(report["wrong"]))


def fuzz(count: int, seed: int, seconds: float, trials: int = 8) -> dict[str, Any]:
    """Try `count` rules of a seed, each with a limit of so many seconds."""
    outcomes: Counter[str] = Counter()
    formed: dict[str, Counter[str]] = {kind: Counter() for kind in ("mutant", "random", "damaged")}
    wrong: list[dict[str, Any]] = []
    slowest, start = 0.0, time.perf_counter()
    for kind, law in laws(count, seed):
        began = time.process_time()
        try:
            outcome = _outcome(law, seconds, trials)
            outcomes[outcome] += 1
            formed[kind]["refused" if outcome.startswith("refused") else "laws"] += 1
        except Exception as error:
            wrong.append({"law": law, "error": repr(error)[:300]})
        taken = time.process_time() - began
        slowest = max(slowest, taken)
        if taken > seconds + _GRACE:
            wrong.append({"law": law, "seconds": taken})
    return {
        "rules": count, "seed": seed, "limit_s": seconds,
        "outcomes": dict(sorted(outcomes.items())),
        "kinds": {k: dict(c) for k, c in formed.items()},
        "wrong": wrong, "slowest_s": round(slowest, 3),
        "seconds": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def _outcome(law: str, seconds: float, trials: int) -> str:
    try:
        found = rules.parse(law)
    except NautileError as error:
        return f"refused: {error.code}"
    verdict = "empty"
    for rule in found:
        rules.describe(rule)
        thorough = len(law) % 8 == 0
        tried = check(rule, trials=trials, seconds=seconds, strongest=thorough, repair=thorough)
        verdict = tried.verdict
    return verdict


def laws(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """The kind ("mutant", "random" or "damaged") and the text of packs of one law each."""
    rng = random.Random(seed)
    for i in range(count):
        if rng.random() < 0.5:
            kind, (section, law) = "mutant", _mutant(rng)
        else:
            kind, section = "random", rng.choice(_SECTIONS)
            law = _law(rng, section)
        text = f"with {section}:\n    law = {law}\n"
        yield ("damaged", _damaged(rng, text)) if i % 5 == 0 else (kind, text)


@cache
def _shipped() -> tuple[tuple[str, ast.expr], ...]:
    """The sections and trees of all shipped laws."""
    found = rules.load(rules.packs())
    return tuple((r.numerics, ast.parse(f"({r.text})", mode="eval").body) for r in found)


def _mutant(rng: random.Random) -> tuple[str, str]:
    """A shipped law with one to four changes, in its own section mostly."""
    section, tree = rng.choice(_shipped())
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    head, *asked = [ast.unparse(p) for p in parts]
    for _ in range(rng.choice((1, 1, 2, 4))):
        change = rng.random()
        if change < 0.15 and asked:
            del asked[rng.randrange(len(asked))]
        elif change < 0.3:
            asked.append(rng.choice((*_asked(rng, head), *_borrowed(rng))))
        else:
            head = _exchanged(rng, head)
    section = rng.choice(_SECTIONS) if rng.random() < 0.1 and section != "facts" else section
    asked += ["within(0.1)"] if section == "approx" else []
    return section, ", ".join([head, *asked])


def _borrowed(rng: random.Random) -> list[str]:
    """The conditions of another shipped law."""
    _, tree = rng.choice(_shipped())
    return [ast.unparse(p) for p in tree.elts[1:]] if isinstance(tree, ast.Tuple) else []


def _exchanged(rng: random.Random, head: str) -> str:
    """The law with one part exchanged for another of its kind."""
    names = _names(head)
    change = rng.random()
    if change < 0.3:
        old, new = rng.choice(_SWAPS)
        places = [
            m.start() for m in re.finditer(rf"(?<![\w>=<*/]){re.escape(old)}(?![\w>=*/])", head)
        ]
        at = rng.choice(places) if places else len(head)
        return head[:at] + new + head[at + len(old) :] if places else head
    places = [m.span() for m in re.finditer(r"(?<![\w\[])[a-z](?![\w\[(])", head)]
    if not places or not names:
        return head
    start, end = rng.choice(places)
    put = rng.choice(names) if change < 0.6 else f"({_of(rng, names, head, 2)})"
    return head[:start] + put + head[end:]


def _of(rng: random.Random, names: list[str], head: str, depth: int) -> str:
    """A term over names and axes that a law has."""
    if depth <= 0 or rng.random() < 0.3:
        return rng.choice((*names, rng.choice(_NUMBERS)))
    axes = re.findall(r"\[(\w+)\]", head)
    if axes and rng.random() < 0.2:
        return f"{rng.choice(_FOLDS)}[{rng.choice(axes)}]({_of(rng, names, head, depth - 1)})"
    if rng.random() < 0.4:
        return rng.choice(_UNARY).format(_of(rng, names, head, depth - 1))
    inner = (_of(rng, names, head, depth - 1) for _ in "ab")
    return f" {rng.choice(_BINARY)} ".join(f"({x})" for x in inner)


def _names(head: str) -> list[str]:
    """The terms' names of a law: letters that are no axes."""
    axes = {a for found in re.findall(r"\[([^]]*)\]", head) for a in re.findall(r"\w+", found)}
    return sorted(set(re.findall(r"(?<!\w)[a-z](?![\w\[(])", head)) - axes)


def _asked(rng: random.Random, head: str, conditions: Iterable[str] = _CONDITIONS) -> list[str]:
    """Conditions, most of them on names and axes that the law has."""
    names = _names(head) or ["a"]
    axes = re.findall(r"\w\[(\w+)", head) or ["j"]
    changed = [re.sub(r"\b[abcnr]\b", lambda _: rng.choice(names), c) for c in conditions]
    return [re.sub(r"\bj\b", lambda _: rng.choice(axes), c) for c in changed]


def _law(rng: random.Random, section: str) -> str:
    if section == "facts":
        relation = rng.choice(("shift", "scale", "power"))
        head = f"{relation}({_pattern(rng, 2)}, m, k, {_pattern(rng, 2)})"
    else:
        left = next(p for p in iter(lambda: _pattern(rng, rng.randint(1, 4)), None) if _is_left(p))
        right = left if rng.random() < 0.15 else _pattern(rng, rng.randint(0, 3))
        right = _bound(rng, left, right) if rng.random() < 0.9 else right
        head = f"{left} {rng.choice(('>>', '>>', '=='))} {right}"
    among = list(_CONDITIONS)
    if rng.random() < 0.9:
        among = _asked(rng, head, _simple(_CONDITIONS))
    asked = rng.sample(among, rng.choice((0, 0, 1, 1, 2, 4)))
    asked += ["within(0.1)"] if section == "approx" else []
    return ", ".join([head, *asked])


def _is_left(pattern: str) -> bool:
    """Whether a pattern may be rewritten: names, and a position only of an axis that is bound."""
    loose = "x[" in pattern or (re.search(r"\bj\b(?!\]|:)", pattern) and "[j" not in pattern)
    return not loose and bool(_names(pattern)) and not re.fullmatch(r"\W*\w+\W*", pattern)


def _simple(conditions: Iterable[str]) -> list[str]:
    """Those that need no second name, nor a hint's own form of law."""
    barred = re.compile(r"\b(P|m|k|directed|instead)\b")
    return [c for c in conditions if not barred.search(c)]


def _bound(rng: random.Random, left: str, right: str) -> str:
    """The right side over names and axes of the left."""
    names = [n for n in _NAMES if re.search(rf"\b{n}\b", left)] or ["1"]
    axes = [a for a in ("j", "k2", "d") if f"[{a}" in left]
    right = re.sub(r"\b[abcnPmkr]\b", lambda _: rng.choice(names), right)
    if axes:
        return re.sub(r"\[(j|k2|d)\b", lambda _: f"[{rng.choice(axes)}", right)
    return re.sub(r"\w+\[[^]]*\]", "abs", right).replace("j", names[0])


def _pattern(rng: random.Random, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.1:
        return rng.choice((*_NAMES[:3], *_NAMES[:3], *_NAMES, rng.choice(_NUMBERS), "x[j]", "j"))
    form = rng.random()
    if form < 0.3:
        return rng.choice(_UNARY).format(_pattern(rng, depth - 1))
    if form < 0.65:
        return f"({_pattern(rng, depth - 1)} {rng.choice(_BINARY)} {_pattern(rng, depth - 1)})"
    if form < 0.9:
        axis = rng.choice((*_AXES, "j: J", "d: J // 2"))
        return f"{rng.choice(_FOLDS)}[{axis}]({_pattern(rng, depth - 1)})"
    if form < 0.95:
        return f"where({_pattern(rng, 1)}, {_pattern(rng, depth - 1)}, {_pattern(rng, 1)})"
    return f"max({_pattern(rng, depth - 1)}, x[j + {rng.randint(0, 3)}])"


def _damaged(rng: random.Random, law: str) -> str:
    text = list(law)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(text))
        change = rng.random()
        if change < 0.4:
            text[at] = rng.choice(_DAMAGE)
        elif change < 0.6:
            del text[at : at + rng.randint(1, 6)]
        elif change < 0.8:
            text[at:at] = text[max(0, at - 9) : at] * rng.choice((1, 2, 40))
        else:
            text[at:at] = str(rng.choice((10**400, -(2**63), 1e308, 3)))
        text = text or list("x")
    return "".join(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=2.0, help="limit of one rule")
    parser.add_argument("-o", "--output", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
