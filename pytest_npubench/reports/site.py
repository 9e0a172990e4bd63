"""The site of a history: static pages of the fleet's last verdicts, of what changed, and of every case's trend.

The pages need no server: they open from a folder, load nothing but the three files beside them, and run no script that
came with the data. `site_files` hands out one file at a time, index.html last, so that a site is never half new without
its old first page.

Worked example: of a history with one case "buckets/profile/cpu-b1" the files are style.css, page.js, trend.js,
cases/buckets-profile-cpu-b1-HASH.html and index.html.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import jinja2

from pytest_npubench.plain_text import counted, plain
from pytest_npubench.reports.html import environment
from pytest_npubench.reports.overview import UNJUDGED
from pytest_npubench.reports.page import tone_of
from pytest_npubench.reports.run_rows import WORST_FIRST
from pytest_npubench.reports.trends import DAY, NamedChange, Trend, compact_json, stacks
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.history import history_series, latest_cases
from pytest_npubench.store.history.address import Address, parse_address
from pytest_npubench.store.history.records import LatestCase
from pytest_npubench.store.history.trend import series_of
from pytest_npubench.verdict import FAILING, VerdictKind

MARK, INDEX, CASES = "npubench site", "index.html", "cases"
"""The mark stands at the head of every file of a site, and tells it from a file of somebody else."""
SHARED = ("style.css", "page.js", "trend.js")
QUIET = timedelta(days=14)
"""A case that its device has not measured for so long, while it measured others of the suite, is no longer counted."""
MOST_CHANGES = 1000
SPARK_POINTS, SPARK_WIDTH, SPARK_HEIGHT = 48, 120, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The last verdicts of one suite on one device: (verdict, tone, number of cases), the worst first, and the day."""

    number: int
    verdicts: tuple[tuple[str, str, int], ...]
    day: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A hardware file's device on a host, with a cell for each suite of the fleet; None where nothing was measured."""

    hardware: str
    host: str
    device_classes: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLine:
    """A case on one device: its last verdict, and of the metric that matters most the last median and its course."""

    case: str
    page: str
    what: str
    cell: int
    tone: str
    verdict: str
    reason: str
    day: str
    figure: str
    spark: str


def site_files(url: str | Address, baselines: Baselines | None, written_at: datetime) -> Iterator[tuple[str, str]]:
    """The path and the text of each file. `baselines` are the accepted sessions that trends show. Raises HistoryError,
    and StoreError for what of the history cannot be read."""
    address = parse_address(url)
    templates = environment()
    latest = latest_cases(address)
    cells = _cells(latest)
    for name in SHARED:
        assert templates.loader is not None
        yield name, f"/* {MARK} */\n{templates.loader.get_source(templates, name)[0]}"
    template = templates.get_template("trend.html.jinja")
    lines: list[CaseLine] = []
    changes: list[tuple[str, NamedChange]] = []
    sessions: dict[str, str] = {}
    for case, records in _by_case(latest).items():
        trends = [Trend.of(series, baselines) for series in series_of(history_series(address, case))]
        sessions |= {point.session: point.started_at for trend in trends for point in trend.series.points}
        path = page_path(case)
        changes += [(path, change) for trend in trends for change in trend.changes]
        lines += [_line(record, cells, path, trends) for record in records]
        yield path, _case_page(template, case, records, trends, written_at)
    yield INDEX, _index(templates.get_template("site.html.jinja"), latest, cells, lines, changes, sessions, written_at)


