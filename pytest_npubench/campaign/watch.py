"""Watching a device over a stretch of measuring: its state before and after, and whether the stretch may count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.backends.telemetry.disturbance import DisturbanceLimits
    from pytest_npubench.backends.telemetry.round_state import RoundState
    from pytest_npubench.backends.telemetry.state import DeviceState

LOOK_S = 0.2  # twenty ticks of the kernel's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A stretch of measuring: its state, None where nothing tells it, and why it should not count, None if it may."""

    state: RoundState | None = None
    disturbed: str | None = None

    def to_json(self) -> dict[str, Any]:
        """What a round's record keeps; unknown parts are left out."""
        document: dict[str, Any] = {} if self.state is None else {"state": self.state.to_json()}
        return document if self.disturbed is None else {**document, "disturbed": self.disturbed}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Watched:
        from pytest_npubench.backends.telemetry.round_state import RoundState

        return cls(state=RoundState.from_json(record.get("state")), disturbed=record.get("disturbed"))


class Watch:
    """Reads a runtime's telemetry around what lies between begin() and end(). Without telemetry the clocks alone."""

    def __init__(self, runtime: Runtime, limits: DisturbanceLimits) -> None:
        from pytest_npubench.backends.telemetry import open_telemetry
        from pytest_npubench.backends.telemetry.state import DeviceState

        self._telemetry = open_telemetry(runtime)
        self._limits = limits
        self._before = DeviceState.now()
        self._known_before: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Raises DeviceUnavailableError where the device is lost."""
        self._before = self._read()

    def end(self) -> Watched:
        """What happened since begin(). Raises DeviceUnavailableError where the device is lost."""
        from pytest_npubench.backends.telemetry.disturbance import disturbance, known_quantities
        from pytest_npubench.backends.telemetry.round_state import between

        after = self._read()
        state = between(self._before, after) if self._telemetry is not None else None
        disturbed = disturbance(self._before, after, self._limits, self._known_before)
        if disturbed is not None and state is not None and (state.other_load or 0.0) > self._limits.other_load:
            disturbed = f"{disturbed}{self._who()}"
        self._known_before |= known_quantities(self._before) | known_quantities(after)
        return Watched(state=state, disturbed=disturbed)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._telemetry is not None:
            self._telemetry.close()

    def _who(self) -> str:
        """Who else uses the processors, looked at once the round is over: nothing is looked at while it is measured."""
        from pytest_npubench.backends.telemetry.linux import busiest, own_processes

        others = busiest(own_processes(), LOOK_S)
        who = f", just after it {', '.join(others)}" if others else ""
        return f"{who} (--npubench-other-load {self._limits.other_load:g} is the limit; 1 lets any)"

    def _read(self) -> DeviceState:
        from pytest_npubench.backends.telemetry.state import DeviceState

        return DeviceState.now() if self._telemetry is None else self._telemetry.read()
