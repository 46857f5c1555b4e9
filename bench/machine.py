"""What nvidia-smi says of the card: its name, driver, clocks and power."""

from __future__ import annotations

import subprocess

__all__ = ["STATE", "smi"]

STATE = ("driver_version", "clocks.sm", "clocks.mem", "power.draw", "power.limit")


def smi(*fields: str) -> dict[str, str]:
    """The fields of the first card, as text; "unknown" where nvidia-smi does not answer."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return dict.fromkeys(fields, "unknown")
    first = done.stdout.strip().splitlines()[0]
    return dict(zip(fields, first.split(", "), strict=True))
