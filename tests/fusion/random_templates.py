"""What random programs are made of: extents, types, and templates of expressions.

Holes of a template: `{s}` and `{w}` are rows, `{e}` a row that may hold -inf, `{o}` one that is an
input of that kind; `{c}` and `{l}` scalars of the row, `{z}` an element beside it; `{v}` a vector
along the row, `{k}` a number, `{q}` a mask, `{b}` another body, `{i}` the row's letter. Weights are
repetitions.
"""

from __future__ import annotations

SIZES = ("N", "M", "D")
LETTERS = {"N": ("n", "u"), "M": ("m", "j"), "D": ("d", "k")}
EXTENTS = {
    "N": (1, 2, 3, 4, 5, 9),
    "M": (1, 2, 3, 5, 7, 8, 9, 11, 13, 13, 17, 17, 17, 23, 24, 33, 33),
    "D": (1, 2, 3, 4, 7, 17),
}
FLOATS = ("f32",) * 7 + ("bf16",) * 3 + ("f16", "f64")
RESULTS = ("f32",) * 6 + ("bf16", "bf16", "f16", "f64")
REDUCERS = ("sum",) * 14 + ("mean",) * 4 + ("max", "max", "min", "prod")
CARRIERS = ("max",) * 8 + ("min", "min", "sum", "sum", "mean", "mean", "mean")
NUMBERS = ("0.5", "2.0", "-1.5", "0.25", "3.0", "1.0", "-1.0")

DEPENDENT = (
    ("exp({e} - {c})",) * 9
    + ("exp({e} - {c}) * {w}",) * 9
    + ("({s} - {c}) * ({s} - {c})",) * 5
    + ("({s} - {c}) ** 2", "exp({e} - {c}) / {l}", "exp({e} - {c}) / {l} * {w}") * 4
    + (
        "({s} - {c}) * {w}",
        "({s} - {c}) * ({w} - {l})",
        "({s} - {c}) * {l}",
        "{s} * {c}",
        "{s} / {c}",
        "{s} / ({c} + 1.0)",
        "{s} / max({c}, 1e-3)",
        "{s} / {c} * ({w} / {l})",
        "exp(2.0 * ({e} - {c}))",
        "exp(({s} - {c}) / {k})",
        "exp({e} / {k} - {c} / {k})",
        "exp2({e} - {c})",
        "exp({s} - {c}) * ({s} - {c})",
        "exp({e} - {c}) * exp({w} - {l})",
        "exp({e} - {c}) ** 2",
        "exp({e} - {c}) * {w} + exp({e} - {c})",
        "exp({e} - {c}) - {w}",
        "(exp({e} - {c}) / {l} - {w}) * {s}",
        "where({q}, exp({e} - {c}), 0.0)",
        "where({q}, exp({e} - {c}), 0.0) * {w}",
        "where({q}, {s} - {c}, 0.0)",
        "where({q}, ({s} - {c}) ** 2, 0.0)",
        "exp(where({q}, {s} - {c}, -inf))",
        "exp(where({q}, {s}, -inf) - {c})",
        "bf16(exp({e} - {c})) * {w}",
        "exp({c} - {s})",
        "abs({s} - {c})",
        "max({s} - {c}, 0.0)",
        "max({b}, {b})",
        "{s} * rsqrt({c} * {c} + 1e-5)",
        "({s} - {c}) * rsqrt({l} * {l} + 1e-5)",
        "({s} - {c}) * rsqrt({l} * {l} + 1e-5) * {w}",
        "log(1.0 + exp({e} - {c}))",
        "sigmoid({s} - {c}) * {w}",
        "tanh({s}) * exp({w} - {c})",
        "exp({e} - {c} - {l}) * {w}",
        "exp({e} + {w} - {c} - {l})",
        "({b}) * ({b})",
        "({b}) + ({b})",
        "{k} * ({b})",
        "({b}) / {l}",
        "-({b})",
    )
)
INDEPENDENT = (
    ("{s}", "{s} * {w}", "{s} * {s}", "exp({s})") * 3
    + (
        "{s} ** 2",
        "abs({s})",
        "exp({s}) * {w}",
        "{s} * {k}",
        "exp({s} * {k})",
        "where({q}, {s}, 0.0)",
    )
    + ("{s} + {w}", "{s} - {w}", "max({s}, {w})", "where({q}, 1.0, 0.0)", "sqrt(abs({s}))", "{k}")
)
ROWS = ("{s}", "{s} * {k}", "{s} + {w}", "{s} - {w}", "tanh({s})", "{s} * {w}", "abs({s})", "-{s}")
MASKED = ("where({q}, {s}, -inf)",) * 3 + ("where({q}, {s} * 0.5, -inf)", "{s} + {o}")
CHOSEN = ("where({q}, {s}, 0.0)", "where({q}, {s} * {k}, {w})", "where({q}, {s}, -1e30)")
SCALARS = (
    ("{c} / {l}", "{c} + log({l})") * 3
    + ("log({c})", "sqrt({c})", "rsqrt({c} + 1e-5)", "{c} - {l}", "{c} * {l}", "{c} + {l}", "-{c}")
    + ("1.0 / {c}", "max({c}, {l})", "{c} * {k}", "where({l} > 0.0, {c} / {l}, 0.0)", "exp({c})")
    + ("{c} / ({l} + exp({z} - {c}))", "exp({c} - {l})", "{c} * {c}")
)
FINISHED = ("gelu({s})", "silu({s})", "bf16({s})", "{s}", "sigmoid({s})", "{s} + {w}", "relu({s})")
NAMED = (
    "softmax[{i}]({e})",
    "log_softmax[{i}]({s})",
    "standardize[{i}]({s})",
    "softmax[{i}]({e})",
) + ("layernorm[{i}]({s}, {v}, {v})", "rmsnorm[{i}]({s}, {v})", "l2norm[{i}]({s})")
SUMMARIES = ("logsumexp[{i}]({e})", "variance[{i}]({s})", "std[{i}]({s})", "mean[{i}]({s})")
LABELS = ("argmax", "argmax", "argmin", "any", "all")
