"""Integer terms of a thread's row and column as a base and what the unrolled loops add to it.

`s - t` at element (j, e, q) is `d0 + (8 j + q) - 8 e`: one register and constants, in place of an
addition for each element; so are comparisons of such terms, and their values as f32 (exact below
2^24). The base is computed once before the loops.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautile.codegen.memory import Fragment
from nautile.codegen.operators import operand_kinds
from nautile.codegen.schedule.affine import ONE, linear
from nautile.codegen.sm90.context import Context
from nautile.codegen.tile import Ref, Tile
from nautile.codegen.types import dtype_of, interval
from nautile.terms import Apply, Axis, Const, Index, Load, Term, apply, children, rebuild

__all__ = ["based"]

_COMPARISONS = ("le", "lt", "ge", "gt", "eq", "ne")
_EXACT = 2**24


def based(ctx: Context, term: Term, column: Axis | None) -> tuple[Term, list[str]]:
    """The term with bases in place of integer terms that vary along rows or columns, and the lines
    that define the bases."""
    made = _Bases(ctx, column)
    return made.rewrite(term), made.lines


class _Bases:
    def __init__(self, ctx: Context, column: Axis | None) -> None:
        self.ctx, self.column = ctx, column
        self.lines: list[str] = []
        self.memo: dict[Term, Term] = {}

    def rewrite(self, term: Term) -> Term:
        if term not in self.memo:
            self.memo[term] = self._rewrite(term)
        return self.memo[term]

    def _rewrite(self, term: Term) -> Term:
        if isinstance(term, (Load, Ref, Index, Const)):
            return term
        match term:
            case Apply(operation, (a, b)) if operation in _COMPARISONS:
                form = self._form(apply("sub", a, b)) if _integers(a, b) else None
                if form is not None:
                    return Apply(operation, (self._leaf(form, "i32"), Const(0)))
            case Apply(operation, arguments):
                kinds = operand_kinds(operation, [dtype_of(a) for a in arguments])
                pairs = zip(arguments, kinds, strict=True)
                return Apply(operation, tuple(self._argument(a, k) for a, k in pairs))
        return rebuild(term, tuple(self.rewrite(c) for c in children(term)))

    def _argument(self, term: Term, kind: str) -> Term:
        """An operand of a float operation; an integer one as a float base."""
        floating = kind == "f32" and dtype_of(term) == "i32" and self._floating(term)
        return floating or self.rewrite(term)

    def _floating(self, term: Term) -> Term | None:
        """The value as f32 of an integer term that is exact there; None for any other."""
        bounds = interval(term)
        if bounds is None or bounds[0] <= -_EXACT or bounds[1] >= _EXACT:
            return None
        form = self._form(term)
        if form is not None:
            return self._leaf(form, "f32")
        match term:
            case Apply("abs" | "neg" | "max" | "min", arguments):
                inner = [self._floating(a) for a in arguments]
                known = tuple(a for a in inner if a is not None)
                return Apply(term.operation, known) if len(known) == len(inner) else None
            case Const(value):
                return Const(float(value))
        return None

    def _form(self, term: Term) -> Mapping[Term, int] | None:
        """The linear form, where rows or columns stand in it alone; None for any other term."""
        own = {self.ctx.roles.geometry.row, self.column}
        form = linear(term)
        inside = any(own & atom.free and not isinstance(atom, Index) for atom in form)
        varies = any(isinstance(a, Index) and a.axis in own for a in form)
        others = [a for a in form if not (isinstance(a, Index) and a.axis in own) and a is not ONE]
        known = all(interval(a) is not None for a in others)
        return form if varies and known and not inside else None

    def _leaf(self, form: Mapping[Term, int], kind: str) -> Term:
        ctx, row = self.ctx, self.ctx.roles.geometry.row
        base: list[str] = []
        for atom, factor in form.items():
            base.append(_times(self._start(atom), factor) if atom is not ONE else str(factor))
        letter = "f" if kind == "f32" else "d"
        name = ctx.fresh(letter)
        value = " + ".join(base)
        text = f"const float {name} = (float)({value});" if letter == "f" else ""
        self.lines.append(text or f"const int {name} = {value};")
        steps = []
        if row_factor := form.get(Index(row), 0):
            steps.append(_times(f"({ctx.row_step()})", row_factor))
        if self.column and (factor := form.get(Index(self.column), 0)):
            steps.append(_times("(j * 8 + q)", factor))
        more = " + ".join(steps)
        ctx.spelled[name] = f"({name} + (float)({more}))" if letter == "f" else f"({name} + {more})"
        axes = tuple(a for a in (row, self.column) if a and Index(a) in form)
        tile = Tile(name, axes, kind)
        ctx.leaves[name] = Fragment(name, tile, None)
        return Ref(tile)

    def _start(self, atom: Term) -> str:
        """An atom at the thread's first element."""
        if atom is Index(self.ctx.roles.geometry.row):
            return "row0"
        if self.column and atom is Index(self.column):
            origin = self.ctx.origin(self.column)
            return "lane_column" if origin == "0" else f"({origin} + lane_column)"
        return self.ctx.integer(atom)


def _times(text: str, factor: int) -> str:
    return text if factor == 1 else f"{factor} * {text}" if factor > 0 else f"({factor}) * {text}"


def _integers(*terms: Term) -> bool:
    return all(dtype_of(t) == "i32" for t in terms)
