"""What counts as a disturbance, in which words; quiet devices are never disturbed, more of a thing is never less so."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.backends.telemetry.disturbance import (
    HOST_TOTALS,
    WATCHED,
    DisturbanceLimits,
    disturbance,
    known_quantities,
)
from pytest_npubench.backends.telemetry.state import DeviceState, combined

LIMITS = DisturbanceLimits()
GPU: dict[str, Any] = {
    "clock_hz": 1.98e9,
    "max_clock_hz": 1.98e9,
    "throttle_reasons": (),
    "throttled_s": (("power_violation", 8.0), ("thermal_violation", 5.0)),
    "num_other_processes": 0,
    "other_processes": (),
}
HOST: dict[str, Any] = {
    "clock_hz": 2.6e9,
    "num_cores": 2,
    "other_busy_s": 700.0,
    "steal_s": 3.0,
    "cgroup_throttled_s": 1.0,
}


def pair(before: dict[str, Any], duration_s: float = 10.0, wall_s: float | None = None, **after: Any) -> Any:
    """Two states so many seconds apart; `after` are the fields that changed."""
    first = DeviceState(taken_at_s=100.0, wall_at_s=1000.0, **before)
    wall_at_s = 1000.0 + (duration_s if wall_s is None else wall_s)
    return first, replace(first, taken_at_s=100.0 + duration_s, wall_at_s=wall_at_s, **after)


DISTURBED = {
    "time under thermal throttling": (
        pair(GPU, 3.1, throttled_s=(("power_violation", 8.0), ("thermal_violation", 6.2))),
        "throttled: thermal_violation for 1.2 s of 3.1 s",
    ),
    "seen throttled at the end": (
        pair(GPU, throttle_reasons=("hw_thermal_slowdown", "sw_power_cap")),
        "throttled: hw_thermal_slowdown",
    ),
    "seen throttled at the beginning": (
        pair({**GPU, "throttle_reasons": ("sw_thermal_slowdown",)}, throttle_reasons=()),
        "throttled: sw_thermal_slowdown",
    ),
    "slowed down at both ends": (
        pair({**GPU, "throttle_reasons": ("hw_slowdown",)}, throttle_reasons=("hw_slowdown",)),
        "throttled: hw_slowdown",
    ),
    "the clock fell": (
        pair(GPU, clock_hz=375e6, throttle_reasons=("sw_power_cap",)),
        "clock fell from 1980 to 375 MHz (sw_power_cap)",
    ),
    "a clock that was low all the time": (pair({**GPU, "clock_hz": 375e6}), "clock at 375 of 1980 MHz"),
    "shared": (
        pair(GPU, num_other_processes=2, other_processes=("pid 123 python", "pid 9")),
        "shared: 2 other processes on the device (pid 123 python, pid 9)",
    ),
    "shared at the beginning": (
        pair({**GPU, "num_other_processes": 1, "other_processes": ("pid 123 python",)}, num_other_processes=0),
        "shared: 1 other process on the device (pid 123 python)",
    ),
    "a busy host": (pair(HOST, other_busy_s=712.6), "other processes used 63 % of 2 cores"),
    "a busy hypervisor": (pair(HOST, steal_s=7.4), "steal time 22 %"),
    "a quota": (pair(HOST, cgroup_throttled_s=15.0), "cgroup throttled 70 % of the time"),
    "the clock jumped": (pair(HOST, wall_s=3610.0), "the wall clock jumped by 3600 s"),
    "the clock jumped back": (pair(HOST, wall_s=-50.0), "the wall clock jumped by -60 s"),
    "a driver that was loaded anew": (
        pair(GPU, throttled_s=(("thermal_violation", 0.5),)),
        "thermal_violation went back from 5 to 0.5",
    ),
    "a driver that was loaded anew and had nothing throttled": (
        pair({**GPU, "energy_j": 9e6}, energy_j=90.0),
        "energy_j went back from 9e+06 to 90",
    ),
    "a processor that went away": (pair(HOST, steal_s=0.0), "steal_s went back from 3 to 0"),
    "a driver that answers no more": (
        pair(GPU, throttled_s=None, throttle_reasons=None),
        "known before the round and unknown after it: thermal_violation, throttle_reasons",
    ),
    "a driver that did not answer before": (
        pair({**GPU, "clock_hz": None}, clock_hz=1.98e9),
        "unknown before the round and known after it: clock_hz",
    ),
    "processes are told no more": (
        pair(GPU, num_other_processes=None, other_processes=None),
        "known before the round and unknown after it: num_other_processes",
    ),
    "a host that tells no more": (
        pair(HOST, other_busy_s=None, steal_s=None),
        "known before the round and unknown after it: other_busy_s, steal_s",
    ),
    "given up": (pair(GPU, given_up="NVML gave no answer"), "NVML gave no answer"),
    "two reasons": (
        pair(HOST, other_busy_s=712.6, steal_s=7.4),
        "other processes used 63 % of 2 cores; steal time 22 %",
    ),
}


@pytest.mark.parametrize(("states", "words"), DISTURBED.values(), ids=DISTURBED)
def test_the_reason_in_words(states: tuple[DeviceState, DeviceState], words: str) -> None:
    assert disturbance(*states, LIMITS) == words


QUIET = {
    "a quiet GPU": pair(GPU),
    "it idles again": pair(GPU, clock_hz=345e6, throttle_reasons=("gpu_idle",)),
    "clocks that a person set": pair({**GPU, "clock_hz": 600e6, "throttle_reasons": ("applications_clocks_setting",)}),
    "power capped, clocks well up": pair(GPU, clock_hz=1.5e9, throttle_reasons=("sw_power_cap",)),
    "at its power limit": pair(GPU, throttled_s=(("power_violation", 17.0), ("thermal_violation", 5.0))),
    "one sight of a slowdown while clocks change": pair(GPU, throttle_reasons=("hw_slowdown",)),
    "harmless reasons": pair(GPU, throttle_reasons=("sync_boost", "display_clock_setting")),
    "no clock": pair({**GPU, "clock_hz": None}, clock_hz=None),
    "a host's clock, which sinks when nothing is to do": pair(HOST, clock_hz=0.8e9),
    "a fifth of the host is busy": pair(HOST, other_busy_s=704.0),
    "too short for ticks to say anything": pair(HOST, 0.4, other_busy_s=700.8, steal_s=3.3),
    "totals a tick smaller than before": pair(HOST, other_busy_s=699.97, steal_s=2.99),
    "the clock was set by a second": pair(HOST, wall_s=11.5),
    "nothing known": pair({}),
    "what is not judged is no longer known": pair(HOST, load=None, clock_hz=None),
    "processes that are ours or nobody's from here": pair(
        {**GPU, "num_other_processes": None, "others_unknown": "another namespace"}, num_other_processes=0
    ),
    "energy, which no verdict needs": pair({"energy_j": 5.0}, energy_j=None),
}


@pytest.mark.parametrize("states", QUIET.values(), ids=QUIET)
def test_not_a_disturbance(states: tuple[DeviceState, DeviceState]) -> None:
    assert disturbance(*states, LIMITS) is None


def test_an_other_load_of_one_switches_the_checks_of_the_host_off_and_no_others() -> None:
    before, after = pair(HOST, other_busy_s=720.0, steal_s=20.0, cgroup_throttled_s=9.0)
    assert disturbance(before, after, LIMITS)
    assert disturbance(before, after, DisturbanceLimits(other_load=1.0)) is None
    jumped = replace(after, wall_at_s=9999.0)
    assert disturbance(before, jumped, DisturbanceLimits(other_load=1.0))


@pytest.mark.parametrize("name", [*WATCHED, *HOST_TOTALS, "throttled_s"])
def test_whatever_is_judged_is_known_at_both_ends_or_at_neither(name: str) -> None:
    known = {**HOST, **GPU, "num_cores": 2}
    before, after = pair(known)
    (quantity,) = known_quantities(before) - known_quantities(replace(before, **{name: None}))
    blind = replace(after, **{name: None})
    assert disturbance(before, blind, LIMITS) == f"known before the round and unknown after it: {quantity}"
    seen = f"unknown before the round and known after it: {quantity}"
    assert disturbance(replace(before, **{name: None}), after, LIMITS) == seen
    never = replace(before, **{name: None})
    assert disturbance(never, blind, LIMITS) is None
    assert disturbance(never, blind, LIMITS, known_quantities(before)) == f"known earlier and unknown now: {quantity}"
    unjudged = disturbance(before, blind, DisturbanceLimits(other_load=1.0))
    assert (unjudged is None) == (name in HOST_TOTALS)


KNOWN = st.fixed_dictionaries(
    {},
    optional={
        "clock_hz": st.floats(1.0e9, 2.0e9),
        "max_clock_hz": st.just(2.0e9),
        "throttle_reasons": st.sampled_from([(), ("gpu_idle",), ("sw_power_cap",)]),
        "throttled_s": st.floats(0, 1e6).map(lambda seconds: (("thermal_violation", seconds),)),
        "energy_j": st.floats(0, 1e9),
        "num_other_processes": st.just(0),
        "num_cores": st.integers(1, 256),
        "other_busy_s": st.floats(0, 1e8),
        "steal_s": st.floats(0, 1e8),
        "cgroup_throttled_s": st.floats(0, 1e8),
    },
)


@settings(max_examples=60)
@given(KNOWN, st.floats(0.001, 1e4))
def test_equal_quiet_states_are_no_disturbance(known: dict[str, Any], duration_s: float) -> None:
    assert disturbance(*pair(known, duration_s), LIMITS) is None


GROWING = ("other_busy_s", "steal_s", "cgroup_throttled_s")


@settings(max_examples=100)
@given(
    st.sampled_from([*GROWING, "throttled_s", "wall", "clock_hz", "num_other_processes"]),
    st.floats(0, 20),
    st.floats(0, 20),
    st.floats(0.5, 20),
)
def test_more_of_it_is_never_less_of_a_disturbance(name: str, one: float, other: float, duration_s: float) -> None:
    """For each quantity alone: once disturbed, anything worse is disturbed as well."""

    def disturbed(amount: float) -> bool:
        changes: dict[str, Any] = {}
        if name in GROWING:
            changes[name] = HOST[name] + amount
        elif name == "throttled_s":
            changes[name] = (("thermal_violation", 5.0 + amount),)
        elif name == "clock_hz":
            changes[name] = 1.98e9 * (1 - amount / 20)
        elif name == "num_other_processes":
            changes[name] = int(amount)
        wall_s = duration_s + amount if name == "wall" else None
        return disturbance(*pair({**HOST, **GPU}, duration_s, wall_s, **changes), LIMITS) is not None

    small, large = sorted((one, other))
    assert disturbed(large) or not disturbed(small)
    assert disturbed(1e6 if name != "clock_hz" else 19.0)


@settings(max_examples=60)
@given(st.floats(0, 0.99), st.floats(0, 0.99), st.floats(0, 1))
def test_a_looser_limit_never_disturbs_more(one: float, other: float, used: float) -> None:
    tight, loose = sorted((one, other))
    states = pair(HOST, other_busy_s=700.0 + 20 * used)
    assert disturbance(*states, DisturbanceLimits(other_load=tight)) or not disturbance(
        *states, DisturbanceLimits(other_load=loose)
    )


def test_a_group_of_devices_is_as_bad_as_its_worst() -> None:
    good, bad = (
        DeviceState.now(
            **{**GPU, "clock_hz": clock_hz, "throttle_reasons": reasons, "num_other_processes": number},
            energy_j=10.0,
            temperature_c=celsius,
        )
        for clock_hz, reasons, number, celsius in (
            (1.98e9, ("gpu_idle",), 0, 40.0),
            (1.2e9, ("sw_power_cap",), 3, 80.0),
        )
    )
    group = combined([good, bad])
    assert (group.clock_hz, group.temperature_c, group.num_other_processes) == (1.2e9, 80.0, 3)
    assert group.throttle_reasons == ("gpu_idle", "sw_power_cap")
    assert group.energy_j == 20.0
    assert group.throttled_s == (("power_violation", 16.0), ("thermal_violation", 10.0))
    assert combined([good, replace(bad, energy_j=None)]).energy_j is None
    assert combined([good, replace(bad, throttled_s=(("power_violation", 8.0),))]).throttled_s == (
        ("power_violation", 16.0),
    )
    assert combined([good]) is good


def test_a_state_knows_when_it_was_taken_and_says_what_it_knows() -> None:
    state = DeviceState.now(clock_hz=1e9, throttled_s=(("thermal", 1.5),), throttle_reasons=())
    assert abs(state.taken_at_s - time.monotonic()) < 60
    assert abs(state.wall_at_s - time.time()) < 60
    assert state.to_json() == {"clock_hz": 1e9, "throttled_s": {"thermal": 1.5}, "throttle_reasons": ()}
