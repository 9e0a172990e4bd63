"""What a judged case leaves: its verdict, its metrics with raw samples, prediction beside measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

from pytest_npubench.core.case import Case
from pytest_npubench.errors import MeasurementError
from pytest_npubench.verdict import Verdict

Better = Literal["lower", "higher"]
GateKind = Literal["ratio", "difference", "exact", "answers", "accuracy", "identical", "none"]
STATISTICAL: frozenset[GateKind] = frozenset({"ratio", "difference"})
"""Gates of what scatters from night to night: judged in families, and measured again where it is suspect."""
OF_ANSWERS: frozenset[GateKind] = frozenset({"answers", "accuracy", "identical"})
"""Gates of what a model answers, which are held against the newest accepted session, under another stack too."""
BETTER: Mapping[str, Better] = {name: name for name in get_args(Better)}
GATES: Mapping[str, GateKind] = {name: name for name in get_args(GateKind)}
JUDGED_GATES = tuple(gate for gate in GATES if gate != "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPrompts:
    """The prompts that a vector of answers is of: their lengths, and the places inside of them, prompt by prompt, whose
    steps are the last positions of each. Without a length nothing is known of them."""

    lengths: tuple[int, ...] = ()
    middles: tuple[int, ...] = ()


UNKNOWN_PROMPTS = AskedPrompts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of a case in its unit; samples are the raw values behind it, none where it is derived.

    `gate` says how it is held against accepted sessions: by the ratio (times, energy), by the difference (errors,
    attained fractions), exactly (counters), or not at all; what a model answers by verdict.answers: the `samples` of
    "answers" are one vector, of which `value` is the distance to the accepted one once that is known. `margin` is the
    change that nobody minds, None for the run's. `again` are the samples of fresh processes that measured it once more,
    `verdict` what came of the comparison.
    """

    name: str
    unit: str
    value: float
    better: Better = "lower"
    samples: tuple[float, ...] = ()
    gate: GateKind = "ratio"
    margin: float | None = None
    again: tuple[tuple[float, ...], ...] = ()
    verdict: Verdict | None = None

    @property
    def processes(self) -> tuple[tuple[float, ...], ...]:
        """Samples by process, this one's first; the value itself where it is derived."""
        return (self.samples or (self.value,), *self.again)

    @property
    def value_samples(self) -> tuple[float, ...]:
        """Returns the samples that the value is a figure of: none of a vector of answers."""
        return () if self.gate == "answers" else self.samples

    def __post_init__(self) -> None:
        """Raises MeasurementError where a value is not finite, so that the case becomes invalid and says why."""
        for value in (self.value, *self.samples):
            if not math.isfinite(value):
                raise MeasurementError(f"{self.name} is {value}; want a finite number in {self.unit or 'no unit'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A case's verdict before it knows device and journal. `what` says in words what measured and predicted are.

    measured_s and predicted_s are seconds; error is the signed relative error and error_interval its 95 % interval;
    repeat_error is the relative standard error of measured_s over the rounds. `detail` is for reports: a record of the
    kind's own class (a dataclass; verdict.case_record reads it back), or plain data. `engine` names the engine that ran
    the models where it is another than the reference.
    `frozen` are the values by name (a rate, a limit) that the case was held to and that its first acceptance fixes for
    later runs: store.baselines.Baselines.frozen finds them again. `work` counts by name what the case did (steps,
    tokens, bytes), so that a change of speed can be told from work that was left out. `is_disturbed`: invalid because
    something else used the device or its host; `is_partly_disturbed`: it did so for a third of the rounds or more,
    which were left out, so that this night is no evidence beside others.
    """

    verdict: Verdict
    what: str = ""
    metrics: tuple[Metric, ...] = ()
    measured_s: float | None = None
    predicted_s: float | None = None
    error: float | None = None
    error_interval: tuple[float, float] | None = None
    repeat_error: float | None = None
    detail: object = field(default_factory=dict)
    engine: str | None = None
    frozen: Mapping[str, float] = field(default_factory=dict)
    work: Mapping[str, float] = field(default_factory=dict)
    is_disturbed: bool = False
    is_partly_disturbed: bool = False

    def __post_init__(self) -> None:
        """Raises MeasurementError where a value of frozen or work is not finite."""
        for what, values in (("frozen", self.frozen), ("work", self.work)):
            for name, value in values.items():
                if not math.isfinite(value):
                    raise MeasurementError(f"{what} {name} is {value}; want a finite number")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDetail:
    """The detail of a callable that was timed: whether its warm-up became steady, the calls in a sample, and what a
    call of nothing takes by the same clock."""

    steady: bool
    iterations: int
    overhead_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCase:
    """A judged case on its device. `fingerprint` is the digest that the journal's device record explains; `limits` are
    those of the run, so that a resumed verdict is one under the same limits. `campaign` is the key of the campaign that
    measured it, as its round records name it; None where a case is measured by itself."""

    case: Case
    digest: str
    node_id: str
    device: str
    fingerprint: str | None
    duration_s: float
    judgement: Judgement
    limits: Mapping[str, float] = field(default_factory=dict)
    resumed: bool = False
    campaign: str | None = None

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    def to_json(self) -> dict[str, object]:
        """Returns the fields of a journal's case record; seconds, fractions and plain data only."""
        judgement, verdict = self.judgement, self.judgement.verdict
        return {
            "case": self.case.key,
            "id": self.case.id,
            "node": self.node_id,
            "hardware": self.case.hardware,
            "model": self.case.model,
            "batch_size": self.case.batch_size,
            "axes": dict(self.case.axes),
            "digest": self.digest,
            "device": self.device,
            "fingerprint": self.fingerprint,
            "duration_s": self.duration_s,
            "resumed": self.resumed,
            **({} if self.campaign is None else {"campaign": self.campaign}),
            "limits": dict(self.limits),
            "verdict": _verdict_json(verdict),
            "what": judgement.what,
            "measured_s": judgement.measured_s,
            "predicted_s": judgement.predicted_s,
            "error": judgement.error,
            "error_interval": judgement.error_interval,
            "repeat_error": judgement.repeat_error,
            "metrics": {metric.name: _metric_json(metric) for metric in judgement.metrics},
            "detail": _detail_json(judgement),
            **({"frozen": dict(judgement.frozen)} if judgement.frozen else {}),
            **({"work": dict(judgement.work)} if judgement.work else {}),
            **({"is_disturbed": True} if judgement.is_disturbed else {}),
            **({"is_partly_disturbed": True} if judgement.is_partly_disturbed else {}),
        }


def _detail_json(judgement: Judgement) -> dict[str, object]:
    detail = judgement.detail
    fields = dict(detail) if isinstance(detail, Mapping) else asdict(detail)  # type: ignore[call-overload]
    return {**fields, **({} if judgement.engine is None else {"engine": judgement.engine})}


def _metric_json(metric: Metric) -> dict[str, object]:
    """Fields without a value are left out, but for those that every reader expects."""
    optional = {
        "margin": metric.margin,
        "processes": metric.processes if metric.again else None,
        "verdict": _verdict_json(metric.verdict) if metric.verdict else None,
    }
    return {
        "unit": metric.unit,
        "value": metric.value,
        "better": metric.better,
        "samples": metric.samples,
        "gate": metric.gate,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _verdict_json(verdict: Verdict) -> dict[str, object]:
    return {
        "kind": verdict.kind.value,
        "reason": verdict.reason,
        "ratio": verdict.ratio,
        "interval": verdict.interval,
        "mde": verdict.mde,
        **({} if verdict.since is None else {"since": verdict.since}),
        **({} if verdict.alarms_among is None else {"alarms_among": verdict.alarms_among}),
    }
