"""Terms as C++ expressions, with shared and hoisted subterms in named temporaries.

A `Printer` writes into nested C++ scopes, its `levels`: uniform, row, element, or whatever the
emitter has. A level knows the axes that vary inside it; a subterm is computed at the outermost
level whose axes cover its own. Leaves (Ref, Index, Load) are spelled by the emitter's `leaf`.

`precise` selects the accurate functions (about 1-2 ulp), for results stored as f32; otherwise exp,
tanh, log and their kin use the special-function unit directly, with errors below 1e-5 relative,
which a result rounded to 16 bits or fewer does not show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nautile.codegen.operators import spell
from nautile.codegen.tile import Ref
from nautile.codegen.types import CPP, carrier, convert, dtype_of, literal
from nautile.errors import LoweringError
from nautile.terms import Apply, Axis, Const, Index, Load, Term, children, transform

__all__ = ["LOG2E", "Level", "Printer", "scale"]

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453


@dataclass(slots=True)
class Level:
    """One C++ scope: the axes that vary in it, its lines so far, the prefix of its temporaries.
    Where `several` is not 0 its lines stand in a loop over that many `e`, which has ended when its
    values are read: temporaries are arrays, `declared` before the loop."""

    axes: frozenset[Axis]
    lines: list[str] = field(default_factory=list)
    prefix: str = "t"
    several: int = 0
    declared: list[str] = field(default_factory=list)

    def define(self, kind: str, name: str, value: str) -> str:
        """Add a temporary; how it is spelled."""
        if not self.several:
            self.lines.append(f"const {kind} {name} = {value};")
            return name
        self.declared.append(f"{kind} {name}[{self.several}];")
        self.lines.append(f"{name}[e] = {value};")
        return f"{name}[e]"


class Printer:
    """Prints terms into levels (outermost first). Values already computed are reused until their
    level is closed."""

    def __init__(
        self,
        levels: Sequence[Level],
        leaf: Callable[[Term], str],
        *,
        precise: bool = False,
        tanh_approx: bool = False,
        counter: Counter[str] | None = None,
    ) -> None:
        self.levels = list(levels)
        self.leaf = leaf
        self.precise = precise
        self.tanh_approx = tanh_approx
        self._names: Counter[str] = Counter() if counter is None else counter
        self._memo: dict[Term, str] = {}
        self._types: dict[Term, str] = {}

    def level(self, term: Term) -> int:
        """The outermost level at which the term can be computed."""
        for number, level in enumerate(self.levels):
            if term.free <= level.axes:
                return number
        missing = sorted(str(a) for a in term.free - self.levels[-1].axes)
        raise LoweringError(f"no loop of the kernel walks {', '.join(missing)}")

    def close(self, number: int) -> None:
        """Forget what was computed at level `number` and below: their scopes have ended."""
        self._memo = {t: s for t, s in self._memo.items() if self.level(t) < number}

    def value(self, term: Term, dtype: str | None = None) -> str:
        """A C++ expression for the term, in the carrier of `dtype` (its own where None); it is a
        name, a literal, or an expression in parentheses. A leaf in parentheses is computed once."""
        if not self.precise:
            term = transform(term, self._cheaper)
        order = self._unknown(term)
        uses = Counter(c for t in order if not _is_leaf(t) for c in children(t))
        text = self._memo.copy()
        for node in order:
            text[node] = self._node(node, text, uses[node] > 1)
        return self._crossing(term, term, text, dtype)

    def name(self, prefix: str) -> str:
        """A fresh identifier."""
        self._names[prefix] += 1
        return f"{prefix}{self._names[prefix] - 1}"

    def assign(self, term: Term, dtype: str | None = None) -> str:
        """Like `value`, but always a name or a literal."""
        text = self.value(term, dtype)
        if not text.startswith("("):
            return text
        level = self.levels[self.level(term)]
        kind = carrier(dtype or self.dtype(term))
        return level.define(CPP[kind], self.name(level.prefix), text[1:-1])

    def dtype(self, term: Term) -> str:
        """The term's type, remembered."""
        if term not in self._types:
            self._types[term] = dtype_of(term)
        return self._types[term]

    def _unknown(self, root: Term) -> list[Term]:
        """Subterms yet to be computed, children first; the inside of a leaf is the emitter's."""
        order: list[Term] = []
        seen = set(self._memo)
        stack: list[tuple[Term, bool]] = [(root, False)]
        while stack:
            term, ready = stack.pop()
            if ready:
                order.append(term)
            elif term not in seen:
                seen.add(term)
                stack.append((term, True))
                if not _is_leaf(term):
                    stack.extend((c, False) for c in reversed(children(term)))
        return order

    def _node(self, node: Term, text: dict[Term, str], shared: bool) -> str:
        if _is_leaf(node):
            spelled = self.leaf(node)
            return self._hoist(node, spelled) if shared and spelled.startswith("(") else spelled
        if isinstance(node, Const):
            return literal(node.value, carrier(self.dtype(node)))
        inner = [self._crossing(node, c, text, None) for c in children(node)]
        spelled = spell(node, inner, [self.dtype(c) for c in children(node)], self)
        if shared and spelled.startswith("("):
            return self._hoist(node, spelled)
        return spelled

    def _crossing(self, parent: Term, node: Term, text: dict[Term, str], dtype: str | None) -> str:
        """The child's text; a temporary of its own level where that is an outer one."""
        spelled = text[node]
        if spelled.startswith("(") and self.level(node) < self.level(parent):
            spelled = text[node] = self._hoist(node, spelled)
        return convert(spelled, self.dtype(node), dtype) if dtype else spelled

    def _hoist(self, node: Term, spelled: str) -> str:
        level = self.levels[self.level(node)]
        kind = CPP[carrier(self.dtype(node))]
        name = level.define(kind, self.name(level.prefix), spelled[1:-1])
        self._memo[node] = name
        return name

    def _cheaper(self, term: Term) -> Term:
        """exp in base 2, its scale folded into the argument; division by what an outer level knows
        as multiplication by its reciprocal."""
        match term:
            case Apply("exp", (x,)) if self.dtype(term) == "f32":
                return Apply("exp2", (scale(x, LOG2E, self.level),))
            case Apply("div", (a, b)) if not isinstance(b, Const) and self.dtype(term) == "f32":
                if self.level(b) < self.level(a):
                    return Apply("mul", (a, Apply("div", (Const(1.0), b))))
        return term


