"""The head of a report: how the run went, when and from which revision, who measured, and one row a case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_npubench.errors import JournalError
from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import CaseRow, Overview, Table, tone_of
from pytest_npubench.stats.error import summarise
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal_reader import Journal, Session
from pytest_npubench.verdict.case_record import CaseRecord, Cases

_ORDER = {"bad": 0, "neutral": 1, "good": 2}


def sessions_of(cases: Cases, journal: Journal) -> tuple[Session, ...]:
    """The sessions that wrote these cases, the latest for one that several sessions wrote alike."""
    latest = {
        (record["case"], record["digest"], record["fingerprint"], record.get("device") or ""): record["session"]
        for record in journal.records
        if record["record"] == "case"
    }
    ids = {
        record.session or latest.get((record.key, record.digest, record.fingerprint, record.device))
        for record in cases.records
    }
    return tuple(session for session in journal.sessions if session.id in ids)


def sessions_up_to(cases: Cases, journal: Journal) -> frozenset[str]:
    """The cases' sessions and all before them: a resumed campaign has its rounds in an earlier session."""
    ids = [session.id for session in journal.sessions]
    own = {session.id for session in sessions_of(cases, journal)}
    last = max((place for place, name in enumerate(ids) if name in own), default=len(ids) - 1)
    return frozenset(ids[: last + 1])


def overview(cases: Cases, journal: Journal) -> Overview:
    counts = Counter(record.judgement.verdict.kind for record in cases.records)
    num_cases, num_failing = len(cases.records), sum(counts[kind] for kind in counts if tone_of(kind) == "bad")
    headline = f"{num_failing} of {_cases(num_cases)} failing" if num_failing else f"{_cases(num_cases)}, none failing"
    return Overview(
        headline=headline if num_cases else "No cases",
        tone="bad" if num_failing else "good" if num_cases else "neutral",
        counts=tuple(
            (kind.value, tone_of(kind), number)
            for kind, number in sorted(counts.items(), key=lambda item: (_ORDER[tone_of(item[0])], item[0].value))
        ),
        facts=(*_error_facts(cases), *_run_facts(cases, sessions_of(cases, journal), journal)),
    )


def case_rows(cases: Cases) -> tuple[CaseRow, ...]:
    """One row a case, failing ones first, otherwise in the order given."""
    return tuple(map(_row, sorted(cases.records, key=lambda record: _ORDER[tone_of(record.judgement.verdict.kind)])))


def device_table(cases: Cases, journal: Journal) -> tuple[Table | None, tuple[str, ...]]:
    """The fingerprints of the cases side by side, a column each, and a remark for each one that cannot be shown."""
    columns: list[tuple[str, dict[str, str]]] = []
    remarks: list[str] = []
    for digest in dict.fromkeys(record.fingerprint for record in cases.records):
        own = [record for record in cases.records if record.fingerprint == digest]
        devices = _distinct(record.device for record in own) or "no device"
        try:
            facts = _fingerprint_facts(journal.fingerprint(digest)) if digest else None
        except JournalError as error:
            facts = None
            remarks.append(str(error))
        if facts is not None:
            hardware = _distinct(record.hardware for record in own)
            columns.append((devices, {"hardware file": hardware, **facts, "fingerprint": digest or ""}))
        elif not digest:
            remarks.append(
                f"{_cases(len(own))} of {devices} ended before a device was open, so no fingerprint is known."
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
    """Of the cases that were held to a prediction error."""
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


def _row(record: CaseRecord[Any]) -> CaseRow:
    said = record.judgement
    kind = said.verdict.kind
    return CaseRow(
        id=record.shown_id,
        what=record.what,
        cells=(
            ("measured ms", number_text.milliseconds(said.measured_s)),
            ("predicted ms", number_text.milliseconds(said.predicted_s)),
            ("error %", number_text.percent(said.error, signed=said.predicted_s is not None)),
            ("repeat %", number_text.percent(said.repeat_error)),
        ),
        verdict=f"{kind.value} (resumed)" if record.resumed else kind.value,
        tone=tone_of(kind),
        reason=said.verdict.reason,
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
    """Those that are known, each once."""
    return ", ".join(dict.fromkeys(str(value) for value in values if value))


def _cases(num: int) -> str:
    return f"{num} case" if num == 1 else f"{num} cases"
