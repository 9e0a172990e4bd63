"""The OpenVINO pair on the CPU plugin twice over: every way to split, by every mechanism, is the product in float64.

No test says how fast anything is. NPUs and GPUs that the host lacks are named in errors only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import (
    ConfigError,
    DeviceUnavailableError,
    MeasurementError,
    PartitionError,
    RegistryError,
    UnitLostError,
)
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Part, Split
from pytest_npubench.extensions.pairs.partition.units import open_pair, openvino
from pytest_npubench.extensions.pairs.partition.units.openvino import PAIRS, device_names, open_openvino_pair

SIZES = (16, 32, 64)
MATMUL = Matmul(name="ffn_up", rows=96, cols=48, tokens=40)
MECHANISMS = ("wait", "polling", "callback")


@pytest.fixture(scope="module")
def pair() -> Iterator[Any]:
    pytest.importorskip("openvino", reason="openvino is not installed: pip install pytest-npubench[openvino]")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two units need two processors")
    found = open_pair("openvino:CPU,CPU", standard_sizes=SIZES, tile=8)
    yield found
    found.close()


def part(unit: str, rows: tuple[int, int], tokens: tuple[int, int], padded: int | None = None) -> Part:
    return Part(
        unit=unit,
        first_row=rows[0],
        num_rows=rows[1] - rows[0],
        first_token=tokens[0],
        num_tokens=tokens[1] - tokens[0],
        padded_tokens=padded or tokens[1] - tokens[0],
    )


def split(strategy: str, *parts: Part, online: bool = False) -> Split:
    return Split(strategy=strategy, parts=parts, prepares_online=online)


ALL, SEQUENCE = (0, 96), (0, 40)
SPLITS = (
    split("gpu_only", part(GPU, ALL, SEQUENCE)),
    split("npu_only", part(NPU, ALL, SEQUENCE, 64)),
    split("weight_centric", part(GPU, (0, 32), SEQUENCE), part(NPU, (32, 96), SEQUENCE)),
    split("hybrid", part(GPU, (0, 32), SEQUENCE), part(NPU, (32, 96), SEQUENCE, 64)),
    split("activation_centric", part(NPU, ALL, (0, 32)), part(GPU, ALL, (32, 40))),
    split("pipe", part(NPU, ALL, (0, 16)), part(NPU, ALL, (16, 32)), part(NPU, ALL, (32, 40), 16)),
    split("both_ways", part(GPU, (0, 8), (0, 20)), part(NPU, (8, 96), SEQUENCE, 64), part(GPU, (0, 8), (20, 40))),
    split("online_prepare", part(NPU, ALL, SEQUENCE), online=True),
)


def check(pair: Any, matmul: Matmul, one: Split, mechanism: str | None) -> Any:
    pair.output(matmul)[...] = np.nan
    timing = pair.run(matmul, one, mechanism=mechanism)
    weight, activation = pair.operands(matmul)
    want = weight.astype(np.float64) @ activation
    assert np.abs(want).max() > 1
    # each output is a sum of cols products of order 1/sqrt(cols): float32 rounds it by some 1e-6
    np.testing.assert_allclose(pair.output(matmul), want, rtol=0, atol=1e-4)
    units = {"gpu": timing.gpu_s, "npu": timing.npu_s}
    assert {unit for unit, seconds in units.items() if seconds is not None} == set(one.units)
    busy = max(seconds for seconds in units.values() if seconds is not None)
    assert timing.sync_s >= 0
    assert timing.total_s >= timing.sync_s + timing.compile_s
    assert timing.total_s >= busy * 0.99  # OpenVINO's clock and ours are two
    return timing


@pytest.mark.parametrize("mechanism", [*MECHANISMS, None])
@pytest.mark.parametrize("one", SPLITS, ids=lambda one: one.strategy)
def test_every_split_is_the_product(pair: Any, one: Split, mechanism: str | None) -> None:
    pair.load(MATMUL, [one])
    for _ in range(2):
        timing = check(pair, MATMUL, one, mechanism)
        assert (timing.compile_s > 0) == one.prepares_online
        copies = any(part.padded_tokens != MATMUL.tokens for part in one.of(NPU))
        assert (timing.copy_s > 0) == copies


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Matmul, Split]:
    """An operator cut at a row and at a token, the four quarters given to units at will."""
    rows, cols, tokens = (draw(st.integers(2, 40)) for _ in range(3))
    row, token = draw(st.integers(1, rows - 1)), draw(st.integers(1, tokens - 1))
    parts = [
        part(draw(st.sampled_from((GPU, NPU))), r, t, t[1] - t[0] + draw(st.integers(0, 9)))
        for r in ((0, row), (row, rows))
        for t in ((0, token), (token, tokens))
    ]
    return Matmul(name="drawn", rows=rows, cols=cols, tokens=tokens), split("drawn", *parts)


@settings(max_examples=15, deadline=None)
@given(case=drawn(), mechanism=st.sampled_from(MECHANISMS))
def test_any_split_is_the_product(pair: Any, case: tuple[Matmul, Split], mechanism: str) -> None:
    matmul, one = case
    pair.load(matmul, [one])
    pair.output(matmul)[...] = np.nan
    pair.run(matmul, one, mechanism=mechanism)
    weight, activation = pair.operands(matmul)
    np.testing.assert_allclose(pair.output(matmul), weight.astype(np.float64) @ activation, rtol=0, atol=1e-4)


def test_the_facts(pair: Any) -> None:
    assert pair.mechanisms == MECHANISMS
    assert (pair.npu.role, pair.npu.tile, pair.npu.standard_sizes) == (NPU, 8, SIZES)
    assert (pair.gpu.role, pair.gpu.tile, pair.gpu.standard_sizes) == (GPU, 1, ())
    assert pair.npu.name.startswith("OpenVINO CPU, ")


def test_a_graph_is_compiled_once_for_a_shape(pair: Any) -> None:
    """Wherever its rows and tokens lie; the dynamic unit has none of its own."""
    pair.unload()
    halves = split("halves", part(NPU, (0, 48), SEQUENCE), part(NPU, (48, 96), SEQUENCE))
    compile_s = pair.load(MATMUL, [halves, SPLITS[0], SPLITS[2]])
    assert sorted(compile_s) == [(48, 48, 40), (64, 48, 40)]
    assert min(compile_s.values()) > 0
    assert pair.load(MATMUL, [halves, SPLITS[2]]) == {}
    check(pair, MATMUL, halves, None)


def test_more_padding_than_was_loaded(pair: Any) -> None:
    """New arrays take the place of those that are too short: what was bound to them is bound anew."""
    pair.unload()
    pair.load(MATMUL, [SPLITS[0], SPLITS[2]])
    before = pair.operands(MATMUL)
    pair.load(MATMUL, [SPLITS[1]])
    np.testing.assert_array_equal(before[1], pair.operands(MATMUL)[1])
    for one in SPLITS[:2]:
        check(pair, MATMUL, one, None)
    pair.load(MATMUL, [SPLITS[2]])
    check(pair, MATMUL, SPLITS[2], None)


def test_operators_of_one_shape_share_their_weight(pair: Any) -> None:
    longer = Matmul(name="ffn_up", rows=96, cols=48, tokens=64)
    other = Matmul(name="ffn_gate", rows=96, cols=48, tokens=40)
    for matmul in (MATMUL, longer, other):
        pair.load(matmul, [split("gpu_only", part(GPU, ALL, (0, matmul.tokens)))])
    assert pair.operands(longer)[0] is pair.operands(MATMUL)[0]
    assert pair.operands(other)[0] is not pair.operands(MATMUL)[0]


def test_what_a_pair_refuses(pair: Any) -> None:
    pair.unload()
    with pytest.raises(PartitionError, match="ffn_up was not loaded"):
        pair.run(MATMUL, SPLITS[0])
    with pytest.raises(PartitionError, match="ffn_up in bf16: OpenVINO's pairs multiply in fp32"):
        pair.load(replace(MATMUL, dtype="bf16"), SPLITS[:1])
    pair.load(MATMUL, SPLITS[:1])
    with pytest.raises(PartitionError, match=r"ffn_up: Part\(unit='npu'.* was not loaded"):
        pair.run(MATMUL, SPLITS[1])
    with pytest.raises(PartitionError, match="no mechanism 'flag'; OpenVINO has wait, polling, callback"):
        pair.run(MATMUL, SPLITS[0], mechanism="flag")
    with pytest.raises(PartitionError, match="no mechanism 'pipe'"):
        pair.round_trips_s("pipe", 1)
    with pytest.raises(PartitionError, match="cover 3000 of 3840 outputs"):
        pair.load(MATMUL, [split("hole", part(GPU, (0, 75), SEQUENCE))])


def test_no_memory_for_an_operator(pair: Any) -> None:
    huge = Matmul(name="huge", rows=2**24, cols=2**24, tokens=1)
    with pytest.raises(MeasurementError, match=r"no memory for huge \[16777216, 16777216\] x 1 tokens"):
        pair.load(huge, [split("gpu_only", part(GPU, (0, 2**24), (0, 1)))])
    assert huge not in pair._operands


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_round_trips(pair: Any, mechanism: str) -> None:
    times_s = pair.round_trips_s(mechanism, 5)
    assert len(times_s) == 5
    assert min(times_s) > 0


@pytest.mark.parametrize("units", [(GPU,), (NPU,), (GPU, NPU)])
def test_streams(pair: Any, units: tuple[str, ...]) -> None:
    found = pair.stream_bytes_per_s(units, 2**20)
    assert set(found) == set(units)
    assert min(found.values()) > 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_unit_that_dies(pair: Any, mechanism: str) -> None:
    """FAKE: a request whose device is lost while it runs. By callback nobody is told, so it is asked."""

    def lost(*_: Any) -> bool:
        raise RuntimeError("Exception from l0.cpp:3:\nZE_RESULT_ERROR_DEVICE_LOST, code 0x70000001\n")

    pair.load(MATMUL, SPLITS)
    calls_back = mechanism == "callback"
    for one in SPLITS[2].parts:
        pair._bound(MATMUL, one, calls_back=calls_back)
    key = MATMUL, SPLITS[2].parts[1], calls_back
    real = pair._work[key]
    pair._work[key] = SimpleNamespace(
        request=SimpleNamespace(start_async=lambda: None, wait=lost, wait_for=lost), tensors=(), copied=None
    )
    with pytest.raises(UnitLostError, match=r"OpenVINO CPU, .* died: ZE_RESULT_ERROR_DEVICE_LOST, code 0x70000001"):
        pair.run(MATMUL, SPLITS[2], mechanism=mechanism)
    pair._work[key] = real
    check(pair, MATMUL, SPLITS[2], mechanism)


def test_the_unit_that_is_left_ends_its_work_first(pair: Any) -> None:
    """FAKE: one unit fails at once while the other, as it seems, still runs: only that one is named, and waited for."""
    ended = []

    def lost(*_: Any) -> bool:
        raise RuntimeError("Exception from l0.cpp:3:\ndevice lost\n")

    def work(**request: Any) -> Any:
        return SimpleNamespace(request=SimpleNamespace(start_async=lambda: None, **request), tensors=(), copied=None)

    dead = work(wait=lost, wait_for=lost)
    slow = work(wait=lambda: ended.append("slow"), wait_for=lambda _: False)
    with pytest.raises(UnitLostError) as caught:
        pair._requests.run({GPU: [slow], NPU: [dead]}, "polling")
    assert ended == ["slow"]
    assert str(caught.value) == f"{pair.npu.name} died: device lost"


def test_closing_twice() -> None:
    pytest.importorskip("openvino", reason="openvino is not installed: pip install pytest-npubench[openvino]")
    found = open_openvino_pair("openvino:CPU,CPU", standard_sizes=SIZES)
    found.load(MATMUL, SPLITS[:2])
    found.close()
    found.close()
    with pytest.raises(PartitionError, match="was not loaded"):
        found.run(MATMUL, SPLITS[0])


# -- names; no openvino needed


def test_pairs_by_name() -> None:
    assert device_names("openvino:NPU,GPU.1") == ("NPU", "GPU.1")
    assert all(device_names(name) for name in PAIRS)


@pytest.mark.parametrize(
    "name", ["openvino:", "openvino:NPU", "openvino:NPU,GPU,CPU", "openvino:XPU,GPU", "openvino:NPU,GPU.x", "cuda:A,B"]
)
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(
        RegistryError, match=f"no pair '{name}': want openvino:STATIC,DYNAMIC with two of NPU, GPU, CPU"
    ):
        open_openvino_pair(name, standard_sizes=SIZES)


def test_cores_cannot_be_chosen() -> None:
    with pytest.raises(ConfigError, match=r"cores \(0, 1\): OpenVINO chooses its threads' cores itself"):
        open_openvino_pair("openvino:CPU,CPU", standard_sizes=SIZES, cores=(0, 1))


def test_openvino_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino, "find_spec", lambda name: None)
    with pytest.raises(DeviceUnavailableError, match=r"openvino is not installed: pip install pytest-npubench\[openv"):
        open_openvino_pair("openvino:NPU,GPU", standard_sizes=SIZES)


def test_one_processor_cannot_be_two_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino, "find_spec", lambda name: object())
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    with pytest.raises(DeviceUnavailableError, match="two units need two processors; this process may use one"):
        open_openvino_pair("openvino:CPU,CPU", standard_sizes=SIZES)


def test_a_device_that_is_not_there() -> None:
    pytest.importorskip("openvino", reason="openvino is not installed: pip install pytest-npubench[openvino]")
    with pytest.raises(DeviceUnavailableError, match=r"no GPU\.7: OpenVINO found .*CPU"):
        open_pair("openvino:CPU,GPU.7", standard_sizes=SIZES)
