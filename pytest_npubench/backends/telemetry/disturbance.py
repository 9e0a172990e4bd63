"""Was a device disturbed between two states? In words, or None.

Only what the vendor says is judged: a quantity that a device never tells disturbs nothing. One that it has told and
tells no longer, or at one end of the round alone, does: nobody knows what happened in between. Worked example: 1.2 s of
thermal throttling in 3.1 s is 39 %, above the 5 % allowed: "throttled: thermal_violation for 1.2 s of 3.1 s".

The limits on a host's processors are generous on purpose. Shared machines are noisy, that noise is in the baselines
too, and a run must not become invalid because a fifth of the machine is busy with something else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pytest_npubench.backends.telemetry.round_state import RoundState, between
from pytest_npubench.backends.telemetry.state import DeviceState

# NVML's names. The hardware or the heat took these clocks away, nobody asked for it.
THROTTLING = frozenset({"hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"})
# Also reported for an instant while the clock changes, so one sight of it is no proof.
UNSURE = "hw_slowdown"
# These say why a low clock is what was asked for.
ASKED_FOR = frozenset({"gpu_idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"})
# Totals of throttled time that count; time under the power limit is the usual state of a large GPU at work.
THROTTLING_TOTALS = THROTTLING | {UNSURE, "thermal_violation", "thermal"}
# What a verdict on a round needs to see, of a device and of a host's processors.
WATCHED = ("throttle_reasons", "clock_hz", "num_other_processes")
HOST_TOTALS = ("other_busy_s", "steal_s", "cgroup_throttled_s")
# Hypervisors and cgroups never take seconds back; a total of others' time is a difference, which may shrink.
NEVER_FALLING = ("steal_s", "cgroup_throttled_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class DisturbanceLimits:
    """How much is still quiet. other_load, steal, throttled and cgroup are fractions of the time of all cores; a
    container's quota is part of its device class, so being held to it is no surprise up to `cgroup`.

    other_load of 1 or more switches the three checks of the host's processors off: load, steal and cgroup.
    min_clock is the least fraction of the clock before, and of the largest clock, that a busy device must have.
    Shares of less than min_window_s are not judged: the kernel counts time in ticks of 10 ms.
    """

    other_load: float = 0.5
    steal: float = 0.15
    throttled: float = 0.05
    cgroup: float = 0.5
    min_clock: float = 0.5
    wall_jump_s: float = 2.0
    min_window_s: float = 0.5


def disturbance(
    before: DeviceState, after: DeviceState, limits: DisturbanceLimits, told_earlier: Collection[str] = ()
) -> str | None:
    """Why a measurement between these states should not count, or None. told_earlier: what `known_quantities` gave for
    earlier states of this device.

    told_earlier: what `told` found in this device's states before these.
    """
    change = between(before, after)
    reasons = [
        *_clock_jumped(change, limits),
        *_lost_sight(before, after, limits, told_earlier),
        *_fell(before, after, limits),
        *_throttled(before, after, change, limits),
        *_slow(before, after, limits),
        *_shared(before, after),
        *_crowded(after, change, limits),
    ]
    return "; ".join(reasons) or None


def known_quantities(state: DeviceState) -> frozenset[str]:
    """Returns the quantities that a verdict needs and this state has: fields, and the names of throttled totals."""
    fields = [name for name in (*WATCHED, *HOST_TOTALS) if getattr(state, name) is not None]
    return frozenset([*fields, *(name for name, _ in state.throttled_s or () if name in THROTTLING_TOTALS)])


def _lost_sight(
    before: DeviceState, after: DeviceState, limits: DisturbanceLimits, told_earlier: Collection[str]
) -> Iterator[str]:
    if silent := after.given_up or before.given_up:
        yield silent
        return
    first, last = known_quantities(before), known_quantities(after)
    ever = first | last | frozenset(told_earlier)
    needed = ever - frozenset(HOST_TOTALS if limits.other_load >= 1 else ())
    if "throttle_reasons" not in ever:
        needed -= {"clock_hz"}  # a clock alone is not judged: it sinks where there is nothing to do
    if before.others_unknown or after.others_unknown:
        needed -= {"num_other_processes"}  # answered, and by its nature not to be told
    for names, when in (
        (needed & first - last, "known before the round and unknown after it"),
        (needed & last - first, "unknown before the round and known after it"),
        (needed - first - last, "known earlier and unknown now"),
    ):
        if names:
            yield f"{when}: {', '.join(sorted(names))}"


def _fell(before: DeviceState, after: DeviceState, limits: DisturbanceLimits) -> Iterator[str]:
    """Totals never fall by themselves: a driver was loaded anew, and what it had counted until then is gone."""
    earlier = dict(before.throttled_s or ())
    falls: list[tuple[str, float | None, float | None, float]] = [("energy_j", before.energy_j, after.energy_j, 0.0)]
    falls += [(name, earlier.get(name), seconds, 0.0) for name, seconds in after.throttled_s or ()]
    if limits.other_load < 1:
        slack_s = limits.min_window_s
        falls += [(name, getattr(before, name), getattr(after, name), slack_s) for name in NEVER_FALLING]
    for name, start, end, slack in falls:
        if start is not None and end is not None and end < start - slack:
            yield f"{name} went back from {start:g} to {end:g}"


def _clock_jumped(change: RoundState, limits: DisturbanceLimits) -> Iterator[str]:
    """Reports a jump of the wall clock, also on a suspended machine, whose monotonic clock stands still meanwhile."""
    if abs(change.wall_jump_s) > limits.wall_jump_s:
        yield f"the wall clock jumped by {change.wall_jump_s:.0f} s"


def _throttled(before: DeviceState, after: DeviceState, change: RoundState, limits: DisturbanceLimits) -> Iterator[str]:
    counted = change.throttled_s or {}
    for name, seconds in counted.items():
        if name in THROTTLING_TOTALS and seconds > limits.throttled * change.duration_s:
            yield f"throttled: {name} for {seconds:.1f} s of {change.duration_s:.1f} s"
    first, last = before.throttle_reasons or (), after.throttle_reasons or ()
    seen = sorted(THROTTLING & {*first, *last})
    if UNSURE in first and UNSURE in last:
        seen.append(UNSURE)
    if seen:
        yield f"throttled: {', '.join(seen)}"


def _slow(before: DeviceState, after: DeviceState, limits: DisturbanceLimits) -> Iterator[str]:
    """Yields the clock at the end, where the vendor says that the device neither idles nor was asked to be slow."""
    reasons, clock_hz = after.throttle_reasons, after.clock_hz
    if reasons is None or clock_hz is None or ASKED_FOR & {*reasons}:
        return
    why = f" ({', '.join(reasons)})" if reasons else ""
    if before.clock_hz is not None and clock_hz < limits.min_clock * before.clock_hz:
        yield f"clock fell from {_mhz(before.clock_hz)} to {_mhz(clock_hz)} MHz{why}"
    elif after.max_clock_hz is not None and clock_hz < limits.min_clock * after.max_clock_hz:
        yield f"clock at {_mhz(clock_hz)} of {_mhz(after.max_clock_hz)} MHz{why}"


def _shared(before: DeviceState, after: DeviceState) -> Iterator[str]:
    worst = max((before, after), key=lambda state: state.num_other_processes or 0)
    if number := worst.num_other_processes:
        who = f" ({', '.join(worst.other_processes)})" if worst.other_processes else ""
        yield f"shared: {number} other process{'es' if number > 1 else ''} on the device{who}"


def _crowded(after: DeviceState, change: RoundState, limits: DisturbanceLimits) -> Iterator[str]:
    if limits.other_load >= 1 or change.duration_s < limits.min_window_s:
        return
    if change.other_load is not None and change.other_load > limits.other_load:
        yield f"other processes used {change.other_load * 100:.0f} % of {after.num_cores or 1} cores"
    if change.steal is not None and change.steal > limits.steal:
        yield f"steal time {change.steal * 100:.0f} %"
    if change.cgroup_throttled is not None and change.cgroup_throttled > limits.cgroup:
        yield f"cgroup throttled {change.cgroup_throttled * 100:.0f} % of the time"


def _mhz(clock_hz: float) -> str:
    return f"{clock_hz / 1e6:.0f}"
