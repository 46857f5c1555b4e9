"""What travels over the API, as the OpenAPI document describes it. Times are RFC 3339 texts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from .jobs import Job

__all__ = [
    "Artifact",
    "Artifacts",
    "Catalogue",
    "Check",
    "Example",
    "Explanation",
    "Health",
    "Optimization",
    "Optimizations",
    "Pack",
    "Queue",
    "RuleText",
    "Submission",
    "shown",
]

ATTENTION = """\
def attention(Q: bf16[H,T,D], K: bf16[H,S,D], V: bf16[H,S,D], *, H=16, T=4096, S=4096, D=128) \
-> bf16[H,T,D]:
    p[h,t,s] = softmax[s](sum[d](Q[h,t,d] * K[h,s,d]) * D**-0.5)
    O[h,t,d] = sum[s](p[h,t,s] * V[h,s,d])
    return O
"""
State = Literal["queued", "running", "done", "failed", "cancelled", "dead"]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Pack(_Strict):
    """A pack of rules, checked before it is used: one law that is not found sound, and that
    `accept` does not name, refuses the optimization."""

    name: Annotated[
        str, StringConstraints(max_length=80, pattern=r"^[A-Za-z_][A-Za-z0-9_-]*(\.nau)?$")
    ] = Field(description="A file name; or a shipped pack's name, without a text.")
    text: Annotated[str, StringConstraints(max_length=1 << 18)] | None = None


class Submission(_Strict):
    """What to optimize, and for what."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"text": ATTENTION, "target": "h200"}]},
    )

    text: Annotated[str, StringConstraints(min_length=1, max_length=1 << 20)] = Field(
        description="An expression file: programs in index notation.", examples=[ATTENTION]
    )
    program: Name | None = Field(
        None, description="Which program of the text; may be left out where it holds one."
    )
    dims: dict[str, Annotated[int, Field(ge=1, le=1 << 40)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Sizes in place of the defaults.",
    )
    target: Annotated[str, StringConstraints(max_length=80, pattern=r"^[a-z0-9_]+$")] = Field(
        "h200", description="A device of `GET /v1/devices`."
    )
    numerics: Literal["exact", "real", "fast"] = "real"
    rules: Annotated[list[Pack], Field(max_length=8)] = Field(default_factory=list)
    accept: Annotated[list[Name], Field(max_length=64)] = Field(
        default_factory=list, description="Rules of these packs to use though not found sound."
    )
    compile: bool = Field(True, description="Compile to cubins, too.")
    architectures: Annotated[
        list[Annotated[str, StringConstraints(pattern=r"^sm_[0-9]{2,3}a?$")]], Field(max_length=8)
    ] = Field(default_factory=list, description="The target's own where left out.")
    candidates: Annotated[int, Field(ge=1, le=64)] = 1
    rows: Annotated[int, Field(ge=1, le=200_000)] = Field(
        50_000, description="Of one region's e-graph."
    )
    seconds: Annotated[float, Field(ge=0.001, le=120)] = Field(
        10.0, description="Of one region's saturation."
    )
    priority: Annotated[int, Field(ge=0, le=9)] = Field(
        0, description="Among the token's own jobs; tokens take turns."
    )


class Links(BaseModel):
    """Where the rest is."""

    self: str
    events: str
    result: str
    artifacts: str
    explanation: str


class Fault(BaseModel):
    """Why there is no result; `code` as at the command line."""

    model_config = ConfigDict(extra="allow")

    code: str
    message: str


class Optimization(BaseModel):
    """A job. `dead`: its attempts are used up, an administrator may requeue it."""

    id: str
    state: State
    program: str
    target: str
    numerics: str
    key: str = Field(description="Jobs of one key have one result, up to names.")
    priority: int
    created: str
    started: str | None
    finished: str | None
    attempts: int
    position: int | None = Field(description="In the queue, from 1; an estimate.")
    error: Fault | None
    links: Links


class Optimizations(BaseModel):
    """A page of jobs, the newest first."""

    optimizations: list[Optimization]
    next: str | None = Field(description="The cursor of the next page.")


class Artifact(BaseModel):
    """One file of the bundle."""

    path: str
    bytes: int
    href: str


class Artifacts(BaseModel):
    """The files of the bundle."""

    artifacts: list[Artifact]


class Explanation(BaseModel):
    """The page that explains the choice. `href` opens it without a token until `expires`."""

    state: State
    href: str | None
    expires: str | None
    error: Fault | None = None


class Catalogue(BaseModel):
    """The devices that can be optimized for: their profiles."""

    devices: list[dict[str, Any]]


class RuleText(BaseModel):
    """One law of the shipped packs."""

    name: str
    pack: str
    numerics: str
    text: str


class Example(BaseModel):
    """A shipped expression file."""

    name: str
    text: str


class Queue(BaseModel):
    """How much waits and runs."""

    queued: int
    running: int
    dead: int
    limit: int
    workers: int


class Check(BaseModel):
    """One thing that the service needs."""

    ok: bool
    detail: str


class Health(BaseModel):
    """Whether the service can take and execute jobs."""

    ready: bool
    checks: dict[str, Check]


def shown(job: Job) -> Optimization:
    """A job as the API shows it."""
    home = f"/v1/optimizations/{job.id}"
    return Optimization(
        id=job.id,
        state=job.state,  # type: ignore[arg-type]
        program=job.program,
        target=job.target,
        numerics=job.numerics,
        key=job.key,
        priority=job.priority,
        created=moment(job.created) or "",
        started=moment(job.started),
        finished=moment(job.finished),
        attempts=job.attempts,
        position=job.position,
        error=Fault(**job.error) if job.error else None,
        links=Links(
            self=home,
            events=f"{home}/events",
            result=f"{home}/result",
            artifacts=f"{home}/artifacts",
            explanation=f"{home}/explanation/",
        ),
    )


def moment(seconds: float | None) -> str | None:
    """A time as RFC 3339 writes it, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
