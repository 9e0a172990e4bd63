"""What LENS knows of one engine: a time to prefill and a time per decode step for each bucket, at one batch size.

JSON format "npubench-bucket-profile", history of versions:
    1  buckets (ttft_s, tbt_s, errors), batch_size, prefill_shared, fitted_literal, transitions_s
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from pytest_npubench.core.buckets import SmallestBucket, check_buckets
from pytest_npubench.core.record_reader import JSON, WrongEntryError
from pytest_npubench.errors import ConfigError, FormatVersionError, MeasurementError, StoreError

FORMAT = "npubench-bucket-profile"
VERSION = 1
PROFILE = "bucket profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointError:
    """How one measured point enters a bucket's timing, and how well it is known.

    variance_s2 is the variance of the point's estimated E2E (s^2 / n for a mean of n samples); the weights are the
    derivatives of ttft_s and tbt_s by that E2E. Both times of a bucket come from the same points, so the weights carry
    their covariance.
    """

    variance_s2: float
    num_samples: int
    ttft_weight: float
    tbt_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTiming:
    """Seconds of one bucket; None in a phase that has no binary of this size. `errors` is empty where unknown.

    Raises MeasurementError for a time that is negative or not finite, or where there is neither.
    """

    ttft_s: float | None = None
    tbt_s: float | None = None
    errors: tuple[PointError, ...] = ()

    def __post_init__(self) -> None:
        if self.ttft_s is None and self.tbt_s is None:
            raise MeasurementError("a bucket's timing has neither ttft_s nor tbt_s; want at least one")
        for name, value in (("ttft_s", self.ttft_s), ("tbt_s", self.tbt_s)):
            if value is not None:
                _check_seconds(name, value)
        for index, error in enumerate(self.errors):
            _check_error(f"errors[{index}]", error)

    @property
    def ttft_error_s(self) -> float | None:
        """Standard error of ttft_s, None where unknown."""
        return _standard_error(self.ttft_s, self.errors, "ttft_weight")

    @property
    def tbt_error_s(self) -> float | None:
        """Standard error of tbt_s, None where unknown. From two points of n samples each it is the root of
        (s1^2 + s2^2) / (n (T2 - T1)^2), T the decode steps of each."""
        return _standard_error(self.tbt_s, self.errors, "tbt_weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketProfile:
    """The timings of an engine's buckets, compiled for batch_size requests.

    prefill_shared: the engine prefills a whole batch at once, so a batch costs one ttft_s, not one a request (Eq. 7).
    fitted_literal: the step count the times were fitted with (two_point.fit), None for times from elsewhere.
    transitions_s: seconds to move the KV cache into each bucket but the smallest from the one before; None: not
    counted.

    Raises ConfigError for buckets, a batch size or transitions that cannot be, MeasurementError for seconds that
    cannot.
    """

    buckets: Mapping[int, BucketTiming]
    batch_size: int = 1
    prefill_shared: bool = False
    fitted_literal: bool | None = None
    transitions_s: Mapping[int, float] | None = None

    def __post_init__(self) -> None:
        ordered = {bucket: self.buckets[bucket] for bucket in check_buckets(sorted(self.buckets))}
        object.__setattr__(self, "buckets", ordered)
        if type(self.batch_size) is not int or self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size!r}; want an integer of at least 1")
        for name, timed in (("ttft_s", self.prefill_buckets), ("tbt_s", self.decode_buckets)):
            if not timed:
                raise ConfigError(f"none of the buckets {tuple(ordered)} has a {name}; want it in at least one")
        if self.transitions_s is not None:
            self._check_transitions(self.transitions_s)

    @property
    def prefill_buckets(self) -> tuple[int, ...]:
        return tuple(bucket for bucket, timing in self.buckets.items() if timing.ttft_s is not None)

    @property
    def decode_buckets(self) -> tuple[int, ...]:
        return tuple(bucket for bucket, timing in self.buckets.items() if timing.tbt_s is not None)

    @property
    def keys(self) -> SmallestBucket:
        """Eq. 1 over the buckets that each phase has a time for."""
        return SmallestBucket(prefill_buckets=self.prefill_buckets, decode_buckets=self.decode_buckets)

    def _check_transitions(self, transitions_s: Mapping[int, float]) -> None:
        if self.prefill_buckets != self.decode_buckets:
            raise ConfigError(
                f"transitions_s wants one bucket set for both phases; prefill has {self.prefill_buckets}, decode has"
                f" {self.decode_buckets}"
            )
        wanted = tuple(self.buckets)[1:]
        for bucket in wanted:
            if bucket not in transitions_s:
                raise ConfigError(f"transitions_s has no entry for bucket {bucket}; want {wanted}")
        for bucket, seconds in transitions_s.items():
            if bucket not in wanted:
                raise ConfigError(
                    f"transitions_s has an entry for {bucket!r}, into which no cache grows; want {wanted}"
                )
            _check_seconds(f"transitions_s[{bucket}]", seconds)

    def to_json(self) -> dict[str, object]:
        """Returns a dict that json.dumps takes and from_json reads back as an equal profile."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "batch_size": self.batch_size,
            "prefill_shared": self.prefill_shared,
            "fitted_literal": self.fitted_literal,
            "buckets": {str(bucket): _timing_to_json(timing) for bucket, timing in self.buckets.items()},
            "transitions_s": self.transitions_s and {str(bucket): s for bucket, s in self.transitions_s.items()},
        }

    @classmethod
    def from_json(cls, data: object) -> BucketProfile:
        """Returns the profile that to_json wrote. Raises FormatVersionError for a version this code does not know,
        StoreError naming the entry for anything else that is missing, unknown, of a wrong type or not usable."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise StoreError(f"{PROFILE}: no object with format {FORMAT!r}")
        if data.get("version") != VERSION:
            readable = f"this release reads version {VERSION}"
            raise FormatVersionError(f"{PROFILE}: version {data.get('version')!r}; {readable}")
        try:
            return JSON.record(cls, data, others=("format", "version"))
        except WrongEntryError as error:
            raise StoreError(f"{PROFILE}: {error}") from error


def _check_seconds(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise MeasurementError(f"{name} is {value!r}; want a finite number of seconds >= 0")


def _check_error(name: str, error: PointError) -> None:
    _check_seconds(f"{name}.variance_s2", error.variance_s2)
    if error.num_samples < 2:
        raise MeasurementError(f"{name}.num_samples is {error.num_samples}; a variance wants at least 2 samples")
    for weight in ("ttft_weight", "tbt_weight"):
        if not math.isfinite(getattr(error, weight)):
            raise MeasurementError(f"{name}.{weight} is {getattr(error, weight)!r}; want a finite number")


def _standard_error(value_s: float | None, errors: tuple[PointError, ...], weight: str) -> float | None:
    if value_s is None or not errors:
        return None
    return math.sqrt(sum(getattr(error, weight) ** 2 * error.variance_s2 for error in errors))


def _timing_to_json(timing: BucketTiming) -> dict[str, object]:
    return {**asdict(timing), "errors": [asdict(error) for error in timing.errors]}
