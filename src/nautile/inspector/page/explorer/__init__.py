"""The e-graph explorer: neighbourhoods of a large e-graph, drawn on demand in the page.

```
data.py              the e-graph as columns, which the scripts read
reasons.py           the rules that put each node where it is;  forms.py  which may have
assets/egraph.js     the columns as arrays: classes, nodes, arguments, users, paths from the roots
assets/text.js       terms as text of bounded length, made when they are asked for
assets/search.js     the index of texts, built in slices, and what a query finds
assets/view.js       which classes and nodes are drawn (LIMIT at most), and the steps back and forth
assets/layout.js     layers, order and places of boxes, in a worker
assets/canvas.js     the drawing; pointer and keys
assets/panel.js      one class in words: its nodes, why they are there, who uses it
assets/list.js       the same neighbourhood as a list
assets/explorer.js   mount(element, data, page)
```

It draws on a canvas by itself, without a library. Measured for 1,000 boxes on two cores: Cytoscape
3.35 takes 190 to 300 ms to show them and adds an inline style, which the page's policy forbids; of
the layered layouts, dagre 3.1 takes 4 s for 100 classes and 600 edges, d3-dag 1.2 4 s for 150 and
470, ELK 0.12 2.2 s for 250 and 750; Graphviz as WebAssembly takes 0.6 s for the last, and needs
'wasm-unsafe-eval'. What is here takes a tenth of that (tests/inspector/test_explorer_speed.py).
"""

from nautile.inspector.page.explorer.data import explorer_data

__all__ = ["SCRIPTS", "STYLES", "explorer_data"]

_NAMES = ("egraph", "text", "search", "view", "layout", "canvas", "panel", "list", "explorer")
SCRIPTS = tuple(f"assets/{name}.js" for name in _NAMES)
STYLES = ("assets/explorer.css",)
