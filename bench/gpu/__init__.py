"""The harness that measures generated kernels beside the best hand-written ones.

| file | what |
|---|---|
| `programs/*.nau` | what is compiled, as plain mathematics |
| `case.py`, `groups.py` | the cases: programs at sizes, in groups |
| `work.py` | what a case must do: operations, bytes, which pairs a mask keeps |
| `peers/` | who else computes it: torch, flex_attention, Triton, optional wheels; float64 truths |
| `check.py`, `timing.py` | float64, poison and guard bands; CUDA graphs, interleaved |
| `warm.py` | peers compiled beforehand, in several processes |
| `figures.py` | medians, spreads, paired ratios |
| `store.py`, `session.py` | results written case by case; child processes that may die |
| `cuda.py`, `dry.py` | one case on a GPU; the same without one, for tests |
| `goals.json`, `goals.py` | what the results must show, as data |
| `table.py`, `plot.py` | the page, the table of the README and the figure |
"""
