"""Case and round records of the scheduling suite, made by hand: what reports must say of them is known by sight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_npubench.store.journal import Journal, read_journal

from .journals import make_fingerprint, open_journal

Json = dict[str, Any]
WORKLOAD = "layered-arxiv-div32"
RATE = 0.853
LAYERED = f"layered(tokens_per_iteration=64,merge_cap_tokens=1024)/{WORKLOAD}@u0.7"
CHUNKED = f"chunked(chunk_size_tokens=64)/{WORKLOAD}@u0.7"
CHUNKS = {64: (6.4e9, 0.9), 128: (3.6e9, 0.6), 1024: (0.8e9, 0.3)}
COVERAGE = {1: (0.125, 0.0625), 8: (0.6, 0.29), 32: (0.95, 0.547)}
PASSED = {"kind": "passed", "reason": "within its limits", "ratio": None, "interval": None, "mde": None}

# figure -> unit, value under chunked prefill, value under layered prefill, interval of both as fractions of the value
FIGURES: dict[str, tuple[str, float, float, bool]] = {
    "slo_attainment": ("", 0.875, 1.0, True),
    "ttft_attainment": ("", 0.9, 1.0, True),
    "tbt_attainment": ("", 0.95, 1.0, True),
    "ttft_mean_s": ("s", 0.4, 0.2, True),
    "ttft_p50_s": ("s", 0.35, 0.15, True),
    "ttft_p95_s": ("s", 1.2, 0.7, True),
    "ttft_p99_s": ("s", 1.5, 0.9, True),
    "tbt_mean_s": ("s", 0.030, 0.025, True),
    "tbt_p99_s": ("s", 0.080, 0.050, True),
    "e2e_mean_s": ("s", 0.61, 0.375, True),
    "tbt_std_pooled_s": ("s", 0.011, 0.009, False),
    "tbt_std_per_request_s": ("s", 0.0101, 0.0081, False),
    "jain_index": ("", 0.809, 0.85, False),
    "mean_decode_batch_size": ("requests", 3.25, 2.5, False),
    "expert_load_bytes_per_request": ("bytes/request", 2.5e9, 1.55e9, False),
    "num_arrived": ("", 24, 24, False),
    "num_preemptions": ("", 3, 0, False),
}


def case_record(kind: str, *tail: str, **fields: Any) -> Json:
    """A passed case of small-moe on cpu:0, with everything that JudgedCase.to_json writes."""
    model = fields.get("model", "small-moe")
    name = "-".join(("cpu", model, "b32", *tail))
    return {
        "case": f"scheduling/{kind}/{name}",
        "id": name,
        "node": f"suites/scheduling/test_{kind}.py::test[{name}]",
        "hardware": "cpu",
        "model": model,
        "batch_size": 32,
        "axes": {"workload": WORKLOAD, "rate": "u0.7"},
        "digest": "0123456789ab",
        "device": "cpu:0",
        "fingerprint": None,
        "duration_s": 2.0,
        "resumed": False,
        "campaign": f"cpu-{model}-serving",
        "limits": {},
        "verdict": PASSED,
        "what": kind,
        "measured_s": None,
        "predicted_s": None,
        "error": None,
        "error_interval": None,
        "repeat_error": None,
        "metrics": {},
        "detail": {},
        **fields,
    }


def policy_record(policy: str, num_samples: int = 24) -> Json:
    place = 1 if policy == "chunked" else 2
    settings = {
        "chunked": {"chunk_size_tokens": 64},
        "layered": {"tokens_per_iteration": 64, "merge_cap_tokens": 1024},
    }
    figures: Json = {
        name: {
            "unit": row[0],
            "value": row[place],
            "definition": f"what {name} means",
            "num_samples": num_samples,
            "interval": [0.9 * row[place], 1.1 * row[place]] if row[3] else None,
            "note": "the maximum: fewer than 100 samples" if "p99" in name else "",
        }
        for name, row in FIGURES.items()
    }
    figures["energy_mj_per_output_token"] = {
        "unit": "mJ/token",
        "value": None,
        "definition": "energy of the run / output tokens",
        "num_samples": 0,
        "interval": None,
        "note": "no energy counter was read",
    }
    return case_record(
        "policy",
        policy,
        WORKLOAD,
        "u0.7",
        axes={"policy": policy, "workload": WORKLOAD, "rate": "u0.7"},
        what=f"mean TTFT, {policy}, 0.853 req/s",
        measured_s=figures["ttft_mean_s"]["value"],
        repeat_error=0.04,
        metrics={"ttft_mean_s": metric(figures["ttft_mean_s"]["value"], "s")},
        detail={
            "policy": policy,
            "settings": settings.get(policy, {}),
            "workload": WORKLOAD,
            "rate_per_s": RATE,
            "clock": "wall",
            "held_to": {"in_words": "rate and limits frozen on 2026-07-04 in S"},
            "slo": {"ttft_s": 1.2, "tbt_s": 0.0625},
            "num_blocks": 3,
            "figures": figures,
        },
    )


def metric(value: float, unit: str = "ratio") -> Json:
    return {"unit": unit, "value": value, "better": "lower", "samples": [value] * 3, "gate": "ratio"}


def ratio_record(kind: str, model: str = "small-moe", **ratios: float) -> Json:
    return case_record(
        kind,
        WORKLOAD,
        "u0.7",
        model=model,
        metrics={name: metric(value) for name, value in ratios.items()},
        detail={"rate_per_s": RATE, "num_blocks": 3, "published": "Layered Prefill"},
    )


def apart_record() -> Json:
    latencies = {"ttft_mean_s": 0.5, "ttft_p99_s": 1.5, "tbt_mean_s": 0.02, "tbt_p99_s": 0.04}
    return case_record(
        "disaggregated",
        WORKLOAD,
        "u0.7",
        metrics={"tbt_apart_over_layered": metric(0.8), "ttft_apart_over_layered": metric(1.25)},
        detail={
            "rate_per_s": RATE,
            "policies": dict.fromkeys(("chunked", "layered", "hybrid", "disaggregated"), latencies),
            "tbt_interval": [0.7, 0.9],
            "handover": {"num_requests": 24, "bytes": 48e6, "mean_s": 0.003, "longest_s": 0.01},
        },
    )


def chunk_rate_record() -> Json:
    row = {
        "ttft_mean_s": 0.6,
        "tbt_mean_s": 0.02,
        "tbt_p99_s": 0.05,
        "expert_load_bytes_per_request": 2e9,
        "mj_per_prompt_and_output_token": None,
    }
    rows = [
        {"chunk_size_tokens": 64, "rate_per_s": 2.0, "rate_interval": [1.9, 2.2], **row},
        {"chunk_size_tokens": 1024, "rate_per_s": 3.0, "rate_interval": None, **row},
    ]
    ways = {"rate_per_s": True, "tbt_mean_s": False, "expert_load_bytes_per_request": False}
    detail: Json = {"ttft_limit_s": 0.75, "chunk_size_tokens": [64, 1024], "rows": rows, "as_published": ways}
    return case_record("chunk_rate", WORKLOAD, "u0.7", detail=detail)


def served_records() -> list[Json]:
    """One case or more of every kind, on a mixture of experts and on its dense control."""
    chunks = [
        case_record(
            "chunk_sweep",
            f"chunk{size}",
            axes={"chunk": size},
            measured_s=prefill_s,
            repeat_error=0.1,
            detail={"chunk_size_tokens": size, "prompt_tokens": 1024, "expert_load_bytes": loaded},
        )
        for size, (loaded, prefill_s) in CHUNKS.items()
    ]
    coverages = [
        case_record(
            "expert_coverage",
            f"batch{size}",
            axes={"batch": size},
            measured_s=0.02,
            detail={"batch_size": size, "coverage": ours, "published_coverage": theirs},
        )
        for size, (ours, theirs) in COVERAGE.items()
    ]
    groups = {"groups": [2, 4, 8], "ttft_mean_s": [0.2, 0.3, 0.5], "worst_tbt_s": [0.09, 0.06, 0.04]}
    timeline = {"layered_s": [0.2, 0.225, 0.25], "chunked_s": [0.4, 0.43, 0.46]}
    bursts = {name: {"ttft_mean_s": value, "jain_index": 0.8} for name, value in (("layered", 0.5), ("chunked", 1.0))}
    splits = {"layered": [(1.0, 1.0, 1.0), (0.75, 0.8, 0.9)], "chunked": [(0.95, 1.0, 0.95), (0.5, 0.5, 1.0)]}
    capacity = {
        "rate_per_s": [0.8, 1.6],
        "capacity": {"layered": [1.5, [1.4, 1.6]], "chunked": [1.2, None]},
        "capacity_ratio": 1.25,
        "capacity_ratio_interval": [1.1, 1.4],
    }
    return [
        policy_record("chunked"),
        policy_record("layered"),
        ratio_record("expert_loads", expert_load_ratio=0.62, ttft_ratio=0.55, tbt_ratio=0.831, e2e_ratio=0.6149),
        *chunks,
        *coverages,
        case_record("group_sweep", detail={"rate_per_s": RATE, **groups}),
        case_record("attainment", detail={**capacity, "attainment": splits}),
        case_record("timeline", detail={"rate_per_s": RATE, **timeline}),
        case_record("burstiness", detail={"rate_per_s": RATE, "cv": 1.83, "realised_cv": 1.4, **bursts}),
        ratio_record("relaxed_slo", throughput_chunked_over_layered=0.8),
        case_record(
            "energy",
            verdict={**PASSED, "kind": "inconclusive", "reason": "energy unavailable: /sys/x: permission denied"},
            detail={"rate_per_s": RATE, "num_blocks": 3},
        ),
        apart_record(),
        chunk_rate_record(),
        ratio_record("dense_control", "small-dense", ttft_ratio=1.12, tbt_ratio=1.004, e2e_ratio=1.1),
    ]


def round_points(factor: float) -> dict[str, list[float]]:
    """Two requests under two policies, and a decode step. Mean TTFT: layered 0.3, chunked 0.6, times the factor."""
    arrivals = [0.0, 1.0]
    points: dict[str, list[float]] = {"decode/8/16/step_s": [0.02, 0.02], "decode/8/16/expert_activations": [5, 5]}
    for point, ttft_s in ((LAYERED, 0.3), (CHUNKED, 0.6)):
        first, second = (at_s + ttft_s * factor for at_s in arrivals)
        points[f"{point}/request.arrival_s"] = arrivals
        points[f"{point}/request.output_tokens"] = [3, 1]
        points[f"{point}/request.token_times_s"] = [first, first + 0.1, first + 0.2, second]
        points[f"{point}/iteration.expert_load_bytes"] = [1e9] * 50
        points[f"{point}/run"] = [0.0, 2.0, 8, RATE, 1.2, 0.0625]
    return points


def served_journal(path: Path, factors: tuple[float, ...] = (1.2, 0.9, 0.9)) -> tuple[list[Json], Journal]:
    """The records as one session, with rounds of small-moe."""
    with open_journal(path) as writer:
        digest = writer.device(make_fingerprint("A CPU"))
        for index, factor in enumerate(factors):
            writer.append(
                {
                    "record": "round",
                    "fingerprint": digest,
                    "campaign": "cpu-small-moe-serving",
                    "campaign_digest": "0123456789ab",
                    "round": index,
                    "points": round_points(factor),
                    "failures": {},
                    "duration_s": 10.0,
                    "num_late_compiles": 0,
                    "complete": index == len(factors) - 1,
                }
            )
        records = [{**record, "fingerprint": digest} for record in served_records()]
        for record in records:
            writer.append({"record": "case", **record})
        writer.append({"record": "end", "exit_status": 0, "counts": {}})
    return records, read_journal(path)
