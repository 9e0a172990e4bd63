"""What a round's state says: differences of totals, means over its time, a JSON form that leaves out the unknown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.backends.telemetry.round_state import RoundState, between, mean_clock_hz
from pytest_npubench.backends.telemetry.state import DeviceState


def state(taken_at_s: float, **known: object) -> DeviceState:
    return DeviceState(taken_at_s=taken_at_s, wall_at_s=5000 + taken_at_s, **known)  # type: ignore[arg-type]


def test_a_round_on_a_gpu() -> None:
    before = state(1.0, clock_hz=1.9e9, energy_j=1000.0, temperature_c=40.0, throttled_s=(("thermal_violation", 7.0),))
    after = state(4.1, clock_hz=1.7e9, energy_j=1700.0, temperature_c=61.0, throttled_s=(("thermal_violation", 8.2),))
    found = between(before, after)
    assert found.duration_s == pytest.approx(3.1)
    assert (found.clock_hz, found.min_clock_hz, found.max_clock_hz) == (pytest.approx(1.8e9), 1.7e9, 1.9e9)
    assert (found.energy_j, found.power_w) == (700.0, pytest.approx(700 / 3.1))
    assert found.temperature_c == 61.0
    assert found.throttled_s == {"thermal_violation": pytest.approx(1.2)}
    assert found.wall_jump_s == pytest.approx(0.0)


def test_a_round_on_a_host_is_in_shares_of_its_cores() -> None:
    before = state(0.0, num_cores=4, other_busy_s=50.0, steal_s=1.0, cgroup_throttled_s=0.0)
    found = between(before, state(10.0, num_cores=4, other_busy_s=70.0, steal_s=5.0, cgroup_throttled_s=2.0))
    assert (found.other_load, found.steal, found.cgroup_throttled) == (0.5, 0.1, 0.05)


def test_a_total_that_fell_is_unknown_and_not_negative() -> None:
    found = between(state(0.0, energy_j=500.0, power_w=90.0), state(2.0, energy_j=20.0, power_w=100.0))
    assert (found.energy_j, found.power_w) == (None, 100.0)


def test_nothing_known_leaves_the_time_alone() -> None:
    assert between(state(0.0), state(2.5)).to_json() == {"duration_s": 2.5, "wall_jump_s": 0.0}


@settings(max_examples=50)
@given(
    st.builds(
        RoundState,
        duration_s=st.floats(0, 1e6),
        clock_hz=st.none() | st.floats(1e6, 1e10),
        energy_j=st.none() | st.floats(0, 1e9),
        throttle_reasons=st.none() | st.lists(st.sampled_from("abc")).map(tuple),
        throttled_s=st.none() | st.dictionaries(st.sampled_from("abc"), st.floats(0, 1e6)),
        num_other_processes=st.none() | st.integers(0, 99),
    )
)
def test_json_and_back(round_state: RoundState) -> None:
    content = json.loads(json.dumps(round_state.to_json()))
    assert None not in content.values()
    again = RoundState.from_json(content)
    assert again is not None
    assert again.to_json() == content
    assert again.duration_s == pytest.approx(round_state.duration_s, rel=1e-5)
    assert (again.energy_j is None) == (round_state.energy_j is None)
    assert again.throttle_reasons == round_state.throttle_reasons


@pytest.mark.parametrize("content", [None, [], "x", {}, {"duration_s": "1"}])
def test_what_is_no_state_is_none(content: object) -> None:
    assert RoundState.from_json(content) is None


def test_fields_of_a_later_version_are_left_aside() -> None:
    found = RoundState.from_json({"duration_s": 1, "colour": "green"})
    assert found == RoundState(duration_s=1)


def test_the_mean_clock_is_over_time_not_over_readings() -> None:
    """1 s from 1 to 2 GHz and 3 s at 2 GHz: (1.5 + 6) / 4."""
    readings = [state(0.0, clock_hz=1e9), state(1.0, clock_hz=2e9), state(4.0, clock_hz=2e9)]
    assert mean_clock_hz(readings) == pytest.approx(1.875e9)
    assert mean_clock_hz(readings[:1]) == 1e9
    assert mean_clock_hz([*readings, state(5.0)]) is None
    assert mean_clock_hz([]) is None
