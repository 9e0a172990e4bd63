"""Layered Prefill's tables on the virtual clock, the paper's figures in brackets, as docs/measurements shows them.

    python benchmarks/published_tables.py

Each figure is the mean over 10 seeds of traces of 100 requests, the length of the paper's, stretched to have the rate
exactly. A single trace of them is `npubench simulate --num-requests 100 --seed S`, at the rate that its arrivals came
to.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from papers import published

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.engines.kv_capacity import default_kv_capacity_tokens
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.cli.simulation import System, arriving, arriving_at, simulate
from pytest_npubench.extensions.planning.virtual.router import sampled_router
from pytest_npubench.serving.arrivals import replay
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.serving.metrics import summarize
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.workloads import workload

PAPER = published("layered_prefill")
SPECS = load_all([default_directory()])
QWEN, GPT, DENSE = "qwen3-30b-a3b", "gpt-oss-20b", "qwen3-8b"
ARXIV, SHAREGPT = "layered-arxiv", "layered-sharegpt"
NUM_REQUESTS, NUM_SEEDS = 100, 10
# our metric, the paper's column, what a unit of ours is in its unit
LATENCIES = (
    ("ttft_mean_s", "ttft_mean", 1),
    ("ttft_p99_s", "ttft_p99", 1),
    ("tbt_mean_s", "tbt_mean", 1e3),
    ("tbt_p99_s", "tbt_p99", 1e3),
)


def served(
    policy: str,
    name: str,
    rate_per_s: float,
    *,
    model: str = QWEN,
    hardware: str = "nvidia-h100",
    devices: int = 2,
    cv: float | None = None,
    moe_routing: str | None = None,
    **settings: int,
) -> Mapping[str, float]:
    shape, spec = decoder_shape(model), SPECS[hardware]
    capacity = default_kv_capacity_tokens(shape, spec, tensor_parallel=devices, dtype="bf16")
    runs = []
    for seed in range(NUM_SEEDS):
        system = System(
            shape=shape,
            spec=spec,
            tensor_parallel=devices,
            dtype="bf16",
            kv_capacity_tokens=capacity,
            seed=0,
            moe_routing=moe_routing,
        )
        lengths = workload(name).sample(NUM_REQUESTS, seed=seed, max_total_tokens=capacity).requests
        arrivals = arriving(lengths, rate_per_s=rate_per_s, cv=cv, seed=seed)
        times_s = replay([request.arrival_s for request in arrivals], rate_per_s)
        result = simulate(system, policy, settings, arriving_at(times_s, lengths))
        runs.append({metric.name: metric.value for metric in summarize(result, num_experts=shape.num_experts)})
    return {key: float(np.mean([run[key] for run in runs])) for key in runs[0] if None not in [r[key] for r in runs]}


def heading(title: str, *columns: str) -> None:
    print(f"\n**{title}**\n\n| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")


def row(name: str, *cells: tuple[float, float | str | None]) -> None:
    """Ours, and the paper's in brackets where it prints one."""
    shown = (f"{ours:,.0f}" if ours >= 100 else f"{ours:.3g}" for ours, _ in cells)
    printed = ("" if theirs is None else f" ({theirs})" for _, theirs in cells)
    print(f"| {name} | {' | '.join(map(''.join, zip(shown, printed, strict=True)))} |")


def latencies(table: str, name: str, found: Mapping[str, float], **printed: float | str) -> None:
    columns = PAPER.table(table).columns
    cells = [
        (found[ours] * scale, PAPER.table(table).value(theirs, **printed) if theirs in columns else None)
        for ours, theirs, scale in LATENCIES
    ]
    row(name, *cells)


def coverages() -> None:
    shape, router = decoder_shape(QWEN), sampled_router(decoder_shape(QWEN), 0)
    each = shape.num_layers * shape.num_experts
    heading("Table 1, coverage of a decode batch, %", *(str(size) for size in PAPER.table("1").column("batch_size")))
    drawn = []
    for size, theirs in PAPER.table("1").rows:
        counts = [router.decode_activations(step, 0, shape.num_layers, int(size)) for step in range(32)]
        drawn.append((100 * float(np.mean(counts)) / each, theirs))
    row("coverage", *drawn)
    heading(
        "Figure 2, expert loads of one prompt of 8,192 tokens, GB",
        *map(str, PAPER.table("figure 2").column("chunk_size")),
    )
    loads = []
    for chunk, theirs in PAPER.table("figure 2").rows:
        prompts = [(PrefillRow(request, 0, int(chunk)),) for request in range(32)]
        counts = [router.activations(0, 0, shape.num_layers, 0, prompt) for prompt in prompts]
        loads.append((float(np.mean(counts)) * 8192 / int(chunk) * shape.expert_bytes(2) / 1e9, theirs))
    row("by chunk size", *loads)


