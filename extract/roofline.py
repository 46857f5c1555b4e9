"""The predicted time of a part: a roofline over a device, all tilings of a body at once.

Every quantity is a NumPy vector with one entry a tiling: `counting` says how often blocks do
things, `traffic` what moves, `portable` and `hopper` how long that takes on the two paths to the
tensor cores. Sources: Williams, Waterman, Patterson, "Roofline", CACM 2009; the constants are
measured (see the device profiles).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nautile.extract.body import Body, analyse
from nautile.extract.device import Device
from nautile.extract.footprint import Vector
from nautile.extract.hopper import Warpgroups, swapped, warpgroups
from nautile.extract.hopper_tiles import warpgroup_tilings
from nautile.extract.hopper_time import price_warpgroups
from nautile.extract.kernel import Part, Prediction
from nautile.extract.portable import GENERAL, price_portable
from nautile.extract.priced import Priced
from nautile.extract.tilings import tilings
from nautile.terms import Axis, Output

__all__ = ["GENERAL", "Priced", "Way", "price", "schedules", "ways"]


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
    return joined([way.price(body, device, way.tiles) for way in ways(body, device, limit)])


@dataclass(frozen=True, slots=True)
class Way:
    """Tilings of a body on one path: the warpgroups' of `own`, or the portable one."""

    tiles: Mapping[Axis, Vector]
    own: Warpgroups | None = None

    def price(self, body: Body, device: Device, tiles: Mapping[Axis, Vector]) -> Priced:
        """The given tilings priced on this path."""
        if self.own is None:
            return price_portable(body, device, dict(tiles))
        return price_warpgroups(body, device, self.own, dict(tiles))


def ways(body: Body, device: Device, limit: int = 4000) -> Iterator[Way]:
    """The paths that the body may take on the device, the portable one first, each with its
    tilings. They depend on the device's sizes, never on its rates."""
    yield Way(tilings(body, limit))
    for own in (warpgroups(body), swapped(body)) if device.path == "wgmma" else ():
        tiles = warpgroup_tilings(body, own) if own else {}
        if own is not None and not any(len(sizes) == 0 for sizes in tiles.values()):
            yield Way(tiles, own)


def joined(rows: list[Priced]) -> Priced:
    """The tilings of all paths together."""
    found, *others = rows
    for other in others:
        found = found.joined(other) if len(found.seconds) else other
    return found
