"""Every number and text of what a case says beyond its verdict is on the report page.

details.json holds one stored detail or more of each kind, as journals keep them. Numbers are looked for in the digits
and units in which a report may print them: 0.00233 of "ttft_s" as "2.33" (ms), 3.19e9 of "expert_load_bytes" as "3.19"
(GB), 0.0371 of "half_width" as "3.71" (%).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reports.page import read

from pytest_npubench.reports import html
from pytest_npubench.store.journal import Journal
from pytest_npubench.suites import shown

Json = dict[str, Any]
Path_ = tuple[str, ...]

STORED: list[Json] = json.loads(Path(__file__).with_name("details.json").read_text(encoding="utf-8"))
KINDS = sorted({f"{row['suite']}/{row['kind']}" for row in STORED})
FACTORS = {
    "s": (1.0, 1e3, 1e6, 1e9),
    "bytes": (1.0, 1e-3, 1e-6, 1e-9),
    "flops": (1.0, 1e-6, 1e-9, 1e-12),
    "": (1.0, 100.0),
}
"""What turns a stored number into the units of a report, by the unit that ends the field's name."""
NOT_SHOWN: dict[str, tuple[str, ...]] = {
    "buckets/answers": ("lengths", "num_pairs"),
    "buckets/fusion": ("hidden",),
    "buckets/online": (
        "num_requests",
        "figures.ttft.mean_s",
        "figures.ttft.predicted_mean_s",
        "figures.ttft.p99_s",
        "figures.ttft.predicted_p99_s",
        "figures.ttft.mean_spread",
        "figures.ttft.p99_spread",
        "figures.e2e.mean_s",
        "figures.e2e.predicted_mean_s",
        "figures.e2e.p99_s",
        "figures.e2e.predicted_p99_s",
        "figures.e2e.mean_spread",
        "figures.e2e.p99_spread",
        "cost.compile_s",
        "cost.repeats",
        "cost.measure_s",
        "cost.total_s",
        "pairs_s",
    ),
    "buckets/prediction": (
        "mape",
        "num_output_tokens",
        "cost.binaries",
        "cost.compile_s",
        "cost.points",
        "cost.repeats",
        "cost.measure_s",
        "cost.total_s",
        "gate_error",
    ),
    "buckets/profile": (
        "compile_cache",
        "cost.total_s",
        "points_s.profile/128/9",
        "points_s.profile/128/127",
        "spread",
        "declared",
        "points_s.profile/256/9",
        "points_s.profile/256/127",
        "points_s.profile/512/9",
        "points_s.profile/512/255",
    ),
    "buckets/steps": ("jumps",),
    "offload/chunk_sharing": ("arms.run_s", "published"),
    "offload/contention": (
        "arms.bubble_fraction",
        "arms.predicted_s",
        "arms.relative_error",
        "contribution_over_fifo.calm",
    ),
    "offload/factorial": (
        "effects.time.num_rounds",
        "effects.error.num_rounds",
        "effects.weight_bytes.num_rounds",
        "published",
    ),
    "offload/out_of_order": ("arms.relative_error", "simulated.makespan_s", "simulated.over_bound"),
    "offload/shadow_outlier": ("arms.static_s", "arms.dynamic_s", "arms.sync_fraction", "published"),
    "partition/bandwidth": ("published",),
    "partition/bucket_edges": ("published",),
    "partition/decoder_layer": ("published",),
    "partition/gpu_linear": ("slope_s_per_token", "published", "floor_s"),
    "partition/graph_generation": ("base_s", "published"),
    "partition/npu_order": ("weight_first_s", "activation_first_s", "published"),
    "partition/npu_shape": ("published",),
    "partition/npu_stage": ("step_s", "published"),
    "partition/overlap": ("published",),
    "partition/solver_regret": (
        "median_regret",
        "p90_regret",
        "median_prediction_error",
        "p90_prediction_error",
        "shapes",
    ),
    "partition/sync_cost": ("published",),
    "scheduling/answers": ("lengths", "num_pairs"),
    "scheduling/attainment": ("factors",),
    "scheduling/chunk_rate": (
        "rates_tried_per_s",
        "published_table.columns",
        "published_table.units",
        "published_table.rows",
    ),
    "scheduling/disaggregated": (
        "tbt_interval",
        "handover.bytes",
        "handover.longest_s",
        "published_table.columns",
        "published_table.rows",
    ),
    "scheduling/energy": ("published",),
    "scheduling/expert_loads": ("reduction",),
    "scheduling/identical_tokens": (
        "held_to.rate",
        "held_to.limits",
        "held_to.in_words",
        "held_to.full_rate_per_s",
        "held_to.decode_step_s",
        "rate_per_s",
        "num_requests",
        "dtype",
    ),
    "scheduling/policy": (
        "figures.ttft_mean_s.definition",
        "figures.ttft_p50_s.definition",
        "figures.ttft_p95_s.definition",
        "figures.ttft_p99_s.definition",
        "figures.tbt_mean_s.definition",
        "figures.tbt_p99_s.definition",
        "figures.e2e_mean_s.definition",
        "figures.tbt_std_per_request_s.value",
        "figures.expert_load_bytes_per_request.unit",
        "figures.energy_mj_per_output_token.unit",
        "rate_per_s",
        "slo.ttft_s",
        "slo.tbt_s",
    ),
    "scheduling/simulated_coverage": (
        "most_misses",
        "rows.error",
        "rows.half_width",
        "rows.p99_error",
        "errors.ttft.mean_s",
        "errors.ttft.predicted_mean_s",
        "errors.ttft.p99_s",
        "errors.ttft.predicted_p99_s",
        "errors.ttft.round_mean_error",
        "errors.ttft.round_p99_error",
        "errors.ttft.mean_spread",
        "errors.ttft.p99_spread",
        "errors.e2e.mean_s",
        "errors.e2e.predicted_mean_s",
        "errors.e2e.p99_s",
        "errors.e2e.predicted_p99_s",
        "errors.e2e.round_mean_error",
        "errors.e2e.round_p99_error",
        "errors.e2e.mean_spread",
        "errors.e2e.p99_spread",
    ),
    "server/answers": ("again", "at_once", "neighbour", "allowed"),
    "server/open_load": (
        "clock",
        "api",
        "client.dispatch_lag_p99_s",
        "client.loop_stall_p99_s",
        "client.loop_stall_worst_s",
        "figures.ttft_mean_s.definition",
        "figures.ttft_p99_s.definition",
        "figures.ttft_p99_s.note",
        "figures.tbt_mean_s.definition",
        "figures.e2e_mean_s.definition",
    ),
}
"""By kind, the figures that its charts and tables leave out."""


