"""Case and round records of the scheduling suite, made by hand: what reports must say of them is known by sight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from made_records import judged_record

from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.campaign.served_metrics import ServedFigure, SloDetail
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.serving.metrics import RequestRecord, Slo
from pytest_npubench.store.journal import Journal, read_journal
from pytest_npubench.suites.scheduling.experiment import HeldTo
from pytest_npubench.suites.scheduling.kinds.attainment import AttainmentDetail
from pytest_npubench.suites.scheduling.kinds.burstiness import BurstinessDetail
from pytest_npubench.suites.scheduling.kinds.chunk_rate import ChunkRateDetail, ChunkRateRow
from pytest_npubench.suites.scheduling.kinds.chunk_sweep import ChunkSweepDetail
from pytest_npubench.suites.scheduling.kinds.dense_control import DenseControlDetail
from pytest_npubench.suites.scheduling.kinds.disaggregated import DisaggregatedDetail, Handover, Latencies
from pytest_npubench.suites.scheduling.kinds.energy import EnergyDetail
from pytest_npubench.suites.scheduling.kinds.expert_coverage import ExpertCoverageDetail
from pytest_npubench.suites.scheduling.kinds.expert_loads import ExpertLoadsDetail
from pytest_npubench.suites.scheduling.kinds.group_sweep import GroupSweepDetail
from pytest_npubench.suites.scheduling.kinds.policy import PolicyDetail
from pytest_npubench.suites.scheduling.kinds.relaxed_slo import RelaxedSloDetail
from pytest_npubench.suites.scheduling.kinds.timeline import TimelineDetail
from pytest_npubench.suites.scheduling.points import DecodeSteps
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement, Metric

from .journals import make_fingerprint, open_journal, round_records

Json = dict[str, Any]
WORKLOAD = "layered-arxiv-div32"
RATE = 0.853
ARRIVALS_S = (0.0, 1.0)
LAYERED = f"layered(tokens_per_iteration=64,merge_cap_tokens=1024)/{WORKLOAD}@u0.7"
CHUNKED = f"chunked(chunk_size_tokens=64)/{WORKLOAD}@u0.7"
CHUNKS = {64: (6_400_000_000, 0.9), 128: (3_600_000_000, 0.6), 1024: (800_000_000, 0.3)}
COVERAGE = {1: 0.125, 8: 0.6, 32: 0.95}
AXES: Axes = (("workload", WORKLOAD), ("rate", "u0.7"))
PASSED = Verdict(kind=VerdictKind.PASSED, reason="within its limits")

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


def case_record(
    kind: str,
    detail: object = None,
    *,
    metrics: Iterable[Metric] = (),
    verdict: Verdict = PASSED,
    what: str | None = None,
    model: str = "small-moe",
    axes: Axes = AXES,
    measured_s: float | None = None,
    repeat_error: float | None = None,
    engine: str | None = None,
    device: str = "cpu:0",
) -> Json:
    """A case of cpu:0 as a journal has it."""
    case = Case(
        suite="scheduling", kind=kind, hardware="cpu", family="cpu", model=model, batch_size=32, axes=tuple(axes)
    )
    judgement = Judgement(
        verdict=verdict,
        what=kind if what is None else what,
        metrics=tuple(metrics),
        measured_s=measured_s,
        repeat_error=repeat_error,
        detail={} if detail is None else detail,
        engine=engine,
    )
    return judged_record(case, judgement, device=device, duration_s=2.0, campaign=f"cpu-{model}-serving")


def policy_detail(policy: str, num_samples: int = 24) -> PolicyDetail:
    place = 1 if policy == "chunked" else 2
    settings: dict[str, dict[str, int]] = {
        "chunked": {"chunk_size_tokens": 64},
        "layered": {"tokens_per_iteration": 64, "merge_cap_tokens": 1024},
    }
    figures = {
        name: ServedFigure(
            unit=row[0],
            value=(value := float((row[1], row[2])[place - 1])),
            definition=f"what {name} means",
            num_samples=num_samples,
            interval=(0.9 * value, 1.1 * value) if row[3] else None,
            note="the maximum: fewer than 100 samples" if "p99" in name else "",
        )
        for name, row in FIGURES.items()
    }
    figures["energy_mj_per_output_token"] = ServedFigure(
        unit="mJ/token",
        value=None,
        definition="energy of the run / output tokens",
        num_samples=0,
        interval=None,
        note="no energy counter was read",
    )
    frozen = "frozen on 2026-07-04 in S"
    return PolicyDetail(
        policy=policy,
        settings=settings.get(policy, {}),
        workload=WORKLOAD,
        rate_per_s=RATE,
        clock="wall",
        slo=SloDetail(ttft_s=1.2, tbt_s=0.0625),
        num_blocks=3,
        figures=figures,
        held_to=HeldTo(rate=frozen, limits=frozen, in_words=f"rate and limits {frozen}"),
    )


def policy_record(policy: str, num_samples: int = 24, **fields: Any) -> Json:
    detail = fields.pop("detail", policy_detail(policy, num_samples))
    mean_s = detail.figures["ttft_mean_s"].value
    return case_record(
        "policy",
        detail,
        **{
            "axes": (("policy", policy), *AXES),
            "what": f"mean TTFT, {policy}, 0.853 req/s",
            "measured_s": mean_s,
            "repeat_error": 0.04,
            "metrics": [metric("ttft_mean_s", mean_s, "s")],
            **fields,
        },
    )


def metric(name: str, value: float, unit: str = "ratio", samples: tuple[float, ...] | None = None) -> Metric:
    return Metric(name=name, unit=unit, value=value, samples=(value,) * 3 if samples is None else samples)


def ratios(**values: float) -> list[Metric]:
    return [metric(name, value) for name, value in values.items()]


LOADS = ExpertLoadsDetail(reduction=0.38, rate_per_s=RATE, layered_bytes=62e9, chunked_bytes=100e9, num_blocks=3)
DENSE = DenseControlDetail(rate_per_s=RATE, num_blocks=3)
RELAXED = RelaxedSloDetail(workload=WORKLOAD, num_blocks=3, relaxed_factor=4)
_LATENCIES = Latencies(ttft_mean_s=0.5, ttft_p99_s=1.5, tbt_mean_s=0.02, tbt_p99_s=0.04)
APART = DisaggregatedDetail(
    rate_per_s=RATE,
    num_blocks=3,
    policies=dict.fromkeys(("chunked", "layered", "hybrid", "disaggregated"), _LATENCIES),
    tbt_interval=(0.7, 0.9),
    ttft_interval=None,
    handover=Handover(num_requests=24, bytes=48_000_000, mean_s=0.003, longest_s=0.01),
)
_ROW = ChunkRateRow(
    chunk_size_tokens=64,
    rate_per_s=2.0,
    rate_interval=(1.9, 2.2),
    ttft_mean_s=0.6,
    tbt_mean_s=0.02,
    tbt_p99_s=0.05,
    expert_load_bytes_per_request=2e9,
    mj_per_prompt_and_output_token=None,
)
CHUNK_RATES = ChunkRateDetail(
    ttft_limit_s=0.75,
    chunk_size_tokens=(64, 1024),
    rates_tried_per_s=((1.0, 2.0), (2.0, 4.0)),
    num_blocks=3,
    why=("", ""),
    rows=(_ROW, replace(_ROW, chunk_size_tokens=1024, rate_per_s=3.0, rate_interval=None)),
)
ATTAINMENT = AttainmentDetail(
    factors=(0.8, 1.2),
    rate_per_s=(0.8, 1.6),
    attainment={
        "layered": ((1.0, 1.0, 1.0), (0.75, 0.8, 0.9)),
        "chunked": ((0.95, 1.0, 0.95), (0.5, 0.5, 1.0)),
    },
    capacity={"layered": (1.5, (1.4, 1.6)), "chunked": (1.2, None)},
    capacity_ratio=1.25,
    capacity_ratio_interval=(1.1, 1.4),
)
GROUPS = GroupSweepDetail(
    rate_per_s=RATE,
    groups=(2, 4, 8),
    ttft_mean_s=(0.2, 0.3, 0.5),
    worst_tbt_s=(0.09, 0.06, 0.04),
)
TIMELINE = TimelineDetail(rate_per_s=RATE, layered_s=(0.2, 0.225, 0.25), chunked_s=(0.4, 0.43, 0.46))
BURSTS = BurstinessDetail(
    rate_per_s=RATE,
    cv=1.83,
    realised_cv=1.4,
    layered={"ttft_mean_s": 0.5, "jain_index": 0.8},
    chunked={"ttft_mean_s": 1.0, "jain_index": 0.8},
)
ENERGY = EnergyDetail(rate_per_s=RATE, num_blocks=3)
NO_ENERGY = Verdict(kind=VerdictKind.INCONCLUSIVE, reason="energy unavailable: /sys/x: permission denied")


def apart_record() -> Json:
    return case_record("disaggregated", APART, metrics=ratios(tbt_apart_over_layered=0.8, ttft_apart_over_layered=1.25))


def served_records() -> list[Json]:
    """One case or more of every kind, on a mixture of experts and on its dense control."""
    chunks = [
        case_record(
            "chunk_sweep",
            ChunkSweepDetail(chunk_size_tokens=size, prompt_tokens=1024, expert_load_bytes=loaded),
            axes=(("chunk", size),),
            measured_s=prefill_s,
            repeat_error=0.1,
        )
        for size, (loaded, prefill_s) in CHUNKS.items()
    ]
    coverages = [
        case_record(
            "expert_coverage",
            ExpertCoverageDetail(batch_size=size, coverage=coverage),
            axes=(("batch", size),),
            measured_s=0.02,
        )
        for size, coverage in COVERAGE.items()
    ]
    loads = ratios(expert_load_ratio=0.62, ttft_ratio=0.55, tbt_ratio=0.831, e2e_ratio=0.6149)
    return [
        policy_record("chunked"),
        policy_record("layered"),
        case_record("expert_loads", LOADS, metrics=loads),
        *chunks,
        *coverages,
        case_record("group_sweep", GROUPS),
        case_record("attainment", ATTAINMENT),
        case_record("timeline", TIMELINE),
        case_record("burstiness", BURSTS),
        case_record("relaxed_slo", RELAXED, metrics=ratios(throughput_chunked_over_layered=0.8)),
        case_record("energy", ENERGY, verdict=NO_ENERGY),
        apart_record(),
        case_record("chunk_rate", CHUNK_RATES),
        case_record(
            "dense_control",
            DENSE,
            model="small-dense",
            metrics=ratios(ttft_ratio=1.12, tbt_ratio=1.004, e2e_ratio=1.1),
        ),
    ]


def made_block(ttft_s: float) -> ServedBlock:
    """Two requests, of three tokens and of one, with this time to their first."""
    first, second = (at_s + ttft_s for at_s in ARRIVALS_S)
    times_s = ((first, first + 0.1, first + 0.2), (second,))
    return ServedBlock(
        records=tuple(
            RequestRecord(
                id=index,
                arrival_s=arrival_s,
                dispatched_s=arrival_s,
                scheduled_s=arrival_s,
                prompt_tokens=8,
                output_tokens=len(times_s[index]),
                token_times_s=times_s[index],
            )
            for index, arrival_s in enumerate(ARRIVALS_S)
        ),
        started_s=0.0,
        ended_s=2.0,
        num_layers=8,
        rate_per_s=RATE,
        slo=Slo(ttft_s=1.2, tbt_s=0.0625),
    )


def round_points(factor: float) -> dict[str, list[float]]:
    """Two requests under two policies, and a decode step. Mean TTFT: layered 0.3, chunked 0.6, times the factor."""
    visits = {
        "decode/8/16": DecodeSteps(step_s=(0.02, 0.02), expert_activations=(5, 5)),
        LAYERED: made_block(0.3 * factor),
        CHUNKED: made_block(0.6 * factor),
    }
    return {
        f"{point}/{name}": list(values) for point, visit in visits.items() for name, values in visit.columns().items()
    }


def served_journal(path: Path, factors: tuple[float, ...] = (1.2, 0.9, 0.9)) -> tuple[list[Json], Journal]:
    """The records as one session, with rounds of small-moe."""
    with open_journal(path) as writer:
        digest = writer.device(make_fingerprint("A CPU"))
        about = {"fingerprint": digest, "campaign": "cpu-small-moe-serving"}
        for record in round_records(list(map(round_points, factors)), **about):
            writer.append(record)
        records = [{**record, "fingerprint": digest} for record in served_records()]
        for record in records:
            writer.append({"record": "case", **record})
        writer.append({"record": "end", "exit_status": 0, "counts": {}})
    return records, read_journal(path)
