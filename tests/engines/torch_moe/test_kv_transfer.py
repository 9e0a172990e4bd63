"""Keys and values handed from one executor to another: the same tokens as without, and refusals by name."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytest_npubench.engines.torch_moe import TorchExecutor  # noqa: E402
from pytest_npubench.errors import MeasurementError  # noqa: E402
from pytest_npubench.serving.clock import WallClock  # noqa: E402
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow  # noqa: E402
from pytest_npubench.serving.load import OpenLoad  # noqa: E402
from pytest_npubench.serving.loop import serve  # noqa: E402
from pytest_npubench.serving.request import ServingRequest  # noqa: E402
from pytest_npubench.serving.schedulers import make_scheduler  # noqa: E402

from .small_shapes import GPT_OSS, QWEN_DENSE, QWEN_MOE, SHAPES  # noqa: E402

BLOCK = 4
PROMPTS = {1: 11, 2: 30, 3: 5}  # the second is longer than gpt-oss's window here
NUM_OUTPUT = 7


def executor(shape: Any, **changes: Any) -> Any:
    return TorchExecutor(shape, **{"kv_capacity_tokens": 160, "block_size_tokens": BLOCK, "seed": 1, **changes})


@cache
def chunked_tokens(name: str) -> dict[int, tuple[int, ...]]:
    """The same requests on one device, under chunked prefill."""
    shape = next(shape for shape in SHAPES if shape.name == name)
    scheduler = make_scheduler(
        "chunked", num_layers=shape.num_layers, kv_blocks=40, block_size_tokens=BLOCK, chunk_size_tokens=8
    )
    requests = [
        ServingRequest(id=request, arrival_s=0.0, prompt_tokens=prompt, output_tokens=NUM_OUTPUT)
        for request, prompt in PROMPTS.items()
    ]
    result = serve(OpenLoad(requests), scheduler, executor(shape), WallClock())
    return {record.id: record.tokens for record in result.records}


def prefill(device: Any, request: int, num_tokens: int, *, dropped: tuple[int, ...] = ()) -> int:
    whole = LayerPass(LayerGroup(0, device.num_layers), (PrefillRow(request, 0, num_tokens),))
    plan = IterationPlan(passes=(whole,), finishing=(request,), dropped=dropped)
    return int(device.run(plan).tokens[request])


def decode(device: Any, requests: tuple[int, ...]) -> dict[int, int]:
    whole = LayerPass(LayerGroup(0, device.num_layers))
    return dict(device.run(IterationPlan(decode=requests, passes=(whole,))).tokens)


def move(source: Any, target: Any, request: int) -> int:
    """As two processes do it: pickled. Returns the bytes that moved."""
    num_bytes, kv = source.export_kv(request)
    target.begin(request, PROMPTS[request], NUM_OUTPUT)
    target.import_kv(request, pickle.loads(pickle.dumps(kv)))
    source.end(request)
    return int(num_bytes)


def handed_over(shape: Any, *, preempt: int | None = None) -> dict[int, tuple[int, ...]]:
    """Prefill on one device, decode on another, one request joining after another; one of them preempted there."""
    source, target = executor(shape), executor(shape)
    tokens: dict[int, list[int]] = {}
    for request, prompt in PROMPTS.items():
        source.begin(request, prompt, NUM_OUTPUT)
        tokens[request] = [prefill(source, request, prompt)]
        assert move(source, target, request) == prompt * shape.kv_bytes_per_token(4)
        for other, token in decode(target, tuple(tokens)).items():
            tokens[other].append(token)
    if preempt is not None:
        again = PROMPTS[preempt] + len(tokens[preempt])
        tokens[preempt].append(prefill(target, preempt, again, dropped=(preempt,)))
    while left := tuple(request for request, found in tokens.items() if len(found) < NUM_OUTPUT):
        for request, token in decode(target, left).items():
            tokens[request].append(token)
    for request in tokens:
        target.end(request)
    assert source._kv.held_bytes == target._kv.held_bytes == 0
    return {request: tuple(found) for request, found in tokens.items()}


@pytest.mark.parametrize("preempt", [None, *PROMPTS])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_same_tokens_as_chunked_prefill_on_one_device(shape: Any, preempt: int | None) -> None:
    assert handed_over(shape, preempt=preempt) == chunked_tokens(shape.name)


def test_a_request_moves_on_with_what_it_has_generated() -> None:
    first, second = executor(QWEN_MOE), executor(QWEN_MOE)
    first.begin(1, PROMPTS[1], NUM_OUTPUT)
    tokens = [prefill(first, 1, PROMPTS[1])]
    tokens += [decode(first, (1,))[1] for _ in range(2)]
    assert move(first, second, 1) == (PROMPTS[1] + 2) * QWEN_MOE.kv_bytes_per_token(4)
    tokens += [decode(second, (1,))[1] for _ in range(NUM_OUTPUT - 3)]
    assert tuple(tokens) == chunked_tokens(QWEN_MOE.name)[1]


def test_bfloat16_travels_bit_by_bit() -> None:
    first, second = (executor(QWEN_MOE, dtype="bf16") for _ in range(2))
    first.begin(1, PROMPTS[1], NUM_OUTPUT)
    prefill(first, 1, PROMPTS[1])
    _, sent = first.export_kv(1)
    move(first, second, 1)
    num_bytes, received = second.export_kv(1)
    assert num_bytes == PROMPTS[1] * QWEN_MOE.kv_bytes_per_token(2)
    assert (received.token_ids, received.dtype) == (sent.token_ids, "torch.bfloat16")
    assert (received.keys == sent.keys).all()
    assert (received.values == sent.values).all()
    assert sent.keys.any()


def test_what_is_not_ready_to_leave() -> None:
    device = executor(QWEN_MOE)
    with pytest.raises(MeasurementError, match="request 1 has not begun, or has ended"):
        device.export_kv(1)
    device.begin(1, 6, 2)
    with pytest.raises(MeasurementError, match="request 1 has 0 of 6 tokens in the cache; want all but the latest"):
        device.export_kv(1)
    whole = PrefillRow(1, 0, 6)
    device.run(IterationPlan(passes=(LayerPass(LayerGroup(0, 2), (whole,)),)))
    with pytest.raises(MeasurementError, match="request 1 has a prompt between two layers"):
        device.export_kv(1)


@pytest.fixture(scope="module")
def sent() -> Any:
    source = executor(QWEN_MOE)
    source.begin(1, PROMPTS[1], NUM_OUTPUT)
    prefill(source, 1, PROMPTS[1])
    return source.export_kv(1)[1]


@pytest.mark.parametrize(
    ("shape", "changes", "message"),
    [
        (QWEN_DENSE, {}, r"\[5, 11, 2, 16\] torch.float32, .* for 12 tokens; want \[4, 11, 2, 16\] torch.float32"),
        (GPT_OSS, {}, r"want \[5, 11, 1, 16\] torch.float32 of each"),
        (QWEN_MOE, {"dtype": "bf16"}, r"torch.float32, .*; want \[5, 11, 2, 16\] torch.bfloat16"),
        (QWEN_MOE, {"seed": 2}, "request 1: the keys and values are of another prompt"),
        (QWEN_MOE, {"kv_capacity_tokens": 8}, "request 1 needs 3 more blocks of 4 tokens for 11 tokens; 2 of 2"),
    ],
    ids=["layers", "heads", "dtype", "prompt", "room"],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(sent: Any, shape: Any, changes: Any, message: str) -> None:
    device = executor(shape, **changes)
    device.begin(1, PROMPTS[1], NUM_OUTPUT)
    with pytest.raises(MeasurementError, match=message):
        device.import_kv(1, sent)
    assert device._kv.held_bytes == 0
    device.end(1)


def test_what_was_cut_on_its_way_is_refused(sent: Any) -> None:
    device = executor(QWEN_MOE)
    device.begin(1, PROMPTS[1], NUM_OUTPUT)
    with pytest.raises(MeasurementError, match=r"request 1: keys and values of .* want"):
        device.import_kv(1, replace(sent, values=sent.values[:-1]))
    with pytest.raises(MeasurementError, match="request 1: int is no keys and values of this engine; want a RequestKv"):
        device.import_kv(1, 11)


def test_only_a_request_that_has_just_begun_takes_keys_and_values(sent: Any) -> None:
    device = executor(QWEN_MOE)
    with pytest.raises(MeasurementError, match="request 1 has not begun"):
        device.import_kv(1, sent)
    device.begin(1, PROMPTS[1], NUM_OUTPUT)
    device.import_kv(1, sent)
    with pytest.raises(MeasurementError, match="request 1 has run 11 tokens here; want none before an import"):
        device.import_kv(1, sent)
