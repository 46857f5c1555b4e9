"""Are wrong laws refuted? Each built-in law with one thing changed, put to the checker.

    nice -n 15 python bench/rule_mutation.py --jobs 1

A mutant (`rule_mutants`) is parsed and checked (`nautile.rules.check`), and evaluated by brute
force with code of its own (`rule_meaning`), which decides whether the change changes the meaning:
first what was not refuted, then, for confirmation, what was. Results are lines of
`out/rule_mutation/{checked,decided}-<digest of the code that made them>.jsonl`: started again, the
run goes on where it ended, and what no change of code bears on is not done again. With `--limit`
it ends after so many seconds, and tells how much is left. `bench/results/rule_mutation.json` holds

```
{"laws", "mutants", "malformed", "refuted", "confirmed": refuted, and different by brute force,
 "unconfirmed": refuted, and not put to brute force yet, "left": neither refuted nor decided yet,
 "changed": refuted or different, "rate": refuted of changed, "missed": different but not refuted,
 "survivors": [{"law","numerics","kind","site","text","why"}], "by_kind", "date", "commit",
 "clean": no uncommitted change in the rules and these files,
 "seconds": {"checked", "decided"}: processor time of all results, those from before included, ...}
```

A survivor that brute force finds no difference in is another true law, or lacks a condition that
bears on use alone; `why` says which.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Container, Iterator
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
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", help="laws of this pack or name")
    parser.add_argument("--limit", type=float, help="seconds after which the run ends")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    until = time.time() + (options.limit or math.inf)
    laws = [r for r in rules.load(rules.packs()) if options.only in (None, r.pack, r.name)]
    todo = [m for law in laws for m in mutants(law)]
    checked = known("checked", todo, options.jobs, until)
    well = [m for m in todo if checked.get(m.key, {}).get("status") not in (None, "malformed")]
    well.sort(key=lambda m: checked[m.key]["status"] == "refuted")
    confirmed = {m.key for m in well if checked[m.key]["status"] == "refuted"}
    decided = known("decided", well, options.jobs, until, confirmed)
    summary = summarised(laws, todo, checked, decided)
    options.out.write_text(json.dumps(summary, indent=1) + "\n")
    shown = {k: v for k, v in summary.items() if not isinstance(v, list)}
    print(json.dumps(shown, indent=1))
    return 0 if summary["rate"] >= 0.95 and not summary["left"] else 1


def known(
    what: str, todo: list[Mutant], jobs: int, until: float, brief: Container[str] = ()
) -> dict[str, dict[str, Any]]:
    """Results by key, "checked" or "decided", those from before included; `brief` are decided by
    fewer instances."""
    store = ROOT / "out" / "rule_mutation" / f"{what}-{_digest(what)}.jsonl"
    store.parent.mkdir(parents=True, exist_ok=True)
    lines = store.read_text().splitlines() if store.is_file() else []
    found = {_key(entry): entry for entry in map(json.loads, lines)}
    work = [(m, CONFIRM if m.key in brief else BRUTE) for m in todo]
    rest = [(what, *w) for w in work if f"{w[0].key}|{w[1]}" not in found]
    if what == "checked":
        rest = [(what, m, 0) for m in todo if f"{m.key}|0" not in found]
    context = multiprocessing.get_context("spawn")
    with store.open("a") as sink, context.Pool(jobs) as pool:
        for done, entry in enumerate(pool.imap_unordered(_result, rest), 1):
            sink.write(json.dumps(entry) + "\n")
            sink.flush()
            found[_key(entry)] = entry
            if done % 50 == 0:
                print(f"{what}: {done} of {len(rest)}", file=sys.stderr)
            if time.time() > until:
                pool.terminate()
                break
    return {entry["key"]: entry for entry in found.values()}


def _key(entry: dict[str, Any]) -> str:
    return f"{entry['key']}|{entry['trials']}"


def _result(work: tuple[str, Mutant, int]) -> dict[str, Any]:
    """One mutant, parsed, and checked or decided by brute force."""
    what, mutant, trials = work
    start = time.process_time()
    entry: dict[str, Any] = {"key": mutant.key, "trials": trials}
    try:
        (rule,) = rules.parse(f"with {mutant.numerics}:\n    m = {mutant.text}\n", pack=mutant.pack)
    except NautileError as error:
        return entry | {"status": "malformed", "shown": str(error).splitlines()[0], "seconds": 0.0}
    entry |= _checked(rule) if what == "checked" else _decided(rule, trials)
    entry["seconds"] = round(time.process_time() - start, 2)
    return entry if what == "decided" else entry | {"use": _of_use(mutant, rule)}


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


def summarised(
    laws: list[Rule], todo: list[Mutant], checked: dict[str, Any], decided: dict[str, Any]
) -> dict[str, Any]:
    """Counts, the rate, and every survivor with the reason."""
    unknown = {"status": "left", "meaning": "left", "use": False}
    found = [
        {"law": m.law, "numerics": m.numerics, "kind": m.kind, "site": m.site, "text": m.text}
        | unknown | decided.get(m.key, {}) | {"seconds": 0} | checked.get(m.key, {})
        for m in todo
    ]  # fmt: skip
    well = [e for e in found if e["status"] != "malformed"]
    refuted = [e for e in well if e["status"] == "refuted"]
    alive = [e for e in well if e["status"] != "refuted"]
    missed = [e for e in alive if e["meaning"] == "differs"]
    changed = len(refuted) + len(missed)
    took = {w: round(sum(r[m.key].get("seconds", 0.0) for m in todo if m.key in r), 1)
            for w, r in (("checked", checked), ("decided", decided))}  # fmt: skip
    return {
        "laws": len(laws), "mutants": len(found), "malformed": len(found) - len(well),
        "refuted": len(refuted),
        "confirmed": sum(e["meaning"] == "differs" for e in refuted),
        "unconfirmed": sum(e["meaning"] == "left" for e in refuted),
        "left": sum(e["meaning"] == "left" for e in alive),
        "changed": changed, "missed": len(missed),
        "rate": round(len(refuted) / max(1, changed), 4),
        "by_kind": {k: dict(Counter(e["status"] for e in found if e["kind"] == k))
                    for k in ("condition", "sign", "operator")},
        "survivors": sorted(map(_survivor, alive), key=lambda e: (e["why"], e["law"], e["text"])),
        "seconds": took, "date": datetime.now(UTC).date().isoformat(), **_state(),
        "versions": {p: version(p) for p in ("nautile", "numpy", "hypothesis")},
    }  # fmt: skip


def _survivor(entry: dict[str, Any]) -> dict[str, Any]:
    kept = {k: entry[k] for k in ("law", "numerics", "kind", "site", "text")}
    return kept | {"why": _why(entry)}


def _why(entry: dict[str, Any]) -> str:
    if entry["status"] == "crashed":
        return f"the checker failed: {entry['shown']}"
    if entry["meaning"] == "left":
        return "not decided yet"
    if entry["meaning"] == "differs":
        return f"missed: brute force finds {entry['brute']}"
    if entry["meaning"] == "undecided":
        return f"undecided: brute force does not evaluate {entry['brute']}"
    if entry["use"]:
        return "the condition bears on use alone"
    if entry["kind"] == "condition":
        return f"true without the condition: no difference in {BRUTE} instances"
    return f"another true law: no difference in {BRUTE} instances"


def _digest(what: str) -> str:
    """The state of the code that results of a kind come from."""
    paths = sorted((ROOT / "rules").glob("*.py"))
    if what == "decided":
        paths = [ROOT / "rules" / f"{n}.py" for n in ("carriers", "law", "parser", "patterns")]
        paths += sorted((ROOT / "bench").glob("rule_[mv]*.py"))
        paths.remove(Path(__file__).resolve())
    whole = hashlib.blake2b(repr((TRIALS, BRUTE, CONFIRM)).encode(), digest_size=6)
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()


def _state() -> dict[str, Any]:
    """The commit, and whether the rules and these files are as it has them."""
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", "rules", *sorted(map(str, _own())))
    return {"commit": commit, "clean": bool(commit) and not changed}


def _own() -> Iterator[Path]:
    return (ROOT / "bench").glob("rule_*.py")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
