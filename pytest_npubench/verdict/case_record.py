"""A judged case as a journal keeps it: what its record may hold, and the one reader of such records.

The entries say what a journal's case record may hold; the journal is checked against them when it is written and read.
What a kind says of its case beyond the verdict is a record of the kind's own class (`Judgement.detail`); the journal
keeps it as plain data under "detail", and `Cases.of` reads it back into the class. A record of another version that
lacks a field is not shown half: `Cases.unread` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Generic, TypeVar, cast

import msgspec
from msgspec import Meta

from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import GATES, JUDGED_GATES, AskedPrompts, Better, Judgement, Metric

LARGEST = 1e300
Samples = tuple[float, ...]
Pair = Annotated[tuple[float, float], Meta(description="two numbers")]

DetailT = TypeVar("DetailT")
KeyT = TypeVar("KeyT")
EntryT = TypeVar("EntryT")


@dataclass(kw_only=True)
class VerdictEntry:
    kind: str
    reason: str | None = None
    ratio: float | None = None
    interval: Pair | None = None
    mde: float | None = None
    since: str | None = None
    alarms_among: int | None = None

    def read(self) -> Verdict:
        """Returns the verdict. Raises ValueError where its kind is not known here."""
        return Verdict(**{**vars(self), "kind": VerdictKind(self.kind), "reason": self.reason or ""})


@dataclass(kw_only=True)
class MetricEntry:
    """`processes` are the samples of each process, where several measured the metric."""

    unit: str
    value: float
    better: Better
    samples: Samples
    gate: str = "ratio"
    margin: float | None = None
    processes: tuple[Samples, ...] | None = None
    verdict: VerdictEntry | None = None

    def read(self, name: str) -> Metric:
        """Returns the metric of that name. Raises ValueError where its gate or its verdict is not known here."""
        if self.gate not in GATES:
            raise ValueError(f"metrics.{name}.gate: want {' or '.join(JUDGED_GATES)}, found {self.gate!r}")
        return Metric(
            name=name,
            unit=self.unit,
            value=self.value,
            better=self.better,
            samples=self.samples,
            gate=GATES[self.gate],
            margin=self.margin,
            again=(self.processes or ())[1:],
            verdict=None if self.verdict is None else self.verdict.read(),
        )


@dataclass(kw_only=True)
class JudgementEntry:
    """What of a case's record is its judgement."""

    verdict: VerdictEntry
    what: str | None = None
    measured_s: float | None = None
    predicted_s: float | None = None
    error: float | None = None
    error_interval: Pair | None = None
    repeat_error: float | None = None
    metrics: Mapping[str, MetricEntry] | None = None
    detail: Mapping[str, Any] | None = None
    frozen: Mapping[str, float] | None = None
    work: Mapping[str, float] | None = None
    is_disturbed: bool | None = None
    is_partly_disturbed: bool | None = None

    def read(self) -> Judgement:
        """Returns the judgement that JudgedCase.to_json wrote. Raises ValueError."""
        given: dict[str, Any] = {name: value for name, value in vars(self).items() if value is not None}
        return Judgement(
            **{
                **given,
                "verdict": self.verdict.read(),
                "metrics": tuple(entry.read(name) for name, entry in (self.metrics or {}).items()),
                "engine": (self.detail or {}).get("engine"),
            }
        )


@dataclass(kw_only=True)
class CaseEntry(JudgementEntry):
    """`fingerprint` is None where the case never reached a device."""

    fingerprint: str | None
    case: str
    id: str
    hardware: str
    digest: str
    node: str | None = None
    model: str | None = None
    axes: Mapping[str, object] | None = None
    device: str | None = None
    duration_s: float | None = None
    resumed: bool | None = None
    campaign: str | None = None
    limits: Mapping[str, float] | None = None


def judgement_of(record: Mapping[str, Any]) -> Judgement:
    """Returns the judgement of a journal's case record. Raises ValueError where it cannot be read."""
    return _entry(record, JudgementEntry).read()


def metrics_of(entries: object) -> tuple[Metric, ...]:
    """Returns the metrics of a journal's case record, as they stand there. Raises ValueError where they cannot be
    read."""
    return tuple(entry.read(name) for name, entry in _entry(entries, dict[str, MetricEntry]).items())


def prompts_of(detail: object) -> AskedPrompts:
    """Returns what a case's detail, as a record of its class or as plain data, says of the prompts that were asked.
    Raises ValueError where it cannot be read."""
    return _entry(detail or {}, AskedPrompts)