def page_path(case: str) -> str:
    """A name that every file system takes, the same in every night, and of no other case."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", case).strip("-")[:80]
    return f"{CASES}/{readable}-{hashlib.sha256(case.encode()).hexdigest()[:8]}.html"


def _by_case(latest: Sequence[LatestCase]) -> Mapping[str, list[LatestCase]]:
    by_case: dict[str, list[LatestCase]] = {}
    for record in sorted(latest, key=lambda record: (record.case, record.device_row)):
        by_case.setdefault(record.case, []).append(record)
    return by_case


def _cells(latest: Sequence[LatestCase]) -> Mapping[tuple[str, str, str], Cell]:
    """(hardware, host, suite) -> its last verdicts."""
    of_cell: dict[tuple[str, str, str], list[LatestCase]] = {}
    for record in sorted(latest, key=lambda record: (record.device_row, record.suite)):
        of_cell.setdefault((*record.device_row, record.suite), []).append(record)
    return {key: _cell(number, records) for number, (key, records) in enumerate(of_cell.items())}


def _cell(number: int, records: Sequence[LatestCase]) -> Cell:
    day = max(record.started_at for record in records)[:DAY]
    counts = Counter(record.verdict for record in records if not _is_quiet(record, day))
    ordered = sorted(counts, key=_rank)
    return Cell(number=number, verdicts=tuple((kind, _tone(kind), counts[kind]) for kind in ordered), day=day)


def _is_quiet(record: LatestCase, day: str) -> bool:
    return datetime.fromisoformat(record.started_at[:DAY]) < datetime.fromisoformat(day) - QUIET


def _rank(verdict: str) -> int:
    """The place of a verdict among all, the worst first."""
    return next((place for place, kind in enumerate(WORST_FIRST) if kind.value == verdict), len(WORST_FIRST))


def _tone(verdict: str) -> str:
    return next((tone_of(kind) for kind in VerdictKind if kind.value == verdict), "neutral")


def _line(
    record: LatestCase, cells: Mapping[tuple[str, str, str], Cell], path: str, trends: Sequence[Trend]
) -> CaseLine:
    key = (*record.device_row, record.suite)
    cell = cells[key]
    on_device = [trend for trend in trends if trend.series.device_class == record.device_class]
    leading = min(on_device, key=lambda trend: (trend.age, _rank(trend.last_verdict)), default=None)
    is_quiet = _is_quiet(record, cell.day)
    return CaseLine(
        case=record.case,
        page=path,
        what=" ".join(filter(None, (record.hardware, record.device, "on", record.device_row[1]))),
        cell=cell.number,
        tone="neutral" if is_quiet else _tone(record.verdict),
        verdict="no longer measured" if is_quiet else record.verdict,
        reason=record.reason or "",
        day=record.started_at[:DAY],
        figure="" if leading is None else f"{leading.series.metric} {leading.last_figure}",
        spark="" if leading is None else _spark([point.median for point in leading.series.points]),
    )


def _spark(medians: Sequence[float]) -> str:
    """The path of the last medians, in units of its picture; empty for one alone."""
    shown = medians[-SPARK_POINTS:]
    low, high = min(shown), max(shown)
    if len(shown) < 2:
        return ""
    wide, tall = SPARK_WIDTH / (len(shown) - 1), (SPARK_HEIGHT - 4) / (high - low or 1.0)
    return "M" + "L".join(
        f"{place * wide:.0f} {SPARK_HEIGHT - 2 - (value - low) * tall:.0f}" for place, value in enumerate(shown)
    )


def _index(
    template: jinja2.Template,
    latest: Sequence[LatestCase],
    cells: Mapping[tuple[str, str, str], Cell],
    lines: Sequence[CaseLine],
    changes: list[tuple[str, NamedChange]],
    sessions: Mapping[str, str],
    written_at: datetime,
) -> str:
    suites = tuple(dict.fromkeys(sorted(suite for _, _, suite in cells)))
    devices: dict[tuple[str, str], set[str]] = {}
    for record in latest:
        devices.setdefault(record.device_row, set()).update(filter(None, [record.device_class]))
    rows = [
        DeviceRow(
            hardware=hardware,
            host=host,
            device_classes=", ".join(sorted(classes)),
            cells=tuple(cells.get((hardware, host, suite)) for suite in suites),
        )
        for (hardware, host), classes in sorted(devices.items())
    ]
    counts = Counter[str]()
    for cell in cells.values():
        counts.update({kind: number for kind, _, number in cell.verdicts})
    changes.sort(key=lambda item: (item[1].stands, item[1].started_at), reverse=True)
    headline, tone = _headline(counts, len(devices))
    times = sorted(sessions.values())
    return _rendered(
        template,
        headline=headline,
        tone=tone,
        counts=[(kind, _tone(kind), counts[kind]) for kind in sorted(counts, key=_rank)],
        num_sessions=counted(len(times), "session"),
        days=" to ".join(dict.fromkeys(time[:DAY] for time in (times[0], times[-1]))) if times else "",
        written_at=written_at,
        suites=suites,
        rows=rows,
        changes=changes[:MOST_CHANGES],
        num_more=max(0, len(changes) - MOST_CHANGES),
        lines=sorted(lines, key=lambda line: (line.tone != "bad", line.case, line.what)),
        spark=(SPARK_WIDTH, SPARK_HEIGHT),
    )


def _headline(counts: Counter[str], num_devices: int) -> tuple[str, str]:
    """What the first page says in one line, and its tone: good only where every case was held against something."""
    whole = f"{counted(sum(counts.values()), 'case')} on {counted(num_devices, 'device')}"
    if not counts:
        return "No case has been measured yet", "neutral"
    failing = [f"{counts[kind.value]} {kind.value}" for kind in WORST_FIRST if kind in FAILING and counts[kind.value]]
    if failing:
        return f"{', '.join(failing)} of {whole}", "bad"
    if unjudged := sum(counts[kind.value] for kind in UNJUDGED):
        return f"Nothing fails of {whole}, {unjudged} not compared yet", "neutral"
    return f"Nothing fails of {whole}", "good"


def _case_page(
    template: jinja2.Template, case: str, records: Sequence[LatestCase], trends: Sequence[Trend], written_at: datetime
) -> str:
    """The page of a case: its trends by what measured them and under which digest, the newest first."""
    groups: dict[tuple[str, str], list[Trend]] = {}
    for trend in sorted(trends, key=lambda trend: (trend.age, not trend.changes, trend.series.metric)):
        groups.setdefault((trend.series.device_class, trend.series.digest), []).append(trend)
    return _rendered(
        template,
        case=case,
        records=[(record, _tone(record.verdict)) for record in records],
        groups=[
            (f"{device_class}, digest {digest}", members, stacks(members))
            for (device_class, digest), members in groups.items()
        ],
        data=compact_json(list(groups.values())),
        written_at=written_at,
    )


def _rendered(template: jinja2.Template, **values: Any) -> str:
    """Signs that turn text around, or that no file can hold, are shown and not obeyed."""
    return plain(template.render(mark=MARK, **values), keep="\n")
