"""The solver against a brute force of its own: splits by plain loops, times by the formula written out."""

from __future__ import annotations

import io
import json
from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from pytest_npubench.errors import PartitionError, RegistryError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul
from pytest_npubench.extensions.pairs.partition.model_shapes import OperatorShape
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.plan import lengths_of, make_plan, single_unit_s
from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile, SyncLatency
from pytest_npubench.extensions.pairs.partition.solver import solve, split_text

from .paper_table import decode_profile, matmul
from .profiles import COLS, ROWS, full_profile, latency, profile, random_profile

SIZES = (1, 16, 48)
OPTIONS = SplitOptions(standard_sizes=SIZES, tile=32, max_small_parts=2)


def operator(tokens: int) -> Matmul:
    return Matmul(name="ffn_down", rows=ROWS, cols=COLS, tokens=tokens)


def brute_force_s(found: PartitionProfile, tokens: int) -> list[float]:
    """Every split's time: [(GPU rows, GPU tokens)] and [(NPU rows, graph, true tokens)] by hand."""
    graphs, rest = [], tokens
    while rest > 48:
        graphs, rest = [*graphs, 48], rest - 48
    graphs.append(min(size for size in SIZES if size >= rest))
    plans = [([(ROWS, tokens)], []), ([], held(ROWS, graphs, tokens))]
    shares = (0.25, 0.5, 0.75) if tokens == 1 else (0.2, 0.4, 0.6, 0.8)
    for share in shares:
        npu_rows = round((1 - share) * ROWS / 32) * 32
        if 0 < npu_rows < ROWS:
            plans.append(([(ROWS - npu_rows, tokens)], held(npu_rows, graphs, tokens)))
    for num in range(tokens // 48 + 1):
        for few in (0, 1, 2):
            for small in combinations_with_replacement((16, 1), few):
                sizes = (48,) * num + small
                if sizes and sum(sizes) < tokens:
                    plans.append(([(ROWS, tokens - sum(sizes))], held(ROWS, sizes, sum(sizes))))
    return [time_s(found, tokens, gpu, npu) for gpu, npu in plans]


def held(rows: int, graphs, tokens: int) -> list[tuple[int, int, int]]:
    parts = []
    for graph in graphs:
        parts.append((rows, graph, min(graph, tokens)))
        tokens -= graph
    return parts


def time_s(found: PartitionProfile, tokens: int, gpu_parts, npu_parts) -> float:
    measured = {item.key: item.median_s for item in found.latencies}
    gpu = sum(measured[GPU, rows, COLS, true, False] for rows, true in gpu_parts)
    npu = sum(measured[NPU, rows, COLS, graph, False] for rows, graph, _ in npu_parts)
    sync = found.syncs[0].p50_s
    (small, low), (large, high) = ((item.num_bytes, item.median_s) for item in found.copies)
    copy = 0.0
    for rows, _, true in npu_parts:
        size = rows * true * 4
        copy += low if size < small else low + (high - low) * (size - small) / (large - small)
    if not npu_parts:
        return gpu
    if not gpu_parts:
        return npu + sync + copy
    near = min(found.slowdowns, key=lambda item: max(item.tokens / tokens, tokens / item.tokens))
    gpu_slow, npu_slow = near.gpu[0], near.npu[0]
    if gpu * gpu_slow < npu * npu_slow:
        gpu, npu = gpu * gpu_slow, gpu * gpu_slow + (npu - gpu * gpu_slow / npu_slow)
    else:
        gpu, npu = npu * npu_slow + (gpu - npu * npu_slow / gpu_slow), npu * npu_slow
    inside = found.decode_sync_inside if tokens == 1 else found.prefill_sync_inside
    npu += (sync if inside else 0) + (copy if found.copy_inside else 0)
    return max(gpu, npu) + (0 if inside else sync) + (0 if found.copy_inside else copy)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10_000), tokens=st.integers(1, 120))
def test_nothing_is_faster_by_the_model(seed, tokens):
    found = random_profile(seed, OPTIONS, [tokens])
    decision = solve(found, operator(tokens))
    times_s = brute_force_s(found, tokens)
    assert decision.predicted_s == pytest.approx(min(times_s), rel=1e-9)
    assert len(decision.alternatives) == len(times_s)
    assert sorted(item.predicted_s for item in decision.alternatives) == pytest.approx(sorted(times_s), rel=1e-9)
    assert decision.alternatives[0] == decision.chosen


@settings(max_examples=40, deadline=None)
@given(seeds=st.lists(st.integers(0, 10_000), min_size=4, max_size=4), tokens=st.integers(1, 120))
def test_no_assignment_of_whole_operators_is_faster(seeds, tokens):
    """Of all 16 ways to give four operators to two units, with synchronisation and copy where it is the NPU."""
    profiles = [random_profile(seed, OPTIONS, [tokens]) for seed in seeds]
    alone_s = [dict(zip((GPU, NPU), brute_force_s(profile, tokens), strict=False)) for profile in profiles]
    every = {
        units: sum(of_unit[unit] for of_unit, unit in zip(alone_s, units, strict=True))
        for units in product((GPU, NPU), repeat=len(seeds))
    }
    decided = tuple(solve(profile, operator(tokens)).whole.units[0] for profile in profiles)
    assert every[decided] == pytest.approx(min(every.values()), rel=1e-9)


