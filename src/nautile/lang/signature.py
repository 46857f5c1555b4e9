"""The head of a program: parameters, sizes and results, read from a `def` line.

```
def name(x: bf16[N, 2*D], eps: f32 = 1e-6, *, N=4096, D=N//32) -> (f32[N], f32):
```

Uppercase names are sizes, scalars may have a default; a type without brackets is a scalar.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nautile.dtypes import DTYPES
from nautile.lang.fold import Value, fold
from nautile.lang.names import BUILTIN, INFIX, RESERVED, is_size
from nautile.lang.source import Source, nearest

__all__ = ["Parameter", "Signature", "Type", "number", "read_signature", "size_value"]

_LARGEST = 2**40


@dataclass(frozen=True, slots=True)
class Type:
    """`dtype[dims]`; the extents are expressions in sizes, none for a scalar."""

    dtype: str
    dims: tuple[ast.expr, ...]
    node: ast.expr

    def shape(self, source: Source, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The extents under given sizes."""
        return tuple(size_value(source, d, sizes) for d in self.dims)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor or scalar argument; `default` is the value of a scalar that has one."""

    name: str
    type: Type
    node: ast.arg
    default: float | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """What can be known of a program from its head. `sizes` maps every size name, in order of the
    keyword list and then of the types, to its default expression or None."""

    name: str
    parameters: tuple[Parameter, ...]
    sizes: Mapping[str, ast.expr | None]
    results: tuple[Type, ...]
    node: ast.FunctionDef
    source: Source

    @property
    def scalar(self) -> bool:
        """True where every argument is a scalar."""
        return not any(p.type.dims for p in self.parameters)

    def axes(self) -> tuple[str, ...] | None:
        """The sizes that a call `name[i, j](...)` binds axes to, in order of first appearance, or
        None where some extent is not a bare size name."""
        dims = [d for t in (*(p.type for p in self.parameters), *self.results) for d in t.dims]
        if not all(isinstance(d, ast.Name) for d in dims):
            return None
        return tuple(dict.fromkeys(d.id for d in dims if isinstance(d, ast.Name)))


def read_signature(source: Source, node: ast.FunctionDef) -> Signature:
    """The head of a program, checked as far as it stands alone."""
    _check_form(source, node)
    defaults: list[ast.expr | None] = [None] * (len(node.args.args) - len(node.args.defaults))
    pairs = list(zip(node.args.args, defaults + list(node.args.defaults), strict=True))
    pairs += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    _check_distinct(source, [arg for arg, _ in pairs])
    sizes: dict[str, ast.expr | None] = {}
    parameters = []
    for arg, default in pairs:
        if arg in node.args.kwonlyargs and _is_size_argument(arg):
            sizes[arg.arg] = default
        else:
            parameters.append(_parameter(source, arg, default))
    assert node.returns is not None
    results = tuple(_results(source, node.returns))
    for dim in (d for t in (*(p.type for p in parameters), *results) for d in t.dims):
        for name in _size_names(source, dim):
            sizes.setdefault(name, None)
    _check_clash(source, parameters, sizes)
    return Signature(node.name, tuple(parameters), sizes, results, node, source)


def _check_form(source: Source, node: ast.FunctionDef) -> None:
    arguments = node.args
    odd = arguments.vararg or arguments.kwarg or next(iter(arguments.posonlyargs), None)
    if odd:
        raise source.error(odd, "write every argument as `name: type`", "unsupported")
    if node.decorator_list:
        raise source.error(node.decorator_list[0], "programs have no decorators", "unsupported")
    if node.name in BUILTIN or node.name in RESERVED or node.name in DTYPES:
        raise source.error(node, f"{node.name} is a word of the language; rename it", "reserved")
    if node.returns is None:
        raise source.error(
            node,
            f"{node.name} states no result type: write `-> f32[...]` before the colon",
            "syntax",
        )


def _is_size_argument(arg: ast.arg) -> bool:
    plain = arg.annotation is None
    whole = isinstance(arg.annotation, ast.Name) and arg.annotation.id == "int"
    return is_size(arg.arg) and (plain or whole)


def _check_distinct(source: Source, arguments: list[ast.arg]) -> None:
    seen: set[str] = set()
    for arg in arguments:
        if arg.arg in seen:
            raise source.error(arg, f"the argument {arg.arg} is named twice", "assigned-twice")
        if arg.arg in RESERVED or arg.arg in DTYPES:
            raise source.error(arg, f"{arg.arg} is a word of the language; rename it", "reserved")
        seen.add(arg.arg)


def _check_clash(source: Source, parameters: list[Parameter], sizes: Mapping[str, object]) -> None:
    for parameter in parameters:
        if parameter.name in sizes:
            message = f"{parameter.name} names both a tensor and a size; rename one"
            raise source.error(parameter.node, message, "name-clash")


def _parameter(source: Source, arg: ast.arg, default: ast.expr | None) -> Parameter:
    if arg.annotation is None:
        hint = f"give {arg.arg} a type, as in `{arg.arg}: f32`"
        if is_size(arg.arg):
            hint += f"; a size goes after a star, as in `*, {arg.arg}=1024`"
        raise source.error(arg, hint, "syntax")
    type_ = _type(source, arg.annotation)
    if default is None:
        return Parameter(arg.arg, type_, arg)
    if type_.dims:
        raise source.error(default, f"the tensor {arg.arg} cannot have a default", "unsupported")
    value = number(source, default, {})
    return Parameter(arg.arg, type_, arg, float(value))


def _results(source: Source, node: ast.expr) -> Iterator[Type]:
    match node:
        case ast.Tuple(elts=items) if items:
            yield from (_type(source, item) for item in items)
        case ast.Subscript(value=ast.Name(id="tuple" | "Tuple"), slice=ast.Tuple(elts=items)) if (
            items
        ):
            yield from (_type(source, item) for item in items)
        case _:
            yield _type(source, node)


def _type(source: Source, node: ast.expr) -> Type:
    match node:
        case ast.Name(id=name):
            return Type(_dtype(source, node, name), (), node)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=dims)):
            return Type(_dtype(source, node, name), tuple(dims), node)
        case ast.Subscript(value=ast.Name(id=name), slice=dim):
            return Type(_dtype(source, node, name), (dim,), node)
    raise source.error(node, "expected a type, as in `bf16[N, D]` or `f32`", "syntax")


def _dtype(source: Source, node: ast.expr, name: str) -> str:
    if name not in DTYPES:
        message = f"there is no element type {name}; the types are {' '.join(DTYPES)}."
        raise source.error(node, message + nearest(name, DTYPES), "unknown-name")
    return name


def _size_names(source: Source, node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id not in ("min", "max"):
            if not is_size(part.id):
                message = f"{part.id} is no size: sizes begin with a capital letter"
                raise source.error(part, message, "bad-size")
            yield part.id


def size_value(source: Source, node: ast.expr, sizes: Mapping[str, int]) -> int:
    """The positive integer that a size expression denotes."""
    value = number(source, node, sizes)
    if isinstance(value, bool) or not isinstance(value, int):
        raise source.error(node, f"a size must be an integer, not {value!r}", "bad-size")
    return checked_size(source, node, value)


def checked_size(source: Source, node: ast.AST, value: int) -> int:
    """`value`, refused where no axis can have that extent."""
    if not 0 < value <= _LARGEST:
        raise source.error(node, f"a size must be from 1 to 2**40, not {value}", "bad-size")
    return value


def number(source: Source, node: ast.expr, sizes: Mapping[str, int]) -> Value:
    """The value of a constant expression over sizes and literals."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.Name(id="inf" | "nan" as name):
            return float(name)
        case ast.Name(id=name):
            return _known_size(source, node, name, sizes)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            operation, parts = "neg", [operand]
        case ast.BinOp(op=op, left=left, right=right) if type(op) in INFIX:
            operation, parts = INFIX[type(op)], [left, right]
        case ast.Call(func=ast.Name(id="min" | "max" as operation), args=[_, _] as parts):
            pass
        case _:
            message = "expected sizes and numbers joined by + - * / // % **"
            raise source.error(node, message, "bad-size")
    result = fold(operation, tuple(number(source, p, sizes) for p in parts))
    if result is None:
        raise source.error(node, "this has no value within 64 bits", "bad-size")
    return result


def _known_size(source: Source, node: ast.expr, name: str, sizes: Mapping[str, int]) -> int:
    if name in sizes:
        return sizes[name]
    message = f"the size {name} has no value here: give it a default, as in `*, {name}=1024`,"
    raise source.error(node, f"{message} or set it (dims).{nearest(name, sizes)}", "no-size")
