"""What the end of a run says of bucket cases: LENS's error and its cost, devices without buckets, padding waste."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench.stats.error import summarise
from pytest_npubench.suites.buckets.report.continuous_lines import continuous_lines

Record = Mapping[str, Any]


def lines(records: Sequence[Record]) -> list[str]:
    """A line for each of these that the cases tell of."""
    found = [*_errors(records), *_costs(records), *continuous_lines(records)]
    waste = _padding_waste(records)
    return [*found, f"padding waste, prefill and decode: {waste}"] if waste else found


def _errors(records: Sequence[Record]) -> list[str]:
    judged = [record for record in records if record["detail"].get("gate_error") is not None]
    if not judged:
        return []
    summary = summarise([_signed_gate(record) for record in judged])
    line = (
        f"LENS prediction error over {summary.num_cases} cases: mean {summary.mean:.2%}, signed "
        f"{summary.signed_mean:+.2%}, median {summary.median:.2%}, p90 {summary.p90:.2%}, max {summary.max:.2%}, "
        f"{summary.under_5_percent_fraction:.0%} under 5 %"
    )
    repeats = [record["repeat_error"] for record in judged if record["repeat_error"] is not None]
    if not repeats:
        return [line]
    return [line, f"repeat error of the measured side (standard error): mean {sum(repeats) / len(repeats):.2%}"]


def _costs(records: Sequence[Record]) -> list[str]:
    costs = [record["detail"]["cost"] for record in records if "cost" in record["detail"]]
    if not costs:
        return []
    total = {name: sum(cost[name] for cost in costs) for name in ("points", "binaries", "compile_s", "measure_s")}
    return [
        f"LENS profiling cost: {len(_profiled(records))} sessions, {len(costs)} buckets, "
        f"{total['points']} points, {total['binaries']} binaries, "
        f"{total['compile_s']:.1f} s compiling, {total['measure_s']:.1f} s measuring"
    ]


def _profiled(records: Sequence[Record]) -> set[tuple[str, ...]]:
    """One session compiles all buckets of a device, model and batch size."""
    return {
        (record["device"], record["hardware"], record["model"], str(record["batch_size"]))
        for record in records
        if "cost" in record["detail"]
    }


def _padding_waste(records: Sequence[Record]) -> str:
    """Each workload once: it depends on lengths and buckets, not on the batch size."""
    details = [record["detail"] for record in records if "prefill_padding_fraction" in record["detail"]]
    return "; ".join(
        f"{name} {detail['prefill_padding_fraction']:.0%} and {detail.get('decode_padding_fraction', 0.0):.0%}"
        for name, detail in {detail["workload"]: detail for detail in details}.items()
    )


def _signed_gate(record: Record) -> float:
    gate: float = record["detail"]["gate_error"]
    return gate if record["error"] >= 0 else -gate
