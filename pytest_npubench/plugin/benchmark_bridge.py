"""Mirrors our samples into pytest-benchmark, so that its JSON, autosave, compare and table go on working.

Measuring stays ours. A replay clock alternates 0 and the next sample, and `benchmark.pedantic` is run once a sample:
its statistics come out exactly ours. Only its public interface is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_npubench.verdict.result import JudgedCase

FIXTURES = ("npubench_case", "npubench")
BOTH = "{} and benchmark, which both measure: take one"


class ReplayClock:
    """A timer for pytest-benchmark that reads 0, s1, 0, s2, ... out of samples in seconds."""

    def __init__(self) -> None:
        self._readings: Iterator[float] | None = None

    def load(self, samples_s: tuple[float, ...]) -> None:
        self._readings = chain.from_iterable((0.0, sample_s) for sample_s in samples_s)

    def __call__(self) -> float:
        if self._readings is None:  # the test has got the fixture by getfixturevalue
            pytest.fail(BOTH.format("this test: takes npubench"), pytrace=False)
        return next(self._readings, 0.0)


_CLOCK = pytest.StashKey[ReplayClock]()
_IS_ASKED = pytest.StashKey[bool]()
"""Whether a test of ours takes the benchmark fixture, itself or by another fixture."""


class BenchmarkBridge:
    """Registered only where pytest-benchmark is loaded."""

    def __init__(self) -> None:
        self._benchmark: Any = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Our cases are benchmarks for --benchmark-only and --benchmark-skip."""
        unused = pytest.mark.filterwarnings("ignore:Benchmark fixture was not used")
        ours = [item for item in items if not {*FIXTURES}.isdisjoint(getattr(item, "fixturenames", ()))]
        for item in ours:  # before any: the items of one function share their list of names
            item.stash[_IS_ASKED] = "benchmark" in item.fixturenames  # type: ignore[attr-defined]
        for item in ours:
            # a case that was interrupted, or failed before it was measured, has nothing to mirror
            item.add_marker(unused)
            names = item.fixturenames  # type: ignore[attr-defined]
            if "benchmark" not in names:
                names.append("benchmark")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """The timer has to be known before the benchmark fixture is made. pytest-benchmark reads the closest of its
        markers alone, so the user's group goes into ours."""
        if any(name in getattr(item, "fixturenames", ()) for name in FIXTURES):
            item.stash[_CLOCK] = ReplayClock()
            given = item.get_closest_marker("benchmark")
            options = {**(given.kwargs if given else {}), "timer": item.stash[_CLOCK]}
            item.add_marker(pytest.mark.benchmark(**options), append=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._benchmark = getattr(item, "funcargs", {}).get("benchmark") if _CLOCK in item.stash else None

    def pytest_keyboard_interrupt(self) -> None:
        """The fixture of an interrupted case is torn down outside of its test, where a warning's filter is no more."""
        if self._benchmark is not None:
            self._benchmark.skipped = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """The measured clock frequency changes from run to run and would make every two machines differ."""
        for name in ("hz_actual", "hz_actual_friendly"):
            machine_info.get("cpu", {}).pop(name, None)

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_benchmark_group_stats(
        self, config: pytest.Config, benchmarks: Sequence[Mapping[str, Any]]
    ) -> list[Any] | None:
        """Nothing for pytest-benchmark's table where all that it has is in ours, unless one of its options is given or
        a case is of a group, which it shows side by side."""
        given = [*config.invocation_params.args, *os.environ.get("PYTEST_ADDOPTS", "").split()]
        is_asked = any(word.startswith("--benchmark-") for word in (*given, *config.getini("addopts")))
        is_asked = is_asked or any(one["group"] is not None for one in benchmarks)
        return [] if not is_asked and all("npubench" in one["extra_info"] for one in benchmarks) else None


def both_measure(item: pytest.Item, fixture: str) -> str:
    """What is wrong with a test that takes our fixture and pytest-benchmark's; empty where it does not."""
    return BOTH.format(f"{item.nodeid}: takes {fixture}") if item.stash.get(_IS_ASKED, False) else ""


def mirror(request: pytest.FixtureRequest, judged: JudgedCase) -> None:
    """Give pytest-benchmark the samples of the case's first metric in seconds that has any: it knows no other unit."""
    from pytest_npubench.verdict.result import CallDetail

    if _CLOCK not in request.node.stash or "benchmark" not in request.node.fixturenames:
        return
    benchmark = request.getfixturevalue("benchmark")
    timed = (metric for metric in judged.judgement.metrics if metric.unit == "s" and metric.value_samples)
    samples_s = next((metric.value_samples for metric in timed), ())
    if not samples_s:
        benchmark.disabled = True  # a case without samples shows no statistics rather than invented ones
    detail = judged.judgement.detail
    iterations = detail.iterations if isinstance(detail, CallDetail) else 1
    # it divides what it times by the calls it made
    request.node.stash[_CLOCK].load(tuple(sample_s * iterations for sample_s in samples_s))
    benchmark.extra_info["npubench"] = {
        "case": judged.case.key,
        "verdict": judged.verdict.kind.value,
        "reason": judged.verdict.reason,
        "device": judged.device,
        "predicted_s": judged.judgement.predicted_s,
        "error": judged.judgement.error,
        "metrics": {metric.name: metric.value for metric in judged.judgement.metrics},
    }
    benchmark.pedantic(_nothing, rounds=max(1, len(samples_s)), iterations=iterations)


def _nothing() -> None:
    """What pytest-benchmark believes to time."""
