"""Answers of the torch engine under policies, from the bench to the verdict: harmless changes pass, faults fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from fake_flash_attention import Kernel, operator  # noqa: E402
from small_decoders import small_mixture  # noqa: E402

from pytest_npubench.campaign.points import Measured  # noqa: E402
from pytest_npubench.campaign.rounds import measure_round  # noqa: E402
from pytest_npubench.engines import answer_reference  # noqa: E402
from pytest_npubench.engines.shapes import SHAPES, DecoderShape  # noqa: E402
from pytest_npubench.engines.torch_moe import (  # noqa: E402
    executor,
    experts,
    kv_cache,
    model,
    probed,
    sdpa_attention,
)
from pytest_npubench.engines.torch_moe.flash_attention import FlashAttention  # noqa: E402
from pytest_npubench.serving.loop import serve  # noqa: E402
from pytest_npubench.suites import case_kind  # noqa: E402
from pytest_npubench.suites.scheduling import asking  # noqa: E402
from pytest_npubench.suites.scheduling.bench import ServingBench  # noqa: E402
from pytest_npubench.suites.scheduling.plan import ServingPlan  # noqa: E402
from pytest_npubench.verdict import VerdictKind  # noqa: E402
from pytest_npubench.verdict.result import Judgement  # noqa: E402

from .conftest import serving_plan  # noqa: E402

KIND = case_kind("answers", ("scheduling",))
MIXTURE = small_mixture("answers-moe", 8, 2, vocab_size=101, intermediate=48)
DENSE = replace(MIXTURE, name="answers-dense", experts=None, intermediate=96, tied_embeddings=False)
GPT_OSS = replace(MIXTURE, name="answers-gpt-oss", architecture="gpt-oss", qk_norm=False, sliding_window=8)
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in (MIXTURE, DENSE, GPT_OSS):
        monkeypatch.setitem(SHAPES, shape.name, shape)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "models"


def plan_of(shape: DecoderShape, dtype: str = "fp32") -> ServingPlan:
    plan = serving_plan(model=shape.name)
    serving = replace(plan.serving, dtype=dtype, kv_capacity=1024, block_size_tokens=4, tokens_per_iteration=16)
    return replace(plan, serving=serving)


def answered(plan: ServingPlan, folder: Path) -> Judgement:
    """The case as a run judges it, its rounds read back from a journal."""
    (case,) = (plan.case("scheduling", "answers", axes) for axes in KIND.axes(plan))
    points = KIND.points(case, plan)
    bench = ServingBench(SimpleNamespace(devices=["cpu"]), plan, folder)
    measured = Measured(failures=dict(bench.load(points, (), lambda text: None)))
    if not measured.failures:
        for index in range(2):
            visits = bench.visits(points, measured, {})
            row, failed, _ = measure_round(points, {"answers": 1.0}, bench.sample, index, lambda: None, visits)
            assert failed == {}
            assert bool(row) is (index == 0)
            measured.rounds.append(json.loads(json.dumps(row)))
    return KIND.judge(case, plan, measured)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", [MIXTURE, DENSE, GPT_OSS], ids=lambda shape: shape.name)
def test_a_sound_engine_is_right_under_every_policy(shape: DecoderShape, dtype: str, folder: Path) -> None:
    found = answered(plan_of(shape, dtype), folder)
    assert found.verdict.kind is VerdictKind.PASSED, found.verdict.reason
    assert found.verdict.reason.startswith("answers right: ")
    assert found.verdict.reason.endswith(f"; {5 * len(found.detail.lengths) + 2 + 2} pairs consistent")
    assert [(metric.name, metric.gate) for metric in found.metrics] == [
        ("answer_change", "answers"),
        ("inconsistent_pairs", "identical"),
        ("answer_error", "accuracy"),
        ("weights_bits", "identical"),
    ]
    assert found.metrics[2].value < found.metrics[0].margin


@pytest.mark.parametrize("reads_pages", [False, True], ids=["gathered", "pages"])
@pytest.mark.parametrize("shape", [MIXTURE, GPT_OSS], ids=lambda shape: shape.name)
def test_the_attention_of_cuda_is_right_under_every_policy(
    shape: DecoderShape, reads_pages: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bf16, as on CUDA, with a FAKE kernel."""
    with operator("2.12-2.13", Kernel(reads_pages)) as forward:
        monkeypatch.setattr(executor, "attention_kernel", partial(FlashAttention, forward=forward))
        found = answered(plan_of(shape, "bf16"), folder)
    assert found.verdict.kind is VerdictKind.PASSED, found.verdict.reason
    assert found.verdict.reason.startswith("answers right: ")


