"""What a profile job's report says, in seconds and bytes: the times of its runs, and which unit each layer ran on.

AI Hub reports microseconds and bytes. Its `estimated_inference_time` is the smallest of `all_inference_times`; what
counts here are all of them, as for any other device, and the estimate alone where an old service gives no list.

Worked number: all_inference_times [1200, 1250] -> times_s (0.0012, 0.00125).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_npubench.errors import MeasurementError

UNITS = ("npu", "gpu", "cpu")
_MICRO = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer as the runtime names it, with the unit that ran it; time_s is None where it was not told."""

    name: str
    kind: str
    unit: str
    time_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphProfile:
    """A graph profiled on a phone. first_load_s is the cold load; None for what the service did not tell."""

    times_s: tuple[float, ...]
    first_load_s: float | None
    warm_load_s: float | None
    compile_s: float | None
    peak_memory_bytes: int | None
    layers: tuple[Layer, ...]
    tool_versions: tuple[tuple[str, str], ...]

    def num_layers(self, unit: str) -> int:
        return sum(layer.unit == unit for layer in self.layers)

    def layer_s(self, unit: str) -> float | None:
        """Returns seconds of the layers of one unit together; None where no layer tells its time."""
        timed = [(layer.unit, layer.time_s) for layer in self.layers if layer.time_s is not None]
        return sum(time_s for name, time_s in timed if name == unit) if timed else None


def read_profile(job_id: str, report: Mapping[str, Any]) -> GraphProfile:
    """Read a report. Raises MeasurementError naming the job and what is missing or wrong in it."""
    try:
        summary = report["execution_summary"]
        times = summary.get("all_inference_times") or [summary["estimated_inference_time"]]
        profile = GraphProfile(
            times_s=tuple(float(value) * _MICRO for value in times),
            first_load_s=_seconds(summary.get("first_load_time")),
            warm_load_s=_seconds(summary.get("warm_load_time")),
            compile_s=_seconds(summary.get("compile_time")),
            peak_memory_bytes=_bytes(summary.get("estimated_inference_peak_memory")),
            layers=tuple(_layer(entry) for entry in report.get("execution_detail") or ()),
            tool_versions=tuple(sorted((str(k), str(v)) for k, v in (report.get("tool_versions") or {}).items())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MeasurementError(f"job {job_id}: its profile cannot be read: {type(error).__name__}: {error}") from None
    if not all(value > 0 for value in profile.times_s):
        raise MeasurementError(f"job {job_id}: its profile has an inference time of 0; want microseconds above 0")
    return profile


def check_tools(job_id: str, profile: GraphProfile, pinned: str | None) -> None:
    """Raises MeasurementError where the job ran on another QAIRT than the fingerprint says; unknown ones pass."""
    for name, version in profile.tool_versions:
        same = pinned is None or version == pinned or version.startswith(f"{pinned}.")
        if name.upper() in ("QAIRT", "QNN") and not same:
            raise MeasurementError(f"job {job_id} ran on {name} {version}; the fingerprint says {pinned}")


def _seconds(value: Any) -> float | None:
    return float(value) * _MICRO if value else None


def _bytes(value: Any) -> int | None:
    return int(value) if value and int(value) > 0 else None


def _layer(entry: Mapping[str, Any]) -> Layer:
    time = entry.get("execution_time")
    return Layer(
        name=str(entry["name"]),
        kind=str(entry.get("type", "")),
        unit=str(entry["compute_unit"]).lower(),
        time_s=None if time is None else float(time) * _MICRO,
    )
