"""Policies side by side under one load, in all figures but their latencies; and what bursty arrivals change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.record_fields import Record, kind_of, number, table
from pytest_npubench.reports.reported import conditions, label, reported
from pytest_npubench.reports.served_loads import ServedFigure, ServedLoad, ServedPolicy, load_name

UNAVAILABLE = "unavailable"
NO_BREAK = "\u00a0"  # a cell breaks before its interval, not inside

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
LATENCIES = ("ttft_mean", "ttft_p", "tbt_mean", "tbt_p", "e2e_")  # in a table of their own

# name of the figure -> its column in Table 12 of the paper and what turns its unit into ours
SMOOTHNESS = {
    "ttft_mean_s": ("ttft_mean", 1e3),
    "ttft_p99_s": ("ttft_p99", 1e3),
    "tbt_mean_s": ("tbt_mean", 1.0),
    "tbt_p99_s": ("tbt_p99", 1.0),
    "tbt_std_pooled_s": ("tbt_std", 1.0),
    "jain_index": ("jain_index", 1.0),
}


def policy_table(load: ServedLoad) -> Table:
    """A row a figure: its value under each policy with the 95 % interval, what it rests on, what it means."""
    settings = "; ".join(f"{item.policy}: {item.settings}" for item in load.policies if item.settings)
    theirs = label(conditions("12"), "CV 1", "which deviation of TBT it means is not said")
    return Table(
        caption=f"Policies under {load.name}; {load.terms}",
        note=f"{definitions.POLICIES}{f' Settings: {settings}.' if settings else ''} {theirs}",
        header=("figure", *(item.policy for item in load.policies), "n", "definition"),
        rows=tuple(
            _figure_row(name, load.policies)
            for name in FIGURES
            if not name.startswith(LATENCIES) and any(name in item.figures for item in load.policies)
        ),
    )


def burst_tables(records: Sequence[Record]) -> list[Table]:
    """What layered and chunked prefill did under bursty arrivals, a table for each burstiness case."""
    tables = []
    for record in records:
        detail = table(record, "detail")
        columns = {policy: table(detail, policy) for policy in ("layered", "chunked")}
        shown = [name for name in FIGURES if any(number(column, name) is not None for column in columns.values())]
        if kind_of(record) == "burstiness" and shown:
            tables.append(
                Table(
                    caption=f"Bursty arrivals: {load_name(record)}, {_cv(detail)}",
                    note=label(conditions("12"), "CV 1.83"),
                    header=("figure", *columns, *(f"reported {policy}" for policy in columns)),
                    rows=tuple(
                        (
                            heading(name),
                            *(cell(name, number(column, name)) for column in columns.values()),
                            *(_reported(name, policy, cv=1.83) for policy in columns),
                        )
                        for name in shown
                    ),
                )
            )
    return tables


def heading(name: str) -> str:
    called, unit, _ = FIGURES[name]
    return f"{called}, {unit}" if unit else called


def cell(name: str, value: float | None) -> str:
    return UNAVAILABLE if value is None else number_text.plain(value * FIGURES[name][2])


def _figure_row(name: str, policies: Sequence[ServedPolicy]) -> tuple[str, ...]:
    known = {item.policy: item.figures[name] for item in policies if name in item.figures}
    counts = dict.fromkeys(number_text.count(figure.num_samples) for figure in known.values())
    definition = next((figure.definition for figure in known.values() if figure.definition), number_text.UNKNOWN)
    theirs = {item.policy: _reported(name, item.policy, cv=1) for item in policies}
    shown = ", ".join(f"{policy} {value}" for policy, value in theirs.items() if value != number_text.UNKNOWN)
    return (
        heading(name),
        *(_with_interval(name, item.figures.get(name)) for item in policies),
        " / ".join(counts),
        "; ".join((definition, *_notes(known), *([f"reported: {shown}"] if shown else ()))),
    )


def _reported(name: str, policy: str, *, cv: float) -> str:
    if name not in SMOOTHNESS:
        return number_text.UNKNOWN
    column, factor = SMOOTHNESS[name]
    return reported("12", column, factor, policy=policy, cv=cv)


def _notes(known: Mapping[str, ServedFigure]) -> list[str]:
    """Each note once, with the policies it is about where others do not share it; of a figure nobody has, one."""
    if all(figure.value is None for figure in known.values()):
        return [figure.note for figure in known.values() if figure.note][:1]
    policies: dict[str, list[str]] = {}
    for policy, figure in known.items():
        if figure.note:
            policies.setdefault(figure.note, []).append(policy)
    return [note if len(own) == len(known) else f"{', '.join(own)}: {note}" for note, own in policies.items()]


def _with_interval(name: str, figure: ServedFigure | None) -> str:
    if figure is None or figure.interval is None or figure.value is None:
        return cell(name, None if figure is None else figure.value)
    low, high = (cell(name, end) for end in figure.interval)
    return f"{cell(name, figure.value)} ({low}{NO_BREAK}to{NO_BREAK}{high})"


def _cv(detail: Record) -> str:
    """The CV asked for and the one that came."""
    parts = (("CV", number(detail, "cv")), ("realised", number(detail, "realised_cv")))
    return ", ".join(f"{name} {value:.3g}" for name, value in parts if value is not None) or "CV unknown"
