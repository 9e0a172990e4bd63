"""The head of a report: how the run went, when and from which revision, who measured, and one row a case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_npubench.errors import JournalError
from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import CaseRow, Overview, Table, tone_of
from pytest_npubench.reports.run_rows import metric_rows, run_row, shared_reason
from pytest_npubench.stats.error import summarise
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal_reader import Journal, Session
from pytest_npubench.store.journal_runs import case_records
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.case_record import CaseRecord, Cases
from pytest_npubench.verdict.work import work_text

_ORDER = {"bad": 0, "neutral": 1, "good": 2}
MAX_REASONS = 5
COMMON = 3
"""A reason of so many cases is said once."""
UNJUDGED = (VerdictKind.NO_BASELINE, VerdictKind.INCOMPARABLE)
COMPARED = (VerdictKind.REGRESSED, VerdictKind.IMPROVED, VerdictKind.UNCHANGED, VerdictKind.INCONCLUSIVE)


def sessions_of(cases: Cases, journal: Journal) -> tuple[Session, ...]:
    """The sessions that wrote these cases, the latest for one that several sessions wrote alike."""
    latest = {
        (record["case"], record["digest"], record["fingerprint"], record.get("device") or ""): record["session"]
        for record in case_records(journal.sessions)
    }
    ids = {
        record.session or latest.get((record.key, record.digest, record.fingerprint, record.device))
        for record in cases.records
    }
    return tuple(session for session in journal.sessions if session.id in ids)


def sessions_up_to(cases: Cases, journal: Journal) -> frozenset[str]:
    """The cases' sessions and all before them: a resumed campaign has its rounds in an earlier session."""
    ids = [session.id for session in journal.sessions]
    session_ids = {session.id for session in sessions_of(cases, journal)}
    last = max((index for index, name in enumerate(ids) if name in session_ids), default=len(ids) - 1)
    return frozenset(ids[: last + 1])


def overview(cases: Cases, journal: Journal, before: Sequence[int] = ()) -> Overview:
    """`before` has the number of accepted sessions of each failing case, where it is known."""
    counts = Counter((tone_of(one.judgement.verdict.kind), one.outcome) for one in cases.records)
    num_cases, num_bad = len(cases.records), sum(number for (tone, _), number in counts.items() if tone == "bad")
    unjudged = sum(one.judgement.verdict.kind in UNJUDGED for one in cases.records)
    num_disturbed = sum(one.judgement.is_disturbed for one in cases.records)
    return Overview(
        headline=_headline(num_cases, num_bad - num_disturbed, num_disturbed, unjudged),
        tone="bad" if num_bad else "good" if num_cases and not unjudged else "neutral",
        against=_against(cases, unjudged, before),
        device=_device_words(cases),
        invalid=tuple(_invalid(cases).most_common(MAX_REASONS)),
        counts=tuple(
            (outcome, tone, number)
            for (tone, outcome), number in sorted(counts.items(), key=lambda item: (_ORDER[item[0][0]], item[0][1]))
        ),
        facts=(*_error_facts(cases), *_run_facts(cases, sessions_of(cases, journal), journal)),
    )


def case_rows(cases: Cases, pictures: Mapping[str, str]) -> tuple[CaseRow, ...]:
    """One row a case, failing ones first, then suite by suite, without columns that are empty in all of them.
    `pictures` has the anchor of what shows more of a case, by that of its row."""
    rows = [(row_anchor(place), record) for place, record in enumerate(cases.records)]
    rows.sort(key=lambda row: _rank(tone_of(row[1].judgement.verdict.kind), row[1].suite))
    common = dict(common_reasons(cases))
    made = [_row(record, anchor, pictures[anchor], common) for anchor, record in rows]
    seen = {name for row in made for name, text in row.cells if text != number_text.UNKNOWN}
    return tuple(replace(row, cells=tuple(cell for cell in row.cells if cell[0] in seen)) for row in made)


def _rank(tone: str, suite: str) -> tuple[bool, str, int]:
    return tone != "bad", suite, _ORDER[tone]


def common_reasons(cases: Cases) -> list[tuple[str, int]]:
    """The reasons of cases that do not fail which stand above the table and not in its rows, each with the number of
    cases that have it."""
    return shared(_reason(record) for record in cases.records if not record.judgement.verdict.failing)


