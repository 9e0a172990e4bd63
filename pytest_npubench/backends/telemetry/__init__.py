"""The state of devices while they are measured: one file a family, the records, and what counts as a disturbance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.backends.telemetry.state import Telemetry


def open_telemetry(runtime: Runtime) -> Telemetry | None:
    """Returns the telemetry of a runtime's devices; None where its family has none, a third party's backend among
    them."""
    opener = getattr(runtime, "telemetry", None)
    telemetry: Telemetry | None = opener() if opener is not None else None
    return telemetry
