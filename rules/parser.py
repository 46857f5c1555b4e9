"""Packs of laws: text to rules.

```
pack      ::= docstring? (operation | section)*
operation ::= def name(x: f32[N], eps: f32 = 1e-6) -> f32[N]: lines      used as name[j](..)
section   ::= with (exact | real | fast | approx | facts):     and laws, one a line
law       ::= name = pattern == pattern (, item)*       rewrites both ways
            | name = pattern >> pattern (, item)*       rewrites left to right
            | name = relation (, relation | condition)*      in facts: the conclusion, its premises
relation  ::= (shift | scale | power)(subject, carrier, slope, running)
            | bend(subject, carrier, weight, lean, running) | drop(subject, term, slope, rest)
item      ::= relation | condition (see `nautile.rules.asked`) | hint
hint      ::= instead                      the left side need not be kept
            | parted                       a factor of the result could leave a reduction
            | directed                     a law == that runs with those that rewrite one way
            | backoff(n)                   more than n matches in one iteration are too many
            | deprecated(name)             the law to use instead
            | within(e)                    of an approximate law: its error, relative to the larger
                                           of 1 and the left side
```

Comments that stand directly above a law or behind it document it, as does a string above it.
Refused with the place: unbound names on a right-hand side, duplicate names, unknown operations and
conditions, a wrong number of operands, files over the limits (bytes, depth, laws, parts of a law,
axes, conditions).
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from nautile.errors import LimitError, SourceError
from nautile.lang.names import BUILTIN

from .asked import condition_of
from .bound import check_bound
from .carriers import stream_axes
from .conditions import Condition
from .hints import APPROX, hint
from .law import Name, Pattern, Relation, Rule, axes_of, names_of, relation_parts
from .named import defined
from .patterns import DEPTH, Reader
from .positions import completed

__all__ = ["BYTES", "LAWS", "SECTIONS", "parse"]

SECTIONS = ("exact", "real", "fast", "approx", "facts")
BYTES = 1 << 20
LAWS = 2000
_AXES, _NAMES, _ITEMS = 8, 24, 24  # of one law
_LINES = 40  # of one operation
_RELATIONS = {
    "shift": "subject, carrier, slope, running form",
    "scale": "subject, carrier, slope, running form",
    "power": "subject, carrier, exponent, running form",
    "bend": "subject, carrier, weight, lean, running form",
    "drop": "subject, term, slope, rest",
}
_FORM = "a law reads: name = left >> right, conditions (or == for both ways)"


def parse(text: str, *, pack: str = "pack", filename: str = "<text>") -> tuple[Rule, ...]:
    """The rules of a pack's text.

    Raises SourceError at the first thing that is not part of the language, LimitError for a file
    that is too large or nests too deep.
    """
    _limits(text, filename)
    reader = Reader(filename, text.splitlines())
    rules: list[Rule] = []
    for node in _tree(text, reader).body:
        if isinstance(node, ast.FunctionDef):
            _operation(reader, node)
        elif not _is_text(node):
            rules += _laws(reader, node, pack)
        if len(rules) > LAWS:
            raise LimitError(f"{filename}: a pack may have {LAWS} laws")
    _distinct(reader, rules)
    _check_deprecated(reader, rules)
    return tuple(rules)


def _is_text(node: ast.stmt) -> bool:
    """A docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _operation(reader: Reader, node: ast.FunctionDef) -> None:
    """Keep an operation that the pack's laws may name."""
    found = defined(node)
    if isinstance(found, str):
        reader.refuse(node, "unsupported", found)
    if len(node.body) > _LINES:
        raise LimitError(f"{reader.filename}: an operation may have {_LINES} lines")
    if found.name in reader.operations or found.name in BUILTIN:
        reader.refuse(node, "duplicate", f"{found.name} is already an operation")
    reader.operations[found.name] = found


