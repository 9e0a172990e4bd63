"""Experts of a batch: the synthetic router against draws and unions, and routers found from iterations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papers import published

from pytest_npubench.engines.shapes import ExpertShape, decoder_shape
from pytest_npubench.extensions.planning.virtual import router as module
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.extensions.planning.virtual.measured_router import MeasuredRouter
from pytest_npubench.extensions.planning.virtual.router import NEVER, NUM_DECODE_ROWS, Router, first_hits, race
from pytest_npubench.serving.arrivals import load_of, poisson
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.schedulers import make_scheduler

QWEN = decoder_shape("qwen3-30b-a3b")
SMALL = decoder_shape("small-moe")
PAPER = published("layered_prefill")
TABLE_1 = [(int(size), float(coverage)) for size, coverage in PAPER.table("1").rows]


@pytest.fixture(scope="module")
def qwen() -> Router:
    return Router(QWEN, seed=0)


def coverage_percent(activations: int) -> float:
    return 100 * activations / (QWEN.num_layers * QWEN.num_experts)


def brute_top_k(scores: np.ndarray, num_chosen: int) -> np.ndarray:
    return np.argsort(-scores, axis=-1)[..., :num_chosen]


@pytest.mark.parametrize(("batch_size", "printed"), TABLE_1)
def test_a_decode_batch_covers_what_table_1_says(qwen: Router, batch_size: int, printed: float) -> None:
    draws = [qwen.activations(step, 0, QWEN.num_layers, batch_size, ()) for step in range(module.NUM_DECODE_STREAMS)]
    assert coverage_percent(float(np.mean(draws))) == pytest.approx(printed, abs=3)


@pytest.mark.parametrize("chunk_size", [512, 1024, 2048, 4096, 8192])
def test_one_prompt_covers_what_figure_2_implies(qwen: Router, chunk_size: int) -> None:
    """Loads in GB / (chunks of 8,192 tokens x 48 layers x 128 experts x 9.437 MB)."""
    one_pass_gb = QWEN.num_layers * QWEN.num_experts * QWEN.expert_bytes(2) / 1e9
    load_gb = float(PAPER.table("figure 2").value("expert_load", chunk_size=chunk_size))
    implied = 100 * load_gb / (8192 / chunk_size) / one_pass_gb
    covered = [
        coverage_percent(qwen.activations(0, 0, QWEN.num_layers, 0, (PrefillRow(request, 0, chunk_size),)))
        for request in range(module.NUM_PROMPT_STREAMS)
    ]
    assert np.mean(covered) == pytest.approx(implied, abs=3)


def test_one_row_activates_exactly_k_experts_a_layer(qwen: Router) -> None:
    for step in range(module.NUM_DECODE_STREAMS):
        assert qwen.activations(step, 0, 48, 1, ()) == 48 * 8
        assert qwen.activations(step, 3, 4, 1, ()) == 8
        assert qwen.activations(step, 0, 48, 0, ()) == 0
    assert qwen.activations(5, 0, 48, 0, (PrefillRow(9, 0, 1),)) == 48 * 8


def test_decode_coverage_is_that_of_tokens_drawn_whole() -> None:
    """An independent draw by sorting biases + Gumbel noise of the same router law, many biases and batches."""
    generator = np.random.default_rng(11)
    sizes = (2, 8, 32, 128, 512)
    drawn = {size: [] for size in sizes}
    for _ in range(60):
        bias = generator.normal(0, module.EXPERT_BIAS_STD, (1, 128))
        chosen = brute_top_k(bias + generator.gumbel(size=(max(sizes), 128)), 8)
        for size in sizes:
            drawn[size].append(len(np.unique(chosen[:size])) / 128)
    routers = [Router(QWEN, seed=seed) for seed in (1, 2)]
    for size in sizes:
        ours = [r.activations(step, 0, 48, size, ()) / (48 * 128) for r in routers for step in range(8)]
        assert np.mean(ours) == pytest.approx(np.mean(drawn[size]), abs=0.015)


def test_prompt_coverage_is_that_of_tokens_drawn_whole(qwen: Router) -> None:
    """Also beyond the raced tokens, where first hits are extended."""
    generator = np.random.default_rng(12)
    sizes = (16, 64, 256, 1024, 4096)
    drawn = {size: [] for size in sizes}
    for _ in range(40):
        bias = generator.normal(0, np.hypot(module.EXPERT_BIAS_STD, module.PROMPT_BIAS_STD), 128)
        chosen = np.concatenate(
            [np.argpartition(-(bias + generator.gumbel(size=(512, 128))), 8)[:, :8] for _ in range(8)]
        )
        for size in sizes:
            drawn[size].append(len(np.unique(chosen[:size])) / 128)
    for size in sizes:
        ours = [qwen.activations(0, 0, 48, 0, (PrefillRow(r, 0, size),)) / (48 * 128) for r in range(32)]
        assert np.mean(ours) == pytest.approx(np.mean(drawn[size]), abs=0.025)


def test_the_race_is_the_gumbel_top_k_trick() -> None:
    """Per expert: how often it is among the k first, against sorting bias + Gumbel noise."""
    generator = np.random.default_rng(3)
    bias = np.array([2.0, 1.0, 0.0, -1.0, -2.0, 0.5])
    winners, _ = race(np.exp(bias)[None, :], 40_000, 2, generator)
    raced = np.bincount(winners.ravel(), minlength=6) / 40_000
    sorted_ = np.bincount(brute_top_k(bias + generator.gumbel(size=(40_000, 6)), 2).ravel(), minlength=6) / 40_000
    np.testing.assert_allclose(raced, sorted_, atol=0.012)
    assert raced.sum() == pytest.approx(2)


@given(
    choices=st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=2, unique=True), min_size=2, max_size=24).filter(
        lambda rows: len(rows) % 2 == 0
    )
)
@settings(max_examples=60, deadline=None)
def test_first_hits_are_those_of_a_walk_through_the_tokens(choices: list[list[int]]) -> None:
    winners = np.array(choices).reshape(-1, 2, 2)  # tokens, 2 layers, 2 experts each
    found = first_hits(winners, 6)
    for layer in range(2):
        for expert in range(6):
            hits = [token + 1 for token, row in enumerate(winners) if expert in row[layer]]
            assert found[layer, expert] == (hits[0] if hits else NEVER)


@given(
    step=st.integers(0, 1000),
    layers=st.tuples(st.integers(0, 7), st.integers(1, 8)),
    num_rows=st.integers(0, 3000),
    prompts=st.lists(st.tuples(st.integers(0, 70), st.integers(0, 9000), st.integers(1, 70_000)), max_size=4),
)
@settings(max_examples=80, deadline=None)
def test_a_union_is_the_union_of_sets(
    step: int, layers: tuple[int, int], num_rows: int, prompts: list[tuple[int, int, int]]
) -> None:
    first, stop = layers[0], min(layers[0] + layers[1], SMALL.num_layers)
    rows = tuple(PrefillRow(*prompt) for prompt in prompts)
    count = 0
    for layer in range(first, stop):
        decode = ROUTER.decode[step % module.NUM_DECODE_STREAMS, layer]
        active = {int(expert) for expert in np.flatnonzero(decode <= min(num_rows, NUM_DECODE_ROWS))}
        for row in rows:
            hits = ROUTER.prompt[row.request % module.NUM_PROMPT_STREAMS, layer].astype(int)
            active |= {int(expert) for expert in np.flatnonzero((hits <= row.num_tokens) & (hits < NEVER))}
        count += len(active)
    assert ROUTER.activations(step, first, stop, num_rows, rows) == count
    assert ROUTER.activations(step, first, stop, num_rows, ()) <= count


ROUTER = Router(SMALL, seed=4)


def test_the_same_seed_is_the_same_router_and_another_is_another() -> None:
    again, other = Router(SMALL, seed=4), Router(SMALL, seed=5)
    np.testing.assert_array_equal(ROUTER.prompt, again.prompt)
    np.testing.assert_array_equal(ROUTER.decode, again.decode)
    assert (ROUTER.prompt != other.prompt).any()


def test_all_experts_of_a_token_may_be_all_there_are() -> None:
    from dataclasses import replace

    router = Router(replace(SMALL, experts=ExpertShape(num_experts=4, experts_per_token=4)), seed=0)
    assert router.activations(0, 0, 8, 1, ()) == 32
    assert router.activations(0, 0, 8, 1, (PrefillRow(0, 0, 1),)) == 32


def test_an_expert_that_is_never_hit_is_in_no_batch_however_long() -> None:
    router = Router(SMALL, seed=0)
    router.prompt[:] = NEVER
    for num_tokens in (1, NEVER - 1, NEVER, 10**6):
        assert router.activations(0, 0, 8, 0, (PrefillRow(0, 0, num_tokens),)) == 0


SHAPE = decoder_shape("small-moe")
COST = CalibratedCost(num_layers=8, fixed_s=2e-3, row_s=1e-4, activation_s=1e-4, has_experts=True)


def log_of(policy: str, router: MeasuredRouter | None = None) -> IterationLog:
    random = np.random.default_rng(3)
    lengths = [(int(random.integers(20, 300)), int(random.integers(2, 60))) for _ in range(40)]
    executor = VirtualExecutor(
        SHAPE, None, tensor_parallel=1, dtype="fp32", kv_capacity_tokens=16_384, cost=COST, router=router
    )
    work = {"chunk_size_tokens": 64} if policy == "chunked" else {"tokens_per_iteration": 64}
    scheduler = make_scheduler(policy, num_layers=8, kv_blocks=1024, block_size_tokens=16, **work)
    return serve(OpenLoad(load_of(poisson(10.0, 40, 3), lengths)), scheduler, executor, VirtualClock()).log


def test_by_hand() -> None:
    log = IterationLog()
    rows = {"num_decode": [1, 0, 1], "num_prefill_tokens": [0, 64, 63], "num_prefill_layers": [0, 8, 4]}
    log.extend({**rows, "expert_activations": [8, 40, 4 * 1 + 4 * 5], "start_s": [0, 1, 2], "end_s": [1, 2, 3]})
    router = MeasuredRouter.of([log], 8)
    assert router.activations(0, 0, 8, 1, ()) == 8
    assert router.activations(7, 2, 4, 1, [PrefillRow(0, 0, 63)]) == 2 * 5
    assert router.activations(0, 0, 8, 500, ()) == 40  # nothing is known beyond


@pytest.mark.parametrize("policy", ["chunked", "layered"])
def test_what_chunked_prefill_showed_is_what_others_activate(policy: str) -> None:
    """Of the synthetic router, whose prompts are more alike than its decode batches: a few percent are left."""
    router = MeasuredRouter.of([log_of("chunked"), log_of("layered")], SHAPE.num_layers)
    real, again = sum(log_of(policy).expert_activations), sum(log_of(policy, router).expert_activations)
    assert again == pytest.approx(real, rel=0.05)
