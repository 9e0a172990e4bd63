"""The host pair: every split gives numpy's product in float64, and timings that add up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import ConfigError, DeviceUnavailableError, MeasurementError, PartitionError, RegistryError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, GraphForm, Matmul, Part, Split
from pytest_npubench.extensions.pairs.partition.number_formats import DTYPES
from pytest_npubench.extensions.pairs.partition.output_check import check_split_computes, exact_product
from pytest_npubench.extensions.pairs.partition.units import open_pair, pair_names
from pytest_npubench.extensions.pairs.partition.units.cores import last_cache_bytes, two_cores
from pytest_npubench.extensions.pairs.partition.units.host_pair import HostPair

from .processes import STANDARD_SIZES, eventually, opened, rows_shared, runs

MATMUL = Matmul(name="ffn_up", rows=24, cols=40, tokens=5)


def product(pair: HostPair, matmul: Matmul) -> np.ndarray:
    weight, activation = pair.operands(matmul)
    assert weight.shape == (matmul.rows, matmul.cols)
    assert activation.shape == (matmul.cols, matmul.tokens)
    return weight.astype(np.float64) @ activation.astype(np.float64)


def assert_computes(pair: HostPair, matmul: Matmul, split: Split, mechanism: str | None = None) -> None:
    """The output is scrambled first: loading ran the split already."""
    pair._arena.view(pair.call("output_name", matmul))[:] = np.nan
    timing = pair.run(matmul, split, mechanism=mechanism)
    np.testing.assert_allclose(pair.output(matmul), product(pair, matmul), rtol=1e-4, atol=1e-5)
    assert timing.total_s >= max(timing.gpu_s or 0.0, timing.npu_s or 0.0)
    assert timing.sync_s >= 0
    assert (timing.gpu_s is None) == (GPU not in split.units)
    assert (timing.npu_s is None) == (NPU not in split.units)
    assert 0 <= timing.copy_s <= (timing.npu_s or 0.0)


@st.composite
def matmuls_with_splits(draw: st.DrawFn) -> tuple[Matmul, Split]:
    """Tokens cut at one place; of each side the rows cut at one place, and either unit first."""
    rows, cols, tokens = draw(st.integers(2, 33)), draw(st.integers(1, 50)), draw(st.integers(1, 9))
    matmul = Matmul(name=draw(st.sampled_from(["q", "up"])), rows=rows, cols=cols, tokens=tokens)
    cut = draw(st.integers(0, tokens - 1))
    parts = []
    for first_token, end in ((0, cut), (cut, tokens)):
        if first_token == end:
            continue
        row = draw(st.integers(0, rows))
        units = draw(st.permutations([GPU, NPU]))
        for unit, first_row, last_row in ((units[0], 0, row), (units[1], row, rows)):
            if first_row < last_row:
                padding = draw(st.integers(0, 4)) if unit == NPU else 0
                parts.append(
                    Part(
                        unit=unit,
                        first_row=first_row,
                        num_rows=last_row - first_row,
                        first_token=first_token,
                        num_tokens=end - first_token,
                        padded_tokens=end - first_token + padding,
                    )
                )
    return matmul, Split(strategy="drawn", parts=tuple(parts))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(matmuls_with_splits(), st.sampled_from(["flag", "pipe", "event"]))
def test_any_split_computes_the_product(pair: HostPair, drawn: tuple[Matmul, Split], mechanism: str) -> None:
    matmul, split = drawn
    pair.unload()
    pair.load(matmul, [split])
    assert_computes(pair, matmul, split, mechanism)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 5])
def test_every_number_format_computes_its_product_on_both_units(pair: HostPair, dtype: str, tokens: int) -> None:
    """Rounded from the same numbers: the formats' weights differ by what 8 or 4 bits leave out."""
    matmul = Matmul(name="format", rows=64, cols=256, tokens=tokens, dtype=dtype)
    pair.unload()
    splits = [rows_shared(matmul, 64), rows_shared(matmul, 0, padded_tokens=8), rows_shared(matmul, 32)]
    pair.load(matmul, splits)
    for split in splits:
        check_split_computes(pair, exact_product(pair, matmul), split)
    whole = replace(matmul, dtype="fp32")
    pair.load(whole, splits)
    (weight, activation), (exact, _) = pair.operands(matmul), pair.operands(whole)
    assert (weight.shape, activation.shape) == ((64, 256), (256, tokens))
    off = np.abs(weight - exact).max() * 16  # the numbers are of order 1/16
    assert {"fp32": off == 0, "bf16": 0.001 < off < 0.02, "w4a16": 0.1 < off < 1}[dtype]


