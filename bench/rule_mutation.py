"""Are wrong laws refuted? Each built-in law with one thing changed, put to the checker.

    python bench/rule_mutation.py --jobs 2

A mutant (`rule_mutants`) is parsed, checked (`nautile.rules.check`), and evaluated by brute force
with code of its own (`rule_meaning`), which decides whether the change changes the meaning. Results
are lines of `out/rule_mutation/<digest of rules>.jsonl`: started again, the run goes on where it
ended. `bench/results/rule_mutation.json` holds

```
{"laws", "mutants", "malformed", "refuted", "confirmed": refuted, and different by brute force,
 "changed": refuted or different, "rate": refuted of changed, "missed": different but not refuted,
 "survivors": [{"law","numerics","kind","site","text","why"}], "by_kind", "seconds", "date", ...}
```

A survivor that brute force finds no difference in is another true law, or lacks a condition that
bears on use alone; `why` says which.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rule_meaning import differs
from rule_mutants import Mutant, mutants
from rule_values import Undecided

from nautile import rules
from nautile.errors import NautileError
from nautile.rules.check import check
from nautile.rules.law import Rule

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench" / "results" / "rule_mutation.json"
TRIALS, BRUTE, CONFIRM = 64, 200, 60
_USE = ("Apart", "Bare", "Chain", "Free")
_WORDS = ("instead", "parted", "directed", "unbounded")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="laws of this pack or name")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    start = time.time()
    laws = [r for r in rules.load(rules.packs()) if options.only in (None, r.pack, r.name)]
    found = list(results(laws, options.jobs))
    summary = summarised(laws, found, time.time() - start)
    options.out.write_text(json.dumps(summary, indent=1) + "\n")
    shown = {k: v for k, v in summary.items() if not isinstance(v, list)}
    print(json.dumps(shown, indent=1))
    return 0 if summary["rate"] >= 0.95 else 1


def results(laws: list[Rule], jobs: int) -> Iterator[dict[str, Any]]:
    """The result of every mutant of the laws, those that are known from before first."""
    store = ROOT / "out" / "rule_mutation" / f"{_digest()}.jsonl"
    store.parent.mkdir(parents=True, exist_ok=True)
    lines = store.read_text().splitlines() if store.is_file() else []
    known = {entry["key"]: entry for entry in map(json.loads, lines)}
    todo = [m for law in laws for m in mutants(law)]
    yield from (known[m.key] for m in todo if m.key in known)
    rest = [m for m in todo if m.key not in known]
    context = multiprocessing.get_context("spawn")
    with store.open("a") as sink, context.Pool(jobs) as pool:
        for done, entry in enumerate(pool.imap_unordered(result, rest), 1):
            sink.write(json.dumps(entry) + "\n")
            sink.flush()
            if done % 50 == 0:
                print(f"{done} of {len(rest)}", file=sys.stderr)
            yield entry


def result(mutant: Mutant) -> dict[str, Any]:
    """One mutant: parsed, checked and decided by brute force."""
    start = time.time()
    entry = {"key": mutant.key, "law": mutant.law, "pack": mutant.pack, "text": mutant.text,
             "numerics": mutant.numerics, "kind": mutant.kind, "site": mutant.site}  # fmt: skip
    try:
        (rule,) = rules.parse(f"with {mutant.numerics}:\n    m = {mutant.text}\n", pack=mutant.pack)
    except NautileError as error:
        return entry | {"status": "malformed", "shown": str(error).splitlines()[0]}
    entry |= _checked(rule)
    trials = CONFIRM if entry["status"] == "refuted" else BRUTE
    entry |= _decided(rule, trials) | {"seconds": round(time.time() - start, 2)}
    return entry | {"use": _of_use(mutant, rule)}


def _checked(rule: Rule) -> dict[str, Any]:
    try:
        verdict = check(rule, trials=TRIALS, strongest=False, repair=False)
    except Exception as error:  # a crash of the checker is a result, too
        return {"status": "crashed", "shown": f"{type(error).__name__}: {error}"}
    status = {"unsound": "refuted", "sound": "survived"}.get(verdict.verdict, verdict.verdict)
    return {"status": status, "method": verdict.method, "tried": verdict.tried}


def _decided(rule: Rule, trials: int) -> dict[str, Any]:
    try:
        shown = differs(rule, trials=trials)
    except Undecided as reason:
        return {"meaning": "undecided", "brute": str(reason)}
    except (TypeError, ValueError, KeyError) as reason:
        return {"meaning": "undecided", "brute": f"{type(reason).__name__}: {reason}"}
    return {"meaning": "same" if shown is None else "differs", "brute": shown}


def _of_use(mutant: Mutant, rule: Rule) -> bool:
    """Whether the condition that was left out bears on use alone."""
    if mutant.kind != "condition":
        return False
    (law,) = [r for r in rules.load(rules.packs()) if r.name == mutant.law]
    gone = Counter(map(repr, law.conditions)) - Counter(map(repr, rule.conditions))
    named = any(text.startswith(f"{word}(") for text in gone for word in _USE)
    return named or any(word in mutant.site for word in _WORDS)


def summarised(laws: list[Rule], found: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Counts, the rate, and every survivor with the reason."""
    well = [e for e in found if e["status"] != "malformed"]
    refuted = [e for e in well if e["status"] == "refuted"]
    missed = [e for e in well if e["status"] != "refuted" and e["meaning"] == "differs"]
    changed = len(refuted) + len(missed)
    survivors = [_survivor(e) for e in well if e["status"] != "refuted"]
    return {
        "laws": len(laws), "mutants": len(found), "malformed": len(found) - len(well),
        "refuted": len(refuted),
        "confirmed": sum(e["meaning"] == "differs" for e in refuted),
        "changed": changed, "missed": len(missed),
        "rate": round(len(refuted) / max(1, changed), 4),
        "by_kind": {k: dict(Counter(e["status"] for e in found if e["kind"] == k))
                    for k in ("condition", "sign", "operator")},
        "survivors": sorted(survivors, key=lambda e: (e["why"], e["law"], e["text"])),
        "seconds": round(sum(e.get("seconds", 0.0) for e in well), 1), "wall": round(seconds, 1),
        "date": datetime.now(UTC).date().isoformat(), "rules": _digest(),
        "versions": {p: version(p) for p in ("nautile", "numpy", "hypothesis")},
    }  # fmt: skip


def _survivor(entry: dict[str, Any]) -> dict[str, Any]:
    kept = {k: entry[k] for k in ("law", "numerics", "kind", "site", "text")}
    return kept | {"why": _why(entry)}


def _why(entry: dict[str, Any]) -> str:
    if entry["status"] == "crashed":
        return f"the checker failed: {entry['shown']}"
    if entry["meaning"] == "differs":
        return f"missed: brute force finds {entry['brute']}"
    if entry["meaning"] == "undecided":
        return f"undecided: brute force does not evaluate {entry['brute']}"
    if entry["use"]:
        return "the condition bears on use alone"
    if entry["kind"] == "condition":
        return f"true without the condition: no difference in {BRUTE} instances"
    return f"another true law: no difference in {BRUTE} instances"


def _digest() -> str:
    """The state of the rules and of what tries them."""
    paths = [*(ROOT / "rules").glob("*.py"), *(ROOT / "rules").glob("*.nau")]
    paths += (ROOT / "bench").glob("rule_*.py")
    whole = hashlib.blake2b(digest_size=6)
    for path in sorted(paths):
        whole.update(path.read_bytes())
    return whole.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
