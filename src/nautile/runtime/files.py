"""Inputs from and outputs to NPZ files. Nothing in such a file is executed (no pickles)."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nautile import samples
from nautile.errors import LaunchError
from nautile.runtime.arrays import is_scalar
from nautile.runtime.device import cupy
from nautile.runtime.launch import Program

__all__ = ["load_inputs", "save_outputs"]


def load_inputs(program: Program, path: Path) -> dict[str, Any]:
    """The arrays of an NPZ file on the device. Bit patterns that NumPy has no name for (bf16 and
    fp8 that ml_dtypes saved) are read as uint16 and uint8. LaunchError if it cannot be read."""
    made = {}
    for name, array in _read(path).items():
        buffer = program.buffers.get(name)
        if buffer is not None and array.dtype.kind == "V":
            array = _bits(array, samples.STORAGE[buffer.dtype])
        made[name] = array if is_scalar(array) else cupy().asarray(np.ascontiguousarray(array))
    return made


def _read(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            held = np.load(file, allow_pickle=False)
            if isinstance(held, np.ndarray):
                raise ValueError("it holds one array without a name")
            return {name: held[name] for name in held.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise LaunchError(f"{path} is no readable .npz file: {error}", code="inputs") from error


def _bits(array: Any, storage: str) -> Any:
    return array.view(storage) if array.dtype.itemsize == np.dtype(storage).itemsize else array


def save_outputs(outputs: Mapping[str, Any], path: Path) -> None:
    """Write outputs as an NPZ file, whole or not at all. LaunchError if it cannot be written."""
    held = {name: cupy().asnumpy(array) for name, array in outputs.items()}
    try:
        _write(held, path)
    except OSError as error:
        raise LaunchError(f"{path} cannot be written: {error.strerror}", code="output") from error


def _write(held: Mapping[str, Any], path: Path) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for key, array in held.items():  # np.savez cannot save an array that is called 'file'
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