def case_of(row: Json) -> Json:
    """The case record in which a journal keeps the detail."""
    return {
        "case": f"{row['suite']}/{row['kind']}/{'-'.join(map(str, row['axes'].values()))}",
        "id": "-".join(map(str, row["axes"].values())),
        "hardware": "cpu",
        "model": "small",
        "batch_size": 1,
        "axes": row["axes"],
        "device": "cpu:0",
        "fingerprint": None,
        "campaign": "c",
        "metrics": {},
        "detail": row["detail"],
        **{name: row.get(name) for name in ("measured_s", "predicted_s", "error", "repeat_error")},
        "what": row["kind"],
        "verdict": {"kind": "passed", "reason": "", "ratio": None, "interval": None, "mde": None},
    }


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Each number and text with the names that lead to it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, path)
    elif value not in (None, "") and not isinstance(value, bool):
        yield path, value


def factors(path: Path_) -> tuple[float, ...]:
    """Of the innermost name that ends in a unit."""
    for name in reversed(path):
        before_per = name.partition("_per_")[0]
        unit = before_per.rpartition("_")[2]
        if unit in FACTORS or before_per == "seconds":
            return FACTORS.get(unit, FACTORS["s"])
    return FACTORS[""]


def printed(value: float, path: Path_) -> set[str]:
    """What a report may print the number as."""
    scaled = [value * factor for factor in factors(path)]
    texts = {f"{number:{digits}}" for number in scaled for digits in (".4g", ".3g", ".2f", "+.2f")}
    return texts | {f"{number:,.0f}" for number in scaled if abs(number) >= 100 or number == round(number)}


def is_shown(value: Any, path: Path_, text: str, words: frozenset[str]) -> bool:
    if isinstance(value, str):
        return " ".join(value.split()).casefold() in text or value.replace("_", "-").casefold() in text
    return not words.isdisjoint(printed(value, path))


@pytest.mark.parametrize("kind", KINDS)
def test_every_leaf_of_a_detail_is_on_the_page(kind: str) -> None:
    rows = [row for row in STORED if f"{row['suite']}/{row['kind']}" == kind]
    journal = Journal(path=Path("j"), sessions=(), records=(), torn=())
    page = read(html.render_html([case_of(row) for row in rows], journal, shown))
    section = " ".join(part.text for part in page.all("section") if part.attributes.get("class") == "campaign")
    words = frozenset(re.findall(r"[-+]?[\d.,]*\d(?:e[-+]?\d+)?", section))
    missing = [
        f"{'.'.join(path)} = {value}"
        for row in rows
        for path, value in leaves(row["detail"])
        if ".".join(path) not in NOT_SHOWN.get(kind, ()) and not is_shown(value, path, section.casefold(), words)
    ]
    assert not missing