def main() -> None:
    coverages()
    four = ("TTFT mean, s", "TTFT p99, s", "TBT mean, ms", "TBT p99, ms")
    heading("Table 6, arXiv at 1.3 requests/s", *four)
    for policy in ("chunked", "layered"):
        latencies("6", policy, served(policy, ARXIV, 1.3), policy=policy)
    heading("Table 7, expert loads of 100 requests", "chunked, TB", "layered, TB", "reduction, %")
    for name, rate_per_s in ((ARXIV, 1.3), (SHAREGPT, 4.0)):
        ours = [served(policy, name, rate_per_s)["expert_load_bytes"] / 1e12 for policy in ("chunked", "layered")]
        theirs = [PAPER.table("7").value("expert_load", workload=name, policy=p) for p in ("chunked", "layered")]
        reduction = PAPER.table("7").value("reduction", workload=name, policy="layered")
        both = zip(ours, theirs, strict=True)
        row(f"{name} at {rate_per_s}", *both, (100 * (1 - ours[1] / ours[0]), reduction))
    heading("Table 11, arXiv at 1.4 requests/s (the paper's tail of TTFT is p95)", *four)
    for groups in PAPER.table("11").column("layer_groups"):
        found = served("layered", ARXIV, 1.4, num_layer_groups=int(groups))
        latencies("11", f"{groups} groups", found, layer_groups=groups)
    heading("Table 2, arXiv", *four, "GB/request")
    for chunk, rate_per_s in zip(PAPER.table("2").column("chunk_size"), PAPER.table("2").column("rate"), strict=True):
        found = served("chunked", ARXIV, float(rate_per_s), chunk_size_tokens=int(chunk))
        cells = [
            (found[metric] * scale, PAPER.table("2").value(theirs, chunk_size=chunk))
            for metric, theirs, scale in (*LATENCIES, ("expert_load_bytes", "expert_load", 1e-9 / NUM_REQUESTS))
        ]
        row(f"chunk {chunk} at {rate_per_s}", *cells)
    heading("Table 8, gpt-oss-20b on arXiv", *four)
    for policy, rate_per_s in (("chunked", 2.1), ("layered", 2.1), ("layered", 2.7)):
        found = served(policy, ARXIV, rate_per_s, model=GPT)
        latencies("8", f"{policy} at {rate_per_s}", found, model=GPT, policy=policy, rate=rate_per_s)
    heading("Table 9, two A100s, arXiv at 0.5 requests/s", *four)
    for policy, settings in (("chunked", {}), ("layered", {"num_layer_groups": 16})):
        found = served(policy, ARXIV, 0.5, hardware="nvidia-a100", **settings)
        latencies("9", policy, found, hardware="nvidia-a100", policy=policy)
    heading("Tables 6, 7 and 9 with measured MoE layers, power-law routing", *four, "expert TB")
    for table, hardware, rate_per_s, groups in (("6", "nvidia-h100", 1.3, None), ("9", "nvidia-a100", 0.5, 16)):
        for policy in ("chunked", "layered"):
            settings = {"num_layer_groups": groups} if groups and policy == "layered" else {}
            found = served(policy, ARXIV, rate_per_s, hardware=hardware, moe_routing="power-law", **settings)
            where = {"policy": policy} | ({"hardware": hardware} if table == "9" else {})
            cells = [
                (found[metric] * scale, PAPER.table(table).value(theirs, **where))
                for metric, theirs, scale in LATENCIES
            ]
            row(f"{hardware}, {policy} at {rate_per_s}", *cells, (found["expert_load_bytes"] / 1e12, None))
    heading("Table 10, arXiv at 1.4 requests/s (the paper prints no rate)", *four)
    for policy in ("chunked", "disaggregated", "layered"):
        latencies("10", policy, served(policy, ARXIV, 1.4), policy=policy)
    heading("Table 12, arXiv at 1.4 requests/s", *four, "TBT std, ms", "Jain index")
    for cv in (1, 1.83):
        for policy in ("chunked", "layered"):
            found = served(policy, ARXIV, 1.4, cv=None if cv == 1 else cv)
            others = (("tbt_std_pooled_s", "tbt_std", 1e3), ("jain_index", "jain_index", 1))
            cells = [
                (found[metric] * scale, PAPER.table("12").value(theirs, cv=cv, policy=policy))
                for metric, theirs, scale in (*LATENCIES, *others)
            ]
            row(f"{policy}, CV {cv}", *cells)
    heading("Section 5.9, a relaxed limit: arXiv at 2.5 requests/s", *four)
    large_chunks, few_groups = (
        served("chunked", ARXIV, 2.5, chunk_size_tokens=2048),
        served("layered", ARXIV, 2.5, num_layer_groups=4),
    )
    latencies("5.9 relaxed", "chunked, 2048", large_chunks, policy="chunked")
    latencies("5.9 relaxed", "layered, 4 groups", few_groups, policy="layered")
    heading("Section 5.13, dense qwen3-8b on one H100, arXiv at 1.5 requests/s", *four)
    for policy in ("chunked", "layered"):
        latencies("5.13", policy, served(policy, ARXIV, 1.5, model=DENSE, devices=1), policy=policy)


if __name__ == "__main__":
    main()
