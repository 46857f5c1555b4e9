"""The launcher: load a bundle, run it, check it, time it. Needs NumPy and CuPy alone.

```python
import cupy
from nautile.runtime import Bundle

bundle = Bundle.load("out/softmax")
outputs = bundle.run(x=cupy.random.rand(4096, 8192, dtype=cupy.float32))
```

To run the same arrays again and again, bind them once and replay a CUDA graph:

```python
graph = bundle.only.bind({"x": x}).graph()
outputs = graph.launch()
```

`python -m nautile.runtime run|bench BUNDLE` does the same where the command line's own
dependencies are not installed.
"""

from __future__ import annotations

from nautile.codegen.source import TensorMap
from nautile.runtime.command import bench_command, main, run_command
from nautile.runtime.graph import Graph
from nautile.runtime.launch import Call, Program
from nautile.runtime.maps import tensor_map
from nautile.runtime.opened import Bundle
from nautile.runtime.timing import bench

__all__ = [
    "Bundle",
    "Call",
    "Graph",
    "Program",
    "TensorMap",
    "bench",
    "bench_command",
    "main",
    "run_command",
    "tensor_map",
]
