"""A decode batch's graph, without CUDA: a FAKE capture runs the forward again, on the same buffers, for each replay.

As a capture does, it keeps the tensors that the forward returned first, and refuses what no graph can hold: whatever
brings a number back to the host. That no shape depends on one is seen by comparing replays. Attention is the fake
kernel of fake_flash_attention.py, and the experts' product torch's own grouped_mm, which runs on a CPU too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from fake_flash_attention import Kernel, operator  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from pytest_npubench.core.hardware_reader import default_directory  # noqa: E402
from pytest_npubench.engines.answers import distances  # noqa: E402
from pytest_npubench.engines.probe import Asked, probe_prompts  # noqa: E402
from pytest_npubench.engines.torch_moe import TorchExecutor, decode_graphs, executor, packing  # noqa: E402
from pytest_npubench.engines.torch_moe.decode_graphs import CudaCapture  # noqa: E402
from pytest_npubench.engines.torch_moe.flash_attention import FlashAttention  # noqa: E402
from pytest_npubench.engines.torch_moe.probed import ProbedExecutor  # noqa: E402
from pytest_npubench.errors import MeasurementError  # noqa: E402
from pytest_npubench.serving.clock import WallClock  # noqa: E402
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow  # noqa: E402
from pytest_npubench.serving.load import OpenLoad  # noqa: E402
from pytest_npubench.serving.loop import serve  # noqa: E402
from pytest_npubench.serving.request import ServingRequest  # noqa: E402
from pytest_npubench.serving.schedulers import make_scheduler  # noqa: E402
from pytest_npubench.suites.hardware_files import load_all  # noqa: E402
from pytest_npubench.suites.protocol import Choice  # noqa: E402
from pytest_npubench.suites.scheduling import SUITE  # noqa: E402
from pytest_npubench.suites.scheduling.memory import GRAPH_KEYS, GRAPH_ROWS, campaign_need  # noqa: E402
from pytest_npubench.suites.scheduling.reference_serving import TorchServing  # noqa: E402

from .driving import whole  # noqa: E402
from .small_shapes import QWEN_DENSE, QWEN_MOE, SHAPES  # noqa: E402

BLOCK_SIZE = 4
_random = Random(1)
REQUESTS = tuple(
    ServingRequest(id=index, arrival_s=0.0, prompt_tokens=_random.randint(1, 40), output_tokens=_random.randint(2, 14))
    for index in range(7)
)
REFUSED = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "equal", "is_nonzero")


class Capturing(TorchDispatchMode):
    """Notes what is launched, and on what shapes. Raises for what cannot be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: list[str] = []

    def __torch_dispatch__(self, operator: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        if any(name in operator.__name__ for name in REFUSED):
            raise RuntimeError(f"{operator.__name__} waits for the device within a capture")
        shapes = [tuple(one.shape) for one in given if isinstance(one, torch.Tensor)]
        self.launched.append(f"{operator.__name__} {shapes}")
        return operator(*given, **(named or {}))


class EagerGraphs:
    """The fake capture, and what each replay of a graph launched, by its rows and keys."""

    def __init__(self) -> None:
        self.launches: list[tuple[tuple[int, int], list[str]]] = []

    def __call__(self, forward: Any) -> Callable[[], Any]:
        kept = self._run(forward)
        self.launches.clear()

        def replay() -> Any:
            for mine, new in zip(kept, self._run(forward), strict=True):
                if mine is not None:
                    mine.copy_(new)
            return kept

        return replay

    def _run(self, forward: Any) -> Any:
        with Capturing() as mode:
            outputs = forward()
        self.launches.append((forward.args, mode.launched))
        return outputs


@pytest.fixture(params=[True, False], ids=["pages", "gathered"])
def flash(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Attention that reads pages, or gathers keys as in torch 2.11, and weights as a GPU has them."""
    monkeypatch.setattr(decode_graphs, "FEWEST_KEYS", 32)
    monkeypatch.setattr(packing, "_packs", lambda matrix: False)
    with operator("2.12-2.13" if request.param else "torch-2.11", Kernel(request.param)) as forward:
        monkeypatch.setattr(executor, "attention_kernel", lambda shape, kv: FlashAttention(shape, kv, forward))
        yield request.param


@pytest.fixture
def fused(flash: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("experts", "model"):
        monkeypatch.setattr(f"pytest_npubench.engines.torch_moe.{module}.fuses", lambda matrices: True)


def engine(shape: Any, capture: Any) -> TorchExecutor:
    make = None if capture is None else lambda device: capture
    return TorchExecutor(shape, kv_capacity_tokens=240, block_size_tokens=BLOCK_SIZE, seed=1, make_capture=make)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("policy", ["static", "chunked", "layered"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_graph_gives_the_tokens_of_the_eager_path(shape: Any, policy: str, flash: bool) -> None:
    """And its counts, whatever rows pad a batch: those of a static one that have ended, or a graph's own."""
    settings = {"static": {}, "chunked": {"chunk_size_tokens": 16}, "layered": {"num_layer_groups": 2}}[policy]
    graphs = EagerGraphs()
    served = {}
    for capture in (None, graphs):
        scheduler = make_scheduler(
            policy, num_layers=shape.num_layers, kv_blocks=60, block_size_tokens=BLOCK_SIZE, **settings
        )
        result = serve(OpenLoad(REQUESTS), scheduler, engine(shape, capture), WallClock())
        tokens = {record.id: record.tokens for record in result.records}
        served[capture] = tokens, list(result.log.expert_activations), list(result.log.padded_expert_activations)
    assert served[None] == served[graphs]
    by_graph: dict[tuple[int, int], list[list[str]]] = {}
    for graph, launched in graphs.launches:
        by_graph.setdefault(graph, []).append(launched)
    assert len(by_graph) > 1 or (policy, flash) == ("static", True)
    assert all(launched == replays[0] for replays in by_graph.values() for launched in replays)


@pytest.mark.usefixtures("fused")
def test_a_model_is_asked_for_its_answers_through_the_graph() -> None:
    prompts = replace(probe_prompts(QWEN_MOE.vocab_size, (16, 48)), middles=())
    asked = [Asked(prompts.prompt(index), prompts.forced(index)) for index in range(len(prompts.lengths))]
    answers, graphs = [], EagerGraphs()
    for make in (None, lambda device: graphs):
        probed = ProbedExecutor(QWEN_MOE, dtype="fp32", kv_capacity_tokens=320, block_size_tokens=4, make_capture=make)
        probed.ask(asked)
        for request, (prompt, forced) in enumerate(asked):
            whole(probed, request, len(prompt), len(forced) + 1)
        answers.append(np.stack(probed.answers()))
    assert len(graphs.launches) == sum(len(one.forced) for one in asked)
    assert distances(*answers).max() < 1e-5


@pytest.mark.usefixtures("fused")
def test_the_largest_graph_is_captured_first_and_filling_rows_repeat_the_shortest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decode_graphs, "SIZES", (1, 2, 4))
    captured: list[tuple[int, int]] = []

    def capture(forward: Any) -> Any:
        captured.append(forward.args)
        return forward

    served = engine(QWEN_MOE, capture)
    assert captured == sorted(captured, reverse=True)
    layers = LayerGroup(0, served.num_layers)
    for request, count in ((1, 9), (2, 3), (3, 6)):
        served.begin(request, count, 4)
        prompt = LayerPass(layers, (PrefillRow(request, 0, count),))
        served.run(IterationPlan(passes=(prompt,), finishing=(request,)))
    for _ in range(2):
        served.run(IterationPlan(decode=(1, 2, 3), passes=(LayerPass(layers),)))
    assert served._graphs is not None
    numbers = served._graphs._host[:4]
    assert numbers[:, decode_graphs.POSITION].tolist() == [10, 4, 7, 4]
    *slots, filling = numbers[:, decode_graphs.SLOT].tolist()
    assert filling == served._kv.scratch_slot not in slots

    def full(forward: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    with pytest.raises(MeasurementError, match="for graphs of decode batches: no room"):
        engine(QWEN_MOE, full)


@pytest.mark.usefixtures("flash")
def test_experts_one_by_one_have_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = EagerGraphs()
    assert engine(QWEN_MOE, graphs).why_no_graphs == "experts are multiplied one by one"
    assert graphs.launches == []
    assert engine(QWEN_DENSE, graphs).why_no_graphs == ""
    monkeypatch.setattr("pytest_npubench.engines.torch_moe.model.fuses", lambda matrices: True)  # as if they were not
    served = engine(QWEN_MOE, graphs)
    assert served.why_no_graphs.startswith("a capture failed: ")
    assert served.why_no_graphs.endswith("waits for the device within a capture")
    assert whole(served, 1, 9, 4) == whole(engine(QWEN_MOE, None), 1, 9, 4)


def test_torchs_own_attention_has_no_graph() -> None:
    assert engine(QWEN_DENSE, EagerGraphs()).why_no_graphs == "attention in fp32 is padded to the longest context"
    assert engine(QWEN_DENSE, None).why_no_graphs == ""


@pytest.mark.usefixtures("fused")
def test_rows_that_no_graph_has_are_launched_one_by_one(monkeypatch: pytest.MonkeyPatch, flash: bool) -> None:
    """120 keys are gathered at most. Seven rows of 16 have 128: a batch of eight repeats one of them."""
    monkeypatch.setattr(decode_graphs, "SIZES", (1, 2, 4, 8))
    monkeypatch.setattr(decode_graphs, "MOST_KEYS", 120)
    graphs = engine(QWEN_DENSE, EagerGraphs())._graphs
    assert graphs is not None
    assert [num_rows for num_rows in range(12) if graphs.fits([5] * num_rows)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [graphs.fits([keys, 1]) for keys in (119, 120)] == [True, flash]
    assert [graphs.fits([keys] * 7) for keys in (15, 16)] == [True, flash]


def test_the_suite_asks_for_graphs_on_cuda_unless_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(
        executor,
        "TorchExecutor",
        lambda shape, **settings: made.update(settings) or SimpleNamespace(why_no_graphs="attention gathers"),
    )
    specs, service = load_all([default_directory()]), TorchServing()
    needs = {}
    for name, options, capture in (
        ("nvidia-h100", {}, CudaCapture),
        ("nvidia-h100", {"no_graphs": True}, None),
        ("cpu", {}, None),
    ):
        plan, *_ = SUITE.plans(specs[name], Choice(profile="quick", engine="reference", options=options))
        service.executor(plan, SimpleNamespace(devices=(specs[name].family,)))
        assert made["make_capture"] is capture
        assert plan.settings.get("graphs", True) is not bool(options)
        needs[name, bool(options)] = campaign_need(plan).working_bytes
    assert service.remarks(plan, ()) == (
        f"{plan.key}: decode batches were launched kernel by kernel, without graphs: attention gathers",
    )
    assert needs["nvidia-h100", False] - needs["nvidia-h100", True] > 150e6
    assert (decode_graphs.SIZES[-1], decode_graphs.MOST_KEYS) == (GRAPH_ROWS, GRAPH_KEYS)


def test_a_capture_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAKE streams and graphs, called as torch's own are: libraries are warmed on the stream that is captured, and all
    graphs share a pool."""
    events: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def wait_stream(self, other: Any) -> None:
            events.append(f"{self.name} waits for {other.name}")

        def replay(self) -> None:
            events.append("replay")

    real = inspect.signature(torch.cuda.graph)

    def capturing(*given: Any, **named: Any) -> Any:
        arguments = real.bind(*given, **named).arguments
        events.append(f"capture {arguments['stream'].name} {arguments['pool']}")
        return nullcontext()

    fakes = {
        "device": lambda device: nullcontext(),
        "stream": lambda stream: nullcontext(),
        "Stream": lambda device: Named("side"),
        "current_stream": partial(Named, "main"),
        "CUDAGraph": partial(Named, "graph"),
        "graph": capturing,
        "graph_pool_handle": lambda: "pool",
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    outputs = (torch.zeros(1), None)

    def forward() -> Any:
        events.append("forward")
        return outputs

    replay = CudaCapture(torch.device("cuda", 0))(forward)
    assert events == ["side waits for main", "forward", "capture side pool", "forward"]
    assert replay() is outputs
    assert events[-1] == "replay"
