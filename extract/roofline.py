"""The predicted time of a part: a roofline over a device, all tilings of a body at once.

Every quantity is a NumPy vector with one entry a tiling: `counting` says how often blocks do
things, `traffic` what moves, `portable` and `hopper` how long that takes on the two paths to the
tensor cores. Sources: Williams, Waterman, Patterson, "Roofline", CACM 2009; the constants are
measured (see the device profiles).
"""

from __future__ import annotations

from nautile.extract.body import analyse
from nautile.extract.device import Device
from nautile.extract.hopper import swapped, warpgroups
from nautile.extract.hopper_tiles import warpgroup_tilings
from nautile.extract.hopper_time import price_warpgroups
from nautile.extract.kernel import Part, Prediction
from nautile.extract.portable import GENERAL, price_portable
from nautile.extract.priced import Priced
from nautile.extract.tilings import tilings
from nautile.terms import Output

__all__ = ["GENERAL", "Priced", "price", "schedules"]


def schedules(
    outputs: tuple[Output, ...],
    device: Device,
    limit: int = 8,
    *,
    numerics: str = "real",
    path: str | None = None,
) -> tuple[tuple[Part, Prediction], ...]:
    """Alternative schedules of one part, best first, of all paths or of one ("portable", "wgmma");
    empty when no tiling fits the device."""
    return price(outputs, device, numerics=numerics).ranked(limit, path)


def price(
    outputs: tuple[Output, ...], device: Device, *, numerics: str = "real", limit: int = 4000
) -> Priced:
    """Price every tiling of the part that computes `outputs` (at most about `limit`)."""
    body = analyse(outputs, numerics=numerics)
    found = price_portable(body, device, tilings(body, limit))
    for own in (warpgroups(body), swapped(body)) if device.path == "wgmma" else ():
        tiles = warpgroup_tilings(body, own) if own else {}
        if own is None or any(len(sizes) == 0 for sizes in tiles.values()):
            continue
        other = price_warpgroups(body, device, own, tiles)
        found = found.joined(other) if len(found.seconds) else other
    return found
