"""Each mistake has one message: its code, the place under the caret, and what to write instead."""

from __future__ import annotations

import pytest

from nautile import lang
from nautile.errors import InputError, SourceError

HEAD = "def f(x: f32[N,M], y: f32[M], e: i32[N], eps: f32 = 1e-6, *, N=4, M=8) -> f32[N]:\n    "

# (body, code, the text from the caret on, a part of the message)
BODIES = [
    ("return sum[j](x[i,j] * z[j])", "unknown-name", "z[j])", "named z"),
    ("y1[i] = xx[i,0]\n    return y1", "unknown-name", "xx[i,0]", "Did you mean x?"),
    ("return x[i,0] + epz", "unknown-name", "epz", "Did you mean eps?"),
    ("return sofmax[j](x[i,j])", "unknown-name", "sofmax", "Did you mean softmax?"),
    ("return expp(x[i,0])", "unknown-name", "expp", "Did you mean exp?"),
    ("return x[i,0] * MM", "unknown-name", "MM", "Did you mean M?"),
    ("return sum[j](x[i] * y[j])", "wrong-rank", "x[i] *", "2 dimensions (4, 8), but 1 index"),
    ("return x[i,0] + y", "wrong-rank", "y", "1 dimension (8), but 0 indices are given"),
    ("return eps[i]", "wrong-rank", "eps[i]", "eps is a scalar"),
    ("return y", "size-mismatch", "return y", "shape [8], but its type says [4]"),
    ("return x", "wrong-rank", "return x", "[4, 8]"),
    ("return layernorm[j,i](x[i,j], 1.0, 0.0)", "wrong-rank", "layernorm[j", "names 1 axis"),
    ("r[i] = 1.0\n    return r", "no-range", "i] =", "declare it"),
    ("return sum[j](x[i,0])", "no-range", "j](", "`j: N`"),
    ("a = softmax[j](y[j])\n    return a", "no-range", "j](y", "keeps the axis j"),
    (
        "a[i] = b[i] + x[i,0]\n    b[i] = a[i]\n    return a",
        "cyclic-definition",
        "b[i] +",
        "a and b are defined by each other",
    ),
    ("a[i] = a[i] + 1\n    return a", "cyclic-definition", "a[i] +", "by itself"),
    (
        "a[i] = b[i] + 1\n    b[i] = c[i]\n    c[i] = a[i]\n    return a",
        "cyclic-definition",
        "b[i] + 1",
        "a and b",
    ),
    (
        "a[i] = b[i] + 1\n    b[i] = x[i,0]\n    return a",
        "used-before-definition",
        "b[i] +",
        "line 3",
    ),
    ("a[i] = x[i,0]\n    a[i] = x[i,1]\n    return a", "assigned-twice", "a[i] = x[i,1]", "line 2"),
    ("x[i,j] = y[j]\n    return x", "assigned-twice", "x[i,j]", "once"),
    ("y1[i,i] = x[i,0]\n    return y1", "assigned-twice", "i] =", "twice"),
    ("a[i] = x[i,0]\n    return a, a", "wrong-rank", "return", "2 values are returned"),
    ("N[i] = x[i,0]\n    return N", "name-clash", "N[i]", "size"),
    ("a[eps] = x[eps,0]\n    return a", "name-clash", "eps]", "scalar"),
    ("nan = x[0,0]\n    return nan", "reserved", "nan", "word of the language"),
    ("a[I] = x[I,0]\n    return a", "bad-index", "I] =", "lowercase"),
    ("return sum[i](x[i,i])", "size-mismatch", "i])", "4 positions of dimension 1 of x and 8"),
    ("return sum[j](x[i,j] * e[j])", "size-mismatch", "j])", "8 positions"),
    ("return x[i,8]", "out-of-range", "8]", "8 positions"),
    ("return x[i,0] - x[i,-1]", "out-of-range", "-1]", "-1 to -1"),
    ("a[i: N] = x[i - 1,0]\n    return a", "out-of-range", "i - 1", "from -1 to 2"),
    ("a[i: N] = where(i > 0, x[i - 1,0], 0.0)\n    return a", "out-of-range", "i - 1", "clamp it"),
    ("a[i: M] = x[i,0]\n    return a", "out-of-range", "i,0", "from 0 to 7"),
    ("a[i: N] = sum[j: 3](y[i - j + 1])\n    return a", "out-of-range", "i - j", "from -1 to 4"),
    ("a[i: N] = x[i,3*i]\n    return a", "out-of-range", "3*i", "from 0 to 9"),
    ("return x[i,x[i,0]]", "wrong-type", "x[i,0]]", "integer"),
    ("return x[i,i/2]", "wrong-type", "i/2", "use //"),
    ("return where(x[i,0], 1, 2)", "wrong-type", "where", "condition"),
    ("return where(x[i,0] > 0, 1, i > 2)", "wrong-type", "where", "both"),
    ("return (x[i,0] > 0) * 2", "wrong-type", "(x[i,0] > 0) * 2", "where(p, 1, 0)"),
    ("return x[i,0] and 1", "wrong-type", "x[i,0] and", "truth values"),
    ("return not x[i,0]", "wrong-type", "not", "truth values"),
    ("return sum[j](x[i,j] > 0)", "wrong-type", "sum", "where(p, 1, 0)"),
    ("return any[j](x[i,j])", "wrong-type", "any", "compare"),
    ("return 0 < x[i,0]", "wrong-type", "return", "bool"),
    ("return x[i,cross_entropy[j](x[i,j], 0.5)]", "wrong-type", "0.5", "integer"),
    ("return x[i,i*i]", "unsupported", "i*i", "affine"),
    ("return x[i,7//(i + 1)]", "unsupported", "7//", "affine"),
    ("return x[i,i % -2]", "unsupported", "i %", "affine"),
    ("return np.exp(x[i,0])", "unsupported", "np", "exp(x)"),
    ("return x[i,0] @ y[0]", "unsupported", "x[i,0] @", "sum[k]"),
    ("return x[i,0] & 1", "unsupported", "x[i,0] &", "`and`"),
    ("return ~x[i,0]", "unsupported", "~", "`not`"),
    ("return [x[i,0]]", "unsupported", "[x", "lists"),
    ("return (lambda a: a)(x[i,0])", "unsupported", "lambda", "second program"),
    ("return 'text'", "unsupported", "'text'", "no expression"),
    ("return 1j", "unsupported", "1j", "no expression"),
    ("return argmax[i,j](x[i,j])", "unsupported", "argmax", "one axis"),
    ("for i in x: pass\n    return x", "unsupported", "for", "sum[j]"),
    ("if eps > 0: pass\n    return x", "unsupported", "if", "where"),
    ("a = 1\n    a += 1\n    return a", "unsupported", "a += 1", "assigned once"),
    ("import os\n    return x", "unsupported", "import", "imported"),
    ("def g(): pass\n    return x", "unsupported", "def g", "beside"),
    ("a[i]: f32 = x[i,0]\n    return a", "unsupported", "a[i]:", "bf16"),
    ("return sum(x[i,0])", "syntax", "sum(", "`sum[i](...)`"),
    ("return exp", "syntax", "exp", "`exp(...)`"),
    ("return x[i,0] + sum", "syntax", "sum", "`sum[i](...)`"),
    ("return x[i,0:2]", "syntax", "0:2", "position"),
    ("a[0] = x[0,0]\n    return a", "syntax", "0] =", "index name"),
    ("return x[i,0] +", "syntax", "", "invalid syntax"),
    ("a[i] = x[i,0]", "syntax", "a[i]", "without `return`"),
    ("return x\n    a = 1\n    return a", "syntax", "return x", "last line"),
    ("a = b = 1\n    return a", "syntax", "a = b", "one name"),
    ("return", "syntax", "return", "names the result"),
    ("return max(x[i,0])", "wrong-arguments", "max", "2 arguments"),
    ("return exp(x[i,0], 1)", "wrong-arguments", "exp", "1 argument, not 2"),
    ("return exp(x=1)", "wrong-arguments", "1)", "keyword"),
    ("return bf16(1, 2)", "wrong-arguments", "bf16", "one argument"),
    ("return leaky_relu(x[i,0], slop=1)", "wrong-arguments", "1)", "Did you mean slope?"),
    ("return gelu()", "wrong-arguments", "gelu", "needs the argument x"),
    ("return gelu(1, 2)", "wrong-arguments", "2)", "at most 1"),
    ("return softmax(x[i,0])", "wrong-arguments", "x[i,0]", "name the axes in brackets"),
    ("a[j] = softmax[j](y)\n    return a", "wrong-rank", "y", "write y[i]"),
    ("a[i: N] = softmax(x)[i,0]\n    return a", "wrong-rank", "x)", "softmax[j](x[i,j])"),
    ("a[i,j] = softmax[j: N](x[i,j])\n    return a", "size-mismatch", "N](", "8 positions"),
    ("a[i: N] = y[i * 4 - (i % 2) * 3]\n    return a", "out-of-range", "i * 4", "from 0 to 9"),
    ("return y(3)", "unknown-name", "y(3)", "is a tensor"),
    ("return x[i,0] * 99999999999999999999", "bad-size", "99999", "64 bits"),
]