def test_a_decision_explains_itself():
    decision = solve(decode_profile(sync_us=50, contention=1), matmul(28672, 4096, 1))
    assert decision.explain().splitlines() == [
        "operator [28672, 4096] x 1: weight_centric rows 3:1 (21504:7168), 1477 us (gpu 1427 us, npu 971 us,"
        " sync 50 us; sync by flag)",
        "  why not gpu_only: +29%, 1903 us with all on gpu",
        "  why not npu_only: +166%, 3936 us with all on npu as 1",
        "  why not activation_centric: it has no split of this operator and length",
        "  why not hybrid: it has no split of this operator and length",
    ]


def test_the_words_for_splits():
    found = full_profile(OPTIONS, [30], lambda rows, tokens: rows * tokens * 1e-9, lambda rows, tokens: rows * 1e-7)
    words = {split_text(operator(30), item.split) for item in solve(found, operator(30)).alternatives}
    assert {"all on gpu", "all on npu as 48", "tokens 14 : 16", "tokens 13 : 16+1"} <= words
    assert "rows 3:5 (96:160), npu padded to 48" in words


def test_strategies_can_be_named_and_baselines_asked_for():
    found = full_profile(OPTIONS, [30], lambda rows, tokens: rows * 1e-3, lambda rows, tokens: rows * tokens * 1e-7)
    assert solve(found, operator(30), strategies=["gpu_only"]).strategy == "gpu_only"
    assert {item.strategy for item in solve(found, operator(30)).alternatives}.isdisjoint({"pipe", "chunked"})
    pipe = solve(found, operator(30), strategies=["pipe", "npu_only"])
    assert (pipe.strategy, split_text(operator(30), pipe.split)) == ("pipe", "all on npu as 16" + "+1" * 14)
    with pytest.raises(RegistryError, match="no strategy 'magic'"):
        solve(found, operator(30), strategies=["magic"])


def test_what_cannot_be_priced_is_said():
    gpu_alone = profile([latency(GPU, ROWS, 30, 1e-3)], OPTIONS)
    decision = solve(gpu_alone, operator(30))
    assert decision.strategy == "gpu_only"
    assert dict(decision.left_out)["npu_only"] == "nothing of a weight [256, 64] was measured on the npu"
    with pytest.raises(PartitionError, match=r"\[256, 65\] x 30: no split: activation_centric: nothing of a weight"):
        solve(gpu_alone, Matmul(name="ffn_down", rows=ROWS, cols=65, tokens=30))
    with pytest.raises(PartitionError, match="want 1 or more rows, columns and tokens"):
        solve(gpu_alone, operator(0))
    with pytest.raises(PartitionError, match="no synchronisation by 'pipe'; measured: flag"):
        solve(gpu_alone, operator(30), mechanism="pipe")


def test_the_mechanism_counts():
    syncs = tuple(SyncLatency(mechanism=name, p50_s=p50_s, p99_s=1) for name, p50_s in (("flag", 1e-6), ("pipe", 1e-3)))
    found = full_profile(OPTIONS, [48], lambda r, t: r * t * 1e-8, lambda r, t: r * t * 1e-8, syncs=syncs)
    assert solve(found, operator(48)).strategy == "weight_centric"
    assert solve(found, operator(48), mechanism="pipe").strategy == "gpu_only"


SHAPES = (
    OperatorShape(name="attention_q", rows=4096, cols=4096),
    OperatorShape(name="ffn_down", rows=4096, cols=14336),
)


def test_a_plan_for_reading_and_for_loading():
    plan = make_plan(decode_profile(sync_us=50, contention=1), "llama-8b", SHAPES, [1, 2])
    assert [(item.matmul.name, item.matmul.tokens) for item in plan.decisions] == [
        *(("attention_q", 1), ("attention_q", 2), ("ffn_down", 1), ("ffn_down", 2))
    ]
    assert plan.decision("ffn_down", 1).strategy == "gpu_only"
    assert single_unit_s(plan.decision("attention_q", 1)) == pytest.approx(511e-6)
    data = json.loads(json.dumps(plan.to_json()))
    assert data["decisions"][0]["parts"][0] == {
        "unit": "gpu",
        "first_row": 0,
        "num_rows": 2048,
        "first_token": 0,
        "num_tokens": 1,
        "padded_tokens": 1,
    }
    assert data["decisions"][0]["predicted"]["total_s"] == pytest.approx(396.5e-6)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(plan.table())
    shown = console.export_text()
    assert "[4096, 14336]" in shown
    assert "x1.29" in shown


def test_a_plan_leaves_out_what_the_profile_does_not_know():
    shapes = (*SHAPES, OperatorShape(name="lm_head", rows=10, cols=3))
    plan = make_plan(decode_profile(sync_us=50, contention=1), "llama-8b", shapes, [1])
    assert [(name, tokens) for name, tokens, _ in plan.left_out] == [("lm_head", 1)]
    with pytest.raises(
        PartitionError, match="the plan of llama-8b has no lm_head x 1; it has attention_q x 1, ffn_down"
    ):
        plan.decision("lm_head", 1)
    with pytest.raises(PartitionError, match="the profile does not know other: lm_head"):
        make_plan(decode_profile(sync_us=50, contention=1), "other", shapes[2:], [1])
    with pytest.raises(PartitionError, match="want one or more, each 1 token or more"):
        make_plan(decode_profile(sync_us=50, contention=1), "llama-8b", SHAPES, [0])


def test_the_lengths_a_profile_knows():
    assert lengths_of(decode_profile(sync_us=50, contention=1)) == (1,)


def test_only_npu_parts_of_a_standard_size_are_chosen():
    found = random_profile(3, OPTIONS, [77])
    assert all(part.padded_tokens in SIZES for part in solve(found, operator(77)).split.of(NPU))
