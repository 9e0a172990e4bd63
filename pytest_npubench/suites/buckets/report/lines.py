"""What the end of a run says of bucket cases: errors and costs of LENS and its rivals, engines without buckets,
padding waste."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench.reports.record_fields import kind_of
from pytest_npubench.stats.error import summarise
from pytest_npubench.suites.buckets.report.continuous_lines import continuous_lines

Record = Mapping[str, Any]


def lines(records: Sequence[Record]) -> list[str]:
    """A line for each of these that the cases tell of."""
    found = [*_errors(records), *_costs(records), *_rivals(records), *continuous_lines(records)]
    waste = _padding_waste(records)
    return [*found, f"padding waste, prefill and decode: {waste}"] if waste else found


def _errors(records: Sequence[Record]) -> list[str]:
    judged = [record for record in records if record["detail"].get("gate_error") is not None]
    if not judged:
        return []
    found = [_error_line("LENS", [_signed_gate(record["detail"], record["error"]) for record in judged])]
    repeats = [record["repeat_error"] for record in judged if record["repeat_error"] is not None]
    if repeats:
        found.append(f"repeat error of the measured side (standard error): mean {sum(repeats) / len(repeats):.2%}")
    return found


def _error_line(predictor: str, signed: Sequence[float]) -> str:
    summary = summarise(signed)
    return (
        f"{predictor} prediction error over {summary.num_cases} cases: mean {summary.mean:.2%}, signed "
        f"{summary.signed_mean:+.2%}, median {summary.median:.2%}, p90 {summary.p90:.2%}, max {summary.max:.2%}, "
        f"{summary.under_5_percent_fraction:.0%} under 5 %"
    )


def _rivals(records: Sequence[Record]) -> list[str]:
    """Of each predictor that was asked for beside LENS its error and its cost, or why it has none."""
    found: dict[str, list[tuple[Record, Mapping[str, Any]]]] = {}
    for record in records:
        if kind_of(record) == "prediction":
            for name, figures in record["detail"].get("predictors", {}).items():
                found.setdefault(name, []).append((record, figures))
    return [line for name, figures in found.items() for line in _rival_lines(name, figures)]


def _rival_lines(name: str, found: Sequence[tuple[Record, Mapping[str, Any]]]) -> list[str]:
    judged = [(record, figures) for record, figures in found if "reason" not in figures]
    reasons = Counter(figures["reason"] for _, figures in found if "reason" in figures)
    lines = [f"{name} predicted nothing in {number} cases: {reason}" for reason, number in reasons.items()]
    if not judged:
        return lines
    widest: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for record, figures in judged:  # of a campaign the case that used most points
        cost = figures["cost"]
        if cost["points"] >= widest.get(_session(record), cost)["points"]:
            widest[_session(record)] = cost
    return [
        _error_line(name, [_signed_gate(figures, figures["error"]) for _, figures in judged]),
        f"{name} profiling cost: {len(widest)} sessions, {_cost(list(widest.values()))}",
        *lines,
    ]


def _cost(costs: Sequence[Mapping[str, Any]]) -> str:
    total = {name: sum(cost[name] for cost in costs) for name in ("points", "binaries", "compile_s", "measure_s")}
    return (
        f"{total['points']} points, {total['binaries']} binaries, "
        f"{total['compile_s']:.1f} s compiling, {total['measure_s']:.1f} s measuring"
    )


def _costs(records: Sequence[Record]) -> list[str]:
    """Of LENS: one session compiles all buckets of a device, model and batch size."""
    profiled = [record for record in records if "cost" in record["detail"]]
    if not profiled:
        return []
    costs = [record["detail"]["cost"] for record in profiled]
    return [f"LENS profiling cost: {len(set(map(_session, profiled)))} sessions, {len(costs)} buckets, {_cost(costs)}"]


def _session(record: Record) -> tuple[str, ...]:
    return (record["device"], record["hardware"], record["model"], str(record["batch_size"]))


def _padding_waste(records: Sequence[Record]) -> str:
    """Each workload once: it depends on lengths and buckets, not on the batch size."""
    details = [record["detail"] for record in records if "prefill_padding_fraction" in record["detail"]]
    return "; ".join(
        f"{name} {detail['prefill_padding_fraction']:.0%} and {detail.get('decode_padding_fraction', 0.0):.0%}"
        for name, detail in {detail["workload"]: detail for detail in details}.items()
    )


def _signed_gate(figures: Mapping[str, Any], error: float) -> float:
    gate: float = figures["gate_error"]
    return gate if error >= 0 else -gate
