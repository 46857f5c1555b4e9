"""Extraction: from saturated e-graphs to the cheapest set of kernels, with a bound and a gap.

Device profiles, the roofline, candidate kernels and the exact choice among them.
"""

from __future__ import annotations

from nautile.extract.baseline import baseline
from nautile.extract.device import Device, device, device_names
from nautile.extract.kernel import Kernel, Part, Plan, Prediction
from nautile.extract.plan import choose
from nautile.extract.regions import Region, cut, snapshot_of, written
from nautile.extract.roofline import schedules

__all__ = [
    "Device",
    "Kernel",
    "Part",
    "Plan",
    "Prediction",
    "Region",
    "baseline",
    "choose",
    "cut",
    "device",
    "device_names",
    "schedules",
    "snapshot_of",
    "written",
]
