"""The predicted time on the warpgroup path (sm_90a): persistent blocks, one a multiprocessor.

A block takes output tiles one after another. Of a tile,

- a product's main loop is bound by the tensor cores, at the share of their rate at which a step's
  operands arrive; what is computed of the accumulators and stored follows it, unless two warpgroups
  take tiles in turn, so that one computes while the other multiplies;
- a chain's steps are bound by the tensor cores or by the pointwise work, whichever is longer, and
  take a part of the other (the next step's products run under this one's pointwise work); the first
  step and the last product overlap with nothing.

Tiles that do not divide by the multiprocessors leave some idle in the last round; where masks make
tiles of unlike length, blocks take them heavy ones first, and even out. Constants are fitted to
hand-written kernels on an H200 (bench/README): 4096^3 in 0.172 ms, attention of width 128 at 483 to
690 TFLOP/s from 512 to 16k keys.
"""

from __future__ import annotations

from math import prod

import numpy as np

from nautile.dtypes import DTYPES
from nautile.extract.arithmetic import operations, padding, products
from nautile.extract.body import Body
from nautile.extract.contractions import Contraction
from nautile.extract.counting import Counting
from nautile.extract.device import Device
from nautile.extract.footprint import Flags, Vector, product
from nautile.extract.formed import NOTHING
from nautile.extract.hopper import EIGHTS, LONGEST_SUM, WIDEST, Warpgroups
from nautile.extract.hopper_tiles import budget
from nautile.extract.masks import conjuncts
from nautile.extract.priced import Priced
from nautile.extract.shapes import depth_folds
from nautile.extract.traffic import Traffic, moved
from nautile.extract.work import operation_cost
from nautile.terms import Apply, Axis, Const, Online, Term

__all__ = ["price_warpgroups"]

# bytes a clock of shared memory beside which products run at their full rate: what instructions of
# 64 rows read, and what copies bring (128x128 tiles ask for 160 and lose 3.5%, 128x192 for 139)
SERVED = 154
# seconds of a step of 8-bit products of a 128x128 tile, whose sums join those of f32; larger tiles
# hide more of it
PROMOTED = 0.065e-6
HIDDEN = 0.3  # share of a step's products that longer pointwise work does not hide
COVERED = 0.15  # share of a step's pointwise work that longer products do not hide
LONE = 0.6  # the same where one warpgroup has nobody to take turns with
# share of a step's work on elements that products do not hide, or the reverse: of folds beside
# them, and of their operands, for which they wait (4096^3 on an H200: 1.07, 1.10 times the product)
FORMERS = 3  # warps that form right operands
UNHIDDEN = {False: 0.25, True: 0.45}
ISSUE = 0.7  # instructions a cycle of a scheduler that forms operands
STEP = 0.03e-6  # seconds of a chain's step: its barriers
PANEL_STEP = 0.142e-6  # of a product's step at least: its barriers, and how fast its copies come
NARROW_STEP = 0.175e-6  # the same of fewer than 64 columns
ACROSS = 0.6e-6  # seconds of storing results across their rows (16 x 14336 on an H200)
NARROW = 36  # of REUSE, what tiles of few rows reach: barriers and memory bound them before
TILE = 0.1e-6  # seconds of a chain's tile that the next tile's first products do not hide
DOUBLE = 1.16  # time of a warpgroup with two fragments of rows, whose turns are twice as long
TRIPLE = 0.88  # time of a chain of three warpgroups where pointwise work is longer than products
# of a chain's time, added where a step has 64 columns in place of 128: products of 64 columns read
# as many bytes of shared memory for a cycle as there are, and a step's fixed costs count twice
SHORT_STEP = 0.2
RAGGED = 0.2e-6  # seconds of a tile whose last step is cut
STORE = 0.3e-6  # seconds of a product's tile besides its main loop
STORED = 2.2e11  # bytes a second that one multiprocessor stores by the copy engine
BY_THREADS = 0.12  # times as many where its threads store them
FETCH = 4  # instructions for an element that is read where it lies
FILL = 1.2e-6  # seconds until the first operands are there
TMA_L2 = 1.25  # times the second-level cache's bandwidth that copies of whole tiles reach
LATENCY = 1.1e-6  # seconds from a request to device memory to its answer, under load
ENGINES = 40  # multiprocessors whose copy engines saturate the memory
EXPOSED = 0.05  # share of the shorter of memory's and the main loop's time that shows
HEAVIEST = 2.0  # times the average tile that masks leave, at most

