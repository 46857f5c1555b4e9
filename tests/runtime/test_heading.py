"""The comment at the head of a source: true, and never anything but a comment."""

from __future__ import annotations

import pytest

from nautile.bundle.heading import heading
from nautile.codegen.source import CudaKernel, TensorMap
from nautile.terms import Program

KERNEL = CudaKernel("k_y", "", (7, 2, 1), 96, 2048, ("x", "y"))


def made(source: str) -> str:
    return heading(KERNEL, (), Program("p", (), (), (), source=source, filename="a.nau"))


def test_it_tells_the_launch() -> None:
    text = made("def p():\n    return 1")
    assert 'cupy.RawKernel(source, "k_y", options=("--std=c++17",))' in text
    assert "kernel((7, 2, 1), (96,), (x, y), shared_mem=2048)" in text
    assert "//     return 1\n" in text.replace("//       ", "//     ")


def test_it_tells_maps_and_counters() -> None:
    view = TensorMap("x", "bf16", (128, 9), (256,), (64, 8), 128, 16)
    kernel = CudaKernel(
        "k_y", "", (7, 2, 1), 96, 2048, ("y",), architecture="sm_90a", maps=(view,), counters=3
    )
    text = heading(kernel, (), Program("p", (), (), ()))
    assert f"// map0 = tensor_map({view}, x.data.ptr)\n" in text
    assert 'counters = cupy.zeros(3, "i4")' in text
    assert 'options=("--std=c++17", "-arch=sm_90a",))' in text
    assert "kernel((7, 2, 1), (96,), (map0, y, counters), shared_mem=2048)" in text
    (line,) = (line for line in text.splitlines() if "import" in line)
    names: dict[str, object] = {}
    exec(line.removeprefix("// "), names)
    assert names["TensorMap"] is TensorMap


@pytest.mark.parametrize("hostile", ["# a \\", "# a\r#error", "# a\x0c#error", "# a\u2028#error"])
def test_every_line_stays_a_comment(hostile: str) -> None:
    for line in made(f"{hostile}\nx").split("\n")[:-1]:
        assert line.startswith("//")
        assert not line.endswith("\\")
        assert "\r" not in line
