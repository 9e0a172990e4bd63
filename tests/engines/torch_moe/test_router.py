"""The synthetic router covers experts as a trained one was measured to."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytest_npubench.engines.shapes import decoder_shape  # noqa: E402
from pytest_npubench.engines.torch_moe import TorchExecutor  # noqa: E402
from pytest_npubench.engines.torch_moe import weights as weights_module  # noqa: E402
from pytest_npubench.engines.torch_moe.experts import distinct_experts, route  # noqa: E402
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow  # noqa: E402

# Layered Prefill, Table 1: coverage in percent of Qwen3-30B-A3B's 128 experts by decode batch size
TABLE_1 = {1: 6.25, 2: 11.7, 4: 21.3, 8: 29.0, 16: 44.5, 32: 54.7, 64: 69.4, 128: 86.3, 256: 93.4}
# a decoder of one layer's router, as wide as it takes for logits of one token to be independent
SHAPE = dataclasses.replace(decoder_shape("qwen3-30b-a3b"), hidden=512, intermediate=1, vocab_size=2, num_layers=1)
HOST = torch.device("cpu")


def coverage_percent(hidden: Any, layers: Any) -> float:
    """Of the experts that rows of hidden choose, the mean over layers."""
    chosen = torch.stack([route(SHAPE, layer, hidden)[0] for layer in layers])
    return float(distinct_experts(chosen, SHAPE.num_experts)) / len(layers) / SHAPE.num_experts * 100


@pytest.fixture(scope="module")
def layers() -> Any:
    shape = dataclasses.replace(SHAPE, num_layers=48)
    return weights_module.random_weights(shape, seed=0, device=HOST, dtype=torch.float32).layers


def test_coverage_of_table_1(layers: Any) -> None:
    hidden = torch.randn(256, SHAPE.hidden, generator=torch.Generator().manual_seed(1))
    errors = {size: coverage_percent(hidden[:size], layers) - expected for size, expected in TABLE_1.items()}
    assert max(map(abs, errors.values())) < 5, errors
    assert statistics.fmean(error**2 for error in errors.values()) ** 0.5 < 3, errors


def test_a_router_without_bias_would_not_do(layers: Any) -> None:
    """Uniform choice, which is what random weights alone give: 16 points off."""
    hidden = torch.randn(64, SHAPE.hidden, generator=torch.Generator().manual_seed(1))
    unbiased = [dataclasses.replace(layer, router_bias=None) for layer in layers]
    assert coverage_percent(hidden, unbiased) > TABLE_1[64] + 20


def test_tokens_of_one_kind_count_once(layers: Any) -> None:
    hidden = torch.randn(1, SHAPE.hidden, generator=torch.Generator().manual_seed(1)).expand(9, -1)
    assert coverage_percent(hidden, layers) == pytest.approx(100 * 8 / 128)


def test_shares_sum_to_one_and_fall(layers: Any) -> None:
    hidden = torch.randn(5, SHAPE.hidden, generator=torch.Generator().manual_seed(2))
    experts, shares = route(SHAPE, layers[0], hidden)
    logits = hidden @ layers[0].router.T + layers[0].router_bias
    everywhere = logits.softmax(-1).gather(1, experts)
    torch.testing.assert_close(shares, everywhere / everywhere.sum(-1, keepdim=True))
    assert (shares.diff(dim=1) <= 0).all()


def test_decoding_requests_differ_in_their_experts() -> None:
    """Random weights could send all requests to the same states, and a batch would load what one row does."""
    shape = dataclasses.replace(decoder_shape("small-moe"), num_layers=4, hidden=256, intermediate=64)
    served = TorchExecutor(shape, kv_capacity_tokens=16 * 64)
    layers = LayerGroup(0, shape.num_layers)
    requests = tuple(range(16))
    for request in requests:
        served.begin(request, 24, 24)
    rows = tuple(PrefillRow(request, 0, 24) for request in requests)
    served.run(IterationPlan(passes=(LayerPass(layers, rows),), finishing=requests))
    plan = IterationPlan(decode=requests, passes=(LayerPass(layers),))
    outcomes = [served.run(plan) for _ in range(20)]
    coverage = outcomes[-1].expert_activations / shape.num_layers / shape.num_experts
    # 16 rows of 4 among 32 with the same skew; a single row covers 0.125
    assert 0.55 < coverage < 0.95
    assert len(set(outcomes[-1].tokens.values())) > 8
