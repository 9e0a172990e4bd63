"""What happens with a run's results at its end: accepted as a baseline session, written as a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_npubench.plugin.settings import Settings
from pytest_npubench.store.baselines import Baselines, CaseResult, MetricResult
from pytest_npubench.store.journal import Journal, read_journal

Record = Mapping[str, Any]
GREEN = frozenset({"passed", "unchanged", "improved", "no-baseline"})


def accept_results(settings: Settings, exit_status: int, records: Sequence[Record]) -> str:
    """Add a green run to the baselines; says in words what was done, or why nothing was.

    Raises StoreError where a baseline or the journal cannot be read or written.
    """
    records = [record for record in records if not record["resumed"]]  # an earlier run's samples are not a new session
    red = [record["id"] for record in records if record["verdict"]["kind"] not in GREEN]
    if exit_status or red or not records:
        why = f"{len(red)} cases are not green" if red else "no case ran" if not records else "the run was not green"
        return f"nothing accepted: {why}"
    journal = read_journal(settings.journal)
    settings.baselines.mkdir(parents=True, exist_ok=True)
    baselines = Baselines.load(settings.baselines)
    paths: set[Path] = set()
    by_place: dict[tuple[str, str], list[CaseResult]] = {}
    for record in records:
        if record["metrics"]:
            by_place.setdefault((record["fingerprint"], record["device"]), []).append(_result(record))
    for (digest, device), results in by_place.items():  # one session has one result of a case, so one for each device
        session = _session_of(journal, digest) + (f"@{device}" if len(by_place) > 1 else "")
        paths.update(baselines.accept(results, session=session, key=journal.fingerprint(digest).key()))
    return f"accepted {len(records)} cases into {', '.join(sorted(map(str, paths))) or 'files that held them already'}"


def _session_of(journal: Journal, digest: str) -> str:
    """The latest session that measured on this fingerprint: the acceptance's name for this run."""
    devices = [record for record in journal.records if record["record"] == "device" and record["digest"] == digest]
    return str(devices[-1]["session"])


def _result(record: Record) -> CaseResult:
    return CaseResult(
        hardware=record["hardware"],
        case=record["case"],
        digest=record["digest"],
        metrics=tuple(
            MetricResult(
                name=name,
                unit=metric["unit"],
                better=metric["better"],
                processes=(tuple(metric["samples"]) or (metric["value"],),),
            )
            for name, metric in record["metrics"].items()
        ),
    )


def write_report(path: Path, records: Sequence[Record], journal: Path) -> str:
    """Write the HTML report. Raises OSError; without the report extra it says what to install."""
    try:
        from pytest_npubench.reports.html import render_html
    except ImportError as error:
        return f"no HTML report: {error.name} is not installed: pip install pytest-npubench[report]"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_html(records, read_journal(journal)), encoding="utf-8")
    return f"HTML report: {path}"
