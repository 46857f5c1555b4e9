"""The launcher: load a bundle, run it, check it, time it. Needs NumPy and CuPy alone.

```python
import cupy
from nautile.runtime import Bundle

bundle = Bundle.load("out/softmax")
outputs = bundle.run(x=cupy.random.rand(4096, 8192, dtype=cupy.float32))
```

`python -m nautile.runtime run|bench BUNDLE` does the same where the command line's own
dependencies are not installed.
"""

from __future__ import annotations

from nautile.codegen.source import TensorMap
from nautile.runtime.command import bench_command, main, run_command
from nautile.runtime.launch import Call, Program
from nautile.runtime.maps import tensor_map
from nautile.runtime.opened import Bundle
from nautile.runtime.timing import bench

__all__ = [
    "Bundle",
    "Call",
    "Program",
    "TensorMap",
    "bench",
    "bench_command",
    "main",
    "run_command",
    "tensor_map",
]
