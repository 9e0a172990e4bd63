"""Joules a token from a counter of known watts; counters here are stand-ins of a vendor's."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.backends.telemetry.round_state import RoundState
from pytest_npubench.backends.telemetry.state import DeviceState
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.watch import Watched
from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.buckets import bench as bench_module
from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.suites.buckets.energy import LEAST_S, bucket_energy, energy_metrics
from pytest_npubench.suites.buckets.points import BucketPoint, BucketVisit


def point(output_tokens: int) -> BucketPoint:
    request = Request(input_tokens=95, output_tokens=output_tokens)
    return BucketPoint(name=f"profile/128/{output_tokens}", requests=(request,) * 8, pure_bucket=128)


ONE, LONG = point(1), point(33)


def measured(visits: dict[str, list[BucketVisit]]) -> Measured:
    row = {}
    for name, own in visits.items():
        for column in own[0].columns():
            key = f"{name}/{column}" if column else name
            row[key] = tuple(value for visit in own for value in visit.columns()[column])
    return Measured(rounds=[row])


def test_the_worked_number() -> None:
    first, second = BucketVisit(seconds=1.0, energy_j=76.0), BucketVisit(seconds=3.0, energy_j=332.0)
    found = bucket_energy(measured({ONE.name: [first] * 2, LONG.name: [second] * 2}), ONE, LONG)
    assert (found.prompt_token_j, found.output_token_j, found.power_w) == pytest.approx((0.1, 1.0, 102.0))
    assert [(one.name, one.gate) for one in energy_metrics(found)] == [
        ("prompt_token_j", "ratio"),
        ("output_token_j", "ratio"),
    ]


def test_steps_of_the_shorter_point_are_no_prompts() -> None:
    """The worked number's device, whose shorter point has 9 tokens out: 8 steps of 8 J more."""
    first, second = BucketVisit(seconds=1.0, energy_j=140.0), BucketVisit(seconds=3.0, energy_j=332.0)
    found = bucket_energy(measured({point(9).name: [first] * 2, LONG.name: [second] * 2}), point(9), LONG)
    assert (found.prompt_token_j, found.output_token_j) == pytest.approx((0.1, 1.0))


@given(watts=st.floats(5, 700), step_s=st.floats(0.001, 0.1), token_s=st.floats(0.001, 0.05))
def test_a_counter_that_moves_in_steps_tells_the_watts_in_the_mean(watts: float, step_s: float, token_s: float) -> None:
    """Of a device that takes them all the time; a hundred visits, one after the other."""
    now_s, visits = 0.0, {}
    for own, seconds in ((ONE, 0.05), (LONG, 0.05 + 32 * token_s)):
        visits[own.name] = []
        for _ in range(100):
            joules = [watts * step_s * (at // step_s) for at in (now_s, now_s + seconds)]
            visits[own.name].append(BucketVisit(seconds=seconds, energy_j=joules[1] - joules[0]))
            now_s += seconds
    found = bucket_energy(measured(visits), ONE, LONG)
    off = 4 * watts * step_s / 100  # a step at either end of each hundred
    assert found.prompt_token_j == pytest.approx(watts * 0.05 / (8 * 95), abs=off / (8 * 95))
    assert found.output_token_j == pytest.approx(watts * token_s / 8, abs=off / (8 * 32))


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (BucketVisit(seconds=1.0), BucketVisit(seconds=3.0), "unavailable: no energy counter"),
        (BucketVisit(seconds=1.0, energy_j=1.0), BucketVisit(seconds=3.0), "unavailable: no energy counter"),
        (
            BucketVisit(seconds=0.4 * LEAST_S, energy_j=1.0),
            BucketVisit(seconds=3.0, energy_j=3.0),
            "a point ran for 1.6 s",
        ),
        (BucketVisit(seconds=2.0, energy_j=1.0), BucketVisit(seconds=3.0, energy_j=1.0), "took no more energy"),
    ],
)
def test_what_cannot_be_told_says_why(first: BucketVisit, second: BucketVisit, why: str) -> None:
    found = bucket_energy(measured({ONE.name: [first] * 2, LONG.name: [second] * 2}), ONE, LONG)
    assert why in str(found.why_not)
    assert energy_metrics(found) == ()


def test_a_counter_that_stands_still_is_no_figure() -> None:
    visits = {own.name: [BucketVisit(seconds=2.0, energy_j=0.0)] for own in (ONE, LONG)}
    with pytest.raises(MeasurementError, match="energy counter stood still: 0 J in 4 s"):
        bucket_energy(measured(visits), ONE, LONG)


def test_the_device_s_own_reason_is_given() -> None:
    found = measured({ONE.name: [BucketVisit(seconds=9.0)], LONG.name: [BucketVisit(seconds=9.0)]})
    state = RoundState(duration_s=1.0, energy_unknown="unavailable: /sys: permission denied")
    found.watched.append(Watched(state=state))
    assert bucket_energy(found, ONE, LONG).why_not == "unavailable: /sys: permission denied"


class Counter:
    """A telemetry that notes when it is read; as many joules as there were readings, or None."""

    def __init__(self, log: list[str], tells: bool) -> None:
        self._log, self._tells, self._joules = log, tells, 0.0

    def read(self) -> DeviceState:
        self._log.append("read")
        self._joules += 1
        return DeviceState.now(energy_j=self._joules if self._tells else None)

    def close(self) -> None:
        self._log.append("closed")


@pytest.mark.parametrize("tells", [True, False])
def test_the_counter_is_read_around_what_is_timed_and_not_at_all_where_there_is_none(
    plan: Any, tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    class Engine:
        declared = ()

        def close(self) -> None:
            log.append("ended")

    monkeypatch.setattr(bench_module, "open_telemetry", lambda _: Counter(log, tells))
    runtime = SimpleNamespace(peak_memory_bytes=lambda: 7) if tells else None
    bench = BucketBench(runtime, plan, lambda *_: Engine())  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(bench, "_time", lambda _: log.append("timed") or (0.5, {}))
    visits = [bench.sample(one, 0) for one in (ONE, replace(ONE, pure_bucket=None), LONG)]
    bench.close()
    joules = [visit.energy_j for visit in visits if isinstance(visit, BucketVisit)]
    assert [visit.peak_bytes for visit in visits if isinstance(visit, BucketVisit)] == (
        [7, None, 7] if tells else [None] * 3
    )
    if tells:
        assert joules == [1.0, None, 1.0]
        assert log == ["read", "timed", "read", "timed", "read", "timed", "read", "closed", "ended"]
    else:
        assert joules == [None] * 3
        assert log == ["read", "timed", "timed", "timed", "closed", "ended"]
