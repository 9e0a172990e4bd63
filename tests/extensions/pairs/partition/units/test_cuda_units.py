"""The units of CUDA pairs on a made-up `torch.cuda` whose devices are the host. It records the operations of a capture
and runs them again in a replay; streams do everything at once. It says nothing of a device's times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from pytest_npubench.errors import MeasurementError, PartitionError, RegistryError  # noqa: E402
from pytest_npubench.extensions.pairs.partition.layer import DecoderLayer  # noqa: E402
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split  # noqa: E402
from pytest_npubench.extensions.pairs.partition.output_check import check_split_computes, exact_product  # noqa: E402
from pytest_npubench.extensions.pairs.partition.units import cuda_stream, cuda_streams, cuda_unit  # noqa: E402
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena  # noqa: E402
from pytest_npubench.extensions.pairs.partition.units.host_pair import HostPair  # noqa: E402

from .processes import rows_shared  # noqa: E402
from .test_layer import CASES, FUSED, SHAPE, expected, splits_of  # noqa: E402

MATMUL = Matmul(name="ffn_up", rows=24, cols=40, tokens=5, dtype="bf16")
SHARED = rows_shared(MATMUL, 8, padded_tokens=16)


class Graph(TorchDispatchMode):
    """A CUDA graph. `operations`: what was captured, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations.append((function, args, kwargs or {}))
        return function(*args, **kwargs or {})

    def replay(self) -> None:
        for function, args, kwargs in self.operations:
            function(*args, **kwargs)


class Event:
    def __init__(self, **_: Any) -> None:
        self.record = self.synchronize = lambda *_: None
        self.query, self.elapsed_time = lambda: True, lambda other: 1.0


