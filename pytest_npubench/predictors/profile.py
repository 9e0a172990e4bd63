"""What LENS knows of one engine: a time to prefill and a time per decode step for each bucket, at one batch size.

JSON format "npubench-bucket-profile", history of versions:
    1  buckets (ttft_s, tbt_s, errors), batch_size, prefill_shared, fitted_literal, transitions_s
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from pytest_npubench.core.buckets import SmallestBucket, check_buckets
from pytest_npubench.errors import ConfigError, FormatVersionError, MeasurementError, StoreError

FORMAT = "npubench-bucket-profile"
VERSION = 1
PROFILE = "bucket profile"

_Value = TypeVar("_Value")
_Kinds = tuple[type, ...]
_PROFILE_ENTRIES: dict[str, _Kinds] = {
    "format": (str,),
    "version": (int,),
    "batch_size": (int,),
    "prefill_shared": (bool,),
    "fitted_literal": (bool, type(None)),
    "buckets": (dict,),
    "transitions_s": (dict, type(None)),
}
_TIMING_ENTRIES: dict[str, _Kinds] = {
    "ttft_s": (int, float, type(None)),
    "tbt_s": (int, float, type(None)),
    "errors": (list,),
}
_ERROR_ENTRIES: dict[str, _Kinds] = {
    "variance_s2": (int, float),
    "num_samples": (int,),
    "ttft_weight": (int, float),
    "tbt_weight": (int, float),
}


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
        for name, known in (("ttft_s", self.prefill_buckets), ("tbt_s", self.decode_buckets)):
            if not known:
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
        """A dict that json.dumps takes and from_json reads back as an equal profile."""
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
        """The profile that to_json wrote. Raises FormatVersionError for a version this code does not know, StoreError
        naming the entry for anything else that is missing, unknown, of a wrong type or not usable."""
        _check_format(data)
        entries = _entries(PROFILE, data, _PROFILE_ENTRIES)
        timings = {name: _timing(f"buckets.{name}", timing) for name, timing in entries["buckets"].items()}
        try:
            return cls(
                buckets=_integer_keys("buckets", timings),
                batch_size=entries["batch_size"],
                prefill_shared=entries["prefill_shared"],
                fitted_literal=entries["fitted_literal"],
                transitions_s=_transitions(entries["transitions_s"]),
            )
        except (ConfigError, MeasurementError) as error:
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


def _check_format(data: object) -> None:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise StoreError(f"{PROFILE}: no object with format {FORMAT!r}")
    if data.get("version") != VERSION:
        raise FormatVersionError(f"{PROFILE}: version {data.get('version')!r}; this release reads version {VERSION}")


def _entries(where: str, data: object, wanted: Mapping[str, _Kinds]) -> dict[str, Any]:
    """The entries of an object, each present and of a wanted kind, none besides."""
    if not isinstance(data, dict):
        raise StoreError(f"{where}: {data!r}; want an object")
    for name in sorted(wanted.keys() ^ data.keys(), key=str):
        raise StoreError(f"{where}: {'no' if name in wanted else 'unknown'} entry {name!r}; want {sorted(wanted)}")
    for name, kinds in wanted.items():
        if type(data[name]) not in kinds:  # isinstance would take true for an integer
            names = " or ".join(kind.__name__ for kind in kinds)
            raise StoreError(f"{where}: {name} is {data[name]!r}; want {names}")
    return data


def _timing_to_json(timing: BucketTiming) -> dict[str, object]:
    return {**asdict(timing), "errors": [asdict(error) for error in timing.errors]}


def _timing(where: str, data: object) -> BucketTiming:
    entries = _entries(where, data, _TIMING_ENTRIES)
    errors = tuple(
        PointError(**_entries(f"{where}.errors[{index}]", error, _ERROR_ENTRIES))
        for index, error in enumerate(entries["errors"])
    )
    try:
        return BucketTiming(ttft_s=entries["ttft_s"], tbt_s=entries["tbt_s"], errors=errors)
    except MeasurementError as error:
        raise StoreError(f"{PROFILE}: {where}: {error}") from error


def _transitions(data: Mapping[str, float] | None) -> dict[int, float] | None:
    return None if data is None else _integer_keys("transitions_s", data)


def _integer_keys(where: str, data: Mapping[str, _Value]) -> dict[int, _Value]:
    for name in data:
        if not (name.isascii() and name.isdigit()):
            raise StoreError(f"{PROFILE}: {where} has an entry {name!r}; want a bucket, a positive integer")
    return {int(name): value for name, value in data.items()}
