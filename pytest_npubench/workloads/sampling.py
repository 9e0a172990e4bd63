"""What a workload is and how requests are drawn from it.

Seeded: uniforms come from numpy's PCG64 bit generator by `Generator.random`, in rows of two, and everything after
that is arithmetic here. numpy keeps the PCG64 stream fixed over versions and platforms (NEP 19), so one seed gives one
sample, and a shorter sample is the beginning of a longer one with the same seed and limits.

Limits are met by rejection: a request over a limit is dropped and counted, never cut. Worked example: with 16,384 rows
drawn, 15,360 within the limits and 1,000 wanted, num_drawn is the place of the 1,000th that fits, about 1,067, and
dropped_fraction about 0.0625.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import WorkloadError
from pytest_npubench.serving.request import PromptContent

DRAWS_PER_BLOCK = 16_384
MIN_KEPT_FRACTION = 1 / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSample:
    """Requests of a workload, with how many were looked at and how many of those were over a limit.

    arrival_s: seconds from the first request of the trace, one a request; None where unknown or drawn at random.
    content: what each prompt holds, likewise.
    """

    requests: tuple[Request, ...]
    num_drawn: int
    num_dropped: int
    arrival_s: tuple[float, ...] | None = None
    content: tuple[PromptContent, ...] | None = None

    @property
    def dropped_fraction(self) -> float:
        return self.num_dropped / self.num_drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthLimits:
    """The longest request allowed, in tokens; None means no limit. Raises WorkloadError when nothing could pass."""

    max_total_tokens: int | None = None
    max_input_tokens: int | None = None

    def __post_init__(self) -> None:
        check_count("max_total_tokens", self.max_total_tokens, at_least=2)
        check_count("max_input_tokens", self.max_input_tokens, at_least=1)

    def keep(self, input_tokens: npt.NDArray[np.int64], output_tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """True where a request is within the limits. Shapes (n,) and (n,) give (n,)."""
        max_total = math.inf if self.max_total_tokens is None else self.max_total_tokens
        max_input = math.inf if self.max_input_tokens is None else self.max_input_tokens
        return (input_tokens + output_tokens <= max_total) & (input_tokens <= max_input)

    def __str__(self) -> str:
        return f"max_total_tokens={self.max_total_tokens}, max_input_tokens={self.max_input_tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(ABC):
    """A source of request lengths. kind says what the lengths are: "rebuilt", "trace", "trace sample", ...

    max_total_tokens is the workload's own filter (input + output): what it draws is never above it.
    """

    name: str
    kind: str
    source: str
    note: str
    max_total_tokens: int | None = None

    @abstractmethod
    def draw(self, uniforms: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Input and output tokens, shapes (n,) and (n,), from uniforms in [0, 1) of shape (n, 2). No filter applied."""

    def limits(self, max_total_tokens: int | None, max_input_tokens: int | None) -> LengthLimits:
        """Returns the caller's limits, tightened by the workload's own filter."""
        asked = LengthLimits(max_total_tokens=max_total_tokens, max_input_tokens=max_input_tokens)
        totals = [limit for limit in (asked.max_total_tokens, self.max_total_tokens) if limit is not None]
        return LengthLimits(max_total_tokens=min(totals, default=None), max_input_tokens=asked.max_input_tokens)

    def sample(
        self, num_requests: int, *, seed: int, max_total_tokens: int | None = None, max_input_tokens: int | None = None
    ) -> LengthSample:
        """num_requests lengths within the limits, drawn with this seed.

        Raises WorkloadError for a count below 1, a negative seed, and when fewer than 1 in 1,000 draws are within the
        limits.
        """
        check_count("num_requests", num_requests, at_least=1)
        check_count("seed", seed, at_least=0)
        limits = self.limits(max_total_tokens, max_input_tokens)
        generator = np.random.Generator(np.random.PCG64(seed))
        requests: list[Request] = []
        num_drawn = 0
        while len(requests) < num_requests:
            input_tokens, output_tokens = self.draw(generator.random((DRAWS_PER_BLOCK, 2)))
            kept = np.flatnonzero(limits.keep(input_tokens, output_tokens))
            self._check_yield(len(requests) + len(kept), num_drawn + DRAWS_PER_BLOCK, limits)
            kept = kept[: num_requests - len(requests)]
            requests.extend(as_requests(input_tokens[kept], output_tokens[kept]))
            num_drawn += int(kept[-1]) + 1 if len(requests) == num_requests else DRAWS_PER_BLOCK
        return LengthSample(requests=tuple(requests), num_drawn=num_drawn, num_dropped=num_drawn - num_requests)

    def _check_yield(self, num_kept: int, num_drawn: int, limits: LengthLimits) -> None:
        if num_kept < num_drawn * MIN_KEPT_FRACTION:
            raise WorkloadError(
                f"workload {self.name!r}: {num_kept} of {num_drawn} draws are within {limits}; "
                f"want at least 1 in 1000: raise the limit or choose a workload with shorter requests"
            )


def as_requests(input_tokens: npt.NDArray[np.int64], output_tokens: npt.NDArray[np.int64]) -> list[Request]:
    """One Request a row, with plain Python integers."""
    pairs = zip(input_tokens.tolist(), output_tokens.tolist(), strict=True)
    return [Request(input_tokens=inputs, output_tokens=outputs) for inputs, outputs in pairs]


def check_count(name: str, value: int | None, *, at_least: int) -> None:
    """Raise WorkloadError unless value is None or a whole number of at least that much."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < at_least:
        raise WorkloadError(f"{name} is {value!r}; want a whole number >= {at_least}")
