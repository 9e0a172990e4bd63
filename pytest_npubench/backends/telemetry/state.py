"""The state of a device at one instant: clocks, heat, power, who else is on it; and who reads it.

Quantities that grow for ever (energy, throttled time, busy time of others, stolen time) are totals since some start
that the vendor chose: only the difference of two states means anything (round_state.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar

from pytest_npubench.core.clock import monotonic, wall_s

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """What was known of a device, or of a group of devices, at one instant. None is unknown, never zero.

    taken_at_s is the monotonic clock, wall_at_s the wall clock. duty_cycle is a fraction of the vendor's own latest
    window. throttle_reasons are the vendor's names, harmless ones included; () is none. `throttled_s` holds
    (reason, seconds so far) pairs. energy_unknown and others_unknown are why energy_j and num_other_processes are None,
    in words; given_up is why the vendor is asked nothing any more. other_busy_s, steal_s and cgroup_throttled_s are
    seconds summed over num_cores.
    """

    taken_at_s: float
    wall_at_s: float
    clock_hz: float | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    max_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    memory_used_bytes: float | None = None
    duty_cycle: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    throttled_s: tuple[tuple[str, float], ...] | None = None
    num_throttle_events: int | None = None
    energy_j: float | None = None
    energy_unknown: str | None = None
    num_other_processes: int | None = None
    other_processes: tuple[str, ...] | None = None
    others_unknown: str | None = None
    given_up: str | None = None
    num_cores: int | None = None
    load: float | None = None
    other_busy_s: float | None = None
    steal_s: float | None = None
    cgroup_throttled_s: float | None = None

    @classmethod
    def now(cls, **values: Any) -> DeviceState:
        """Returns a state of this instant with these fields."""
        return cls(taken_at_s=monotonic(), wall_at_s=wall_s(), **values)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields that are known, but for the two clocks, as plain data."""
        names = [field.name for field in fields(self)[2:] if getattr(self, field.name) is not None]
        document = {name: getattr(self, name) for name in names}
        if self.throttled_s is not None:
            document["throttled_s"] = dict(self.throttled_s)
        return document


class Telemetry(Protocol):
    """Reads the state of one device or group of devices, as often as one likes."""

    def read(self) -> DeviceState:
        """Returns the state now. What the vendor does not answer is None; raises DeviceUnavailableError for a lost
        device."""
        ...

    def close(self) -> None:
        """Let go of whatever reading needs; a second call does nothing."""
        ...


def combined(states: Sequence[DeviceState]) -> DeviceState:
    """Returns a group of devices as one: it runs at its slowest clock, and is as hot and as shared as its worst device.

    Power, energy, memory and totals of time add up. A field is unknown where it is unknown for one of them.
    """
    if len(states) == 1:
        return states[0]
    first = states[0]

    def over(take: Callable[[list[Any]], T], name: str) -> T | None:
        values = [getattr(state, name) for state in states]
        return None if any(value is None for value in values) else take(values)

    return DeviceState(
        taken_at_s=first.taken_at_s,
        wall_at_s=first.wall_at_s,
        **{name: over(min, name) for name in ("clock_hz", "sm_clock_hz", "memory_clock_hz", "max_clock_hz")},
        **{name: over(sum, name) for name in ("power_w", "power_limit_w", "memory_used_bytes", "energy_j")},
        temperature_c=over(max, "temperature_c"),
        energy_unknown=_first(states, "energy_unknown"),
        others_unknown=_first(states, "others_unknown"),
        given_up=_first(states, "given_up"),
        duty_cycle=over(min, "duty_cycle"),
        throttle_reasons=over(_union, "throttle_reasons"),
        throttled_s=over(_added, "throttled_s"),
        num_other_processes=over(max, "num_other_processes"),
        other_processes=over(_union, "other_processes"),
    )


def _first(states: Sequence[DeviceState], name: str) -> str | None:
    return next((words for state in states if (words := getattr(state, name))), None)


def _union(values: list[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in values for name in names))


def _added(values: list[tuple[tuple[str, float], ...]]) -> tuple[tuple[str, float], ...]:
    """Returns the sums over the devices, so that a difference of two sums grows where any device is throttled. A reason
    that a device does not report is left out, or its silence would be hidden.

    Of the reasons that all of them tell: a sum without a device would hide that it fell silent.
    """
    tables = [dict(pairs) for pairs in values]
    names = [name for name in tables[0] if all(name in table for table in tables)]
    return tuple((name, sum(table[name] for table in tables)) for name in names)
