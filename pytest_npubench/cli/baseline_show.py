"""`npubench baseline show`: the accepted sessions of one case, as the judge sees them, with their trend.

A session's figure is the one that is judged: of times and rates the better quartile, of differences the median, of
several processes their median. Spread is the distance of the quartiles of all its samples over the median of the
processes' medians; change is against the median of the anchor's figures.
Worked example: processes (1, 2, 3) and (3, 4, 5) have the lower quartiles 1.5 and 3.5, so the figure of a time is 2.5;
the quartiles of 1, 2, 3, 3, 4, 5 are 2.25 and 3.75, so the spread is 1.5 / 3 = 50 %.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pytest_npubench.cli.arguments import Commands, add_command, columns, print_document, sparkline
from pytest_npubench.cli.baseline_list import stack_text
from pytest_npubench.core.short_id import named, not_one
from pytest_npubench.errors import BaselineError
from pytest_npubench.reports import number_text
from pytest_npubench.reports.run_rows import judged_at, judged_level

if TYPE_CHECKING:
    from pytest_npubench.store.accepted_session import AcceptedSession, KeptSamples, Quantity
    from pytest_npubench.store.baseline_format import BaselineFile
    from pytest_npubench.store.baselines import Baselines

HEADER = ("SESSION", "ACCEPTED", "REVISION", "QUARTILE", "SPREAD", "CHANGE", "")
OF_DIFFERENCES = "ERROR"


def add_parser(actions: Commands) -> argparse.ArgumentParser:
    example = "npubench baseline show buckets/profile/cpu-tiny-llama-b4-bucket128"
    parser = add_command(actions, "show", "show the accepted sessions of a case", example)
    parser.add_argument(
        "case", metavar="CASE", help="SUITE/KIND/ID, ID, or a name in a run's table, where only one case has it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Prints the sessions. Raises BaselineError unless exactly one case is meant and all files can be read."""
    from pytest_npubench.store.baselines import Baselines

    loaded = Baselines.load(arguments.baselines)
    case = _named(loaded, arguments.case)
    answer = {
        "case": case,
        "renamed_to": _renamed_to(loaded, case),
        "reset": _reset(loaded, case),
        "keys": _keys(loaded, case),
    }
    if arguments.json:
        print_document("baseline", **answer)
    else:
        print("\n".join(_lines(answer)))


def _named(loaded: Baselines, wanted: str) -> str:
    """Finds the case's key. A new name under which nothing was accepted yet counts: it has its old name's sessions."""
    keys = {name for file in loaded.files for name in (*file.cases, *file.resets)}
    keys |= {loaded.aliases.latest_name(name) for name in keys}
    matching = named(wanted, keys)
    if len(matching) == 1:
        return matching[0]
    why = not_one(wanted, matching, keys, nothing="no session was accepted for")
    raise BaselineError(f"baselines {loaded.directory}: {why}")


def _renamed_to(loaded: Baselines, case: str) -> str | None:
    latest = loaded.aliases.latest_name(case)
    return None if latest == case else latest


def _reset(loaded: Baselines, case: str) -> dict[str, str] | None:
    """The latest reset of the case by a person, on any device."""
    resets = [reset for file in loaded.files if (reset := loaded.reset_of(case, file.key)) is not None]
    return asdict(max(resets, key=lambda reset: reset.time)) if resets else None


def _keys(loaded: Baselines, case: str) -> list[dict[str, Any]]:
    """One entry for each key that has sessions of the case, sorted by the key's first session."""
    entries = []
    for key in dict.fromkeys(file.key for file in loaded.files):
        files = [file for file in loaded.files if file.key == key]
        digest = _digest(loaded, files, case)
        for history in loaded.histories(case, key, digest=digest):
            names = [name for name, _ in loaded.aliases.names(case, digest)]
            accepted = [file.cases[name].metrics for file in files for name in names if name in file.cases]
            quantities = {metric: quantity for metrics in accepted for metric, quantity in metrics.items()}
            rejected = {name: asdict(item) for file in files for name, item in sorted(file.rejected.items())}
            about = {"key": key.digest(), "stack": key.to_json(), "digest": digest, "rejected": rejected}
            about["frozen"] = dict(loaded.frozen(case, key, digest=digest))
            metrics = {
                metric: {**quantity.to_json(), "sessions": _rows(metric, quantity, history)}
                for metric, quantity in sorted(quantities.items())
                if quantity.gate != "answers"  # a vector, of which a median says nothing
            }
            entries.append((history[0].accepted_time, about | {"metrics": metrics}))
    return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]


