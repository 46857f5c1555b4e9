"""The predicted time on the portable path: mma.sync, cp.async, rows, and the general emitter.

The time is the largest of what each resource needs alone, plus a share of the others (they overlap
imperfectly), plus the launch and the main loop's own steps.
"""

from __future__ import annotations

import numpy as np

from nautile.dtypes import DTYPES
from nautile.extract import fewrows
from nautile.extract.arithmetic import operand_operations, operations, padding, products
from nautile.extract.body import Body, below
from nautile.extract.contractions import Contraction, element_loads, reduces
from nautile.extract.counting import Counting
from nautile.extract.device import PORTABLE, Device
from nautile.extract.footprint import Flags, Vector, elements, product
from nautile.extract.norms import STEP, Norm, norm
from nautile.extract.priced import OVERLAP, RESOURCES, Priced
from nautile.extract.rowshape import general, held_by_cluster
from nautile.extract.shapes import PORTABLE_SHARED, depth_folds, is_chain
from nautile.extract.traffic import Traffic, moved
from nautile.terms import Axis, Load, Online, Reduce, Term

__all__ = ["GENERAL", "price_portable"]

STAGES = 2  # copies of a streamed operand tile in shared memory
REUSE = 64  # rows * columns / (rows + columns) of a tile at which operands come fast enough
CHAINED = 40  # the same where an operand stays in registers from a contraction before
LONE = 0.94  # rate of the tensor cores where a multiprocessor has one block: barriers stall it
THREADS = 256
PROLOGUE = 0.85  # rate of a contraction with an operand that is computed from loads
SPLIT_PRODUCTS = 3.5  # products of tf32 that one of f32 takes the time of
DEPTH_FOLD = 2  # operations for one beside a contraction: unpacked, and again in each warp column
GENERAL = 7.0  # time of memory's traffic where neither rows nor the tensor cores' emitter applies
GENERAL_PRODUCTS = 20.0  # the same of the tensor cores' products, which are then the FMA units'
CLUSTERED = (
    0.9  # of the rate of memory: the first pass of a cluster must end before the second begins
)
MOST_BLOCKS = 8  # blocks of 256 threads on one multiprocessor
IN_FLIGHT = 16384  # bytes that a multiprocessor must have under way to hide memory latency
_COVER = np.array([1, 0.9, 0.97, 1, 1, 1, 1, 1, 1])  # bandwidth reached with so many blocks


def price_portable(body: Body, device: Device, tiles: dict[Axis, Vector]) -> Priced:
    """All tilings of a body, each a vector's entry, on the portable path."""
    if any(len(size) == 0 for size in tiles.values()):
        none = np.zeros(0)
        return Priced(body, device, tiles, none, {}, none, 0, none, none, none, none, none, none)
    return _Pricing(body, device, tiles).run()