@pytest.mark.parametrize("activation_first", [False, True])
@pytest.mark.parametrize("is_tall", [False, True])
@pytest.mark.parametrize("rows", [24, 300])
def test_every_form_of_a_graph_computes_the_same(
    pair: HostPair, activation_first: bool, is_tall: bool, rows: int
) -> None:
    """24 rows of 40 columns are two blocks, of 24 and 16 columns; 300 rows are one."""
    form = GraphForm(activation_first=activation_first, is_tall=is_tall)
    matmul = replace(MATMUL, rows=rows)
    split = replace(rows_shared(matmul, 0, padded_tokens=8), form=form)
    pair.unload()
    pair.load(matmul, [split])
    check_split_computes(pair, exact_product(pair, matmul), split)
    assert_computes(pair, matmul, split)


def test_weights_of_four_bits_fill_their_groups(pair: HostPair) -> None:
    with pytest.raises(PartitionError, match="ffn_up in w4a16: 40 columns; want a multiple of 128"):
        pair.load(replace(MATMUL, dtype="w4a16"), [rows_shared(MATMUL, 8)])


def test_mechanisms_give_equal_outputs(pair: HostPair) -> None:
    split = rows_shared(MATMUL, 8, padded_tokens=16)
    pair.load(MATMUL, [split])
    outputs = []
    for mechanism in (*pair.mechanisms, *reversed(pair.mechanisms)):
        pair.run(MATMUL, split, mechanism=mechanism)
        outputs.append(pair.output(MATMUL))
    assert all(np.array_equal(outputs[0], other) for other in outputs)


def test_an_output_comes_from_the_run_and_not_from_before(pair: HostPair) -> None:
    """Half of the rows only, on fresh memory: a run writes its own rows."""
    matmul = Matmul(name="half", rows=8, cols=16, tokens=2)
    pair.unload()
    split = rows_shared(matmul, 4)
    pair.load(matmul, [split])
    pair.run(matmul, split)
    assert np.abs(pair.output(matmul)).min() > 0


def test_tokens_that_differ_share_the_weight_and_nothing_else(pair: HostPair) -> None:
    other = Matmul(name=MATMUL.name, rows=MATMUL.rows, cols=MATMUL.cols, tokens=3)
    for matmul in (MATMUL, other):
        pair.load(matmul, [rows_shared(matmul, 12)])
        assert_computes(pair, matmul, rows_shared(matmul, 12))
    assert np.array_equal(pair.operands(MATMUL)[0], pair.operands(other)[0])
    np.testing.assert_allclose(pair.output(MATMUL), product(pair, MATMUL), rtol=1e-4, atol=1e-5)


def test_compile_seconds_are_told_once_a_graph(pair: HostPair) -> None:
    pair.unload()
    split = rows_shared(MATMUL, 8, padded_tokens=16)
    assert {shape: took_s > 0 for shape, took_s in pair.load(MATMUL, [split]).items()} == {(16, 40, 16): True}
    assert pair.load(MATMUL, [split]) == {}
    assert pair.load(MATMUL, [rows_shared(MATMUL, 24)]) == {}, "the dynamic unit compiles nothing"


def test_a_split_that_prepares_online_pays_for_its_graphs_in_the_run(pair: HostPair) -> None:
    parts = rows_shared(MATMUL, 8).parts
    split = Split(strategy="online_prepare", parts=parts, prepares_online=True)
    assert pair.load(MATMUL, [split]) == {}
    timing = pair.run(MATMUL, split)
    assert 0 < timing.compile_s < timing.total_s
    assert timing.total_s >= timing.compile_s + max(timing.gpu_s or 0.0, timing.npu_s or 0.0)
    np.testing.assert_allclose(pair.output(MATMUL), product(pair, MATMUL), rtol=1e-4, atol=1e-5)


def test_a_seed_gives_the_same_operands_again(pair: HostPair) -> None:
    pair.load(MATMUL, [rows_shared(MATMUL, 8)])
    weight, activation = pair.operands(MATMUL)
    pair.unload()
    pair.load(MATMUL, [rows_shared(MATMUL, 8, padded_tokens=9)])
    again = pair.operands(MATMUL)
    assert np.array_equal(weight, again[0])
    assert np.array_equal(activation, again[1])


def test_chains_and_queues_run_every_operator(pair: HostPair) -> None:
    split = rows_shared(MATMUL, 8)
    pair.load(MATMUL, [split])
    total_s, each = pair.run_chain(MATMUL, split, 4, mechanism="pipe")
    assert len(each) == 4
    assert total_s >= sum(timing.total_s for timing in each)
    queued = pair.run_queued(MATMUL, split, 4)
    assert queued.total_s >= max(queued.gpu_s or 0.0, queued.npu_s or 0.0) > 0


def test_round_trips_and_bandwidth_are_positive(pair: HostPair) -> None:
    for mechanism in pair.mechanisms:
        trips = pair.round_trips_s(mechanism, 20)
        assert len(trips) == 20
        assert min(trips) > 0
    for units in ((GPU,), (NPU,), (GPU, NPU)):
        rates = pair.stream_bytes_per_s(units, 1 << 20)
        assert set(rates) == set(units)
        assert min(rates.values()) > 0


