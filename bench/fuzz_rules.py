"""Random rules against the checker: none may crash it, or hold it beyond its limit.

Rules are made from the language's grammar, some then damaged: characters and words exchanged,
brackets lost, numbers made large. A malformed rule must be refused with an error of
`nautile.errors`; a well-formed one gets a verdict within the limit. Results are one JSON object.

    python bench/fuzz_rules.py --count 10000 --seconds 2 -o bench/results/fuzz_rules.json
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
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
    wrong: list[dict[str, Any]] = []
    slowest, start = 0.0, time.perf_counter()
    for law in laws(count, seed):
        began = time.perf_counter()
        try:
            outcomes[_outcome(law, seconds, trials)] += 1
        except Exception as error:
            wrong.append({"law": law, "error": repr(error)[:300]})
        taken = time.perf_counter() - began
        slowest = max(slowest, taken)
        if taken > 3 * seconds + 5:
            wrong.append({"law": law, "seconds": taken})
    return {
        "rules": count, "seed": seed, "limit_s": seconds,
        "outcomes": dict(sorted(outcomes.items())), "wrong": wrong, "slowest_s": round(slowest, 3),
        "seconds": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def _outcome(law: str, seconds: float, trials: int) -> str:
    try:
        found = rules.parse(law)
    except NautileError as error:
        return f"refused: {error.code}"
    for rule in found:
        rules.describe(rule)
        thorough = len(law) % 8 == 0
        verdict = check(rule, trials=trials, seconds=seconds, strongest=thorough, repair=thorough)
    return verdict.verdict if found else "empty"


def laws(count: int, seed: int) -> Iterator[str]:
    """Packs of one law each: well-formed ones, and damaged ones."""
    rng = random.Random(seed)
    for i in range(count):
        section = rng.choice(_SECTIONS)
        law = f"with {section}:\n    law = {_law(rng, section)}\n"
        yield _damaged(rng, law) if i % 3 == 0 else law


def _law(rng: random.Random, section: str) -> str:
    if section == "facts":
        relation = rng.choice(("shift", "scale", "power"))
        head = f"{relation}({_pattern(rng, 2)}, m, k, {_pattern(rng, 2)})"
    else:
        left = _pattern(rng, rng.randint(1, 4))
        right = left if rng.random() < 0.15 else _pattern(rng, rng.randint(0, 3))
        right = _bound(rng, left, right) if rng.random() < 0.9 else right
        head = f"{left} {rng.choice(('>>', '>>', '=='))} {right}"
    asked = rng.sample(_CONDITIONS, rng.choice((0, 0, 1, 1, 2, 4)))
    asked += ["within(0.1)"] if section == "approx" else []
    return ", ".join([head, *asked])


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