@pytest.mark.parametrize(("body", "code", "place", "part"), BODIES, ids=[b[0] for b in BODIES])
def test_mistakes_in_a_body(body: str, code: str, place: str, part: str) -> None:
    with pytest.raises(SourceError) as caught:
        lang.parse(HEAD + body, "file.nau")
    error = caught.value
    assert (error.code, part in error.message) == (code, True), error.message
    line = (HEAD + body).splitlines()[error.line - 1]
    assert error.text == line
    assert line[error.column - 1 :].startswith(place)
    message, quoted, caret = str(error).split("\n")
    assert message.startswith(f"file.nau:{error.line}:{error.column}: ")
    assert quoted[caret.index("^") :].startswith(place)


HEADS = [
    ("def f(x: f32[N], *, N=0) -> f32[N]:", "bad-size", "0)"),
    ("def f(x: f32[N], *, N=-2) -> f32[N]:", "bad-size", "-2)"),
    ("def f(x: f32[N], *, N=2.5) -> f32[N]:", "bad-size", "2.5"),
    ("def f(x: f32[N], *, N=2**50) -> f32[N]:", "bad-size", "2**50"),
    ("def f(x: f32[N], *, N=9**9**9**9) -> f32[N]:", "bad-size", "9**9**9)"),
    ("def f(x: f32[N], *, N=M) -> f32[N]:", "no-size", "M)"),
    ("def f(x: f32[N]) -> f32[N]:", "no-size", "N])"),
    ("def f(x: f32[N-4], *, N=4) -> f32[N]:", "bad-size", "N-4"),
    ("def f(x: f32[N//0], *, N=4) -> f32[N]:", "bad-size", "N//0"),
    ("def f(x: f32[n], *, N=4) -> f32[N]:", "bad-size", "n]"),
    ("def f(x: f32[0]) -> f32[0]:", "bad-size", "0]"),
    ("def f(x: f23[N], *, N=2) -> f32[N]:", "unknown-name", "f23"),
    ("def f(x: 'f32', *, N=2) -> f32[N]:", "syntax", "'f32'"),
    ("def f(x, *, N=2) -> f32[N]:", "syntax", "x, *"),
    ("def f(N, x: f32[N]) -> f32[N]:", "syntax", "N, x"),
    ("def f(x: f32[N], *, N=2):", "syntax", "def f"),
    ("def f(*x, N=2) -> f32[N]:", "unsupported", "x, N"),
    ("def f(x: f32[N] = 1, *, N=2) -> f32[N]:", "unsupported", "1, *"),
    ("def f(x: f32[N], N: f32, *, M=2) -> f32[N]:", "name-clash", "N: f32"),
    ("def f(inf: f32[N], *, N=2) -> f32[N]:", "reserved", "inf"),
    ("def exp(x: f32[N], *, N=2) -> f32[N]:", "reserved", "def exp"),
    ("def f(x: f32[N], x: f32[N], *, N=2) -> f32[N]:", "assigned-twice", "x: f32[N], *"),
]


