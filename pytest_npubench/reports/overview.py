"""The head of a report: how the run went, when and from which revision, who measured, and one row a case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pytest_npubench.errors import JournalError
from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import CaseRow, Overview, Table, tone_of
from pytest_npubench.reports.record_fields import Record, number, table, text, what_of
from pytest_npubench.stats.error import summarise
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal_reader import Journal, Session

_ORDER = {"bad": 0, "neutral": 1, "good": 2}


def sessions_of(records: Sequence[Record], journal: Journal) -> tuple[Session, ...]:
    """The sessions that wrote these case records, the latest for a record that several sessions wrote alike."""
    latest = {_identity(record): record["session"] for record in journal.records if record["record"] == "case"}
    ids = {text(record, "session") or latest.get(_identity(record)) for record in records}
    return tuple(session for session in journal.sessions if session.id in ids)


def overview(records: Sequence[Record], journal: Journal) -> Overview:
    sessions = sessions_of(records, journal)
    counts = Counter(verdict_of(record) for record in records)
    num_failing = sum(number for kind, number in counts.items() if tone_of(kind) == "bad")
    headline = (
        f"{num_failing} of {_cases(len(records))} failing" if num_failing else f"{_cases(len(records))}, none failing"
    )
    return Overview(
        headline=headline if records else "No cases",
        tone="bad" if num_failing else "good" if records else "neutral",
        counts=tuple(
            (kind, tone_of(kind), number)
            for kind, number in sorted(counts.items(), key=lambda item: (_ORDER[tone_of(item[0])], item[0]))
        ),
        facts=(*_error_facts(records), *_run_facts(records, sessions, journal)),
    )


def case_rows(records: Sequence[Record]) -> tuple[CaseRow, ...]:
    """One row a case, failing ones first, otherwise in the order given."""
    return tuple(map(_row, sorted(records, key=lambda record: _ORDER[tone_of(verdict_of(record))])))


def device_table(records: Sequence[Record], journal: Journal) -> tuple[Table | None, tuple[str, ...]]:
    """The fingerprints of the records side by side, a column each, and a remark for each one that cannot be shown."""
    columns: list[tuple[str, dict[str, str]]] = []
    remarks: list[str] = []
    for digest in dict.fromkeys(text(record, "fingerprint") for record in records):
        own = [record for record in records if text(record, "fingerprint") == digest]
        devices = ", ".join(dict.fromkeys(filter(None, (text(record, "device") for record in own)))) or "no device"
        try:
            facts = _fingerprint_facts(journal.fingerprint(digest)) if digest else None
        except JournalError as error:
            facts = None
            remarks.append(str(error))
        if facts is not None:
            hardware = ", ".join(dict.fromkeys(text(record, "hardware") for record in own))
            columns.append((devices, {"hardware file": hardware, **facts, "fingerprint": digest}))
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


def verdict_of(record: Record) -> str:
    return text(table(record, "verdict"), "kind") or "unknown"


def _error_facts(records: Sequence[Record]) -> list[tuple[str, str]]:
    judged = [
        (value, number(record, "repeat_error"))
        for record in records
        if (value := number(table(table(record, "metrics"), "prediction_error"), "value")) is not None
    ]
    if not judged:
        return []
    summary = summarise([value for value, _ in judged])
    repeats = [repeat for _, repeat in judged if repeat is not None]
    error = f"{summary.mean:.2%} (median {summary.median:.2%}, max {summary.max:.2%}, {_cases(summary.num_cases)})"
    facts = [("Mean prediction error", error)]
    return [*facts, ("Mean repeat error", f"{sum(repeats) / len(repeats):.2%}")] if repeats else facts


def _run_facts(records: Sequence[Record], sessions: Sequence[Session], journal: Journal) -> list[tuple[str, str]]:
    settings = [table(session.header, "settings") for session in sessions]
    hosts = [table(session.header, "host") for session in sessions]
    durations = [seconds for record in records if (seconds := number(record, "duration_s")) is not None]
    facts = (
        ("Profile", _distinct(text(item, "profile") for item in settings)),
        (
            "Started",
            _distinct(
                text(session.header, "started_at").replace("T", " ").replace("+00:00", " UTC") for session in sessions
            ),
        ),
        ("Time in cases", number_text.duration(sum(durations)) if durations else ""),
        ("Git revision", _distinct(text(host, "git_revision") for host in hosts)),
        ("pytest-npubench", _distinct(text(host, "plugin_version") for host in hosts)),
        ("Session", ", ".join(session.id for session in sessions)),
        ("Journal", journal.path.name),
    )
    return [(name, value) for name, value in facts if value]


def _row(record: Record) -> CaseRow:
    kind, error = verdict_of(record), number(record, "error")
    device = text(record, "device")
    predicted_s = number(record, "predicted_s")
    return CaseRow(
        id=text(record, "id") if not device or device.endswith(":0") else f"{text(record, 'id')} on {device}",
        what=what_of(record),
        cells=(
            ("measured ms", number_text.milliseconds(number(record, "measured_s"))),
            ("predicted ms", number_text.milliseconds(predicted_s)),
            ("error %", number_text.percent(error, signed=predicted_s is not None)),
            ("repeat %", number_text.percent(number(record, "repeat_error"))),
        ),
        verdict=f"{kind} (resumed)" if record.get("resumed") is True else kind,
        tone=tone_of(kind),
        reason=text(table(record, "verdict"), "reason"),
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


def _identity(record: Record) -> tuple[Any, ...]:
    return tuple(text(record, name) for name in ("case", "digest", "fingerprint", "device"))


def _distinct(values: Any) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))


def _cases(num: int) -> str:
    return f"{num} case" if num == 1 else f"{num} cases"