class FakeTorch:
    """torch, but for its devices."""

    def __init__(self, graphs: list[Graph]) -> None:
        def graph() -> Graph:
            graphs.append(Graph())
            return graphs[-1]

        self.waits: list[Any] = []
        self.cuda = SimpleNamespace(
            Stream=lambda device: SimpleNamespace(
                synchronize=lambda: None, query=lambda: True, cuda_stream=0, wait_stream=self.waits.append
            ),
            stream=lambda stream: nullcontext(),
            Event=Event,
            CUDAGraph=graph,
            graph=lambda graph, stream: graph,
            get_device_name=lambda device: "A GPU",
            get_device_properties=lambda device: SimpleNamespace(L2_cache_size=1 << 20),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def device(self, kind: str, ordinal: int) -> Any:
        return torch.device("cpu")

    def empty(self, *shape: Any, pin_memory: bool = False, **options: Any) -> Any:
        return torch.empty(*shape, **options)

    def zeros(self, *shape: Any, pin_memory: bool = False, **options: Any) -> Any:
        return torch.zeros(*shape, **options)


@contextmanager
def opened(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[tuple[HostPair, list[Graph]]]:
    """The pair with its units in this process, and the graphs that were captured so far."""
    graphs: list[Graph] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    monkeypatch.setattr(cuda_streams, "import_torch_with_cuda", lambda num_devices: FakeTorch(graphs))
    monkeypatch.setattr(cuda_streams, "pin_to", lambda core: None)
    monkeypatch.setattr(cuda_streams, "_streams", lambda torch: ((None, ""), (None, "")))
    monkeypatch.setattr(cuda_stream, "_launch_host_function", lambda stream, function: function(None))
    pair = HostPair.__new__(HostPair)
    pair.name, pair._arena = name, SharedArena()
    arguments = {"arena_fd": pair._arena.fd, "cores": (0, 1), "pair": name, "timeout_s": 5.0, "seed": 0}
    units = cuda_streams.open_units({**arguments, "standard_sizes": (16,), "tile": 1})

    def call(method: str, *arguments: Any, **keywords: Any) -> Any:
        return getattr(units, method)(*arguments, **keywords)

    pair._child = SimpleNamespace(call=call, close=lambda: None)
    pair._facts = units.facts()
    with torch.no_grad():
        yield pair, graphs
    pair.close()


@pytest.mark.parametrize("name", ["cuda-streams", "cuda-devices"])
def test_every_split_computes_its_product_run_after_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = [rows_shared(MATMUL, 24), rows_shared(MATMUL, 0, padded_tokens=16), SHARED]
    with opened(monkeypatch, name) as (pair, _):
        for _ in range(2):
            pair.load(MATMUL, splits)
            for split in (*splits, *splits):
                check_split_computes(pair, exact_product(pair, MATMUL), split)
            pair.unload()


@pytest.mark.parametrize("name", ["cuda-streams", "cuda-devices"])
def test_activation_and_result_travel_between_devices_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(monkeypatch, name) as (pair, graphs):
        pair.load(MATMUL, [SHARED])
        copies = [function for function, _, _ in graphs[-1].operations if function is torch.ops.aten.copy_.default]
        assert len(copies) == (0 if name == "cuda-streams" else 2)


@pytest.mark.parametrize("unit", ["gpu", "npu"])
def test_a_unit_of_one_device_that_computes_nothing_is_seen(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its device still has the right result of the run before."""
    with opened(monkeypatch, "cuda-streams") as (pair, graphs):
        pair.load(MATMUL, [SHARED])
        check_split_computes(pair, exact_product(pair, MATMUL), SHARED)
        if unit == "npu":
            graphs[-1].operations.clear()
        else:
            monkeypatch.setattr(cuda_unit.CudaProduct, "work", lambda self: None)
        with pytest.raises(MeasurementError, match=f"of the {unit}'s"):
            check_split_computes(pair, exact_product(pair, MATMUL), SHARED)


def test_libraries_start_before_the_first_graph_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[int] = []
    with opened(monkeypatch, "cuda-streams") as (pair, graphs):
        monkeypatch.setattr(cuda_unit, "perf_counter", lambda: began.append(len(graphs)) or 0.0)
        split = Split(strategy="online_prepare", parts=rows_shared(MATMUL, 0).parts, prepares_online=True)
        pair.load(MATMUL, [split])
        pair.run(MATMUL, split)
        assert began[:2] == [1, 2]


@pytest.mark.parametrize(("names", "num_tokens", "context"), CASES)
def test_a_layer_stays_on_the_device_and_computes_what_the_formulas_say(
    names: tuple[str, ...], num_tokens: int, context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(monkeypatch, "cuda-streams") as (pair, _):
        splits = splits_of(names, num_tokens)
        layer = DecoderLayer(pair, SHAPE, splits=splits, num_tokens=num_tokens, context=context)
        reference = expected(SHAPE, layer.operands(), context)
        for mechanism in pair.mechanisms:
            layer.run(mechanism=mechanism)
            np.testing.assert_allclose(layer.output(), reference, rtol=1e-3, atol=1e-4)
        layer.run_alone()
        np.testing.assert_allclose(layer.output(), reference, rtol=1e-3, atol=1e-4)
        layer.check()
        layer.run()
        layer.check()
        with pytest.raises(RegistryError, match="no synchronisation 'pipe'; there are flag, event, stream, callback"):
            layer.run(mechanism="pipe")


def test_a_layer_s_graphs_wait_for_the_steps_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each of the four stages and behind the last; an operator without padding copies nothing at all."""
    with opened(monkeypatch, "cuda-streams") as (pair, graphs):
        layer = DecoderLayer(pair, replace(SHAPE, dtype="bf16"), splits=splits_of(FUSED, 8), num_tokens=8)
        layer.check()
        units = pair.call("__getattribute__", "_gpu"), pair.call("__getattribute__", "torch")
        stream, waits = units[0]._stream.stream, units[1].waits
        waits.clear()
        layer.run()
        assert waits == [stream] * 5
        operations = [function for graph in graphs[1:] for function, _, _ in graph.operations]
        assert torch.ops.aten.copy_.default not in operations
        monkeypatch.setattr(cuda_unit.CudaProduct, "work", lambda self: None)
        with pytest.raises(MeasurementError, match="of the gpu's"):
            layer.check()


def test_a_layer_on_two_devices_says_what_it_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        opened(monkeypatch, "cuda-devices") as (pair, _),
        pytest.raises(PartitionError, match="units that share memory"),
    ):
        DecoderLayer(pair, SHAPE, splits={}, num_tokens=1)
