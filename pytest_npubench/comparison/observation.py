"""What is compared: one metric of one case with the samples of its processes, out of a journal's case record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pytest_npubench.errors import JournalError
from pytest_npubench.verdict.result import GateKind, Metric

Key = tuple[str, str]
CANARY = "canary"
GATES = frozenset(get_args(GateKind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """processes: processes x samples in `unit`. `key` tells it among all metrics of all cases.

    `gate` is None where an old baseline or history does not say how the metric is judged.
    """

    case: str
    digest: str
    metric: str
    unit: str
    better: Literal["lower", "higher"]
    gate: GateKind | None
    margin: float | None
    processes: tuple[tuple[float, ...], ...]

    @property
    def key(self) -> Key:
        return self.case, self.metric

    @property
    def is_canary(self) -> bool:
        return is_canary(self.case)

    @property
    def family(self) -> tuple[str, ...]:
        """What is judged jointly: metrics of one unit, held to one margin in one way; without a unit, of one name.

        Canaries are kept apart: kernels of milliseconds jump more than whole models do, and they are to say what the
        other cases have in common.
        """
        margin = "" if self.margin is None else f"{self.margin:g}"
        return CANARY if self.is_canary else "", self.gate or "", self.better, self.unit or self.metric, margin

    @classmethod
    def of_metric(cls, case: str, digest: str, metric: Metric) -> Observation:
        return cls(
            case=case,
            digest=digest,
            metric=metric.name,
            unit=metric.unit,
            better=metric.better,
            gate=metric.gate,
            margin=metric.margin,
            processes=metric.processes,
        )


def is_canary(case: str) -> bool:
    return case.split("/")[1:2] == [CANARY]


def of_record(record: Mapping[str, Any]) -> Iterator[Observation]:
    """The metrics of a journal's case record that are compared. Raises JournalError where it cannot be read.

    A record from before metrics had gates is judged by ratio.
    """
    try:
        for name, entry in record.get("metrics", {}).items():
            samples = tuple(entry["samples"]) or (entry["value"],)
            observation = Observation(
                case=record["case"],
                digest=record["digest"],
                metric=name,
                unit=entry["unit"],
                better=entry["better"],
                gate=entry.get("gate", "ratio"),
                margin=entry.get("margin"),
                processes=tuple(tuple(values) for values in entry.get("processes", (samples,))),
            )
            if observation.gate not in GATES or observation.better not in ("lower", "higher"):
                raise TypeError(f"{name}: gate {observation.gate!r}, better {observation.better!r}")
            if observation.gate != "none":
                yield observation
    except (AttributeError, KeyError, TypeError) as error:
        raise JournalError(f"case record {record.get('case')!r}: metrics that cannot be read: {error!r}") from None
