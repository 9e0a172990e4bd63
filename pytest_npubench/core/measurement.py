"""What a measurement leaves behind: raw samples, compile records, the path a run took through the buckets, its cost.

Seconds throughout. Compile time is never inside a sample.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pytest_npubench.errors import MeasurementError

NOT_RUN = "compiled, not run"
"""What is said of a time that a compiler estimated, wherever it stands."""

TOKENS = "tokens"
TOLD_BY_COMPILER = ("estimated_s", "flops", "accessed_bytes")


class Phase(Enum):
    """The two phases of serving one request."""

    PREFILL = "prefill"
    DECODE = "decode"


class CacheState(Enum):
    """Whether a binary came out of the compiler (cold) or out of the persistent compilation cache (warm)."""

    COLD = "cold"
    WARM = "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRecord:
    """One compiled binary: its name, the seconds to get it and where it came from. estimated_s: seconds of a run of it
    by the compiler's own estimate, None where it has none or nobody asked. flops and accessed_bytes: of a run, as the
    compiler counts them; None where it does not."""

    name: str
    compile_s: float
    cache: CacheState
    estimated_s: float | None = None
    flops: float | None = None
    accessed_bytes: float | None = None

    @property
    def from_compiler(self) -> dict[str, float]:
        """Returns the figures that the compiler gave, by field."""
        values = {name: getattr(self, name) for name in TOLD_BY_COMPILER}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a batch: prompt tokens and tokens to generate (the first one comes from prefill)."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive work of one kind in one bucket. For PREFILL num_steps counts prompts, for DECODE batch steps."""

    phase: Phase
    bucket: int
    num_steps: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The KV cache copied from one bucket's shape to the next one's."""

    from_bucket: int
    to_bucket: int
    duration_s: float

    @property
    def name(self) -> str:
        return f"move-{self.from_bucket}-{self.to_bucket}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One end-to-end execution of a batch, device-synchronised, with the buckets each part really used. num_tokens:
    that came back for all requests, None where the engine does not count them."""

    e2e_s: float
    segments: tuple[Segment, ...]
    moves: tuple[Move, ...]
    num_tokens: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """How often each thing ran, by name: {"prefill-128": 2, "decode-128": 8, "move-128-256": 1, "tokens": 20}."""
        counts: Counter[str] = Counter()
        for segment in self.segments:
            counts[f"{segment.phase.value}-{segment.bucket}"] += segment.num_steps
        for move in self.moves:
            counts[move.name] += 1
        return {**counts, **({} if self.num_tokens is None else {TOKENS: self.num_tokens})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Raw repeated samples of one quantity, in seconds. Raises MeasurementError when empty or not finite."""

    name: str
    samples_s: tuple[float, ...]

    def __post_init__(self) -> None:
        check_samples(self.name, self.samples_s)

    @property
    def mean_s(self) -> float:
        return statistics.fmean(self.samples_s)

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)

    @property
    def relative_spread(self) -> float | None:
        """Standard deviation over mean; None below two samples."""
        if len(self.samples_s) < 2:
            return None
        return statistics.stdev(self.samples_s) / self.mean_s if self.mean_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRecord:
    """What a profile cost (LENS, section 5.3): sessions and binaries are counted apart, so are points and repeats."""

    sessions: int
    binaries: int
    compile_s: float
    points: int
    repeats: int
    measure_s: float
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyError:
    """Measured and predicted seconds of one latency over all requests that have it; round_mean_error and
    round_p99_error: errors of the median round. mean_spread and p99_spread: the standard deviation to which the rounds
    tell the errors; 0 of a single round and run."""

    mean_s: float
    predicted_mean_s: float
    p99_s: float
    predicted_p99_s: float
    round_mean_error: float
    round_p99_error: float
    mean_spread: float
    p99_spread: float

    @property
    def mean_error(self) -> float:
        """Returns the error of the mean over all requests."""
        return self.predicted_mean_s / self.mean_s - 1

    @property
    def p99_error(self) -> float:
        return self.predicted_p99_s / self.p99_s - 1


def check_samples(name: str, samples_s: Sequence[float], *, signed: bool = False) -> None:
    """Raise MeasurementError naming the first sample that is not finite, or negative unless they may be (`signed`), or
    that there is none."""
    if not samples_s:
        raise MeasurementError(f"{name}: no samples")
    for index, value in enumerate(samples_s):
        if not math.isfinite(value) or (value < 0 and not signed):
            raise MeasurementError(
                f"{name}: sample {index} of {len(samples_s)} is {value!r}; want a finite number of seconds >= 0"
            )