def _entry(value: object, kind: type[EntryT]) -> EntryT:
    try:
        return msgspec.convert(value, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord(Generic[DetailT]):
    """`key` is suite/kind/id; texts that a record lacks are empty, batch_size 0. `detail` is the kind's own."""

    key: str
    id: str
    hardware: str
    model: str
    batch_size: int
    axes: Mapping[str, int | str]
    device: str
    fingerprint: str | None
    campaign: str | None
    limits: Mapping[str, float]
    judgement: Judgement
    detail: DetailT
    digest: str = ""
    session: str = ""
    duration_s: float | None = None
    resumed: bool = False

    @property
    def shown_id(self) -> str:
        """With its device, where that is not the first of its family, or a group that begins with it."""
        return self.id + self.on_device

    @property
    def on_device(self) -> str:
        """ " on DEVICE", empty on the first."""
        return f" on {self.device}" if self.device and not self.device.split(",")[0].endswith(":0") else ""

    @property
    def suite(self) -> str:
        """Returns the head of the key; empty where the key has another form."""
        return self.key.split("/", 2)[0] if self.key.count("/") > 1 else ""

    @property
    def kind(self) -> str:
        """Returns the middle of the key; empty where the key has another form."""
        return self.key.split("/", 2)[1] if self.key.count("/") > 1 else ""

    @property
    def outcome(self) -> str:
        """Returns the verdict in a word; "disturbed" where it is invalid because something else used the device or its
        host."""
        return "disturbed" if self.judgement.is_disturbed else self.judgement.verdict.kind.value

    @property
    def what(self) -> str:
        """What the case timed; of one that timed nothing its kind, which its id does not tell."""
        return self.judgement.what or self.kind.replace("_", " ")

    def axis(self, name: str) -> str:
        """One of the suite's own parameters as text; empty where the case has none of that name."""
        return str(self.axes.get(name, ""))

    def metric(self, name: str) -> Metric | None:
        """Returns the metric of that name; None where the case has none."""
        return next((metric for metric in self.judgement.metrics if metric.name == name), None)


@dataclass(slots=True)
class Cases:
    """Case records of a journal, read by kind. `unread` says of those that are of another version why."""

    records: tuple[CaseRecord[Mapping[str, Any]], ...]
    unread: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, records: Iterable[Mapping[str, Any]]) -> Cases:
        """Records that the journal's reader has checked. One with a verdict that is not known here, or a number that
        cannot be reckoned with, is unread."""
        readable: list[CaseRecord[Mapping[str, Any]]] = []
        unread: list[str] = []
        for record in records:
            try:
                _check_numbers(record)
                readable.append(_case_record(record))
            except (KeyError, TypeError, ValueError) as error:
                unread.append(_unread(str(record.get("id")), error))
        return cls(tuple(readable), unread)

    def by(self, key: Callable[[CaseRecord[Any]], KeyT]) -> dict[KeyT, Cases]:
        """Groups the cases, in the order of the first of each; of these nothing is unread yet."""
        groups: dict[KeyT, list[CaseRecord[Mapping[str, Any]]]] = {}
        for record in self.records:
            groups.setdefault(key(record), []).append(record)
        return {name: Cases(tuple(own)) for name, own in groups.items()}

    def of(self, kind: str, detail: type[DetailT]) -> list[CaseRecord[DetailT]]:
        """Returns the cases of that kind that left a detail, with the detail as a record of that class; an invalid case
        has none."""
        typed = []
        for record in self.records:
            if record.kind == kind and record.detail:
                try:
                    as_detail = msgspec.convert(record.detail, detail)
                except msgspec.ValidationError as error:
                    self.unread.append(_unread(record.id, error))
                else:
                    typed.append(replace(cast(CaseRecord[Any], record), detail=as_detail))
        return typed


def _unread(case: str, error: Exception) -> str:
    return f"{case} is not shown: its record is of another version ({error})."


def _check_numbers(value: object) -> None:
    """Raises ValueError for a number of which sums or milliseconds would not be finite."""
    if isinstance(value, (int, float)):
        if abs(value) > LARGEST:
            raise ValueError(f"a number beyond {LARGEST:g}")
    elif isinstance(value, Mapping):
        for inner in value.values():
            _check_numbers(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_numbers(inner)


def _case_record(record: Mapping[str, Any]) -> CaseRecord[Mapping[str, Any]]:
    batch_size = record.get("batch_size") or 0
    if not isinstance(batch_size, int):
        raise TypeError(f"batch_size is {batch_size!r}; want a whole number")
    return CaseRecord(
        key=record["case"],
        id=record["id"],
        hardware=record["hardware"],
        model=record.get("model") or "",
        batch_size=batch_size,
        axes=record.get("axes") or {},
        device=record.get("device") or "",
        fingerprint=record["fingerprint"],
        campaign=record.get("campaign"),
        limits=record.get("limits") or {},
        judgement=judgement_of(record),
        detail=record.get("detail") or {},
        digest=record.get("digest") or "",
        session=record.get("session") or "",
        duration_s=record.get("duration_s"),
        resumed=record.get("resumed") or False,
    )
