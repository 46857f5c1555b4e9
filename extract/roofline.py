"""The predicted time of a part: a roofline over a device, all tilings of a body at once.

Every quantity is a NumPy vector with one entry a tiling. The time is the largest of what each
resource needs alone, plus a share of the others (they overlap imperfectly), plus the launch and the
main loop's own steps. Sources: Williams, Waterman, Patterson, "Roofline", CACM 2009; the constants
are measured (see the device profiles).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nautile.dtypes import DTYPES
from nautile.extract import fewrows
from nautile.extract.body import Body, analyse, below
from nautile.extract.contractions import Contraction, element_loads, reduces
from nautile.extract.device import Device
from nautile.extract.footprint import Vector, elements, product
from nautile.extract.kernel import Part, Prediction
from nautile.extract.masks import Mask, alive_and_busy, pass_mask
from nautile.extract.norms import STEP, Norm, norm
from nautile.extract.priced import OVERLAP, RESOURCES, Priced
from nautile.extract.rowshape import general
from nautile.extract.shapes import PORTABLE_SHARED, depth_folds, is_chain
from nautile.extract.tilings import tilings
from nautile.extract.work import operation_cost
from nautile.terms import Axis, Buffer, Index, Load, Online, Output, Reduce, Term

__all__ = ["Priced", "price", "schedules"]

STAGES = 2  # copies of a streamed operand tile in shared memory
REUSE = 64  # rows * columns / (rows + columns) of a tile at which operands come fast enough
CHAINED = 40  # the same where an operand stays in registers from a contraction before
LONE = 0.94  # rate of the tensor cores where a multiprocessor has one block: barriers stall it
THREADS = 256
SECTOR = 32  # bytes of the smallest memory transaction
LINE = 128  # bytes of a cache line
PROLOGUE = 0.85  # rate of a contraction with an operand that is computed from loads
SPLIT_PRODUCTS = 3.5  # products of tf32 that one of f32 takes the time of
DIRECT = 8.0  # half sectors, in two warp columns, for a fold and for an operand
DEPTH_FOLD = 2  # operations for one beside a contraction: unpacked, and again in each warp column
RAGGED = 0.15  # share of the missing part of a line that is lost in device memory
GENERAL = 7.0  # time of memory's traffic where neither rows nor the tensor cores' emitter applies
GENERAL_PRODUCTS = 20.0  # the same of the tensor cores' products, which are then the FMA units'
MOST_BLOCKS = 8  # blocks of 256 threads on one multiprocessor
IN_FLIGHT = 16384  # bytes that a multiprocessor must have under way to hide memory latency
_COVER = np.array([1, 0.9, 0.97, 1, 1, 1, 1, 1, 1])  # bandwidth reached with so many blocks


def schedules(
    outputs: tuple[Output, ...], device: Device, limit: int = 8, *, numerics: str = "real"
) -> tuple[tuple[Part, Prediction], ...]:
    """Alternative schedules of one part, best first; empty when no tiling fits the device."""
    return price(outputs, device, numerics=numerics).ranked(limit)


def price(
    outputs: tuple[Output, ...], device: Device, *, numerics: str = "real", limit: int = 4000
) -> Priced:
    """Price every tiling of the part that computes `outputs` (at most about `limit`)."""
    body = analyse(outputs, numerics=numerics)
    tiles = tilings(body, limit)
    if any(len(size) == 0 for size in tiles.values()):
        none = np.zeros(0)
        return Priced(body, device, tiles, none, {}, none, 0, none, none, none, none, none, none)
    return _Pricing(body, device, tiles).run()


class _Pricing:
    """One pricing: vectors shared by its steps."""

    def __init__(self, body: Body, device: Device, tiles: dict[Axis, Vector]) -> None:
        self.body, self.device, self.tiles = body, device, tiles
        self.one = np.ones(len(next(iter(tiles.values()))) if tiles else 1)
        self.count = {a: np.ceil(a.extent / tiles[a]) for a in body.axes}
        self.streamed = {a: (self.count[a] > 1) for a in body.reduced}
        self.extent = {a: self.one * a.extent for a in body.axes}
        self.blocks = self.one
        for axis in body.grid:
            self.blocks = self.blocks * self.count[axis]
        self.kept, self.busy = self._kept()
        self.tensor = any(c.operand for c in body.contractions.values())
        self.norm = norm(body) if self.tensor else None
        folds = depth_folds(body) if self.tensor and not self.norm else []
        self.beside = frozenset(folds) | _deep(body, folds)
        self.direct = _direct(self.beside)
        self.slow = general(body, tiles, self.one)
        if self.norm:
            self.slow = self.one < 0
        self.fused = self.one * 0  # multiply-adds that count as two flops but one instruction
        self.products = self.one * 0  # seconds of the tensor cores' products, operands at hand
        self.ragged = self.one * 0  # seconds lost to short runs of memory

    def run(self) -> Priced:
        vector, special, tensor_seconds, tensor_flops = self._compute()
        reads, l2, shared = self._memory()
        registers = self._registers()
        self.ragged = self.ragged + self._ragged_writes()
        writes = sum(o.buffer.size * DTYPES[o.buffer.dtype].bytes for o in self.body.outputs)
        seconds, demand = self._time(
            reads + writes, l2 + writes, vector, special, tensor_seconds, shared, registers
        )
        return Priced(
            self.body, self.device, self.tiles, seconds, demand, reads, writes, tensor_flops,
            vector + self.fused, special, shared, registers, self.blocks,
        )  # fmt: skip

    # ---- how often a term is evaluated ---------------------------------------------------------

    def _padded(self, axes: frozenset[Axis], running: frozenset[Axis] = frozenset()) -> Vector:
        """Evaluations of a term with these axes by all blocks, ragged tiles counted whole. Along
        `running` axes the term follows running values, which change once a tile."""
        total = self.blocks
        for axis in axes:
            if axis in self.tiles:
                total = total * (self.one if axis in running else self.tiles[axis])
                if axis in self.body.reduced:
                    total = total * self.count[axis]
        return total

    def _repeats(self, term: Term) -> Vector:
        """How often one block evaluates the term: passes over streamed axes, masked blocks out."""
        total = self.one
        for axis, n in self.body.visits[term].items():
            passes = [k for (a, k), bag in self.body.passes.items() if a == axis and term in bag]
            share = sum(self.kept[axis, k] for k in passes)
            total = total * np.where(self.streamed[axis], share, min(n, 1))
        return total

    def _kept(self) -> tuple[dict[tuple[Axis, int], Vector], Vector]:
        """For each pass the share of its blocks that its mask leaves; the blocks of the grid that
        have anything to do."""
        kept, most = {}, self.one * 0
        inner = {a for a, _ in self.body.nested}
        for axis, k in self.body.passes:
            roots = [r for r, s in self.body.stage.items() if s == k and _axis(r) == axis]
            mask = pass_mask(roots) if roots and not self._stored_in(axis, k) else frozenset()
            kept[axis, k], busy = self._alive(mask, axis) if mask else (self.one, self.one)
            most = most if axis in inner else np.maximum(most, busy)
        most = np.where(most > 0, most, 1)
        return kept, np.maximum(1, self.blocks * most)

    def _stored_in(self, axis: Axis, k: int) -> bool:
        bag = self.body.passes[axis, k]
        return any(o.term in bag and axis in o.axes for o in self.body.outputs)

    def _alive(self, mask: Mask, axis: Axis) -> tuple[Vector, Vector]:
        axes = sorted({a for form, _ in mask for a, _ in form} | {axis})
        rows = np.stack([self.tiles.get(a, self.one) for a in axes])
        sizes, inverse = np.unique(rows, axis=1, return_inverse=True)
        shares = [
            alive_and_busy(mask, {a: int(s) for a, s in zip(axes, column, strict=True)}, axis)
            for column in sizes.T
        ]
        kept, busy = np.array(shares)[inverse.reshape(-1)].T
        return kept, busy

    # ---- arithmetic ----------------------------------------------------------------------------

    def _compute(self) -> tuple[Vector, Vector, Vector, Vector]:
        vector = special = seconds = flops = self.one * 0
        for term in self.body.inside:
            if term in self.body.free:
                continue
            contraction = self.body.contractions.get(term)
            if contraction is not None:
                time, work, fma = self._contract(contraction)
                seconds, flops, vector = seconds + time, flops + work, vector + fma
            else:
                v, s = operation_cost(term)
                if term in self.beside:
                    v, s = DEPTH_FOLD * v, DEPTH_FOLD * s
                if v or s:
                    times = self._padded(_walked(term), self.body.running[term]) * self._within(
                        term
                    )
                    vector, special = vector + v * times, special + s * times
        return vector, special, seconds, flops

    def _within(self, term: Term) -> Vector:
        """Repeats of a term, or for a reduction those of its own pass."""
        if not isinstance(term, (Reduce, Online)):
            return self._repeats(term)
        axis = term.axis
        own = np.where(self.streamed[axis], self.kept[axis, self.body.stage[term]], 1)
        return own * self._repeats(term)

    def _contract(self, c: Contraction) -> tuple[Vector, Vector, Vector]:
        """(tensor seconds, tensor flops, FMA operations) of one contraction."""
        assert isinstance(c.root, (Reduce, Online))
        within = self._within(c.root)
        work = 2 * self._padded(c.left_free | c.right_free) * within
        before = self.one * 0
        for parts, free in c.sides:
            before = before + (len(parts) - 1) * self._padded(free) * within
        rate = self._rate(c.operand) if c.operand else 0.0
        if not rate:
            self.fused = self.fused + work / 2
            return self.one * 0, self.one * 0, work / 2 + before
        rows, columns = (
            product(c.rows, self.tiles, self.one),
            product(c.columns, self.tiles, self.one),
        )
        depth = product(c.axes, self.tiles, self.one)
        wide, tall, deep = np.maximum(rows, 16), np.maximum(columns, 8), np.maximum(depth, 16)
        padding = wide / rows * tall / columns * deep / depth
        rate = rate * (PROLOGUE if any(_computed(parts) for parts, _ in c.sides) else 1.0)
        self.products = self.products + work * padding / rate
        return work * padding / self._reuse(c, wide, tall) / rate, work, before

    def _rate(self, operand: str) -> float:
        """flop/s of the tensor cores; f32 operands take three products and their sums."""
        if operand == "f32":
            return self.device.tensor_rate("tf32") / SPLIT_PRODUCTS
        return self.device.tensor_rate(operand)

    def _reuse(self, c: Contraction, rows: Vector, columns: Vector) -> Vector:
        """The share of the tensor cores' rate at which a tile's operands arrive. Contractions that
        share an operand share its trip (measured: the square root of the tile's reuse)."""
        if is_chain(self.body):
            return np.minimum(1.0, rows * columns / (rows + columns) / CHAINED)
        for other in self.body.contractions.values():
            if other is not c and other.axes == c.axes:
                if other.left == c.left:
                    columns = columns + product(other.columns, self.tiles, self.one)
                elif other.right == c.right:
                    rows = rows + product(other.rows, self.tiles, self.one)
        return np.sqrt(np.minimum(1.0, rows * columns / (rows + columns) / REUSE))

    # ---- memory --------------------------------------------------------------------------------

    def _memory(self) -> tuple[Vector, Vector, Vector]:
        """(bytes from memory, bytes through L2, shared memory of a block)."""
        reads, l2, shared = self.one * 0, self.one * 0, self.one * 0
        minimum: dict[str, Vector] = {}
        size: dict[str, int] = {}
        together = self.device.sms * (self._beside(0 * self.one) if self.tensor else 1)
        occupancy = np.maximum(1, np.minimum(self.blocks, together))
        groups = max(1, len({tuple(a in x.free for a in self.body.grid) for x in self.body.loads}))
        for load in self.body.loads:
            width = DTYPES[load.buffer.dtype].bytes
            unique = elements(load, self.extent, self.one) * width
            total = np.maximum(self._fetched(load) * width, unique * self._least(load))
            run = self._run(load.coordinates, load.buffer, width)
            l2 = l2 + total * np.maximum(1.0, SECTOR / run) * self._again(load)
            again = total
            if float(unique[0]) < self.device.l2_bytes / 2:
                again = np.minimum(total, unique)
            else:
                sharing = np.minimum(self._missing(load), np.maximum(1, occupancy ** (1 / groups)))
                again = np.maximum(np.minimum(total, unique), total / sharing)
            reads = reads + again - np.minimum(again, unique)
            self.ragged = self.ragged + self._late(again, run)
            name = load.buffer.name
            minimum[name] = minimum.get(name, self.one * 0) + np.minimum(again, unique)
            size[name] = load.buffer.size * width
            shared = shared + self._held(load, width)
        for name, least in minimum.items():
            reads = reads + np.minimum(least, size[name])
        return reads, l2, shared

    def _again(self, load: Load) -> float:
        """How often a block fetches the load's elements: a fold beside a contraction reads those
        that shared memory does not hold where they lie, as every warp column does, and the operand
        that is formed of them too."""
        return DIRECT if load in self.direct else 1.0

    def _least(self, load: Load) -> float:
        return 0.0 if self._masked(load) else 1.0

    def _masked(self, load: Load) -> bool:
        return any(
            float(self.kept[key].min()) < 1 for key, bag in self.body.passes.items() if load in bag
        )

    def _missing(self, load: Load) -> Vector:
        """Blocks that read the same elements."""
        total = self.one
        for axis in self.body.grid:
            if axis not in load.free:
                total = total * self.count[axis]
        return total

    def _fetched(self, load: Load) -> Vector:
        """Elements that all blocks fetch, each block its own footprint in every pass."""
        block = {a: self.tiles[a] if a in self.body.grid else self.extent[a] for a in self.tiles}
        total = elements(load, block, self.one) * self.blocks
        exact = {c.axis for c in load.coordinates if hasattr(c, "axis")}
        for axis in self.body.grid:
            if axis in load.free and axis in exact:
                total = total * self.extent[axis] / (self.count[axis] * self.tiles[axis])
        if load in self.body.visits:
            total = total * self._repeats(load)
        for inner, outer in self.body.nested:
            if inner in load.free and outer not in load.free:
                both = self.streamed[inner] & self.streamed[outer]
                total = total * np.where(both, self.count[outer], 1)
        return total

    def _run(self, coordinates: tuple[Term, ...], buffer: Buffer, width: int) -> Vector:
        """Bytes that a block touches in a row."""
        if not coordinates:
            return self.one * LINE
        run = product(coordinates[-1].free, self.tiles, self.one)
        run = np.where(run >= buffer.shape[-1], buffer.size, run)
        return np.maximum(run, 1) * width

    def _late(self, amount: Vector, run: Vector) -> Vector:
        """Seconds lost when `amount` bytes move in runs shorter than a line."""
        return amount * RAGGED * np.maximum(0, LINE / run - 1) / self.device.memory_bandwidth

    def _ragged_writes(self) -> Vector:
        total = self.one * 0
        for output in self.body.outputs:
            width = DTYPES[output.buffer.dtype].bytes
            run = self._run(tuple(Index(a) for a in output.axes), output.buffer, width)
            total = total + self._late(self.one * output.buffer.size * width, run)
        return total

    def _held(self, load: Load, width: int) -> Vector:
        """Shared memory for the load's tile: operands of contractions."""
        visits = self.body.visits.get(load, {})
        operand = any(load in element_loads(c) for c in self.body.contractions.values())
        again = max(visits.values(), default=0) > 1
        if not operand and not (again and self.body.contractions):
            return self.one * 0
        if self.norm:
            return self._held_by_norm(self.norm, load, width)
        streams = self.one < 0
        for axis in load.free:
            if axis in self.streamed:
                streams = streams | self.streamed[axis]
        held = elements(load, self.tiles, self.one) * width * self._padding(load)
        return held * np.where(streams, STAGES if operand else 0, 1)

    def _held_by_norm(self, own: Norm, load: Load, width: int) -> Vector:
        """The rows of a norm stay; the other operand comes in steps of the depth."""
        if load in own.held:
            return elements(load, self.tiles, self.one) * width * self._padding(load)
        if own.rows & load.free or load.free == {own.depth}:
            return self.one * 0  # factors are read where they lie
        steps = {**self.tiles, own.depth: self.one * STEP}
        return elements(load, steps, self.one) * width * self._padding(load) * STAGES

    def _padding(self, load: Load) -> Vector:
        """How much larger an operand's tile is in shared memory: rows come in sixteens."""
        most = self.one
        for c in self.body.contractions.values():
            if c.operand and load in element_loads(c):
                side = c.columns if load.free & c.columns else c.rows
                own = product(side, self.tiles, self.one)
                most = np.maximum(most, np.ceil(own / 16) * 16 / own)
        return most

    def _registers(self) -> Vector:
        """Registers of one block: accumulators and reduction states, computed operands, threads."""
        total = self.one * THREADS * 32
        for root in self.body.stage:
            if root in self.body.free:
                continue
            state = 2 if isinstance(root, Online) and root not in self.body.contractions else 1
            total = total + product(root.free, self.tiles, self.one) * state
        if not self.body.contractions:
            total = total + self._rows_held()
        for c in self.body.contractions.values():
            for parts, free in c.sides:
                if any(reduces(t) for t in parts) and not self.norm:
                    total = total + product(free, self.tiles, self.one) / 2
        return total

    def _rows_held(self) -> Vector:
        """Elements of loads that several passes over resident axes read: they stay in registers.
        (Over a resident axis an online sum is a plain sum in a pass after its carrier's.)"""
        total = self.one * 0
        keys = {(r.axis, k) for r, k in self.body.stage.items() if isinstance(r, Online)}
        followed = frozenset[Term]().union(*(self.body.passes[key] for key in keys))
        for load in self.body.loads:
            visits = self.body.visits.get(load, {})
            if max(visits.values(), default=0) > 1 or load in followed:
                held = elements(load, self.tiles, self.one)
                for axis in visits:
                    held = np.where(self.streamed[axis], 0, held)
                total = total + held
        return total

    # ---- time ----------------------------------------------------------------------------------

    def _time(
        self, dram: Vector, l2: Vector, vector: Vector, special: Vector, tensor: Vector,
        shared: Vector, registers: Vector,
    ) -> tuple[Vector, dict[str, Vector]]:  # fmt: skip
        d = self.device
        limit = min(d.shared_bytes, PORTABLE_SHARED) if self.tensor else d.shared_bytes
        fits = (shared <= limit) & (registers <= d.registers)
        resident = self._beside(shared)
        waves = np.ceil(self.busy / (d.sms * resident))
        tail = np.ceil(self.busy / d.sms) * d.sms / self.busy
        tail = np.where(self.busy > 8 * d.sms, 1.02, tail)
        reach = np.minimum(1, self.busy / d.memory_sms)
        if not self.tensor:
            flying = l2 / self.busy * np.minimum(resident, np.ceil(self.busy / d.sms))
            reach = (
                reach * np.minimum(1, 0.5 + 0.5 * flying / IN_FLIGHT) * _COVER[resident.astype(int)]
            )
        few, alone = self._few_rows(), self._streaming(shared)
        reach = np.where(few, alone.reach, reach) / np.where(self.slow, GENERAL, 1)
        tensor = tensor * np.where(self.slow, GENERAL_PRODUCTS, 1)
        demand = {
            "dram": (dram / d.memory_bandwidth + self.ragged) / reach,
            "l2": l2 / d.l2_bandwidth / reach,
            "tensor": tensor * tail / self._company(resident),
            "fp32": 2 * vector / d.fp32 * tail,
            "special": special / d.special * tail,
        }
        stack = np.stack([demand[name] for name in RESOURCES])
        most = stack.max(0)
        seconds = most + OVERLAP * (stack.sum(0) - most)
        seconds = seconds + (1 + self._steps()) * waves * d.step_seconds
        if self.norm:
            rows = product(self.norm.rows | {self.norm.depth}, self.tiles, self.one)
            seconds = seconds + self.norm.seconds(d, self.busy, rows, waves)
        if few.any():
            within = np.minimum(demand["tensor"], alone.least)  # the warps' own time has it inside
            within = np.maximum(within, self.products * tail)
            demand["tensor"] = np.where(few, within, demand["tensor"])
            seconds = np.where(few, alone.seconds(demand), seconds)
        return np.where(fits, seconds + d.launch_seconds, np.inf), demand

    def _few_rows(self) -> npt.NDArray[np.bool_]:
        """Whether a block is a chain of so few rows that one warp has them all."""
        rows = [
            product(c.rows if parts is c.left else c.columns, self.tiles, self.one)
            for c in self.body.contractions.values()
            for parts, _ in c.sides
            if c.operand and any(reduces(t) for t in parts) and not self.norm
        ]
        return np.max(rows, axis=0) <= fewrows.ROWS if rows else self.one < 0

    def _streaming(self, shared: Vector) -> fewrows.Streaming:
        slot = self.one * 0
        for load in self.body.loads:
            moves = self.one < 0
            for axis in load.free:
                moves = moves | self.streamed.get(axis, moves)
            width = DTYPES[load.buffer.dtype].bytes
            operand = any(load in element_loads(c) for c in self.body.contractions.values())
            held = elements(load, self.tiles, self.one) * width * self._padding(load)
            slot = slot + np.where(moves & operand, held, 0)
        stay = np.where(slot > 0, shared - STAGES * slot, 0)
        slot = np.where(slot > 0, slot, shared)  # where nothing moves, all comes at once
        steps = np.maximum(self._steps(), 1)
        return fewrows.streaming(self.device, self.busy, slot, stay, steps)

    def _beside(self, shared: Vector) -> Vector:
        """Blocks that a multiprocessor holds at a time, each with `shared` bytes."""
        d = self.device
        most = np.minimum(d.shared_bytes / np.maximum(shared, 1), d.registers / self._registers())
        return np.clip(np.floor(most), 1, MOST_BLOCKS)

    def _company(self, resident: Vector) -> Vector:
        """The share of the tensor cores' rate that the blocks beside one another reach."""
        alone = (resident < 2) & (self.blocks > self.device.sms)
        return np.where(alone & (not is_chain(self.body)), LONE, 1.0)

    def _steps(self) -> Vector:
        """Trips of the loops of one block that has anything to do, all passes together."""
        total = self.one * 0
        for axis, k in self.body.passes:
            trips = self.count[axis] * self.kept[axis, k] * self.blocks / self.busy
            for inner, outer in self.body.nested:
                if inner == axis:
                    trips = trips * np.where(self.streamed[outer], self.count[outer], 1)
            total = total + np.where(self.streamed[axis], trips, 0)
        if self.norm:  # as deep a step as a stream's deepest
            total = total + np.ceil(self.norm.depth.extent / (2 * STEP))
        return total


def _axis(term: Term) -> Axis:
    assert isinstance(term, (Reduce, Online))
    return term.axis


def _walked(term: Term) -> frozenset[Axis]:
    """The axes over which the term's own operation runs."""
    return term.free | {term.axis} if isinstance(term, (Reduce, Online)) else term.free


def _deep(body: Body, folds: list[Term]) -> frozenset[Term]:
    """What the folds beside contractions combine: the terms over their axis that nothing else of
    the kernel needs."""
    wanted: set[Term] = set()
    for root in folds:
        assert isinstance(root, (Reduce, Online))
        stack = [root.body]
        while stack:
            term = stack.pop()
            if term not in wanted and root.axis in term.free:
                wanted.add(term)
                stack += below(term)
    return frozenset(wanted)


def _direct(beside: frozenset[Term]) -> frozenset[Term]:
    """Loads that folds beside contractions read from memory: those of 16 bits are copied."""
    loads = (t for t in beside if isinstance(t, Load) and len(t.free) > 1)
    return frozenset(t for t in loads if DTYPES[t.buffer.dtype].bytes != 2)


def _computed(parts: tuple[Term, ...]) -> bool:
    """Whether an operand is computed from loads on its way to the tensor cores, which keeps it from
    being copied straight into shared memory."""
    alone = len(parts) == 1 and isinstance(parts[0], Load)
    return not alone and not any(reduces(t) for t in parts)