# where results have few digits: (FMA-pipe, special-function) instructions of one operation; tanh so
# where only its absolute accuracy counts, as it does for the scores of a chain
_FAST = {"tanh": (0, 1), "sigmoid": (2, 1), "div": (1, 1), "exp": (0, 1), "exp2": (0, 1)}
_FAST |= {"log": (1, 1), "log2": (0, 1)}


def price_warpgroups(
    body: Body, device: Device, own: Warpgroups, tiles: dict[Axis, Vector]
) -> Priced:
    """The given tilings of a body on the warpgroup path (at least one), inf where they do not
    fit."""
    return _Pricing(body, device, own, tiles).run()


class _Pricing:
    def __init__(
        self, body: Body, device: Device, own: Warpgroups, tiles: dict[Axis, Vector]
    ) -> None:
        self.body, self.device, self.own, self.tiles = body, device, own, tiles
        self.counting = Counting(body, tiles)
        self.one, self.busy = self.counting.one, self.counting.busy
        self.budget = budget(body, own, device, tiles)

    def run(self) -> Priced:
        n, d, b = self.counting, self.device, self.budget
        narrow = all(DTYPES[o.buffer.dtype].digits <= 11 for o in self.body.outputs)
        cost = (_fast if self.own.chain else _stored) if narrow else operation_cost
        vector, special = operations(n, self._formed_elsewhere(), cost)
        vector = vector + self._repaired() + self._fetched()
        flops, tensor = self.one * 0, self.one * 0
        for c in self.body.contractions.values():
            work = products(n, c)
            flops = flops + work * self._within_extents(c)
            units = (64, 8) if self.own.row in c.rows else (8, 64)
            used = self.own.operands.get(c.root, c.operand)
            tensor = tensor + work * padding(n, c, *units, 16) / d.rate(used, "wgmma")
        traffic = moved(n, d, self.one * d.sms)
        seconds, demand = self._time(tensor, vector, special, traffic)
        registers = 128 * ((b.consumers + 1) * 24 + b.consumers * b.registers)
        return Priced(
            self.body, d, self.tiles, seconds, demand, traffic.reads, traffic.writes, flops,
            vector, special, b.shared, registers, n.blocks, np.ones(len(seconds), dtype=bool),
        )  # fmt: skip

    def _within_extents(self, c: Contraction) -> Vector:
        """The share of a contraction's tiles that lies within the extents."""
        share = self.one
        for axis in c.left_free | c.right_free:
            if axis in self.tiles:
                share = share * axis.extent / (self.counting.count[axis] * self.tiles[axis])
        return share

    def _time(
        self, tensor: Vector, vector: Vector, special: Vector, traffic: Traffic
    ) -> tuple[Vector, dict[str, Vector]]:
        d = self.device
        share = d.sms / self.busy  # all tiles on the device -> one tile on one of them
        multiply, fma = tensor * share, 2 * vector / d.fp32 * share
        functions = special / d.special * share
        time = self._chain if self.own.chain else self._product
        tile = np.maximum(time(multiply, fma + functions), self._convert())
        rounds = self._rounds()
        reach = np.minimum(self._reach(), 1)
        dram = ((traffic.reads + traffic.writes) / d.memory_bandwidth + traffic.ragged) / reach
        l2 = (traffic.l2 + traffic.writes) / d.l2_bandwidth / TMA_L2
        demand = {
            "dram": dram,
            "l2": l2,
            "tensor": multiply * rounds,
            "fp32": fma * rounds,
            "special": functions * rounds,
        }
        most = np.maximum(rounds * tile + FILL, np.maximum(dram, l2))
        seconds = most + EXPOSED * np.minimum(dram, rounds * tile) + d.launch_seconds
        seconds = seconds + ACROSS * self.own.swapped
        return np.where(self.budget.fits, seconds, np.inf), demand

    def _repaired(self) -> Vector:
        """Multiplications that bring carried accumulators to the step's running values."""
        n, total = self.counting, self.one * 0
        for root in self.body.contractions:
            if isinstance(root, Online):
                total = total + n.padded(root.free) * n.count[root.axis] * n.within(root)
        return total

    def _fetched(self) -> Vector:
        """Instructions to fetch elements of rows and columns that are no operands: where they lie,
        by the thread that has the accumulator."""
        n, total = self.counting, self.one * 0
        sides = [side for c in self.body.contractions.values() for side in c.sides]
        operands = {parts[0] for parts, _ in sides if len(parts) == 1}
        columns = {*self.own.columns.values(), self.own.stream} - {None}
        for load in self.body.loads:
            if load not in operands and self.own.row in load.free and load.free & columns:
                often = n.repeats(load) if load in self.body.visits else 1
                total = total + FETCH * n.padded(load.free) * often
        return total

    def _product(self, multiply: Vector, compute: Vector) -> Vector:
        """Seconds of one tile: both warpgroups share it, or take tiles in turn."""
        least = self.counting.trips() * np.where(self._columns() < 64, NARROW_STEP, PANEL_STEP)
        form = self._form()
        stored = sum(o.buffer.size * DTYPES[o.buffer.dtype].bytes for o in self.body.outputs)
        rate = np.where(self.budget.staged, 1, BY_THREADS) * STORED
        after = compute + STORE + stored / self.counting.blocks / rate
        multiply = multiply / self._supply() + self._promoted()
        supplied = multiply * np.where(self._double(), DOUBLE, 1)
        supplied = np.maximum(supplied, least)
        shows = UNHIDDEN[self.own.formed.operand]
        supplied = np.maximum(supplied, form) + shows * np.minimum(supplied, form)
        together = supplied + after
        alone = np.maximum(multiply, least)
        # with one tile a block there are no turns to take
        turns = np.where(
            self.busy > self.device.sms, np.maximum(alone, (alone + after) / 2), together
        )
        found: Vector = np.where(self.budget.in_turn, turns, together)
        return found

    def _convert(self) -> Vector:
        """Seconds of one tile's right operands that warps of their own form."""
        own, total = self.own, self.one * 0
        for load in own.formed.right:
            columns = product(load.free - {own.stream, *own.steps}, self.tiles, self.one)
            depth = 1
            for axis in {own.stream, *own.steps} & load.free:
                depth *= axis.extent if axis is not None else 1
            total = total + columns * depth
        return total * own.formed.converting / (FORMERS * 32 * self.device.clock * ISSUE)

    def _formed_elsewhere(self) -> dict[Term, int]:
        """What `_form` counts: the work on elements of rows and a depth that is walked."""
        own = self.own
        if own.formed == NOTHING or own.chain:
            return {}
        terms = {t for t in self.body.inside if t.free & set(own.steps)}
        return dict.fromkeys(terms | set(depth_folds(self.body)), 0)

    def _form(self) -> Vector:
        """Seconds of one tile's elements of rows and depth that are computed with in registers."""
        own, rate = self.own, 128 * self.device.clock * ISSUE
        depth = 1
        for axis in own.steps:
            depth *= axis.extent
        elements: Vector = self.tiles[own.row] * depth
        return elements * own.formed.instructions / rate

    def _chain(self, multiply: Vector, compute: Vector) -> Vector:
        """Seconds of one tile, in which products of one step hide the work of another."""
        steps = np.maximum(self.counting.trips(), 1)
        longer, shorter = np.maximum(multiply, compute), np.minimum(multiply, compute)
        stream = self.own.stream
        assert stream is not None
        ragged = RAGGED * (self.counting.count[stream] * self.tiles[stream] > stream.extent)
        hidden = np.where(multiply > compute, COVERED, HIDDEN)
        share = np.where(self.budget.consumers > 1, hidden, LONE)
        bare = (1 - share) * shorter / steps  # of the first step and the last product
        third = (self.budget.consumers > 2) & (compute > multiply)
        many = np.where(self._double(), DOUBLE, np.where(third, TRIPLE, 1))
        many = many * (1 + SHORT_STEP * np.maximum(0, 128 - self.tiles[stream]) / 64)
        found: Vector = (longer + share * shorter) * many + bare + TILE + ragged + STEP * steps
        return found

    def _double(self) -> Flags:
        """Whether a warpgroup has more than the 64 rows of one fragment."""
        return np.asarray(self.tiles[self.own.row] > 64 * self.budget.consumers)

    def _promoted(self) -> Vector | float:
        """Seconds of a tile in which sums of 8-bit products join those of f32."""
        eights = all(self.own.operands.get(r) in EIGHTS for r in self.own.columns)
        depth = prod(axis.extent for axis in self.own.steps)
        if not eights or depth <= LONGEST_SUM:
            return 0.0
        size: Vector = self.tiles[self.own.row] * self._columns() / 128**2
        return self.counting.trips() * PROMOTED / size

    def _supply(self) -> Vector:
        """The share of the tensor cores' rate at which shared memory serves a tile: an instruction
        reads 64 rows and its columns, 32 bytes of each; copies bring rows and columns once."""
        rows, columns = self.tiles[self.own.row], self._columns()
        wide = np.where(columns <= WIDEST, columns, columns / len(self.own.columns))
        share: Vector = np.minimum(1.0, SERVED / (64 + 4096 * (1 / wide + 1 / rows + 1 / columns)))
        return share

    def _columns(self) -> Vector:
        """Columns of all products of a tile together."""
        columns: Vector = self.one * 0
        for c in self.body.contractions.values():
            across = self.own.columns[c.root]
            assert across is not None
            columns = columns + product([across], self.tiles, self.one)
        return columns

    def _rounds(self) -> Vector:
        """Tiles that one multiprocessor takes in turn, in average tiles."""
        kept = [share for share in self.counting.kept.values() if float(share.min()) < 1]
        rounds = self.busy / self.device.sms
        if not kept:
            return np.ceil(rounds)
        heaviest = np.minimum(HEAVIEST, 1 / np.min(kept, axis=0))
        found: Vector = np.maximum(rounds, heaviest)
        return found

    def _reach(self) -> Vector:
        """The share of the memory's bandwidth that the copies under way reach."""
        flying = self.busy * (self.budget.stages - 1) * self.budget.slot
        need = self.device.memory_bandwidth * LATENCY
        found: Vector = np.minimum(self.busy / ENGINES, np.maximum(flying, 1) / need)
        return found


def _stored(term: Term) -> tuple[int, int]:
    """The same where values are stored, not exponentiated: tanh needs its relative accuracy."""
    if isinstance(term, Apply) and term.operation == "tanh":
        return operation_cost(term)
    return _fast(term)


def _fast(term: Term) -> tuple[int, int]:
    """The cost of an operation where results have few digits. A constant factor joins the
    multiply-add or the exponent that follows; blocks that an affine mask cuts are few."""
    match term:
        case Apply("mul" | "div", (_, Const())) | Apply("mul", (Const(), _)):
            return 0, 0
        case Apply("where", (condition, _, _)) if conjuncts(condition):
            return 0, 0
        case Apply("le" | "lt" | "ge" | "gt" | "and") if conjuncts(term):
            return 0, 0
        case Apply(operation, _) if operation in _FAST:
            return _FAST[operation]
        case Online():
            return 1, 0
    return operation_cost(term)
