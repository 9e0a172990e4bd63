"""What the policy cases of the scheduling suite say, read once for their table and their charts.

A load is a workload at a rate; all policies of a run serve its requests in turn. Its figures are those of
serving.metrics.summarize, as a case keeps them: value, unit, definition, what it rests on, 95 % interval, note.

Worked example: two policy cases of "layered-arxiv-div32" at u0.7, whose blocks came at 0.853 requests/s, are one load
named "layered-arxiv-div32 at 0.853 req/s" with two policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.reports import number_text
from pytest_npubench.reports.record_fields import Record, finite, kind_of, number, table, text


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFigure:
    """One figure of a served run, in its own unit; value is None where it is not known, and note says why."""

    value: float | None
    definition: str
    num_samples: float | None
    interval: tuple[float, float] | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPolicy:
    """A policy with its settings as text, and its figures by name."""

    policy: str
    settings: str
    figures: Mapping[str, ServedFigure]

    def value(self, name: str) -> float | None:
        return self.figures[name].value if name in self.figures else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLoad:
    """All policies under one load; `terms` says in words under which limits, on which clock and in how many blocks."""

    name: str
    terms: str
    policies: tuple[ServedPolicy, ...]


def served_loads(records: Iterable[Record]) -> tuple[ServedLoad, ...]:
    """In the order of the first case of each; policy cases without figures, which are invalid, are left out."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if kind_of(record) == "policy" and table(table(record, "detail"), "figures"):
            groups.setdefault((workload_of(record), text(table(record, "axes"), "rate")), []).append(record)
    return tuple(_load(own) for own in groups.values())


def workload_of(record: Record) -> str:
    """The workload of a case of the scheduling suite."""
    return text(table(record, "axes"), "workload") or text(table(record, "detail"), "workload") or "a workload"


def load_name(record: Record) -> str:
    """The workload and the rate at which its requests came: "layered-arxiv at 1.3 req/s"."""
    rate = rate_text(record)
    return f"{workload_of(record)} at {rate}" if rate else workload_of(record)


def rate_text(record: Record) -> str:
    """Empty where no rate is known."""
    rate = number(table(record, "detail"), "rate_per_s")
    return "" if rate is None else f"{rate:.3g} req/s"


def _load(records: Sequence[Record]) -> ServedLoad:
    detail = table(records[0], "detail")
    return ServedLoad(
        name=load_name(records[0]), terms=_terms(detail), policies=tuple(_policy(record) for record in records)
    )


def _terms(detail: Record) -> str:
    """ "SLO: TTFT <= 1,200 ms and every TBT <= 30 ms; rate and limits frozen on 2026-07-04 in S; wall clock; 3 blocks",
    without what is not said."""
    slo, blocks = table(detail, "slo"), number(detail, "num_blocks")
    limits = [
        f"{name} <= {number_text.milliseconds(value)} ms"
        for name, key in (("TTFT", "ttft_s"), ("every TBT", "tbt_s"))
        if (value := number(slo, key)) is not None
    ]
    clock, held_to = text(detail, "clock"), text(table(detail, "held_to"), "in_words")
    return "; ".join(
        (
            f"SLO: {' and '.join(limits)}" if limits else "no SLO",
            *([held_to] if held_to else ()),
            *([f"{clock} clock"] if clock else ()),
            *([f"{number_text.count(blocks)} blocks"] if blocks is not None else ()),
        )
    )


def _policy(record: Record) -> ServedPolicy:
    detail = table(record, "detail")
    entries = table(detail, "figures")
    return ServedPolicy(
        policy=text(detail, "policy") or text(table(record, "axes"), "policy") or "a policy",
        settings=", ".join(f"{name} = {value}" for name, value in table(detail, "settings").items()),
        figures={name: _figure(table(entries, name)) for name in entries},
    )


def _figure(entry: Record) -> ServedFigure:
    ends = finite(entry.get("interval"))
    return ServedFigure(
        value=number(entry, "value"),
        definition=text(entry, "definition"),
        num_samples=number(entry, "num_samples"),
        interval=(ends[0], ends[1]) if len(ends) == 2 else None,
        note=text(entry, "note"),
    )
