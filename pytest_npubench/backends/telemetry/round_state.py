"""What a device did between two states: mean clock, energy, share of the time it was throttled or used by others.

Worked example: 700 J and 1.2 s of thermal throttling more after 3.1 s are energy_j = 700, power_w = 226 and
throttled_s = {"thermal_violation": 1.2}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_npubench.backends.telemetry.state import DeviceState


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundState:
    """A round as the device saw it; None for unknown. Shares are fractions of duration_s x cores.

    clock_hz is the mean over time, power_w the mean where energy is known; energy_unknown is why it is not.
    temperature_c is that of the end.
    """

    duration_s: float
    wall_jump_s: float = 0.0
    clock_hz: float | None = None
    min_clock_hz: float | None = None
    max_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    energy_unknown: str | None = None
    throttle_reasons: tuple[str, ...] | None = None
    throttled_s: Mapping[str, float] | None = None
    num_other_processes: int | None = None
    other_load: float | None = None
    steal: float | None = None
    cgroup_throttled: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the known fields. Six digits are more than any of them is good for, and keep a journal small."""
        document: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                document[field.name] = _rounded(value)
        return document

    @classmethod
    def from_json(cls, mapping: Any) -> RoundState | None:
        """Reads what to_json wrote; None for a missing or foreign mapping. Fields of a later version are ignored."""
        if not isinstance(mapping, Mapping) or not isinstance(mapping.get("duration_s"), int | float):
            return None
        names = {field.name for field in fields(cls)}
        arguments = {name: value for name, value in mapping.items() if name in names}
        if isinstance(reasons := arguments.get("throttle_reasons"), list):
            arguments["throttle_reasons"] = tuple(reasons)
        return cls(**arguments)


def between(before: DeviceState, after: DeviceState) -> RoundState:
    """Returns the round that began in one state and ended in the other."""
    duration_s = after.taken_at_s - before.taken_at_s
    core_s = duration_s * (after.num_cores or 1)
    clocks = [state.clock_hz for state in (before, after) if state.clock_hz is not None]
    energy_j = _grown(before.energy_j, after.energy_j)
    power_w = after.power_w if energy_j is None or duration_s <= 0 else energy_j / duration_s
    return RoundState(
        duration_s=duration_s,
        wall_jump_s=(after.wall_at_s - before.wall_at_s) - duration_s,
        clock_hz=mean_clock_hz((before, after)),
        min_clock_hz=min(clocks, default=None),
        max_clock_hz=max(clocks, default=None),
        temperature_c=after.temperature_c,
        power_w=power_w,
        energy_j=energy_j,
        energy_unknown=_why_unknown(before, after) if energy_j is None else None,
        throttle_reasons=_either(before.throttle_reasons, after.throttle_reasons),
        throttled_s=_throttled(before, after),
        num_other_processes=max(_counts(before, after), default=None),
        other_load=_share(before.other_busy_s, after.other_busy_s, core_s),
        steal=_share(before.steal_s, after.steal_s, core_s),
        cgroup_throttled=_share(before.cgroup_throttled_s, after.cgroup_throttled_s, core_s),
    )


def mean_clock_hz(states: Sequence[DeviceState]) -> float | None:
    """Returns the mean clock over the time the states span, by trapezoids; None where a clock or time is missing."""
    clocks = [state.clock_hz for state in states if state.clock_hz is not None]
    if not states or len(clocks) < len(states):
        return None
    span_s = states[-1].taken_at_s - states[0].taken_at_s
    if span_s <= 0:
        return sum(clocks) / len(clocks)
    steps_s = [right.taken_at_s - left.taken_at_s for left, right in pairwise(states)]
    means = [(left + right) / 2 for left, right in pairwise(clocks)]
    return sum(step_s * mean for step_s, mean in zip(steps_s, means, strict=True)) / span_s


def _grown(before: float | None, after: float | None) -> float | None:
    """How much a total grew. A total that fell was reset by a driver: unknown."""
    return None if before is None or after is None or after < before else after - before


def _why_unknown(before: DeviceState, after: DeviceState) -> str | None:
    """Why there is no energy; None without a reason."""
    if None not in (before.energy_j, after.energy_j):
        return "unavailable: the energy counter fell while it was read, as where a driver resets it"
    if before.energy_j is not None or after.energy_j is not None:
        return "unavailable: the energy was told at one end of the round alone"
    return before.energy_unknown or after.energy_unknown


def _share(before: float | None, after: float | None, core_s: float) -> float | None:
    """Returns a fraction of the cores' time; ticks of the kernel's clock may make a difference of totals slightly
    negative."""
    if before is None or after is None or core_s <= 0:
        return None
    return max(0.0, after - before) / core_s


def _throttled(before: DeviceState, after: DeviceState) -> dict[str, float] | None:
    if before.throttled_s is None or after.throttled_s is None:
        return None
    earlier = dict(before.throttled_s)
    grown = {name: _grown(earlier.get(name), total) for name, total in after.throttled_s}
    return {name: seconds for name, seconds in grown.items() if seconds is not None}


def _either(before: tuple[str, ...] | None, after: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if before is None and after is None:
        return None
    return tuple(dict.fromkeys([*(before or ()), *(after or ())]))


def _counts(*states: DeviceState) -> list[int]:
    return [state.num_other_processes for state in states if state.num_other_processes is not None]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