def test_a_model_without_a_reference_is_held_against_itself_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_reference, "MAX_OPERATIONS", 1)
    found = answered(plan_of(MIXTURE), folder)
    assert found.verdict.kind is VerdictKind.PASSED
    assert found.verdict.reason.startswith("answers consistent, not compared")
    assert "answer_error" not in [metric.name for metric in found.metrics]


def test_a_policy_that_fails_is_the_reason_of_its_case(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_npubench.errors import MeasurementError

    def fail(*_: Any) -> None:
        raise RuntimeError("the device went away")

    monkeypatch.setattr(model.MoeModel, "run_layers", fail)
    with pytest.raises(MeasurementError, match="the device went away"):
        answered(plan_of(MIXTURE), folder)


def of_weights(change: Callable[[Any], Any]) -> Patch:
    """What the host made is another thing on the device."""
    layer = probed._layer
    return lambda patch: patch.setattr(probed, "_layer", lambda shape, made: change(layer(shape, made)))


def of_attention(change: Callable[[Any, Any], tuple[Any, Any]]) -> Patch:
    """change(keys, values)."""
    attend = sdpa_attention._attend
    return lambda patch: patch.setattr(
        sdpa_attention,
        "_attend",
        lambda query, *kv_and_rest: attend(query, *change(*kv_and_rest[:2]), *kv_and_rest[2:]),
    )


def no_mask(patch: pytest.MonkeyPatch) -> None:
    attend = torch.nn.functional.scaled_dot_product_attention
    patch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda q, k, v, attn_mask, is_causal, **more: attend(q, k, v, attn_mask=None, is_causal=False, **more),
    )


def mask_of_one_more(patch: pytest.MonkeyPatch) -> None:
    may_look = sdpa_attention._may_look
    patch.setattr(sdpa_attention, "_may_look", lambda looking, at, window: may_look(looking + 1, at, window))