@pytest.mark.parametrize(("head", "code", "place"), HEADS, ids=[h[0] for h in HEADS])
def test_mistakes_in_a_head(head: str, code: str, place: str) -> None:
    with pytest.raises(SourceError) as caught:
        lang.parse(head + "\n    return x")
    assert caught.value.code == code
    assert head[caught.value.column - 1 :].startswith(place)


FILES = [
    ("", "no-program"),
    ("# nothing\n", "no-program"),
    ("x = 1", "unsupported"),
    ("import os\nos.system('true')", "unsupported"),
    ("class A: pass", "unsupported"),
    ("def f(:", "syntax"),
    ("async def f(x: f32) -> f32:\n    return x", "unsupported"),
    ("@jit\ndef f(x: f32) -> f32:\n    return x", "unsupported"),
    ("def f(x: f32) -> f32:\n    return x\n" * 2, "assigned-twice"),
    (
        "def f(x: f32) -> f32:\n    return g(x)\ndef g(x: f32) -> f32:\n    return f(x)",
        "cyclic-definition",
    ),
    ("def f(x: f32) -> f32:\n    return f(x)", "cyclic-definition"),
    ("def f(x: f32[2]) -> (f32[2], f32[2]):\n    a[i] = x[i]\n    return a, a", "assigned-twice"),
    (
        "def f(x: f32[N], y: f32[M], *, N=2, M=3) -> f32[N]:\n    return g(x, y)\n"
        "def g(x: f32[N], y: f32[N]) -> f32[N]:\n    return x[i] + y[i]",
        "size-mismatch",
    ),
    (
        "def f(x: f32[2]) -> f32[2]:\n    return g(x)\n"
        "def g(x: f32[N,M]) -> f32[N]:\n    return sum[j](x[i,j])",
        "wrong-rank",
    ),
]


