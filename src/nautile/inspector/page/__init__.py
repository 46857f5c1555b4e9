"""The page of an explanation: one folder that a browser opens from disk, with no network.

```
folder.py    the folder and its security policy
program.py   source, definitions, tile programs and CUDA, every line with what it belongs to
pieces.py    terms of kernels brought back to the definitions of the source
lines.py     lines of CUDA brought back to statements of tile programs
typeset.py   terms as trees for index notation
assets/      the scripts and styles of the page;  explorer/  those of the e-graph explorer
```
"""

from nautile.inspector.page.folder import POLICY, write_page

__all__ = ["POLICY", "write_page"]
