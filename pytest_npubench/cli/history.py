"""`npubench history`: upload journals into a database, list its sessions, show trends and changes of level."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import (
    Commands,
    add_command,
    add_json_option,
    columns,
    entry_count,
    history_url,
    print_document,
    say,
    sparkline,
)
from pytest_npubench.errors import HistoryError, did_you_mean
from pytest_npubench.plain_text import counted, plain
from pytest_npubench.store.history import DEFAULT_URL

if TYPE_CHECKING:
    from pytest_npubench.store.history import SeriesRow, SessionRow
    from pytest_npubench.store.history.trend import Point, Series, TrendChange

NUM_LISTED = 20
CHANGED = {"regressed", "improved"}


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "history", about, "npubench history list")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    upload = add_command(
        actions, "upload", "put journals into the history", "npubench history upload .npubench/journal.jsonl"
    )
    upload.add_argument("journals", metavar="JOURNAL", nargs="+", type=Path, help="a journal; again is no harm")
    add_json_option(upload)
    upload.set_defaults(run=run_upload)
    listing = add_command(actions, "list", "the sessions, newest first", "npubench history list --where host=bench-1")
    listing.add_argument(
        "--limit",
        metavar="N",
        type=entry_count,
        default=NUM_LISTED,
        help="at most N (default: %(default)s)",
    )
    listing.set_defaults(run=run_list)
    show = add_command(
        actions,
        "show",
        "the trend of a case, session by session",
        "npubench history show buckets/profile/cpu-tiny-llama-b1-bucket128 --metric tbt_s",
    )
    show.add_argument("case", metavar="CASE", help="SUITE/KIND/ID, ID, or a short name")
    show.add_argument("--metric", metavar="M", help="this metric only")
    show.set_defaults(run=run_show)
    changes = add_command(
        actions, "changes", "where a metric changed its level for good", "npubench history changes --since 2026-11-01"
    )
    changes.set_defaults(run=run_changes)
    for action in (upload, listing, show, changes):
        action.add_argument(
            "--history",
            metavar="URL",
            default="",
            type=history_url,
            help=f"path.db or postgresql://... (default: that of runs in this folder, else {DEFAULT_URL})",
        )
    for action in (listing, show, changes):
        action.add_argument("--since", metavar="DATE", type=moment, help="from this day on (ISO 8601; UTC)")
        action.add_argument(
            "--where",
            metavar="PART=VALUE",
            type=part,
            action="append",
            default=[],
            help="only this driver, runtime, compiler, host, git_revision, ...; may be repeated",
        )
        add_json_option(action)


def run_upload(arguments: argparse.Namespace) -> None:
    """Uploads journals. Raises JournalError for an unreadable journal, HistoryError where the history refuses."""
    from pytest_npubench.store.history import upload_journal
    from pytest_npubench.store.journal_reader import read_journal

    uploaded = []
    for path in arguments.journals:
        journal = read_journal(path)
        done = upload_journal(arguments.history, journal)
        if arguments.json:
            uploaded.append({"journal": path, **asdict(done), "left_out": journal.left_out if journal.damage else None})
            continue
        which = f"({done.num_new_sessions} new, {done.num_grown_sessions} grown)"
        sessions, cases = counted(done.num_sessions, "session"), counted(done.num_cases, "case")
        say(f"uploaded {path}: {sessions} {which}, {cases} and {counted(done.num_metrics, 'metric')} written")
        if journal.damage:
            say(journal.left_out)
    if arguments.json:
        print_document("history-uploaded", journals=uploaded)


def run_list(arguments: argparse.Namespace) -> None:
    """Prints sessions. Raises HistoryError, and ConfigError for an unknown part."""
    from pytest_npubench.comparison.night_shards import NIGHT, in_doubt_together
    from pytest_npubench.store.history import history_series, history_sessions

    sessions = history_sessions(arguments.history, dict(arguments.where), since=arguments.since, limit=arguments.limit)
    changed = {row.session: moment(row.started_at) for row in sessions if CHANGED & row.verdicts.keys()}
    rows = history_series(arguments.history, since=min(changed.values()) - NIGHT) if changed else ()
    doubts = [doubt for doubt in in_doubt_together(rows) if doubt.session in changed]
    if arguments.json:
        print_document("history-sessions", sessions=list(map(asdict, sessions)), in_doubt=list(map(asdict, doubts)))
        return
    header = ("STARTED", "SESSION", "HOST", "REVISION", "EXIT", "CASES", "DEVICES")
    print(columns([header, *map(_session_cells, sessions)]) if sessions else "no sessions")
    for doubt in doubts:
        say(str(doubt))


def run_show(arguments: argparse.Namespace) -> None:
    """Prints trends. Raises HistoryError, also for a case or metric without values; ConfigError as `list`."""
    from pytest_npubench.store.history.trend import changes_of, series_of

    since = "" if arguments.since is None else _utc(arguments.since)
    recent = [item for item in series_of(_rows(arguments)) if item.points[-1].started_at >= since]
    if arguments.json:
        series = [asdict(item) | {"changes": list(map(asdict, changes_of(item)))} for item in recent]
        print_document("history-series", series=series)
        return
    print("\n\n".join(_trend(item, changes_of(item), since) for item in recent) or "no session since then")


def run_changes(arguments: argparse.Namespace) -> None:
    """Prints the changes of level. Raises HistoryError and ConfigError as `list`."""
    from pytest_npubench.store.history import history_series
    from pytest_npubench.store.history.trend import changes_of, series_of

    series = series_of(history_series(arguments.history, where=dict(arguments.where)))
    since = "" if arguments.since is None else _utc(arguments.since)
    changes = [change for item in series for change in changes_of(item) if change.started_at >= since]
    changes.sort(key=lambda change: change.started_at, reverse=True)
    if arguments.json:
        print_document("history-changes", changes=list(map(asdict, changes)))
        return
    header = ("STARTED", "CASE", "METRIC", "DEVICE CLASS", "CHANGE", "STACK")
    rows = [
        (item.started_at, item.case, item.metric, item.device_class, _level(item), "; ".join(item.stack) or "the same")
        for item in changes
    ]
    print(columns([header, *rows]) if rows else f"no change of level in {len(series)} series")


def moment(text: str) -> datetime:
    """A day or a time of day, in UTC unless the text says otherwise."""
    from pytest_npubench.store.history import moment_in_utc

    try:
        return moment_in_utc(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: want a date such as 2026-11-21 or 2026-11-21T13:00") from None


def part(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (separator and name and value):
        raise argparse.ArgumentTypeError(f"{text!r}: want PART=VALUE, such as driver=570.86")
    return name, value


def _rows(arguments: argparse.Namespace) -> tuple[SeriesRow, ...]:
    """The rows of a case. Raises HistoryError with the cases that are there where this one is not."""
    from pytest_npubench.core.short_id import named, not_one
    from pytest_npubench.store.history import history_series
    from pytest_npubench.store.history.address import shown_address

    where, history = dict(arguments.where), f"history {shown_address(arguments.history)}"
    case, rows = arguments.case, history_series(arguments.history, arguments.case, where=where)
    if not rows:  # all others are read only for a short name, and to say what there is
        everything = history_series(arguments.history, where=where)
        cases = {row.case for row in everything}
        matching = named(case, cases)
        if len(matching) != 1:
            raise HistoryError(f"{history}: {not_one(case, matching, cases, nothing='nothing was measured for')}")
        case, rows = matching[0], tuple(row for row in everything if row.case == matching[0])
    if chosen := tuple(row for row in rows if arguments.metric in (None, row.metric)):
        return chosen
    metrics = sorted({row.metric for row in rows})
    hint = did_you_mean(arguments.metric, metrics)
    raise HistoryError(f"{history}: {case} has no metric {arguments.metric!r}; it has {', '.join(metrics)}{hint}")


def _trend(series: Series, changes: Sequence[TrendChange], since: str) -> str:
    from pytest_npubench.reports.number_text import figures

    levels = {change.session: change for change in changes}
    rows = []
    medians = figures([point.median for point in series.points], series.unit)
    for point, median in zip(series.points, medians, strict=True):
        notes = [*_standing(point), *point.stack]
        if point.session in levels:
            notes.insert(0, f"CHANGE {_level(levels[point.session])}")
        if point.started_at >= since:
            cells = (point.started_at, point.session, point.host or "", median)
            rows.append((*cells, str(point.num_samples), "; ".join(notes)))
    header = ("STARTED", "SESSION", "HOST", "MEDIAN", "SAMPLES", "WHAT CHANGED")
    bars = sparkline([point.median for point in series.points], flat="▄")
    return "\n".join(
        [
            plain(f"{series.case}  {series.metric} ({series.better} is better)"),
            plain(f"{series.device_class}, digest {series.digest}  {bars}"),
            columns([header, *rows]),
        ]
    )


def _standing(point: Point) -> list[str]:
    """What the run said of a point's change: that it is there, or that it is gone."""
    from pytest_npubench.comparison.change_origin import day_of

    if point.since is not None:
        return [f"{point.compared} since {day_of(point.since)}"]
    return [f"as before {day_of(point.gone)} again"] if point.gone is not None else []


def _level(change: TrendChange) -> str:
    from pytest_npubench.reports import number_text

    text = " -> ".join(number_text.figures((change.before, change.after), change.unit))
    return f"{text} ({number_text.change(change.ratio - 1, digits=1)}, {'worse' if change.worse else 'better'})"


def _session_cells(row: SessionRow) -> tuple[str, ...]:
    verdicts = ", ".join(f"{number} {kind}" for kind, number in row.verdicts.items())
    devices = "; ".join(dict.fromkeys(f"{key.device_class}, driver {key.driver or 'unknown'}" for key in row.keys))
    status = "none" if row.exit_status is None else str(row.exit_status)
    return row.started_at, row.session, row.host or "", row.git_revision or "", status, verdicts or "none", devices


def _utc(since: datetime) -> str:
    """Formats a time as the history writes the start of a session."""
    return since.isoformat(timespec="seconds")
