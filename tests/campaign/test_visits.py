"""Visits of points as records: kept as columns of numbers in a round, and read back as they were."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.campaign.points import Measured, VisitedOnce
from pytest_npubench.campaign.rounds import measure_round
from pytest_npubench.campaign.visits import Timing, Visit
from pytest_npubench.campaign.watch import Watched
from pytest_npubench.errors import MeasurementError


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip(Visit):
    time_s: float
    num_hops: int
    energy_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(Visit):
    step_s: tuple[float, ...]
    num_rows: tuple[int, ...] = ()
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(VisitedOnce):
    own: str
    times: int = 1

    @property
    def name(self) -> str:
        return self.own

    def visits(self, duration_s: float) -> int:
        return self.times


numbers = st.floats(0, 1e9)
counts = st.integers(0, 2**40)


@st.composite
def trips(draw: st.DrawFn) -> list[Trip]:
    joules = numbers if draw(st.booleans()) else st.none()
    one = st.builds(Trip, time_s=numbers, num_hops=counts, energy_j=joules)
    return draw(st.lists(one, min_size=1, max_size=5))


def measured(visits: dict[Point, list[Visit]]) -> Measured:
    """What one round of these visits leaves."""
    left = {point: iter(own) for point, own in visits.items()}
    samples, failures, _ = measure_round(
        list(visits), {point.name: 1.0 for point in visits}, lambda point, _: next(left[point]), 0, lambda: None
    )
    assert not failures
    found = Measured()
    found.add(samples, Watched())
    return found


@given(trips(), trips())
def test_visits_come_back_as_they_were(first: list[Trip], second: list[Trip]) -> None:
    """Also where one point's name is the beginning of another's."""
    found = measured({Point(own="a", times=len(first)): first, Point(own="a b", times=len(second)): second})
    assert found.visits("a", Trip) == (tuple(first),)
    assert found.visits("a b", Trip) == (tuple(second),)


@given(st.lists(numbers, min_size=1).map(tuple), st.lists(counts).map(tuple), st.none() | numbers)
def test_a_series_comes_back(step_s: tuple[float, ...], num_rows: tuple[int, ...], power_w: float | None) -> None:
    visit = Series(step_s=step_s, num_rows=num_rows, power_w=power_w)
    assert measured({Point(own="a"): [visit]}).visits("a", Series) == ((visit,),)


def test_a_timing_stands_under_the_points_own_name() -> None:
    found = measured({Point(own="a", times=2): [Timing(seconds=0.1), Timing(seconds=0.2)]})
    assert found.rounds == [{"a": (0.1, 0.2)}]
    assert found.visits("a", Timing) == ((Timing(seconds=0.1), Timing(seconds=0.2)),)
    assert found.samples("a").samples_s == (0.1, 0.2)


def test_whole_numbers_come_back_whole() -> None:
    ((trip,),) = measured({Point(own="a"): [Trip(time_s=1.0, num_hops=3)]}).visits("a", Trip)
    assert isinstance(trip.num_hops, int)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"a/time_s": (1.0,)}, r"Trip\.num_hops: want 1 values in a round, found none"),
        ({"a/time_s": (1.0, 2.0), "a/num_hops": (1,)}, r"Trip\.num_hops: want 2 values in a round, found 1"),
        ({"a/time_s": (1.0, 2.0), "a/num_hops": (1, 2), "a/energy_j": (1.0,)}, r"Trip\.energy_j: want 2 values"),
        ({"b/time_s": (1.0,)}, "a: no round has samples of it"),
    ],
)
def test_columns_of_another_class_are_an_error(columns: dict[str, tuple[float, ...]], said: str) -> None:
    found = Measured(rounds=[columns])
    with pytest.raises(MeasurementError, match=said):
        found.visits("a", Trip)


def test_two_visits_of_a_series_in_one_round_are_an_error() -> None:
    found = Measured(rounds=[{"a/step_s": (1.0, 2.0), "a/power_w": (1.0, 2.0)}])
    with pytest.raises(MeasurementError, match=r"Series\.power_w: want one value in a round, found 2"):
        found.visits("a", Series)


def test_a_failed_point_has_no_visits() -> None:
    with pytest.raises(MeasurementError, match="out of memory"):
        Measured(failures={"a": "out of memory"}).visits("a", Trip)
