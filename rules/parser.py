"""Packs of laws: text to rules.

```
pack      ::= section*
section   ::= with (exact | real | fast | approx | facts):     and laws, one a line
law       ::= name = pattern == pattern (, condition)*       rewrites both ways
            | name = pattern >> pattern (, condition)*       rewrites left to right
            | name = relation (, relation | condition)*      in facts: the conclusion, its premises
relation  ::= (shift | scale | power)(subject, carrier, slope, running)
            | bend(subject, carrier, weight, lean, running) | drop(subject, term, slope, rest)
condition ::= axis (not)? in name | name == carrier | name (> >= < <= !=) 0
            | name != number               (a constant other than this)
            | integer(name) | float(name) | boolean(name)
            | finite(name) | unbounded(name) | tame(name) | still(name)
            | rough(name) | apart(name, carrier) | bare[axis](name)
            | chain[axis](name, name, name)
            | instead                      (the left side need not be kept)
            | parted                       (a factor of the result could leave a reduction)
```

Rewrites may have relations among their conditions. Comments that stand directly above a law, or
behind it, document it. Refused with the place: unbound names on a right-hand side, duplicate names,
unknown operations and conditions, a wrong number of operands, files over the limits.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import pairwise

from nautile.errors import LimitError, SourceError

from .carriers import carriers_of, stream_axes
from .law import (
    Apart,
    Bare,
    Call,
    Carrier,
    Chain,
    Condition,
    Differs,
    Free,
    Kind,
    Moment,
    Name,
    NotFree,
    Pattern,
    Relation,
    Repair,
    Rescaled,
    Rule,
    Sign,
    Stream,
    axes_of,
    names_of,
    parts,
    relation_parts,
)
from .patterns import DEPTH, Reader, carrier_of

__all__ = ["BYTES", "SECTIONS", "parse"]

SECTIONS = ("exact", "real", "fast", "approx", "facts")
BYTES = 1 << 20
_KINDS = ("integer", "float", "boolean", "finite", "unbounded", "tame", "still", "rough")
_RELATIONS = {
    "shift": "subject, carrier, slope, running form",
    "scale": "subject, carrier, slope, running form",
    "power": "subject, carrier, exponent, running form",
    "bend": "subject, carrier, weight, lean, running form",
    "drop": "subject, term, slope, rest",
}
_SIGNS = {ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.NotEq: "!="}
_CONDITIONS = (
    "unknown condition; write j not in a, m == max[j](b), a > 0 (or >= < <= !=), a != 1, "
    f"or one of {', '.join(_KINDS)} of a name"
)
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
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # the pack's docstring
        section = _section(reader, node)
        assert isinstance(node, ast.With)
        rules += [_law(reader, item, section, pack) for item in node.body]
    _distinct(reader, rules)
    return tuple(rules)


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
    reader.sizes = {}
    items = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    name = node.targets[0].id
    blank = Rule(
        name, pack, section, None, None, False, (), (), None, _source(reader, node.value),
        _doc(reader, node), reader.filename, node.lineno,
    )  # fmt: skip
    rule = (
        _fact(reader, items[0], blank) if section == "facts" else _rewrite(reader, items[0], blank)
    )
    rule = _with_conditions(reader, items[1:], rule)
    _check_bound(reader, node, rule)
    return rule


def _source(reader: Reader, node: ast.expr) -> str:
    segment = ast.get_source_segment("\n".join(reader.lines), node) or ""
    return " ".join(segment.split())


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
    return Relation(node.func.id, subject, carrier, slope, running, *centre)


def _with_conditions(reader: Reader, nodes: list[ast.expr], rule: Rule) -> Rule:
    conditions: list[Condition] = []
    premises: list[Relation] = []
    instead, parted = _said(nodes, "instead"), _said(nodes, "parted")
    if instead and (rule.two_way or rule.is_fact):
        reader.refuse(instead[0], "syntax", "only a law left >> right can drop its left side")
    if parted and not _makes_product(rule):
        reader.refuse(parted[0], "syntax", "only a law that makes a product of names is parted")
    for node in (n for n in nodes if n not in [*instead, *parted]):
        for part in node.values if _is_and(node) else [node]:  # type: ignore[attr-defined]
            relation = _relation(reader, part)
            if relation is not None:
                premises.append(relation)
            else:
                conditions.append(_condition(reader, part))
    return replace(
        rule,
        conditions=tuple(conditions),
        premises=tuple(premises),
        instead=bool(instead),
        parted=bool(parted),
    )


def _said(nodes: list[ast.expr], word: str) -> list[ast.expr]:
    """The conditions that are this word."""
    return [node for node in nodes if isinstance(node, ast.Name) and node.id == word]


def _makes_product(rule: Rule) -> bool:
    sides = [rule.right, *([rule.left] if rule.two_way else [])]
    return all(isinstance(s, Call) and s.operation == "mul" for s in sides)


def _is_and(node: ast.expr) -> bool:
    return isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)


def _condition(reader: Reader, node: ast.expr) -> Condition:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.left, ast.Name):
        name, operation, right = node.left.id, node.ops[0], node.comparators[0]
        if isinstance(operation, ast.NotIn) and isinstance(right, ast.Name):
            return NotFree(name, right.id)
        if isinstance(operation, ast.In) and isinstance(right, ast.Name):
            return Free(name, right.id)
        if isinstance(operation, ast.Eq):
            return Carrier(name, carrier_of(reader, right))
        if type(operation) in _SIGNS and _is_zero(right):
            return Sign(name, _SIGNS[type(operation)])
        if isinstance(operation, ast.NotEq) and _is_number(right):
            return Differs(name, float(ast.literal_eval(right)))
    useful = _of_use(reader, node)
    if useful is not None:
        return useful
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "apart":
        if len(node.args) == 2 and all(isinstance(a, ast.Name) for a in node.args):
            return Apart(*(a.id for a in node.args if isinstance(a, ast.Name)))
        reader.refuse(node, "arity", "write apart(name, carrier)")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _KINDS:
        if len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            return Kind(node.func.id, node.args[0].id)
        reader.refuse(node, "arity", f"write {node.func.id}(name)")
    return reader.refuse(node, "unknown-condition", _CONDITIONS)


def _of_use(reader: Reader, node: ast.expr) -> Bare | Chain | None:
    match node:
        case ast.Call(
            ast.Subscript(ast.Name("chain"), axis),
            [ast.Name(name), ast.Name(other), ast.Name(third)],
            [],
        ):
            return Chain(reader.axis(axis), name, other, third)
        case ast.Call(ast.Subscript(ast.Name("bare"), axis), [ast.Name(name)], []):
            return Bare(reader.axis(axis), name)
    return None


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value == 0


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _bound_by(rule: Rule) -> list[Pattern]:
    """The patterns that give names their meaning when the law is applied left to right."""
    known: list[Pattern] = [rule.left] if rule.left is not None else []
    if rule.conclusion is not None:
        known.append(rule.conclusion.subject)
    for premise in rule.premises:
        known += relation_parts(premise)
    for condition in rule.conditions:
        if isinstance(condition, Carrier):
            known += [Name(condition.name), condition.reduction]
    return known


def _used_by(rule: Rule) -> list[Pattern]:
    """The patterns that a match builds."""
    if rule.conclusion is not None:
        return list(relation_parts(rule.conclusion))
    assert rule.left is not None
    assert rule.right is not None
    return [rule.right]


def _check_bound(reader: Reader, node: ast.stmt, rule: Rule) -> None:
    known = _bound_by(rule)
    names = {n for p in known for n in names_of(p)}
    axes = {a for p in known for a in axes_of(p)}
    _check_known(reader, node, _used_by(rule), names, axes)
    if rule.two_way:
        assert rule.left is not None
        assert rule.right is not None
        back = {n for p in [rule.right, *known[1:]] for n in names_of(p)}
        ends = {a for p in [rule.right, *known[1:]] for a in axes_of(p)}
        _check_known(reader, node, [rule.left], back, ends)
    for condition in rule.conditions:
        _check_condition(reader, node, condition, names, axes)
    _check_online(reader, node, rule)


def _check_known(
    reader: Reader, node: ast.stmt, built: list[Pattern], names: set[str], axes: set[str]
) -> None:
    for pattern in built:
        for name in names_of(pattern):
            if name not in names:
                place = _place(node, name)
                reader.refuse(place, "unbound", f"{name} is on one side only: nothing binds it")
        for axis in axes_of(pattern):
            if axis not in axes:
                reader.refuse(_place(node, axis), "unbound", f"axis {axis} is on one side only")


def _check_condition(
    reader: Reader, node: ast.stmt, condition: Condition, names: set[str], axes: set[str]
) -> None:
    if condition.name not in names:
        place = _place(node, condition.name)
        reader.refuse(place, "unbound", f"no term {condition.name} in this law")
    if isinstance(condition, (NotFree, Free, Bare, Chain)) and condition.axis not in axes:
        place = _place(node, condition.axis)
        reader.refuse(place, "unbound", f"no axis {condition.axis} in this law")


def _place(node: ast.stmt, name: str) -> ast.AST:
    """Where the law mentions a name last."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name]
    return max(found, key=lambda n: (n.lineno, n.col_offset), default=node)


