"""Expression files for measurements of batches: variations of the corpus, half of them duplicates.

A file is one of tests/data/corpus with other sizes (an eighth up to all of each), another narrow
type, and where it has a causal mask perhaps another mask; a duplicate is such a file with all its
names changed. All is drawn from a seed, and each file is read, so that sizes that do not fit are
drawn again, originals differ in their keys, and duplicates do not. Left out are programs whose
search fills its budget of rows (two of 40, which take 15 to 40 seconds each and would be a third of
all that is measured) and tensors of more than 2**25 elements.
"""

from __future__ import annotations

import ast
import io
import json
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from nautile import lang
from nautile.errors import NautileError

__all__ = ["corpus", "renamed", "write"]

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "data" / "corpus"
NARROW = ("f16", "bf16")
CAUSAL = "where(s <= t, "
MASKS = (
    "where(s <= t + {n}, ",
    "where(s <= t and t - s < {n}, ",
    "where(s <= t or s < {n}, ",
    "where(s // {n} <= t // {n}, ",
)
_SIZE = re.compile(r"\b([A-Z]\w*)=(\d+)\b")
_LARGEST = 1 << 25  # elements of an input or a result
_LONG = ("gemma2_geglu_mlp", "gpt2_mlp")  # their searches end by the budget of rows
_HEADS = tuple(f"def {name}(" for name in _LONG)
_TRIES = 200


def corpus() -> list[str]:
    """The programs to vary."""
    attention = json.loads((CORPUS / "attention.json").read_text())["modifications"]
    subgraphs = json.loads((CORPUS / "subgraphs.json").read_text())["subgraphs"]
    entries = [e["program"] for e in (*attention, *subgraphs)]
    return ["\n".join(lines) + "\n" for lines in entries if not lines[0].startswith(_HEADS)]


def write(folder: Path, count: int, seed: int) -> dict[str, int]:
    """Write so many files; returns how many are originals and duplicates."""
    draw = random.Random(seed)
    texts = list(_texts(draw, count - count // 2))
    duplicates = [renamed(draw.choice(texts), draw) for _ in range(count // 2)]
    files = texts + duplicates
    draw.shuffle(files)
    for number, text in enumerate(files):
        path = folder / f"{number // 100:03}" / f"{number:05}.nau"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"originals": len(texts), "duplicates": len(duplicates)}


def _texts(draw: random.Random, count: int) -> Iterator[str]:
    """So many programs of different keys, of each base in turn while it has more."""
    bases, seen = corpus(), set[str]()
    while len(seen) < count:
        if not bases:
            raise RuntimeError("the corpus has no more variations; ask for fewer files")
        for base in bases[:]:
            found = _new(base, seen, draw)
            if found is None:
                bases.remove(base)
            elif len(seen) < count:
                seen.add(found[0])
                yield found[1]


def _new(base: str, seen: set[str], draw: random.Random) -> tuple[str, str] | None:
    """The key and the text of a variation that was not seen yet."""
    for _ in range(_TRIES):
        text = _varied(base, draw)
        key = _key(text)
        if key is not None and key not in seen:
            return key, text
    return None


def _varied(text: str, draw: random.Random) -> str:
    def size(match: re.Match[str]) -> str:
        value = int(match[2])
        return f"{match[1]}={max(1, int(value * draw.choice((0.125, 0.25, 0.25, 0.5, 1))))}"

    if CAUSAL in text and draw.random() < 0.75:
        mask = draw.choice(MASKS).format(n=draw.choice((16, 64, 96, 128, 256, 512, 1000)))
        text = text.replace(CAUSAL, mask)
    if draw.random() < 0.5:
        first, second = NARROW
        swapped = {first: second, second: first}
        text = re.sub(r"\b(b?f16)\b", lambda m: swapped[m[1]], text)
    return _SIZE.sub(size, text)


def _key(text: str) -> str | None:
    """What the program is up to names; None where it is none, or too large."""
    try:
        (program,) = lang.parse(text)
    except (NautileError, ValueError):
        return None
    stored = [*program.inputs, *(o.buffer for o in program.outputs)]
    return lang.key(program) if all(b.size <= _LARGEST for b in stored) else None


def renamed(text: str, draw: random.Random) -> str:
    """The same program with other names of everything that has a name of its own."""
    names = sorted(_own_names(ast.parse(text)))
    taken = set(names)
    new: dict[str, str] = {}
    for name in names:
        while (made := _name(name, draw)) in taken:
            pass
        taken.add(made)
        new[name] = made
    found = "".join(_rebuilt(text, new))
    assert _key(found) == _key(text), "a renamed program has another key"
    return found


def _name(name: str, draw: random.Random) -> str:
    """A name of the same kind: sizes begin with a capital letter."""
    letters = "".join(draw.choice("bcdghjklmnpqrvwz") for _ in range(draw.randint(2, 5)))
    made = f"{letters}_{draw.randrange(100)}"
    return made.capitalize() if name[0].isupper() else made


def _own_names(tree: ast.Module) -> set[str]:
    """Programs, parameters, sizes, definitions and indices: whatever is not of the language."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name, args=arguments):
                found |= {name, *(a.arg for a in [*arguments.args, *arguments.kwonlyargs])}
            case ast.Assign(targets=[ast.Tuple(elts=targets)]):
                found |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            case ast.Assign(targets=[target]):
                found |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
            case ast.Call(func=ast.Subscript(slice=inside)):
                found |= {n.id for n in ast.walk(inside) if isinstance(n, ast.Name)}
    return found


def _rebuilt(text: str, new: dict[str, str]) -> Iterator[str]:
    """The text, token by token, with its spaces as they were."""
    lines, line, column = text.splitlines(keepends=True), 1, 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        start, end = token.start, token.end
        while (line, column) < start:
            stop = start[1] if line == start[0] else len(lines[line - 1])
            yield lines[line - 1][column:stop]
            line, column = (line, stop) if line == start[0] else (line + 1, 0)
        if token.type in (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            continue
        yield new.get(token.string, token.string) if token.type == tokenize.NAME else token.string
        line, column = end
        if token.type in (tokenize.NEWLINE, tokenize.NL):
            line, column = line + 1, 0
