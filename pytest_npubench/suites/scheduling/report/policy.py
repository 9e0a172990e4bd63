"""Policies side by side under one load: latencies, all other figures, and mean TTFT and TBT as bars.

A load is a workload at a rate; all policies of a run serve its requests in turn. Its figures are those of
serving.metrics.summarize, as a case keeps them.

Worked example: two policy cases of "layered-arxiv-div32" at u0.7, whose blocks came at 0.853 requests/s, are one load
named "layered-arxiv-div32 at 0.853 req/s" with two policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.campaign.served_metrics import ServedFigure
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import NO_BREAK, bars, chart, table
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import SERIES, DrawnSeries, axis, category_axis, label
from pytest_npubench.suites.scheduling.kinds.policy import PolicyDetail
from pytest_npubench.verdict.case_record import CaseRecord

POLICIES = (
    "Every policy serves the same requests at the same times. A figure is that of all blocks together, in parentheses "
    "its 95 % interval; n is what it rests on, one number where it is the same for all policies."
)
SERVED_TTFT = (
    "TTFT, time to first token of a request: first token - arrival, so queueing is part of it. Error bars are 95 % "
    "intervals of the mean."
)
SERVED_TBT = (
    "TBT, time between tokens: every gap between two tokens of a request. Error bars are 95 % intervals of the mean."
)
LATENCY = (
    "TTFT: first token - arrival, queueing included. TBT: every gap between two tokens of a request. E2E: last token - "
    "arrival of a finished request. In parentheses the 95 % interval; n requests, of TBT n gaps."
)
PATTERNS = ("", "/", "x", ".")

# name of the figure -> how it is called, the unit it is shown in, and that unit's factor
FIGURES: Mapping[str, tuple[str, str, float]] = {
    "ttft_mean_s": ("mean TTFT", "ms", 1e3),
    "ttft_p50_s": ("p50 TTFT", "ms", 1e3),
    "ttft_p95_s": ("p95 TTFT", "ms", 1e3),
    "ttft_p99_s": ("p99 TTFT", "ms", 1e3),
    "tbt_mean_s": ("mean TBT", "ms", 1e3),
    "tbt_p50_s": ("p50 TBT", "ms", 1e3),
    "tbt_p95_s": ("p95 TBT", "ms", 1e3),
    "tbt_p99_s": ("p99 TBT", "ms", 1e3),
    "tbt_host_mean_s": ("the host's part of mean TBT", "ms", 1e3),
    "e2e_mean_s": ("mean E2E", "ms", 1e3),
    "slo_attainment": ("SLO attainment", "%", 100),
    "ttft_attainment": ("TTFT attainment", "%", 100),
    "tbt_attainment": ("TBT attainment", "%", 100),
    "tbt_std_pooled_s": ("TBT std, pooled", "ms", 1e3),
    "tbt_std_per_request_s": ("TBT std, per request", "ms", 1e3),
    "jain_index": ("Jain's index", "", 1),
    "goodput_requests_per_s": ("goodput", "requests/s", 1),
    "output_tokens_per_s": ("output tokens", "tokens/s", 1),
    "mean_decode_batch_size": ("mean decode batch", "requests", 1),
    "num_arrived": ("requests arrived", "", 1),
    "num_finished": ("requests finished", "", 1),
    "num_preemptions": ("preemptions", "", 1),
    "expert_load_bytes_per_request": ("expert bytes per request", "GB", 1e-9),
    "energy_mj_per_prompt_and_output_token": ("energy per prompt and output token", "mJ", 1),
    "energy_mj_per_output_token": ("energy per output token", "mJ", 1),
}
OF_SOME_DEVICES = ("tbt_host_mean_s",)  # those that compute beside the host
LATENCIES = ("ttft_mean", "ttft_p", "tbt_mean", "tbt_p", "e2e_")  # in a table of their own

PARTS = ("mean", "p50", "p95", "p99")
TIMES = ("ttft", "tbt", "e2e")
UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLoad:
    """All policies under one load, by their cases' details; `terms` says in words under which limits, on which clock
    and in how many blocks."""

    name: str
    terms: str
    policies: tuple[PolicyDetail, ...]

    def policy_figures(self, figure: str) -> list[Served]:
        """Returns the policies that have a figure of that name, valued or not."""
        return [(item, item.figures[figure]) for item in self.policies if figure in item.figures]


def served_loads(cases: Iterable[CaseRecord[PolicyDetail]]) -> tuple[ServedLoad, ...]:
    """Groups cases by load, in the order of the first case of each."""
    groups: dict[tuple[str, str], list[CaseRecord[PolicyDetail]]] = {}
    for case in cases:
        groups.setdefault((case.axis("workload"), case.axis("rate")), []).append(case)
    return tuple(
        ServedLoad(
            name=load_name(own[0]),
            terms=_terms(own[0].detail),
            policies=tuple(case.detail for case in own),
        )
        for own in groups.values()
    )


Served = tuple[PolicyDetail, ServedFigure]
"""A policy, and its figure under a load."""


def policy_charts(loads: Sequence[ServedLoad], answer: str) -> list[Chart]:
    """Mean TTFT, with the answer that its picture stands beside, and mean TBT by policy, bars of all loads together."""
    charts = (
        _bar_chart("Mean TTFT by policy", "ttft_mean_s", SERVED_TTFT, loads, answer),
        _bar_chart("Mean TBT by policy", "tbt_mean_s", SERVED_TBT, loads),
    )
    return [chart for chart in charts if chart is not None]


def latency_table(load: ServedLoad) -> Table | None:
    """Returns a row for each latency and policy, and one more where the paper reports that policy; None without
    latencies."""
    rows = [row for time in TIMES for item in load.policies if (row := _latency_row(time, item)) is not None]
    header = ("latency, ms", "policy", *PARTS, "n", "rests on")
    caption = f"Latencies under {load.name}"
    return Table(caption=caption, note=LATENCY, header=header, rows=tuple(rows)) if rows else None


def policy_table(load: ServedLoad) -> Table:
    """Returns a row a figure: its value under each policy with the 95 % interval, what it rests on, what it means."""
    settings = "; ".join(f"{item.policy}: {_settings(item)}" for item in load.policies if item.settings)
    return table(
        f"Policies under {load.name}; {load.terms}",
        (
            ("figure", heading),
            *((item.policy, _value_of(item)) for item in load.policies),
            ("n", lambda name: _counts(figure for _, figure in load.policy_figures(name))),
            ("definition", lambda name: _definition(name, load)),
        ),
        [name for name in FIGURES if not name.startswith(LATENCIES) and _is_shown(name, load)],
        note=f"{POLICIES}{f' Settings: {settings}.' if settings else ''}",
    )


def _is_shown(name: str, load: ServedLoad) -> bool:
    """Whether a policy has the figure; of one that some devices never have, a value."""
    figures = [figure for _, figure in load.policy_figures(name)]
    return any(figure.value is not None for figure in figures) if name in OF_SOME_DEVICES else bool(figures)


def heading(name: str) -> str:
    called, unit, _ = FIGURES[name]
    return f"{called}, {unit}" if unit else called


def cell(name: str, value: float | None) -> str:
    return available(value, FIGURES[name][2])


def available(value: float | None, factor: float = 1.0) -> str:
    """Returns the value times `factor`, in four significant digits."""
    return UNAVAILABLE if value is None else number_text.plain(value * factor)


def load_name(case: CaseRecord[PolicyDetail]) -> str:
    """Returns the workload and the rate at which its requests came: "layered-arxiv at 1.3 req/s"."""
    return f"{case.axis('workload')} at {case.detail.rate_per_s:.3g} req/s"


def _terms(detail: PolicyDetail) -> str:
    """ "SLO: TTFT <= 1,200 ms and every TBT <= 30 ms; rate and limits frozen on 2026-07-04 in S; wall clock; 3 blocks",
    without what is not said."""
    limits = [
        f"{name} <= {number_text.milliseconds(limit_s)} ms"
        for name, limit_s in (("TTFT", detail.slo.ttft_s), ("every TBT", detail.slo.tbt_s))
        if limit_s is not None
    ]
    held_to = [detail.held_to.in_words] if detail.held_to else []
    slo = f"SLO: {' and '.join(limits)}" if limits else "no SLO"
    return "; ".join((slo, *held_to, f"{detail.clock} clock", f"{detail.num_blocks:,} blocks"))


def _settings(detail: PolicyDetail) -> str:
    return ", ".join(f"{name} = {value}" for name, value in detail.settings.items())


def _value_of(item: PolicyDetail) -> Callable[[str], str]:
    """Returns a figure's value under a policy, with its 95 % interval."""
    return lambda name: _with_interval(item.figures.get(name), lambda value: cell(name, value))