@pytest.mark.parametrize(("text", "code"), FILES, ids=[repr(f[0][:40]) for f in FILES])
def test_mistakes_of_a_file(text: str, code: str) -> None:
    with pytest.raises(InputError) as caught:
        lang.parse(text)
    assert caught.value.code == code
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("dims", "code"),
    [
        ({"N": 0}, "bad-size"),
        ({"N": -3}, "bad-size"),
        ({"N": True}, "bad-size"),
        ({"Q": 3}, "unknown-name"),
        ({"n": 3}, "unknown-name"),
        ({"N": 2**50}, "bad-size"),
    ],
)
def test_mistakes_in_dims(dims: dict[str, int], code: str) -> None:
    with pytest.raises(InputError) as caught:
        lang.parse("def f(x: f32[N], *, N=2) -> f32[N]:\n    return x", dims=dims)
    assert caught.value.code == code


def test_columns_count_characters() -> None:
    with pytest.raises(SourceError) as caught:
        lang.parse("def f(é: f32[2]) -> f32[2]:\n\tü[i] = é[i] + \tzz[i]\n\treturn ü")
    assert (caught.value.line, caught.value.column) == (2, 17)
    assert str(caught.value).endswith("\n     ü[i] = é[i] +  zz[i]\n                    ^")


def test_long_lines_are_cut_around_the_caret() -> None:
    body = " + ".join(["x[0]"] * 60)
    with pytest.raises(SourceError) as caught:
        lang.parse(f"def f(x: f32[2]) -> f32:\n    return {body} + zz")
    _, quoted, caret = str(caught.value).split("\n")
    assert len(quoted) < 120
    assert quoted[caret.index("^") :] == "zz"
