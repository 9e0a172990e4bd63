"""Case records of the suites on pairs of units: a kind's own detail, as a journal gives it back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from made_records import judged_record
from reports.journals import make_fingerprint, open_journal, round_records
from reports.page import Element, cases_of, page_of

from pytest_npubench.core.case import Axes, Case
from pytest_npubench.store.journal import read_journal
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.result import Judgement

Json = dict[str, Any]
PASSED = Verdict(kind=VerdictKind.PASSED, reason="within its limits")
LOST = Verdict(kind=VerdictKind.INVALID, reason="the unit was lost")


def pair_record(
    suite: str,
    kind: str,
    model: str,
    detail: object,
    *,
    axes: Axes = (),
    campaign: str,
    device: str = "cpu:0",
    **judged: Any,
) -> Json:
    """`judged` are fields of its judgement, the verdict "passed" where it is not among them."""
    case = Case(suite=suite, kind=kind, hardware="cpu", family="cpu", model=model, batch_size=1, axes=axes)
    judgement = Judgement(**{"verdict": PASSED, "what": kind, "detail": detail, **judged})
    return judged_record(case, judgement, device=device, duration_s=2.0, campaign=campaign)


def unmeasured(record: Json) -> Json:
    """The same case where it could not be judged."""
    verdict = {"kind": LOST.kind.value, "reason": LOST.reason, "ratio": None, "interval": None, "mde": None}
    nothing = dict.fromkeys(("measured_s", "predicted_s", "error"))
    return {**record, "verdict": verdict, "detail": {}, "metrics": {}, **nothing}


def damaged(record: Json) -> Iterator[Json]:
    """The record with each figure of its detail in turn as an object, as no version of ours writes it."""
    for *path, last in _leaves(record["detail"]):
        changed = json.loads(json.dumps(record))
        inner = changed["detail"]
        for key in path:
            inner = inner[key]
        inner[last] = {"of": "text"}
        yield changed


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _leaves(inner, (*path, key)) if isinstance(inner, (dict, list)) else [(*path, key)]


def section_of(parts: Callable[..., Any], records: Sequence[Json]) -> tuple[Any, ...]:
    """Charts, tables and remarks, those of records that cannot be read among these, as the page has them."""
    cases = Cases.read(records)
    charts, tables, remarks = parts(cases, ())
    return charts, tables, (*remarks, *dict.fromkeys(cases.unread))


def page_with_rounds(
    folder: Path, records: Sequence[Json], rounds: Mapping[str, Sequence[Json]], **about: Any
) -> Element:
    """The report of records beside rounds of ten seconds: the points of each, by the campaign that measured them."""
    with open_journal(folder / "journal.jsonl") as writer:
        digest = writer.device(make_fingerprint("A CPU"))
        for campaign, points in rounds.items():
            for record in round_records(points, fingerprint=digest, campaign=campaign, **about):
                writer.append(record)
        for record in records:
            writer.append({"record": "case", **record, "fingerprint": digest})
    journal = read_journal(folder / "journal.jsonl")
    return page_of(cases_of(journal), journal)