def _with_interval(figure: ServedFigure | None, text: Callable[[float | None], str]) -> str:
    if figure is None or figure.value is None or figure.interval is None:
        return text(None if figure is None else figure.value)
    low, high = map(text, figure.interval)
    return f"{text(figure.value)} ({low}{NO_BREAK}to{NO_BREAK}{high})"


def _counts(figures: Iterable[ServedFigure]) -> str:
    return " / ".join(dict.fromkeys(f"{figure.num_samples:,}" for figure in figures))


def _definition(name: str, load: ServedLoad) -> str:
    """What the figure means, and each note once with the policies it is about where others do not share it; of a
    figure that nobody has one note."""
    policy_figures = load.policy_figures(name)
    notes: dict[str, list[str]] = {}
    for item, figure in policy_figures:
        if figure.note:
            notes.setdefault(figure.note, []).append(item.policy)
    said = [note if len(own) == len(policy_figures) else f"{', '.join(own)}: {note}" for note, own in notes.items()]
    if all(figure.value is None for _, figure in policy_figures):
        said = list(notes)[:1]
    return "; ".join((policy_figures[0][1].definition, *said))


def _latency_row(time: str, item: PolicyDetail) -> tuple[str, ...] | None:
    """Makes the row of a latency; None where the policy has no such latency."""
    figures = {part: item.figures.get(f"{time}_{part}_s") for part in PARTS}
    present = [figure for figure in figures.values() if figure is not None]
    if not present:
        return None
    cells = [
        number_text.UNKNOWN
        if figure is None
        else _with_interval(figure, lambda value: UNAVAILABLE if value is None else number_text.milliseconds(value))
        for figure in figures.values()
    ]
    return (time.upper(), item.policy, *cells, f"{present[0].num_samples:,}", _notes(figures))


