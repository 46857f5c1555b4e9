"""Which event happens before which, whatever the speed of the roles: vector clocks and barriers.

Roles run as actors, each with a clock that counts its own events and knows the latest of every
other actor's that happened before. One run then speaks for all orders in which the actors could
have run, provided that each wait can only be ended by the phase that ended it here. `Barrier` sees
to that:

- an actor arrives for a phase once, and after the phase before has ended;
- who waits for a phase knows that the one before has ended (a wait tells phases apart by their
  parity only, so that it would else pass one round early);
- a phase ends only after all who waited for the one before have gone on (else they would miss it).

Source: Lamport, "Time, Clocks, and the Ordering of Events", 1978; vector clocks: Mattern, 1989.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nautile.codegen.schedule.validate import ScheduleError

__all__ = ["Actor", "Barrier", "Event", "Turns"]


@dataclass(frozen=True, slots=True)
class Event:
    """The `at`-th event of an actor."""

    actor: int
    at: int


@dataclass(slots=True)
class Actor:
    """One role's threads, number `number` of `actors`."""

    name: str
    number: int
    clock: list[int]

    def event(self) -> Event:
        """A new event of this actor."""
        self.clock[self.number] += 1
        return Event(self.number, self.clock[self.number])

    def knows(self, event: Event) -> bool:
        """Whether the event happened before what this actor does next."""
        return self.clock[event.actor] >= event.at

    def learn(self, clock: Sequence[int]) -> None:
        """Everything in `clock` happened before what this actor does next."""
        for i, at in enumerate(clock):
            self.clock[i] = max(self.clock[i], at)


def _covers(clock: Sequence[int], other: Sequence[int]) -> bool:
    return all(a >= b for a, b in zip(clock, other, strict=True))


@dataclass(slots=True)
class Barrier:
    """A barrier of shared memory whose phases end after `count` arrivals."""

    name: str
    count: int
    actors: int
    ended: list[list[int]] = field(default_factory=list)
    arrived: int = 0
    arrivers: set[int] = field(default_factory=set)
    clock: list[int] = field(default_factory=list)
    waits: dict[int, list[Event]] = field(default_factory=dict)

    def arrive(self, actor: Actor, arrivals: int) -> None:
        """So many threads of the actor arrive."""
        if actor.number in self.arrivers:
            raise ScheduleError(f"{actor.name} arrives twice for one phase of {self.name}")
        if self.ended and not _covers(actor.clock, self.ended[-1]):
            raise ScheduleError(f"{actor.name} may arrive at {self.name} before its phase begins")
        actor.event()
        self.arrivers.add(actor.number)
        known = self.clock or [0] * self.actors
        self.clock = [max(pair) for pair in zip(known, actor.clock, strict=True)]
        self.arrived += arrivals
        if self.arrived > self.count:
            raise ScheduleError(f"{self.name}: more arrivals than the {self.count} it counts")
        if self.arrived == self.count:
            self._end()

    def passes(self, parity: int) -> bool:
        """Whether a wait for the phase of this parity is over."""
        return (len(self.ended) - 1) % 2 == parity

    def passed(self, actor: Actor) -> int:
        """The phase whose end the actor has now seen; -1 before the first."""
        phase = len(self.ended) - 1
        if phase >= 1 and not _covers(actor.clock, self.ended[phase - 1]):
            raise ScheduleError(f"{actor.name} may pass {self.name} one round early")
        if phase >= 0:
            actor.learn(self.ended[phase])
        self.waits.setdefault(phase, []).append(actor.event())
        return phase

    def _end(self) -> None:
        for event in self.waits.get(len(self.ended) - 1, ()):
            if self.clock[event.actor] < event.at:
                raise ScheduleError(f"{self.name}: a phase may end before who waits has seen it")
        self.ended.append(self.clock)
        self.arrived, self.arrivers, self.clock = 0, set(), []


@dataclass(slots=True)
class Turns:
    """A named barrier at which one warpgroup waits until another has arrived."""

    name: str
    pending: list[int] | None = None
    last: Event | None = None

    def arrive(self, actor: Actor) -> None:
        """The other warpgroup arrives, and goes on."""
        if self.pending is not None:
            raise ScheduleError(f"{actor.name} arrives twice at {self.name}")
        if self.last is not None and not actor.knows(self.last):
            raise ScheduleError(f"{actor.name} may arrive at {self.name} before its last turn")
        actor.event()
        self.pending = list(actor.clock)

    def take(self, actor: Actor) -> bool:
        """Whether the turn has come; then it is taken."""
        if self.pending is None:
            return False
        actor.learn(self.pending)
        self.pending, self.last = None, actor.event()
        return True
