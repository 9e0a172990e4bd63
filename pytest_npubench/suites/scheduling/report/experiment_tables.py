"""Layered beside chunked prefill in the experiments that compare the two: a table a case, with the paper's figures.

A ratio is that of pairs of blocks which served the same requests, with the lowest and the highest pair. What the paper
reports stands in columns of its own and enters no ratio of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.record_fields import Record, as_number, finite, kind_of, number, numbers, table, text
from pytest_npubench.reports.reported import conditions, label, model_of, reported
from pytest_npubench.reports.reported import workload_of as workload_in
from pytest_npubench.reports.served_loads import load_name, workload_of
from pytest_npubench.suites.scheduling.report.settings_tables import apart_table, chunk_rate_table

POLICIES = ("layered", "chunked")
UNAVAILABLE = "unavailable"
NO_BREAK = "\u00a0"  # a cell breaks before its interval, not inside
HEADER = (
    "figure",
    *POLICIES,
    "layered / chunked",
    *(f"reported {policy}" for policy in POLICIES),
    "reported layered / chunked",
)
Row = tuple[str, ...]


def experiment_tables(records: Sequence[Record]) -> list[Table]:
    """One for each case of these experiments that was measured, or whose figure is unavailable."""
    known = [record for record in records if table(record, "detail") or table(record, "metrics")]
    return [MAKERS[kind_of(record)](record) for record in known if kind_of(record) in MAKERS]


def energy_table(record: Record) -> Table:
    """Energy a token by both denominators, above idle, and the power behind it."""
    detail = table(record, "detail")
    model = model_of("8", text(record, "model"))
    rate = 1.3 if model == "qwen3-30b-a3b" else 2.1  # at which Table 8 has both policies
    theirs = [reported("8", "energy", model=model, policy=policy, rate=rate) for policy in POLICIES]
    ratio, by_all = _ratio(record, "energy_ratio"), _pair(record, "{}_mj_per_prompt_and_output_token")
    rows = [
        _row("energy per prompt and output token, mJ", by_all, ratio, theirs),
        _row("energy per output token, mJ", _pair(record, "{}_mj_per_output_token"), ratio),
    ]
    above = _pair(record, "{}_mj_above_idle_per_prompt_and_output_token")
    powers = [number(table(detail, "power_w"), policy) for policy in POLICIES]
    idle_w = number(detail, "idle_power_w")
    if above != [UNAVAILABLE, UNAVAILABLE]:
        rows.append(_row("above idle power, per prompt and output token, mJ", above))
    if any(power is not None for power in powers):
        rows.append(_row("mean power, W", [_plain(power) for power in powers]))
    if idle_w is not None:
        rows.append(_row("idle power, W", [_plain(idle_w), _plain(idle_w)]))
    reason = "" if ratio else _sentence(record)
    note = f"{reason}{definitions.ENERGY} {label(conditions('8', model=model, rate=rate), definitions.ENERGY_REPORTED)}"
    return _table(f"Energy: {load_name(record)}", note, rows)


def dense_table(record: Record) -> Table:
    """The control, where layered prefill has nothing to save."""
    interval = {"ttft": numbers(table(record, "detail"), "ttft_ratio_interval")}
    rows = [
        _row(
            called, [], _ratio(record, f"{name}_ratio", interval.get(name, ())), _pair_reported("5.13", column, factor)
        )
        for called, name, column, factor in (
            ("mean TTFT, ms", "ttft", "ttft_mean", 1e3),
            ("mean TBT, ms", "tbt", "tbt_mean", 1.0),
            ("mean E2E", "e2e", "", 1.0),
        )
    ]
    return _table(
        f"Dense control: {load_name(record)}", f"{definitions.DENSE} {label(conditions('5.13', rate=1.5))}", rows
    )


def loads_table(record: Record) -> Table:
    """Expert bytes of the same requests, and what else changed."""
    detail = table(record, "detail")
    workload = workload_in("7", workload_of(record))
    theirs = [reported("7", "expert_load", 1e3, workload=workload, policy=policy) for policy in POLICIES]
    loaded = [_plain(_scaled(number(detail, f"{policy}_bytes"), 1e-9)) for policy in POLICIES]
    ratios = {"mean TTFT": "ttft_ratio", "mean TBT": "tbt_ratio", "mean E2E": "e2e_ratio"}
    rows = [
        _row("expert bytes, GB", loaded, _ratio(record, "expert_load_ratio"), theirs),
        *(_row(called, [], _ratio(record, name)) for called, name in ratios.items()),
    ]
    note = label(f"{conditions('7')}, {workload}", "totals of 100 requests")
    return _table(f"Expert loads: {load_name(record)}", f"{definitions.EXPERT_LOADS} {note}", rows)


def relaxed_table(record: Record) -> Table:
    """Offline throughput with the usual iterations and with larger ones."""
    factor = number_text.count(number(table(record, "detail"), "relaxed_factor"))
    theirs = _pair_reported("5.9 offline", "throughput")
    rows = [
        _row(
            "output tokens/s",
            _pair(record, "{}_output_tokens_per_s"),
            _ratio(record, "throughput_chunked_over_layered", inverse=True),
            theirs,
        ),
        _row(
            f"output tokens/s, {factor} times the work an iteration",
            _pair(record, "relaxed_{}_output_tokens_per_s"),
            _ratio(record, "relaxed_throughput_chunked_over_layered", inverse=True),
        ),
    ]
    note = label(conditions("5.9 offline"), definitions.RELAXED_REPORTED)
    return _table(f"Offline throughput: {workload_of(record)}", f"{definitions.RELAXED} {note}", rows)


def capacity_table(record: Record) -> Table:
    """The rate at which 90 % attain, by policy."""
    detail = table(record, "detail")
    model = model_of("8", text(record, "model"))
    highest = {"qwen3-30b-a3b": (1.6, 1.3), "gpt-oss-20b": (2.7, 2.1)}.get(model, ())
    theirs = [reported("8", "rate", model=model, policy=p, rate=r) for p, r in zip(POLICIES, highest, strict=False)]
    ours = [_capacity(table(detail, "capacity").get(policy)) for policy in POLICIES]
    ratio = number(detail, "capacity_ratio")
    shown = "" if ratio is None else f"{ratio:.3g}{_ends(numbers(detail, 'capacity_ratio_interval'))}"
    reasons = "; ".join(f"{name}: {why}" for name, why in table(detail, "why").items() if why)
    note = f"{definitions.CAPACITY} {f'{reasons}. ' if reasons else ''}"
    note += label(conditions("8", model=model), definitions.CAPACITY_REPORTED)
    return _table(
        f"Capacity: {workload_of(record)}", note, [_row("capacity at 90 % attainment, req/s", ours, shown, theirs)]
    )


MAKERS: Mapping[str, Any] = {
    "expert_loads": loads_table,
    "energy": energy_table,
    "relaxed_slo": relaxed_table,
    "attainment": capacity_table,
    "disaggregated": apart_table,
    "chunk_rate": chunk_rate_table,
    "dense_control": dense_table,
}


def _row(called: str, ours: Sequence[str], ratio: str = "", theirs: Sequence[str] = ()) -> Row:
    none = (number_text.UNKNOWN,) * 2
    return (called, *(ours or none), ratio or number_text.UNKNOWN, *(theirs or none), _reported_ratio(theirs))


def _table(caption: str, note: str, rows: Sequence[Row]) -> Table:
    """Without the columns that no row has anything in."""
    kept = [
        place for place in range(len(HEADER)) if place == 0 or any(row[place] != number_text.UNKNOWN for row in rows)
    ]
    return Table(
        caption=caption,
        note=note,
        header=tuple(HEADER[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in rows),
    )


def _pair(record: Record, name: str) -> list[str]:
    """A metric under each policy, `name` with the policy in its braces."""
    found = (number(table(table(record, "metrics"), name.format(policy)), "value") for policy in POLICIES)
    return [UNAVAILABLE if value is None else number_text.plain(value) for value in found]


def _pair_reported(number_of_table: str, column: str, factor: float = 1.0) -> list[str]:
    return [reported(number_of_table, column, factor, policy=policy) for policy in POLICIES]


def _ratio(record: Record, name: str, interval: Sequence[float] = (), *, inverse: bool = False) -> str:
    """The ratio with its 95 % interval, else its lowest and highest pair of blocks; or one over it. Empty where it was
    not measured."""
    metric = table(table(record, "metrics"), name)
    value, samples = number(metric, "value"), numbers(metric, "samples")
    if value is None or (inverse and (value <= 0 or min(samples, default=1) <= 0)):
        return ""
    value, samples = (1 / value, tuple(1 / item for item in samples)) if inverse else (value, samples)
    if len(interval) == 2:
        return f"{value:.3g} (95{NO_BREAK}%{NO_BREAK}{interval[0]:.3g}{NO_BREAK}to{NO_BREAK}{interval[1]:.3g})"
    span = f" (blocks{NO_BREAK}{min(samples):.3g}{NO_BREAK}to{NO_BREAK}{max(samples):.3g})" if len(samples) > 1 else ""
    return f"{value:.3g}{span}"


def _reported_ratio(theirs: Sequence[str]) -> str:
    """Of the printed figures alone."""
    try:
        layered, chunked = (float(cell.replace(",", "")) for cell in theirs)
    except ValueError:
        return number_text.UNKNOWN
    return f"{layered / chunked:.3g}" if chunked else number_text.UNKNOWN


def _capacity(entry: object) -> str:
    """[rate, [low, high]] in words; an end that is not known is left open."""
    rate, ends = entry if isinstance(entry, (list, tuple)) and len(entry) == 2 else (None, None)
    value = as_number(rate)
    return UNAVAILABLE if value is None else f"{value:.3g}{_ends(finite(ends))}"


def _ends(ends: Sequence[float]) -> str:
    return f" ({ends[0]:.3g}{NO_BREAK}to{NO_BREAK}{ends[1]:.3g})" if len(ends) == 2 else ""


def _sentence(record: Record) -> str:
    reason = text(table(record, "verdict"), "reason")
    return f"{reason[0].upper()}{reason[1:]}. " if reason else ""


def _plain(value: float | None) -> str:
    return UNAVAILABLE if value is None else number_text.plain(value)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
