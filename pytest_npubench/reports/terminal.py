"""A run on a terminal: one line a case, by suite, campaign and device, and below it one for each metric where not all
have the case's verdict; why, once for all cases that share a reason; and what to type next. Each row has one unit of
time here, the journal has seconds.

The same text ends a run and is printed again from its journal (`npubench show`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from shlex import quote, split
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pytest_npubench.core.plain_table import cell, plain_console, written
from pytest_npubench.plain_text import plain
from pytest_npubench.reports import number_text
from pytest_npubench.reports.run_rows import (
    FIGURE,
    WORST_FIRST,
    RunRow,
    every_metric,
    metric_rows,
    run_rows,
    worst_first,
)
from pytest_npubench.store.waiting import baselines_option, regressed_since
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.result import CallDetail
from pytest_npubench.verdict.work import work_text

if TYPE_CHECKING:
    from pytest_npubench.reports.page import ShownBy

STYLES = {
    VerdictKind.PASSED: "green",
    VerdictKind.UNCHANGED: "green",
    VerdictKind.IMPROVED: "bold green",
    VerdictKind.FAILED: "bold red",
    VerdictKind.REGRESSED: "bold red",
    VerdictKind.INVALID: "bold magenta",
}
NARROWEST = 80
WIDE = 110
"""From here on what was measured and predicted stand beside the figure that was judged."""
LINE_WIDTH = 100
MOST_REASONS = 4
MOST_LINES = 1
"""What a suite says of its cases without -v."""
NUM_NAMED = 3
FEW = 2
INDENT, GAP = 1, 2
NARROWEST_FIGURE, WIDEST_FIGURE = 8, 24
NARROWEST_CASE = 12
ALWAYS = ("case", "figure", "verdict")
RIGHT = ("quartile", "error", "measured", "predicted", "off", "change")
WIDE_ONLY = ("measured", "predicted", "off")


def render_run(
    records: Sequence[Mapping[str, Any]],
    shown_by: ShownBy,
    *,
    journal: Path,
    width: int,
    color: bool,
    verbosity: int = 0,
) -> str:
    """What the end of a run says of its cases. verbosity: below 0 the counts alone, above 0 every case's own reason and
    figures too. `journal`: the file as commands are given it."""
    cases, width = Cases.read(records), max(width, NARROWEST)
    if verbosity < 0:
        return _block([_counts(cases)])
    table = render_table(records, width=width, color=color, verbose=verbosity > 0)
    why = [] if verbosity > 0 else reason_lines(run_rows(cases), journal, width=width)
    said = summary_lines(records, shown_by, width=min(width, LINE_WIDTH), most=None if verbosity > 0 else MOST_LINES)
    return table + _block(["", *why] if why else []) + _block(["", *said])


def render_table(records: Sequence[Mapping[str, Any]], *, width: int, color: bool, verbose: bool = False) -> str:
    """The table of these case records as text, at least 80 columns wide, one line a case and those of metric_rows; with
    terminal colours where asked for. `verbose`: under each case its key, all its metrics and its reason."""
    rows = run_rows(Cases.read(records))
    console = plain_console(max(width, NARROWEST), color=color)
    if not rows:
        return ""
    columns = _columns(rows, console.width)
    _print(console, _line(columns, {name: name for name, _, _ in columns}, "bold"))
    for heading, group_rows in _groups(rows):
        _print(console, cell(_clipped(heading, console.width), "bold cyan"))
        for row in group_rows:
            for shown in (row, *(() if verbose else metric_rows(row.record))):
                _print(console, _line(columns, _cells(shown), STYLES.get(shown.verdict.kind, "yellow")))
            for line in _said(row, console.width) if verbose else ():
                _print(console, cell(line, "dim"))
    return written(console)


def reason_lines(rows: Sequence[RunRow], journal: Path, *, width: int) -> list[str]:
    """Why, worst first: each reason once, with the number of cases that have it, or the names of a few."""
    by_reason: dict[tuple[VerdictKind, str], list[RunRow]] = {}
    for row in rows:
        if row.reason:
            is_disturbed = row.record.judgement.is_disturbed  # one tells all: each has figures of its own
            by_reason.setdefault((row.verdict.kind, "" if is_disturbed else row.reason), []).append(row)
    ordered = sorted(by_reason.values(), key=lambda having: worst_first(having[0].verdict.kind))
    few = [having for having in ordered if len(having) <= NUM_NAMED]
    shown = [having for having in ordered if having not in few[MOST_REASONS:]]
    lines = []
    for having in shown:
        names = ", ".join(row.name for row in having)
        who = names if len(having) <= NUM_NAMED else f"{len(having)} cases"
        lines += folded(f"{who}: {having[0].record.outcome}: {having[0].reason}", width)
    if number := sum(map(len, few[MOST_REASONS:])):
        lines.append(plain(f"{number} more: npubench show {_journal_path(journal)} -v"))
    return lines


def summary_lines(
    records: Sequence[Mapping[str, Any]], shown_by: ShownBy, *, width: int = LINE_WIDTH, most: int | None = None
) -> list[str]:
    """What each suite says of its cases, the first `most` things alone, short calls of one's own, what cannot be
    read, verdict counts; what is longer than `width` goes on in an indented line."""
    cases = Cases.read(records)
    lines: list[str] = []
    for suite, suite_cases in cases.by(lambda record: record.suite).items():
        lines += [
            *[*shown_by(suite).lines(suite_cases)][:most],
            *(_own_lines(suite_cases) if suite == "own" else ()),
            *dict.fromkeys(suite_cases.unread),
        ]
    lines += [*cases.unread, _counts(cases)]
    return [part for line in lines for part in folded(line, width)]


def next_lines(
    records: Sequence[Mapping[str, Any]],
    journal: Path,
    *,
    width: int,
    done: Collection[str] = (),
    baselines: Path | None = None,
) -> list[str]:
    """What to type next, one command a line, with what it is for where there is room; a longer one goes on behind a
    backslash. `done`: commands whose work the run has done. `baselines`: the run's, None for what runs here have."""
    rows = run_rows(Cases.read(records))
    if not rows:
        return []
    path, kinds = _journal_path(journal), {row.verdict.kind for row in rows}
    worst = next((row for kind in WORST_FIRST[:3] for row in rows if row.verdict.kind is kind), rows[0])
    steps = {"show": (f"npubench show {path} --case {quote(worst.name)}", "one case in full; -v for all")}
    accept = f"npubench baseline accept {path}{baselines_option(baselines) if baselines else ''}"
    if VerdictKind.NO_BASELINE in kinds:
        steps["accept"] = (accept, "later runs are held to this one")
    red = (record for record in records if record["verdict"]["kind"] == "regressed" and regressed_since(record))
    if (meant := next(red, None)) is not None:
        named = f"--regressed {quote(meant['case'])} --reason TEXT"
        steps["regressed"] = (f"{accept} {named}", "slower on purpose")
    if find_spec("jinja2"):  # which writes pages comes with an extra
        steps["report"] = (f"npubench show {path} --html -o report.html", "the same with charts")
    remaining = [step for name, step in steps.items() if name not in done]
    longest = max(len(command) for command, _ in remaining)
    with_words = [f"  {command.ljust(longest)}  # {what}" for command, what in remaining]
    fits = max(map(len, with_words)) <= (width := max(width, NARROWEST))
    lines = with_words if fits else [line for command, _ in remaining for line in _in_lines(command, width)]
    return ["next:", *map(plain, lines)]