def _laws(reader: Reader, node: ast.stmt, pack: str) -> Iterator[Rule]:
    section = _section(reader, node)
    assert isinstance(node, ast.With)
    said = ""
    for item in node.body:
        if _is_text(item):
            said = " ".join(ast.literal_eval(item.value).split())  # type: ignore[attr-defined]
            continue
        rule = _law(reader, item, section, pack)
        yield replace(rule, doc=" ".join(filter(None, (said, rule.doc))))
        said = ""


def _limits(text: str, filename: str) -> None:
    if len(text) > BYTES or len(text.encode(errors="replace")) > BYTES:
        raise LimitError(f"{filename}: a pack of rules may hold {BYTES} bytes")
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth > DEPTH:
            raise LimitError(f"{filename}: brackets nest more than {DEPTH} deep")


def _tree(text: str, reader: Reader) -> ast.Module:
    try:
        with warnings.catch_warnings():  # "2if a": what is no law is refused below, and says why
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.parse(text)
    except SyntaxError as error:
        raise SourceError(
            error.msg or "not Python syntax",
            code="syntax",
            filename=reader.filename,
            line=error.lineno or 1,
            column=max(1, error.offset or 1),
            text=(error.text or "").rstrip("\n"),
        ) from None
    except (RecursionError, MemoryError):
        raise LimitError(f"{reader.filename}: an expression nests too deep") from None
    except ValueError as error:
        raise SourceError(str(error), code="syntax", filename=reader.filename) from None


def _section(reader: Reader, node: ast.stmt) -> str:
    if not isinstance(node, ast.With) or len(node.items) != 1:
        reader.refuse(node, "syntax", f"laws stand in a section: with {' / '.join(SECTIONS)}:")
    name = node.items[0].context_expr
    if not isinstance(name, ast.Name) or name.id not in SECTIONS:
        reader.refuse(name, "syntax", f"unknown section; the sections are {', '.join(SECTIONS)}")
    return name.id


def _law(reader: Reader, node: ast.stmt, section: str, pack: str) -> Rule:
    if (
        not isinstance(node, ast.Assign)
        or len(node.targets) != 1
        or not isinstance(node.targets[0], ast.Name)
    ):
        reader.refuse(node, "syntax", _FORM)
    reader.begin(node.value)
    items = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    name = node.targets[0].id
    blank = Rule(
        name, pack, section, None, None, False, (), (), None, _source(reader, node.value),
        _doc(reader, node), reader.filename, node.lineno,
    )  # fmt: skip
    read = _fact if section == "facts" else _rewrite
    rule = _with_conditions(reader, items[1:], read(reader, items[0], blank))
    rule = completed(reader, node, rule)
    _check_size(reader, rule)
    check_bound(reader, node, rule)
    return rule


def _check_size(reader: Reader, rule: Rule) -> None:
    names = {n for p in _sides(rule) for n in names_of(p)}
    axes = {*reader.axes, *(a for p in _sides(rule) for a in axes_of(p))}
    for count, limit, what in (
        (len(axes), _AXES, "axes"),
        (len(names), _NAMES, "names"),
        (len(rule.premises) + len(rule.conditions), 2 * _ITEMS, "conditions"),
    ):
        if count > limit:
            message = f"{reader.filename}:{rule.line}: a law may have {limit} {what}, not {count}"
            raise LimitError(message)


def _sides(rule: Rule) -> list[Pattern]:
    relations = [*rule.premises, *([rule.conclusion] if rule.conclusion else [])]
    places = [p for r in relations for p in relation_parts(r)]
    return [*(s for s in (rule.left, rule.right) if s is not None), *places]


def _source(reader: Reader, node: ast.expr) -> str:
    """The law's text; columns of syntax trees count bytes."""
    last = node.end_lineno or node.lineno
    lines = [line.encode() for line in reader.lines[node.lineno - 1 : last]]
    lines[-1] = lines[-1][: node.end_col_offset]
    lines[0] = lines[0][node.col_offset :]
    return " ".join(b" ".join(lines).decode(errors="ignore").split())