def shared(reasons: Iterable[str]) -> list[tuple[str, int]]:
    """The reasons that COMMON or more have, with their number."""
    return [(reason, number) for reason, number in Counter(reasons).most_common() if reason and number >= COMMON]


def _reason(record: CaseRecord[Any]) -> str:
    return shared_reason(record.judgement) or record.judgement.verdict.reason


def row_anchor(index: int) -> str:
    """The anchor of the row of the case with this index among the records."""
    return f"c{index}"


def device_table(cases: Cases, journal: Journal) -> tuple[Table | None, tuple[str, ...]]:
    """The fingerprints of the cases side by side, a column each, and a remark for each one that cannot be shown."""
    columns: list[tuple[str, dict[str, str]]] = []
    remarks: list[str] = []
    for digest in dict.fromkeys(record.fingerprint for record in cases.records):
        records = [record for record in cases.records if record.fingerprint == digest]
        devices = _distinct(record.device for record in records) or "no device"
        try:
            facts = _fingerprint_facts(journal.fingerprint(digest)) if digest else None
        except JournalError as error:
            facts = None
            remarks.append(str(error))
        if facts is not None:
            hardware = _distinct(record.hardware for record in records)
            columns.append((devices, {"hardware file": hardware, **facts, "fingerprint": digest or ""}))
        elif not digest:
            remarks.append(
                f"{_cases(len(records))} of {devices} ended before a device was open, so no fingerprint is known."
            )
    if not columns:
        return None, tuple(remarks)
    names = dict.fromkeys(name for _, facts in columns for name in facts)
    return (
        Table(
            caption="Who measured: devices, their software and their hosts",
            header=("fact", *(devices for devices, _ in columns)),
            rows=tuple((name, *(facts.get(name, number_text.UNKNOWN) for _, facts in columns)) for name in names),
        ),
        tuple(remarks),
    )


def _error_facts(cases: Cases) -> list[tuple[str, str]]:
    """Tells of the cases that were held to a prediction error."""
    judged = [(metric, record) for record in cases.records if (metric := record.metric("prediction_error"))]
    if not judged:
        return []
    summary = summarise([metric.value for metric, _ in judged])
    repeats = [record.judgement.repeat_error for _, record in judged if record.judgement.repeat_error is not None]
    error = f"{summary.mean:.2%} (median {summary.median:.2%}, max {summary.max:.2%}, {_cases(summary.num_cases)})"
    facts = [("Mean prediction error", error)]
    return [*facts, ("Mean repeat error", f"{sum(repeats) / len(repeats):.2%}")] if repeats else facts


def _run_facts(cases: Cases, sessions: Sequence[Session], journal: Journal) -> list[tuple[str, str]]:
    headers = [session.header for session in sessions]  # settings and host are objects of whatever a writer says
    durations = [record.duration_s for record in cases.records if record.duration_s is not None]
    facts = (
        ("Profile", _distinct(header["settings"].get("profile") for header in headers)),
        (
            "Started",
            _distinct(header["started_at"].replace("T", " ").replace("+00:00", " UTC") for header in headers),
        ),
        ("Time in cases", number_text.duration(sum(durations)) if durations else ""),
        ("Git revision", _distinct(header["host"].get("git_revision") for header in headers)),
        ("pytest-npubench", _distinct(header["host"].get("plugin_version") for header in headers)),
        ("Session", ", ".join(session.id for session in sessions)),
        ("Journal", journal.path.name),
    )
    return [(name, value) for name, value in facts if value]


def _headline(num_cases: int, num_failing: int, num_disturbed: int, num_unjudged: int) -> str:
    """Says "none failing" alone only where every case was held against something."""
    if not num_cases:
        return "No cases"
    unjudged = f"{num_unjudged} not compared yet" if num_unjudged else ""
    disturbed = f"{num_disturbed} disturbed" if num_disturbed else ""
    if num_failing:
        return ", ".join(filter(None, (f"{num_failing} of {_cases(num_cases)} failing", disturbed, unjudged)))
    if num_disturbed:
        return ", ".join(filter(None, (f"{num_disturbed} of {_cases(num_cases)} disturbed", unjudged)))
    return f"{_cases(num_cases)} measured, {unjudged or 'none failing'}"


