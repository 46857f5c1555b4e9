"""Frames, cut anywhere on their way, come out whole; the machine's figures are sensible."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from nautile.executor.frames import Stage, framed, taken
from nautile.executor.machine import Machine, machine, memory_of


@given(names=st.lists(st.text(max_size=50), max_size=8), cuts=st.lists(st.integers(1, 40)))
def test_frames_come_out_whole_however_they_are_cut(names: list[str], cuts: list[int]) -> None:
    whole = b"".join(framed(Stage(n, name)) for n, name in enumerate(names))
    buffer, found = bytearray(), []
    sizes = iter([*cuts, len(whole)])
    while whole or buffer:
        size = next(sizes, 1)
        buffer += whole[:size]
        whole = whole[size:]
        while (frame := taken(buffer)) is not None:
            found.append(frame)
        assert whole or not buffer
    assert found == [framed(Stage(n, name))[4:] for n, name in enumerate(names)]


def test_workers_are_as_many_as_cores_and_memory_allow() -> None:
    gib = 1 << 30
    assert Machine(8, 64 * gib).workers == 8
    assert Machine(8, 7 * gib).workers == 3
    assert Machine(8, gib // 2).workers == 1
    assert Machine(2, 10 * gib).share(2) == int(4.5 * gib)


def test_this_machine_has_what_the_system_says() -> None:
    found = machine()
    assert 1 <= found.cores <= len(os.sched_getaffinity(0))
    assert 0 < found.memory_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_memory_counts_the_processes_below() -> None:
    code = "import sys; x = bytearray(64 << 20); print(1, flush=True); sys.stdin.read()"
    before = memory_of(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert memory_of(child.pid) > 64 << 20
        assert memory_of(os.getpid()) - before > 64 << 20