def test_the_last_cache_is_what_the_system_tells(tmp_path: Path) -> None:
    for index, size in enumerate(("48K", "2048K", "491520K")):
        (tmp_path / "cpu3/cache" / f"index{index}").mkdir(parents=True)
        (tmp_path / "cpu3/cache" / f"index{index}" / "size").write_text(f"{size}\n")
    assert last_cache_bytes(3, tmp_path) == 480 * 2**20
    assert last_cache_bytes(0, tmp_path) == 256 * 2**20, "where nothing is told, more than any chip has"


@pytest.mark.soak  # a gigabyte or more where the cache is large
def test_both_units_read_more_than_the_last_cache_holds(pair: HostPair) -> None:
    pair.unload()
    pair.load(MATMUL, [rows_shared(MATMUL, 8)])
    pair.evict()
    read = [name for name in pair._arena._read() if name.startswith("weight.stream_")]
    assert sorted(name.split(".")[1] for name in read) == ["stream_gpu", "stream_npu"]
    assert all(pair._arena.view(name).nbytes > last_cache_bytes(0) for name in read)
    assert_computes(pair, MATMUL, rows_shared(MATMUL, 8))
    pair.unload()


def test_facts_say_what_the_units_are(pair: HostPair) -> None:
    assert (pair.gpu.role, pair.gpu.zero_copy) == (GPU, True)
    assert (pair.npu.role, pair.npu.zero_copy) == (NPU, False)
    assert pair.npu.standard_sizes == STANDARD_SIZES
    assert pair.mechanisms[0] == "flag"


def test_what_was_not_loaded_is_refused(pair: HostPair) -> None:
    pair.unload()
    with pytest.raises(PartitionError, match="load this split before it is run"):
        pair.run(MATMUL, rows_shared(MATMUL, 8))
    with pytest.raises(PartitionError, match="was not loaded"):
        pair.output(MATMUL)
    with pytest.raises(PartitionError, match="its parts cover 40 of 120 outputs"):
        pair.load(MATMUL, [Split(strategy="half", parts=rows_shared(MATMUL, 8).parts[:1])])
    with pytest.raises(RegistryError, match=r"no synchronisation 'fence'; it has flag, pipe, event"):
        pair.run(MATMUL, rows_shared(MATMUL, 8), mechanism="fence")


def test_an_operator_larger_than_memory_names_the_sizes_and_the_pair_lives_on(pair: HostPair) -> None:
    large = Matmul(name="large", rows=1 << 24, cols=1 << 20, tokens=1)
    with pytest.raises(MeasurementError, match=r"'weight\.large\.16777216x1048576' takes 67,108,864\.0 MiB"):
        pair.load(large, [rows_shared(large, large.rows)])
    pair.load(MATMUL, [rows_shared(MATMUL, 8)])
    assert_computes(pair, MATMUL, rows_shared(MATMUL, 8))


def test_a_closed_pair_can_be_closed_again_and_opened_anew() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    first = opened()
    pids = first.pids.values()
    first.close()
    first.close()
    assert not any(runs(pid) for pid in pids)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    second = opened(seed=1)
    second.load(MATMUL, [rows_shared(MATMUL, 8)])
    assert_computes(second, MATMUL, rows_shared(MATMUL, 8))
    second.close()


def test_a_pair_dropped_without_close_ends_its_processes() -> None:
    pair = opened()
    pids = tuple(pair.pids.values())
    del pair
    assert eventually(lambda: not any(runs(pid) for pid in pids))


def test_unknown_pairs_and_sizes_are_refused() -> None:
    assert pair_names()[0] == "host"
    with pytest.raises(RegistryError, match=r"no pair of units 'tpu'; there are host, cuda-host"):
        open_pair("tpu", standard_sizes=(1,))
    for sizes in ((2, 1), (1, 1), (0, 1)):
        with pytest.raises(ConfigError, match="want increasing sizes"):
            open_pair("host", standard_sizes=sizes)


def test_cores_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3})
    with pytest.raises(DeviceUnavailableError, match=r"needs 2 cores; this process may use 1 \(\[3\]\)"):
        two_cores()
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3, 5, 6})
    assert two_cores() == (5, 6)
    assert two_cores((6, 3)) == (6, 3)
    for cores in ((3, 3), (3, 4)):
        with pytest.raises(DeviceUnavailableError, match="want two different ones of"):
            two_cores(cores)
    monkeypatch.delattr("os.sched_getaffinity")
    with pytest.raises(DeviceUnavailableError, match="pins its processes to cores"):
        two_cores()


def test_cuda_pairs_say_why_they_are_not_there() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    for name in ("cuda-host", "cuda-streams", "cuda-devices"):
        with pytest.raises(DeviceUnavailableError, match="torch sees no CUDA device"):
            open_pair(name, standard_sizes=(1,))