class _Pricing:
    """One pricing: vectors shared by its steps."""

    def __init__(self, body: Body, device: Device, tiles: dict[Axis, Vector]) -> None:
        self.body, self.device, self.tiles = body, device, tiles
        self.counting = Counting(body, tiles)
        self.one, self.streamed = self.counting.one, self.counting.streamed
        self.blocks, self.busy = self.counting.blocks, self.counting.busy
        self.tensor = any(c.operand for c in body.contractions.values())
        self.norm = norm(body) if self.tensor else None
        folds = depth_folds(body) if self.tensor and not self.norm else []
        self.beside = frozenset(folds) | _deep(body, folds)
        self.slow = general(body, tiles, self.one)
        if self.norm:
            self.slow = self.one < 0
        self.fused = self.one * 0  # multiply-adds that count as two flops but one instruction
        self.products = self.one * 0  # seconds of the tensor cores' products, operands at hand

    def run(self) -> Priced:
        vector, special, tensor_seconds, tensor_flops = self._compute()
        registers = self._registers()
        together = self._beside(0 * self.one, registers) if self.tensor else self.one
        once = self.device.has_clusters and not self.slow.any() and held_by_cluster(self.body)
        self.clustered = self._clustered(once)
        traffic = moved(
            self.counting, self.device, self.device.sms * together, _direct(self.beside), once
        )
        shared = self._shared()
        seconds, demand = self._time(traffic, vector, special, tensor_seconds, shared, registers)
        return Priced(
            self.body, self.device, self.tiles, seconds, demand, traffic.reads, traffic.writes,
            tensor_flops, vector + self.fused, special, shared, registers, self.blocks,
        )  # fmt: skip

    def _clustered(self, once: bool) -> Vector:
        """The share of memory's rate that remains where a cluster keeps what passes read again."""
        loads = [x for x in self.body.loads if x in self.body.visits] if once else []
        again = self.one < 0
        for load in loads:
            again = again | (self.counting.repeats(load) > 1)
        return np.where(again, CLUSTERED, 1.0)

    # ---- arithmetic ----------------------------------------------------------------------------

    def _compute(self) -> tuple[Vector, Vector, Vector, Vector]:
        vector, special = operations(self.counting, dict.fromkeys(self.beside, DEPTH_FOLD))
        seconds = flops = self.one * 0
        for contraction in self.body.contractions.values():
            if contraction.root in self.body.free:
                continue
            time, work, fma = self._contract(contraction)
            seconds, flops, vector = seconds + time, flops + work, vector + fma
        return vector, special, seconds, flops

    def _contract(self, c: Contraction) -> tuple[Vector, Vector, Vector]:
        """(tensor seconds, tensor flops, FMA operations) of one contraction."""
        work = products(self.counting, c)
        before = operand_operations(self.counting, c)
        rate = self._rate(c.operand) if c.operand else 0.0
        if not np.any(rate):
            self.fused = self.fused + work / 2
            return self.one * 0, self.one * 0, work / 2 + before
        rate = rate * (PROLOGUE if any(_computed(parts) for parts, _ in c.sides) else 1.0)
        padded = work * padding(self.counting, c, 16, 8, 16)
        self.products = self.products + padded / rate
        return padded / self._reuse(c) / rate, work, before

    def _rate(self, operand: str) -> float:
        """flop/s of the tensor cores; f32 operands take three products and their sums."""
        if operand == "f32":
            return self.device.rate("tf32", PORTABLE) / SPLIT_PRODUCTS
        return self.device.rate(operand, PORTABLE)

    def _reuse(self, c: Contraction) -> Vector:
        """The share of the tensor cores' rate at which a tile's operands arrive. Contractions that
        share an operand share its trip (measured: the square root of the tile's reuse)."""
        rows = np.maximum(product(c.rows, self.tiles, self.one), 16)
        columns = np.maximum(product(c.columns, self.tiles, self.one), 8)
        if is_chain(self.body):
            reached: Vector = np.minimum(1.0, rows * columns / (rows + columns) / CHAINED)
            return reached
        for other in self.body.contractions.values():
            if other is not c and other.axes == c.axes:
                if other.left == c.left:
                    columns = columns + product(other.columns, self.tiles, self.one)
                elif other.right == c.right:
                    rows = rows + product(other.rows, self.tiles, self.one)
        share: Vector = np.sqrt(np.minimum(1.0, rows * columns / (rows + columns) / REUSE))
        return share

    # ---- shared memory and registers -----------------------------------------------------------

    def _shared(self) -> Vector:
        """Bytes of shared memory of a block."""
        total = self.one * 0
        for load in self.body.loads:
            total = total + self._held(load, DTYPES[load.buffer.dtype].bytes)
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
        self, traffic: Traffic, vector: Vector, special: Vector, tensor: Vector,
        shared: Vector, registers: Vector,
    ) -> tuple[Vector, dict[str, Vector]]:  # fmt: skip
        d = self.device
        dram, l2 = traffic.reads + traffic.writes, traffic.l2 + traffic.writes
        limit = min(d.shared_bytes, PORTABLE_SHARED) if self.tensor else d.shared_bytes
        fits = (shared <= limit) & (registers <= d.registers)
        resident = self._beside(shared, registers)
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
        reach = np.where(few, alone.reach, reach) / np.where(self.slow, GENERAL, 1) * self.clustered
        tensor = tensor * np.where(self.slow, GENERAL_PRODUCTS, 1)
        demand = {
            "dram": (dram / d.memory_bandwidth + traffic.ragged) / reach,
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

    def _few_rows(self) -> Flags:
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

    def _beside(self, shared: Vector, registers: Vector) -> Vector:
        """Blocks that a multiprocessor holds at a time, each with `shared` bytes."""
        d = self.device
        most = np.minimum(d.shared_bytes / np.maximum(shared, 1), d.registers / registers)
        return np.clip(np.floor(most), 1, MOST_BLOCKS)

    def _company(self, resident: Vector) -> Vector:
        """The share of the tensor cores' rate that the blocks beside one another reach."""
        alone = (resident < 2) & (self.blocks > self.device.sms)
        return np.where(alone & (not is_chain(self.body)), LONE, 1.0)

    def _steps(self) -> Vector:
        """Trips of the loops of one block, those of a norm's depth included."""
        total = self.counting.trips()
        if self.norm:  # as deep a step as a stream's deepest
            total = total + np.ceil(self.norm.depth.extent / (2 * STEP))
        return total


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


def _direct(beside: frozenset[Term]) -> frozenset[Load]:
    """Loads that folds beside contractions read from memory where they lie, as every warp column
    does, and the operand that is formed of them too: those of 16 bits are copied."""
    loads = (t for t in beside if isinstance(t, Load) and len(t.free) > 1)
    return frozenset(t for t in loads if DTYPES[t.buffer.dtype].bytes != 2)


def _computed(parts: tuple[Term, ...]) -> bool:
    """Whether an operand is computed from loads on its way to the tensor cores, which keeps it from
    being copied straight into shared memory."""
    alone = len(parts) == 1 and isinstance(parts[0], Load)
    return not alone and not any(reduces(t) for t in parts)
