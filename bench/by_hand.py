"""Runs the README's cupy.RawKernel block as it stands and compares its result with torch's.

python bench/by_hand.py [BUNDLE]    # the bundle of `make demo` by default; needs a GPU
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parent.parent
DEMO = "out/demo/attention"


def main() -> int:
    bundle = sys.argv[1] if len(sys.argv) > 1 else DEMO
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (code,) = [b for b in blocks if "cupy.RawKernel" in b]
    names: dict[str, Any] = {}
    exec(compile(code.replace(DEMO, bundle), "README.md", "exec"), names)
    q, k, v, o = (torch.as_tensor(names[n].view("i2"), device="cuda") for n in "qkvo")
    q, k, v, o = (x.view(torch.bfloat16).double() for x in (q, k, v, o))
    true = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    error = float(torch.linalg.norm(o - true) / torch.linalg.norm(true))
    print(f"the README's block by hand: relative error {error:.2e}")
    return int(not error < 1e-2)


if __name__ == "__main__":
    sys.exit(main())
