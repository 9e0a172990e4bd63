"""What a test of the user's own is: the limits and the size of its marker, and the case that it stands for."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pytest

from pytest_npubench.core.case import Case
from pytest_npubench.errors import ConfigError
from pytest_npubench.plugin.items import DEVICES, NODE_ID

PERCENTILES = {"max_p90_s": 0.9, "max_p95_s": 0.95, "max_p99_s": 0.99}
"""The limits of percentiles, with their share of the samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallableLimits:
    """What the npubench marker says: samples to take, calls to warm up with at most (0: the first call is a sample),
    calls in a sample (None: as many as the clock needs), a function that makes the first arguments of each call, limits
    in seconds, what a call gets done in items and bytes, and whether its peak memory is measured."""

    rounds: int = 30
    warmup: int = 20
    iterations: int | None = None
    setup: Callable[[], tuple[Any, ...]] | None = None
    max_mean_s: float | None = None
    max_median_s: float | None = None
    max_p90_s: float | None = None
    max_p95_s: float | None = None
    max_p99_s: float | None = None
    items: float | None = None
    bytes: float | None = None
    memory: bool = False

    @classmethod
    def from_pytest_item(cls, item: pytest.Item) -> CallableLimits:
        """The nearest marker wins, keyword by keyword. Raises ConfigError naming an unknown keyword or wrong value."""
        given: dict[str, Any] = {}
        keywords = {field.name for field in fields(cls)}
        for marker in reversed(list(item.iter_markers("npubench"))):
            if marker.args or not marker.kwargs.keys() <= keywords:
                wrong = ", ".join(sorted(marker.kwargs.keys() - keywords)) or "a positional argument"
                raise ConfigError(
                    f"{item.nodeid}: marker npubench does not take {wrong}; allowed: {', '.join(sorted(keywords))}"
                )
            given |= marker.kwargs
        limits = cls(**given)
        for name, least in (("rounds", 1), ("warmup", 0), ("iterations", 1)):
            value = getattr(limits, name)
            if name in given and (type(value) is not int or value < least):
                raise ConfigError(f"{item.nodeid}: marker npubench: {name} = {value!r}; want an integer >= {least}")
        for name in ("max_mean_s", "max_median_s", *PERCENTILES, "items", "bytes"):
            value, want = getattr(limits, name), "seconds above 0" if name.endswith("_s") else "a number above 0"
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 < value < math.inf):
                raise ConfigError(f"{item.nodeid}: marker npubench: {name} = {value!r}; want {want}")
        wrong = limits._contradiction()
        if type(given.get("memory", False)) is not bool:
            wrong = f"memory = {limits.memory!r}; want True or False"
        if (setup := given.get("setup")) is not None and not callable(setup):
            wrong = f"setup = {setup!r}; want a function that returns a tuple of arguments"
        if wrong:
            raise ConfigError(f"{item.nodeid}: marker npubench: {wrong}")
        return limits

    def _contradiction(self) -> str:
        """What of it does not go together, in words."""
        if self.one_call and self.iterations not in (None, 1):
            return f"iterations = {self.iterations}; with setup or warmup=0 a sample is one call"
        for name, level in PERCENTILES.items():
            least = round(1 / (1 - level))
            if getattr(self, name) is not None and self.rounds < least:
                return f"{name} with rounds = {self.rounds}; want {least} rounds or more, or it is their slowest"
        return ""

    @property
    def one_call(self) -> bool:
        """Whether a sample is one call, however short."""
        return self.setup is not None or self.warmup == 0

    def limited(self, samples_s: Sequence[float]) -> Iterator[tuple[str, float, float | None]]:
        """Each figure of the samples by name, with its limit. A percentile is the sample of that rank."""
        yield "mean", statistics.fmean(samples_s), self.max_mean_s
        yield "median", statistics.median(samples_s), self.max_median_s
        for name, level in PERCENTILES.items():
            rank = math.ceil(round(level * len(samples_s), 6))
            yield name[len("max_") : -len("_s")], sorted(samples_s)[rank - 1], getattr(self, name)


def own_case(item: pytest.Item, hardware: str, limits: CallableLimits) -> tuple[Case, str]:
    """The case of a user's test on hardware of that name, and its digest. A number of calls in a sample belongs to the
    digest where it is fixed, and not where the clock chose it; so do fresh arguments, and a first call that is a
    sample: each is another measurement.
    """
    device = item.stash[DEVICES][0]
    case = Case(
        suite="own",
        kind="callable",
        hardware=hardware,
        family=device.family,
        model="callable",
        batch_size=1,
        axes=(("test", item.stash[NODE_ID]),),
    )
    different = {
        **({} if limits.iterations is None else {"iterations": limits.iterations}),
        **({"setup": True} if limits.setup else {}),
        **({} if limits.warmup else {"warmup": 0}),
    }
    return case, case.digest(different or None)