def _digest(loaded: Baselines, files: Iterable[BaselineFile], case: str) -> str:
    """The digest of the case in these files. Where only its old name is there, its alias's digest, or ""."""
    digests = [file.cases[case].digest for file in files if case in file.cases]
    old = loaded.aliases.old_name(case)
    return digests[0] if digests else (loaded.aliases.entries[old].case_digest or "" if old else "")


def _rows(metric: str, quantity: Quantity, history: Sequence[AcceptedSession]) -> list[dict[str, Any]]:
    level = judged_level(quantity)
    kept = [(session, session.metrics[metric]) for session in history if metric in session.metrics]
    anchor = [judged_at(samples.processes, level) for session, samples in kept if session.anchor]
    reference = statistics.median(anchor) if anchor else 0.0
    return [_row(session, samples, judged_at(samples.processes, level), reference) for session, samples in kept]


def _row(session: AcceptedSession, kept: KeptSamples, judged: float, reference: float) -> dict[str, Any]:
    return {
        "session": session.session,
        "accepted_at": session.accepted_at,
        "git_revision": session.git_revision,
        "anchor": session.anchor,
        "reason": session.reason,
        "num_processes": len(kept.processes),
        "judged": judged,
        "median": _median(kept),
        "spread": spread(kept),
        "change": judged / reference - 1 if reference else None,
    }


def _median(kept: KeptSamples) -> float:
    return statistics.median(map(statistics.median, kept.processes))


def spread(kept: KeptSamples) -> float | None:
    """The distance of the quartiles over the median; None for a single sample and for a median of 0."""
    samples, median = [value for process in kept.processes for value in process], _median(kept)
    if len(samples) < 2 or not median:
        return None
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / abs(median)


def _lines(answer: dict[str, Any]) -> list[str]:
    lines = [answer["case"]]
    if answer["renamed_to"]:
        lines.append(f"renamed to {answer['renamed_to']}")
    if answer["reset"]:
        lines.append(f"reset on {answer['reset']['reset_at'][:10]}: {answer['reset']['reason']}")
    for entry in answer["keys"]:
        lines += ["", f"key {entry['key']}: {stack_text(entry['stack'])}"]
        for name, metric in entry["metrics"].items():
            lines += ["", *_metric_lines(name, metric)]
        lines += [f"frozen  {name} {value:g}" for name, value in entry["frozen"].items()]
        lines += [_rejected_line(name, item) for name, item in entry["rejected"].items()]
    return lines


def _metric_lines(name: str, metric: dict[str, Any]) -> list[str]:
    unit, sessions = metric["unit"], metric["sessions"]
    if not sessions:
        return [f"{name}: no session has it"]
    rows = [
        (
            session["session"],
            session["accepted_at"][:10],
            session["git_revision"] or "unknown",
            number_text.figure(session["judged"], unit),
            "unknown" if session["spread"] is None else f"{session['spread'] * 100:.1f} %",
            "unknown" if session["change"] is None else number_text.change(session["change"], digits=1),
            ", ".join(filter(None, ("anchor" if session["anchor"] else "", session["reason"]))),
        )
        for session in sessions
    ]
    judged = [session["judged"] for session in sessions]
    low, high = number_text.figures((min(judged), max(judged)), unit)
    header = [OF_DIFFERENCES if text == "QUARTILE" and metric["gate"] == "difference" else text for text in HEADER]
    return [f"{name}  {sparkline(judged)}  {low} to {high}", columns([tuple(header), *rows])]


def _rejected_line(session: str, item: dict[str, str]) -> str:
    why = f": {item['reason']}" if item["reason"] else ""
    return f"rejected  {session} on {item['rejected_at'][:10]}{why}"