def _is_leaf(term: Term) -> bool:
    return isinstance(term, (Index, Load, Ref))


def scale(term: Term, factor: float, level: Callable[[Term], int]) -> Term:
    """`term * factor`, the factor folded into constants and moved to the outer levels' side of a
    sum or difference, so that one multiply-add remains."""
    match term:
        case Const(value):
            return Const(float(value) * factor)
        case Apply("mul", (a, Const(value))) | Apply("mul", (Const(value), a)):
            return _times(a, float(value) * factor)
        case Apply("div", (a, Const(value))) if value != 0:
            return _times(a, factor / float(value))
        case Apply("neg", (a,)):
            return scale(a, -factor, level)
        case Apply("log", (a,)):
            return _times(Apply("log2", (a,)), factor * LN2)
        case Apply("where", (p, a, b)):
            return Apply("where", (p, scale(a, factor, level), scale(b, factor, level)))
        case Apply("add" | "sub", (a, b)) if level(a) != level(b) or _absorbs(a) or _absorbs(b):
            inner = (scale(a, factor, level), scale(b, factor, level))
            return Apply(term.operation, inner)
    return _times(term, factor)


def _times(term: Term, factor: float) -> Term:
    return term if factor == 1 else Apply("mul", (term, Const(factor)))


def _absorbs(term: Term) -> bool:
    match term:
        case Const(_) | Apply("mul", (_, Const(_))) | Apply("mul", (Const(_), _)):
            return True
        case Apply("div", (_, Const(_))) | Apply("log", (_,)):
            return True
    return False