def _against(cases: Cases, num_unjudged: int, before: Sequence[int]) -> str:
    """What the verdicts rest on."""
    kinds = Counter(record.judgement.verdict.kind for record in cases.records)
    compared = sum(kinds[kind] for kind in COMPARED)
    limits = sum(kinds[kind] for kind in (VerdictKind.PASSED, VerdictKind.FAILED))
    session_counts = [number for number in before if number]
    sessions = f" ({_span(session_counts)} of each failing case)" if session_counts else ""
    parts = [
        f"{compared} against accepted sessions{sessions}" if compared else "",
        f"{limits} against absolute limits" if limits else "",
        f"{kinds[VerdictKind.INVALID]} could not be measured" if kinds[VerdictKind.INVALID] else "",
        f"{kinds[VerdictKind.UNAVAILABLE]} unavailable on this device" if kinds[VerdictKind.UNAVAILABLE] else "",
        f"{num_unjudged} against nothing: too few sessions are accepted yet" if num_unjudged else "",
    ]
    return f"{'; '.join(part for part in parts if part) or 'Nothing was judged'}."


def _invalid(cases: Cases) -> Counter[str]:
    verdicts = (record.judgement.verdict for record in cases.records)
    return Counter(verdict.reason for verdict in verdicts if verdict.kind is VerdictKind.INVALID)


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _device_words(cases: Cases) -> str:
    """What the canary kernels say, which measure the device and nothing of the suites."""
    canaries = [record.judgement for record in cases.records if record.kind == "canary"]
    if not canaries:
        return "No canary kernel was measured, so a change of the device itself cannot be told from one of a case."
    kinds = Counter(said.verdict.kind.value for said in canaries)
    counts = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    repeats = [said.repeat_error for said in canaries if said.repeat_error is not None]
    worst = f"; they repeat within {max(repeats):.1%} or better" if repeats else ""
    return f"{len(canaries)} canary kernels: {counts}{worst}."


def _row(record: CaseRecord[Any], anchor: str, picture: str, common: Collection[str]) -> CaseRow:
    said, shown = record.judgement, run_row(record, "")
    kind = said.verdict.kind
    return CaseRow(
        anchor=anchor,
        picture=picture,
        id=f"{record.suite}/{record.kind}/{record.shown_id}",
        what=record.what,
        cells=(
            ("quartile", shown.quartile_text or number_text.UNKNOWN),
            ("change", shown.change_text or number_text.UNKNOWN),
            ("predicted", shown.predicted_text or number_text.UNKNOWN),
            ("measured", number_text.UNKNOWN if said.predicted_s is None else shown.measured_text),
            ("error %", number_text.percent(said.error, signed=said.predicted_s is not None)),
            ("repeat %", number_text.percent(said.repeat_error)),
        ),
        verdict=f"{kind.value} (resumed)" if record.resumed else kind.value,
        tone=tone_of(kind),
        reason=_reason(record) if said.verdict.failing or _reason(record) not in common else "",
        did=work_text(said.work),
        metrics=tuple(
            (f"{one.figure} {one.value_text} {one.change_text}".rstrip(), one.kind, tone_of(one.verdict.kind))
            for one in metric_rows(record)
        ),
    )


def _fingerprint_facts(fingerprint: Fingerprint) -> dict[str, str]:
    device, host = fingerprint.device, fingerprint.host
    facts: dict[str, str | None] = {
        "accelerator": device.name,
        "device class": device.device_class,
        "family": device.family,
        "driver": device.driver,
        "runtime": device.runtime,
        "compiler": device.compiler,
        "firmware": device.firmware,
        "power policy": device.power_policy,
        "clock policy": device.clock_policy,
        **{f"device {name}": value for name, value in device.extra},
        "host": host.name,
        "host processor": f"{host.cpu_model}, {host.num_cores} cores usable",
        "system": host.system,
        "python": host.python,
        "libraries": ", ".join(f"{name} {version}" for name, version in host.libraries),
        "git revision": host.git_revision,
    }
    return {name: "unknown" if value is None else value for name, value in facts.items()}


def _distinct(values: Iterable[object]) -> str:
    """Joins the values that are known, each once."""
    return ", ".join(dict.fromkeys(str(value) for value in values if value))


def _cases(num: int) -> str:
    return f"{num} case" if num == 1 else f"{num} cases"
