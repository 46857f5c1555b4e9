"""What is told of a rule that did not match.

```
Answer  ::= program, region's stop, matches of the rule, closest: Attempt | nothing
Attempt ::= place, bindings, failures, absent        one direction of the rule, one place
Place   ::= term, line, the rules that made it
Failure ::= the condition's text, why
```
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "Attempt", "Failure", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """A class: a term of it, its line in the source (None where rules made it), the axes that it
    depends on, what is known of it, and the rules that put something there."""

    term: str
    line: int | None
    free: tuple[str, ...]
    known: tuple[str, ...]
    makers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A condition that does not hold, as the law spells it, and the values that refute it."""

    condition: str
    reason: str
    tried: bool = True


@dataclass(frozen=True, slots=True)
class Attempt:
    """The closest that one direction of a rule came. `absent` tells the part of the pattern that
    was not found, where the pattern as a whole did not match (`found` of its `parts` did); `alike`
    is the number of places where it comes as close. A failure that was not `tried` speaks of names
    that an earlier one should have bound."""

    direction: int
    place: Place | None
    bindings: dict[str, Place | str]
    failures: tuple[Failure, ...]
    absent: str | None = None
    found: int = 0
    parts: int = 0
    alike: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a rule in one program. `matches` counts applications while saturating, of the
    rule as it was allowed; `closest` is the closest attempt at the end."""

    program: str
    rule: str
    law: str
    stop: str
    matches: int
    closest: Attempt

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `nautile rules why --json`."""
        from dataclasses import asdict

        return asdict(self)