def _check_online(reader: Reader, node: ast.stmt, rule: Rule) -> None:
    """What moves with a carrier's running values knows what they are; and running values cannot be
    matched by a rewrite, but for those of a streamed sum."""
    carriers = carriers_of(rule)
    built = [rule.right] if rule.right is not None else list(_used_by(rule))
    for pattern in (p for b in built for p in parts(b)):
        name = _follows(pattern, known_running=bool(rule.premises))
        if name is None:
            continue
        axes = stream_axes(carriers[name]) if name in carriers else frozenset[str]()
        if not axes or (isinstance(pattern, Rescaled) and axes != {pattern.axis}):
            axis = pattern.axis if isinstance(pattern, Rescaled) else "j"
            reader.refuse(
                _place(node, "online"), "unbound",
                f"a running value needs its carrier: add {name} == max[{axis}](b)",
            )  # fmt: skip
    for side in [rule.left] + ([rule.right] if rule.two_way else []):
        if side is not None and any(isinstance(p, _MADE) for p in parts(side)):
            reader.refuse(node, "syntax", "running values cannot be matched, only made")


_MADE = (Stream, Moment, Repair, Rescaled)


def _follows(pattern: Pattern, *, known_running: bool) -> str | None:
    """The carrier whose definition a pattern needs; a running value alone comes with a premise."""
    match pattern:
        case Rescaled(_, carrier, _, _) | Repair(carrier, _):
            return carrier
        case Moment(moment, Name(name)) if moment == "before" or not known_running:
            return name
    return None


def _distinct(reader: Reader, rules: list[Rule]) -> None:
    ordered = sorted(rules, key=lambda r: (r.name, r.line))
    for first, second in pairwise(ordered):
        if first.name == second.name:
            place = ast.Name(second.name, lineno=second.line, col_offset=4)
            reader.refuse(
                place, "duplicate", f"{second.name} is already defined on line {first.line}"
            )