def swapped_halves(patch: pytest.MonkeyPatch) -> None:
    activate = experts.activate
    patch.setattr(experts, "activate", lambda shape, both: activate(shape, both.roll(both.shape[-1] // 2, -1)))


def other_theta(patch: pytest.MonkeyPatch) -> None:
    speeds = model.inverse_frequencies
    patch.setattr(
        model,
        "inverse_frequencies",
        lambda shape, device: speeds(replace(shape, rope_theta=2 * shape.rope_theta), device),
    )


def all_experts_alike(patch: pytest.MonkeyPatch) -> None:
    route = model.route

    def routed(*arguments: Any) -> Any:
        chosen, shares = route(*arguments)
        return chosen, torch.full_like(shares, 1 / shares.shape[-1])

    patch.setattr(model, "route", routed)


def least_likely_experts(patch: pytest.MonkeyPatch) -> None:
    route = model.route
    patch.setattr(
        model, "route", lambda shape, layer, hidden: route(shape, replace(layer, router=-layer.router), hidden)
    )


def lost_states(patch: pytest.MonkeyPatch) -> None:
    take = executor.HiddenStates.take
    patch.setattr(executor.HiddenStates, "take", lambda self, row, layer: torch.zeros_like(take(self, row, layer)))


def first_position_of_each_chunk_alike(patch: pytest.MonkeyPatch) -> None:
    ragged = executor.ragged_batch

    def at_nought(decode: Any, padding: Any, prefill: Any, kv: Any) -> Any:
        made = ragged(decode, padding, prefill, kv)
        start = made.num_single
        positions = made.positions.clone()
        for row in prefill:
            positions[start : start + row.num_tokens] -= row.first_token
            start += row.num_tokens
        return replace(made, positions=positions)

    patch.setattr(executor, "ragged_batch", at_nought)


def blocks_given_twice(patch: pytest.MonkeyPatch) -> None:
    """A request's second block is the first one again."""
    reserve = kv_cache.PagedKvCache.reserve

    def twice(self: Any, request: int, num_tokens: int) -> None:
        reserve(self, request, num_tokens)
        self._tables[request][1:2] = self._tables[request][0]

    patch.setattr(kv_cache.PagedKvCache, "reserve", twice)
    patch.setattr(
        kv_cache.PagedKvCache, "free", lambda self, request: self._free.extend(set(self._tables.pop(request, ())))
    )


def narrow(matrices: Any) -> Any:
    """8 bits for each row."""
    scale = matrices.abs().amax(-1, keepdim=True) / 127
    return (matrices / scale).round() * scale


FAULTS: dict[str, Patch] = {
    "no mask": no_mask,
    "a mask of one more": mask_of_one_more,
    "gate and up swapped": swapped_halves,
    "another theta": other_theta,
    "experts weighed alike": all_experts_alike,
    "the least likely experts": least_likely_experts,
    "hidden states between layer groups lost": lost_states,
    "positions of a chunk from nought": first_position_of_each_chunk_alike,
    "a block of the cache lent twice": blocks_given_twice,
    "the oldest token lost": of_attention(
        lambda keys, values: (keys, torch.cat((values[:, :, :1] * 0, values[:, :, 1:]), 2))
    ),
    "8-bit experts": of_weights(lambda layer: replace(layer, gate_up=narrow(layer.gate_up), down=narrow(layer.down))),
    "matrices of zeros": of_weights(lambda layer: replace(layer, gate_up=layer.gate_up * 0, out=layer.out * 0)),
    "16-bit attention weights": of_weights(lambda layer: replace(layer, qkv=layer.qkv.bfloat16().float())),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails(fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    plan = plan_of(MIXTURE)
    found = answered(replace(plan, size=replace(plan.size, policies=("chunked", "layered"))), folder)
    assert found.verdict.kind is VerdictKind.FAILED, found.verdict.reason


@pytest.mark.parametrize("fault", ["hidden states between layer groups lost", "positions of a chunk from nought"])
def test_a_policy_is_judged_in_bf16(fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where greedy tokens say nothing (test_identical_tokens.py)."""
    FAULTS[fault](monkeypatch)
    found = answered(plan_of(MIXTURE, "bf16"), folder)
    assert found.verdict.kind is VerdictKind.FAILED
    assert "layered, prompts of " in found.verdict.reason


@pytest.mark.parametrize(("small", "others"), [(1e8, {1}), (0, {2})], ids=["small", "large"])
def test_the_first_answers_come_from_the_threads_that_are_timed(
    small: float, others: set[int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    monkeypatch.setattr(asking, "serve", lambda *given: threads.append(torch.get_num_threads()) or serve(*given))
    monkeypatch.setattr(probed, "SMALL_PARAMETERS", small)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        answered(plan_of(MIXTURE), folder)
        assert (threads[0], set(threads[1:]), torch.get_num_threads()) == (2, others, 2)
    finally:
        torch.set_num_threads(before)


def test_little_room_preempts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else that pair says nothing of prompts that are run again."""
    served: list[int] = []

    def spied(*arguments: Any) -> Any:
        result = serve(*arguments)
        served.append(sum(record.num_preemptions for record in result.records))
        return result

    monkeypatch.setattr(asking, "serve", spied)
    answered(plan_of(MIXTURE), folder)
    assert sum(served) > 0