def _in_lines(command: str, width: int) -> list[str]:
    """A command in lines that a shell takes for one, broken between its words."""
    lines = [" "]
    for word in map(quote, split(command)):
        if len(lines[-1]) + len(word) + len("  \\") > width and lines[-1].strip():
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    return lines


def folded(line: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, broken behind a comma or before a bracket, else at a space."""
    line = plain(line)
    if len(line) <= width:
        return [line]
    cut = max(line.rfind(mark, 0, width) for mark in (", ", "; ", " (")) + 1
    if cut <= width // 3:
        cut = line.rfind(" ", 3, width) + 1
    if cut <= len("  "):
        return [line]
    return [line[:cut].rstrip(), *folded(f"  {line[cut:].lstrip()}", width)]


def _groups(rows: Sequence[RunRow]) -> Iterator[tuple[str, list[RunRow]]]:
    """The cases of each campaign under its suite, name and device; campaigns of one or two cases that follow each other
    share a heading."""
    small: list[list[RunRow]] = []
    for _, members in groupby(rows, key=lambda row: row.group):
        campaign = list(members)
        if small and (len(campaign) > FEW or small[0][0].suite_and_device != campaign[0].suite_and_device):
            yield _joined(small)
            small = []
        if len(campaign) > FEW:
            yield _joined([campaign])
        else:
            small.append(campaign)
    if small:
        yield _joined(small)


def _joined(campaigns: Sequence[Sequence[RunRow]]) -> tuple[str, list[RunRow]]:
    suite, device = campaigns[0][0].suite_and_device
    names = ", ".join(campaign[0].campaign for campaign in campaigns)
    return "  ".join(filter(None, (suite, device, names))), [row for campaign in campaigns for row in campaign]


Column = tuple[str, int, str]
"""Its name, its width, and the side that its cells stand at."""


def _columns(rows: Sequence[RunRow], width: int) -> list[Column]:
    """Chooses the columns that these rows need; the names of the cases get the room they want, the figures the rest."""
    cells = [_cells(shown) for row in rows for shown in (row, *metric_rows(row.record))]
    names = [name for name in cells[0] if name in ALWAYS or any(row[name] for row in cells)]
    if width < WIDE:
        names = [name for name in names if name not in WIDE_ONLY]
    wanted = {name: max(cell_len(name), *(cell_len(row[name]) for row in cells)) for name in names}
    wanted["figure"] = min(wanted["figure"], WIDEST_FIGURE)
    spare = width - INDENT - sum(wanted.values()) - GAP * (len(names) - 1)
    for name, least in (("figure", NARROWEST_FIGURE), ("case", NARROWEST_CASE)):
        taken = min(max(0, -spare), max(0, wanted[name] - least))
        wanted[name] -= taken
        spare += taken
    return [(name, wanted[name], "right" if name in RIGHT else "left") for name in names]


def _cells(row: RunRow) -> dict[str, str]:
    """The cells of a row by column, in the columns' order."""
    is_predicted = row.predicted_s is not None
    return {
        "case": plain(row.name),
        "figure": plain(row.figure or ""),
        "quartile": row.quartile_text,
        "error": row.error_text,
        "measured": row.measured_text if is_predicted else "",
        "predicted": row.predicted_text,
        "off": row.off_text,
        "change": row.change_text,
        "verdict": row.kind,
    }


def _line(columns: Sequence[Column], cells: Mapping[str, str], style: str) -> Text:
    """One line: the verdict in its style, as the heading is in all of it."""
    line = Text(" " * INDENT)
    for index, (name, width, side) in enumerate(columns):
        text = _clipped(cells[name], width)
        blank = " " * (width - cell_len(text))
        cell_style = style if name == "verdict" or cells[name] == name else ""
        line.append(" " * (GAP if index else 0))
        line.append(blank + text if side == "right" else text + blank, style=cell_style)
    line.rstrip()
    return line


def _clipped(text: str, width: int) -> str:
    """The text in that many columns, its middle left out where it is longer: both ends tell cases apart."""
    if cell_len(text) <= width:
        return text
    tail = (width - 1) * 2 // 3
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def _said(row: RunRow, width: int) -> list[str]:
    """What `-v` shows under a row."""
    record, said = row.record, row.record.judgement
    figures = []
    if said.predicted_s is not None:
        figures += [f"measured {row.measured_text}"] if said.measured_s is not None else []
        figures.append(f"predicted {row.predicted_text}, off {row.off_text}")
    if said.repeat_error is not None:
        figures.append(f"repeat error {number_text.percent(said.repeat_error)} %")
    if row.interval is not None:
        figures.append(f"95 % interval {row.interval_text}")
    did = f"did: {work_text(said.work)}" if said.work else ""
    parts = [f"{record.key}: {row.record.what}", *_metrics_said(row), ", ".join(figures), did, said.verdict.reason]
    return [f"   {line}" for part in parts if part for line in folded(part, width - 3)]


def _metrics_said(row: RunRow) -> list[str]:
    """Each metric that was compared with its own verdict and reason; in one line those that were not, and why."""
    compared, others = [], []
    for metric, alone in every_metric(row.record):
        if alone is not None and alone.change is not None:
            figure = f"{metric.name} {alone.value_text} {alone.change_text}"
            compared.append(f"{figure}: {alone.kind}: {alone.verdict.reason}")
        else:
            why = FIGURE if metric.gate == "none" else "" if alone is None else alone.kind
            value = number_text.figure(metric.value, metric.unit) if alone is None else alone.value_text
            others.append(f"{metric.name} {value}{f' ({why})' if why else ''}")
    return [*compared, ", ".join(others)]


def _counts(cases: Cases) -> str:
    kinds = Counter(record.outcome for record in cases.records)
    resumed = sum(record.resumed for record in cases.records)
    counts = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    return f"verdicts: {counts}{f'; {resumed} resumed' if resumed else ''}"


def _block(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _journal_path(journal: Path) -> str:
    return quote(str(journal))


def _print(console: Console, text: Text) -> None:
    console.print(text, no_wrap=True, overflow="ignore", crop=False)


def _own_lines(cases: Cases) -> list[str]:
    """One line, for the calls that were timed several to a sample; none where there are none."""
    shares = [
        (record.detail.overhead_s / record.judgement.measured_s, record.id)
        for record in cases.of("callable", CallDetail)
        if record.detail.iterations > 1 and record.judgement.measured_s
    ]
    if not shares:
        return []
    share, case = max(shares)
    counted = "1 case" if len(shares) == 1 else f"{len(shares)} cases"
    return [
        f"several calls a sample: {counted}; an empty call in the same loop takes at most {share:.1%} of one ({case})"
    ]