def _doc(reader: Reader, node: ast.stmt) -> str:
    """Comments behind the law's last line, and directly above it."""
    last = (node.end_lineno or node.lineno) - 1
    behind = reader.lines[last].partition("#")[2].strip() if last < len(reader.lines) else ""
    above: list[str] = []
    line = node.lineno - 2
    while line >= 0 and reader.lines[line].strip().startswith("#"):
        above.insert(0, reader.lines[line].strip().lstrip("#").strip())
        line -= 1
    return " ".join([*above, behind] if behind else above)


def _rewrite(reader: Reader, node: ast.expr, rule: Rule) -> Rule:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift):
        sides, two_way = (node.left, node.right), False
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        sides, two_way = (node.left, node.comparators[0]), True
    else:
        reader.refuse(node, "syntax", _FORM)
    left, right = reader.pattern(sides[0]), reader.pattern(sides[1])
    for side, tree in ((left, sides[0]), (right, sides[1])):
        if isinstance(side, Name) and (two_way or side is left):
            reader.refuse(tree, "syntax", "a side that is rewritten cannot be a bare name")
    return replace(rule, left=left, right=right, two_way=two_way)


def _fact(reader: Reader, node: ast.expr, rule: Rule) -> Rule:
    conclusion = _relation(reader, node)
    if conclusion is None:
        reader.refuse(node, "syntax", f"a fact concludes one of {', '.join(_RELATIONS)}")
    return replace(rule, conclusion=conclusion)


def _relation(reader: Reader, node: ast.expr) -> Relation | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    form = _RELATIONS.get(node.func.id)
    if form is None:
        return None
    if len(node.args) != 1 + form.count(",") or node.keywords:
        reader.refuse(node, "arity", f"write {node.func.id}({form})")
    subject, carrier, slope, *centre, running = map(reader.pattern, node.args)
    if not isinstance(carrier, Name) and node.func.id != "drop" and len(stream_axes(carrier)) != 1:
        text = "a carrier is a name or a reduction such as max[j](a)"
        reader.refuse(node.args[1], "syntax", text)
    return Relation(node.func.id, subject, carrier, slope, running, *centre)


def _with_conditions(reader: Reader, nodes: list[ast.expr], rule: Rule) -> Rule:
    conditions: list[Condition] = []
    premises: list[Relation] = []
    if len(nodes) > _ITEMS:
        raise LimitError(f"{reader.filename}:{rule.line}: a law may have {_ITEMS} conditions")
    for node in nodes:
        for part in node.values if _is_and(node) else [node]:  # type: ignore[attr-defined]
            hinted = hint(reader, part, rule)
            relation = None if hinted else _relation(reader, part)
            if hinted is not None:
                rule = hinted
            elif relation is not None:
                premises.append(relation)
            else:
                conditions.append(condition_of(reader, part))
    if rule.numerics == "approx" and not rule.bound:
        reader.refuse(nodes[-1] if nodes else ast.Pass(), "syntax", APPROX)
    return replace(rule, conditions=tuple(conditions), premises=tuple(premises))


def _is_and(node: ast.expr) -> bool:
    return isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)


def _distinct(reader: Reader, rules: list[Rule]) -> None:
    ordered = sorted(rules, key=lambda r: (r.name, r.line))
    for first, second in pairwise(ordered):
        if first.name == second.name:
            place = ast.Name(second.name, lineno=second.line, col_offset=4)
            reader.refuse(
                place, "duplicate", f"{second.name} is already defined on line {first.line}"
            )


def _check_deprecated(reader: Reader, rules: list[Rule]) -> None:
    """What is to be used instead exists, and is not the law itself."""
    names = {r.name for r in rules}
    for rule in rules:
        if rule.deprecated and (rule.deprecated not in names or rule.deprecated == rule.name):
            place = ast.Name(rule.name, lineno=rule.line, col_offset=4)
            reader.refuse(place, "unbound", f"no other law {rule.deprecated} in this pack")