def _notes(figures: Mapping[str, ServedFigure | None]) -> str:
    """Each note once, with the columns it is about: "p99: the maximum: fewer than 100 samples"."""
    parts: dict[str, list[str]] = {}
    for part, figure in figures.items():
        for note in (figure.note if figure is not None else "").split("; "):
            if note:
                parts.setdefault(note, []).append(part)
    return "; ".join(note if len(own) == len(PARTS) else f"{', '.join(own)}: {note}" for note, own in parts.items())


def _bar_chart(title: str, name: str, note: str, loads: Sequence[ServedLoad], answer: str = "") -> Chart | None:
    valued = [(load, [item for item in load.policy_figures(name) if item[1].value is not None]) for load in loads]
    shown = [(load, items) for load, items in valued if items]
    if not shown:
        return None
    policies = list(dict.fromkeys(item.policy for _, items in shown for item, _ in items))
    return chart(
        title,
        f"{title} of {', '.join(policies)}, under {', '.join(load.name for load, _ in shown)}.",
        (note, *(f"{load.name}; {load.terms}." for load, _ in shown)),
        [_bars(index, load, items) for index, (load, items) in enumerate(shown)],
        (axis(heading(name), from_zero=True), category_axis([label(policy) for policy in policies])),
        table(
            title,
            (
                ("policy", lambda row: row[1].policy),
                ("load", lambda row: row[0].name),
                (heading(name), lambda row: cell(name, row[2].value)),
                ("95 % interval", lambda row: _interval(name, row[2])),
                ("n", lambda row: f"{row[2].num_samples:,}"),
            ),
            [(load, item, figure) for load, items in shown for item, figure in items],
        ),
        legend=len(shown) > 1,
        answer=answer,
    )


def _bars(index: int, load: ServedLoad, items: Sequence[Served]) -> DrawnSeries:
    intervals = [figure.interval for _, figure in items]
    return bars(
        load.name,
        [item.policy for item, _ in items],
        [1e3 * (figure.value or 0.0) for _, figure in items],
        "{y}: {x:.4g} ms",
        color=SERIES[index % len(SERIES)],
        ends=[None if ends is None else (1e3 * ends[0], 1e3 * ends[1]) for ends in intervals],
        pattern=PATTERNS[index % len(PATTERNS)],
    )


def _interval(name: str, figure: ServedFigure) -> str:
    return " to ".join(cell(name, end) for end in figure.interval) if figure.interval else number_text.UNKNOWN
