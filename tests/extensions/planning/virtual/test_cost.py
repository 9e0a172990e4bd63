"""The cost model against closed forms worked out by hand, pair-by-pair counts, and what must never go the other way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.core.figures import Figure
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.engines.kv_capacity import default_kv_capacity_tokens, dtype_bytes
from pytest_npubench.engines.shapes import DecoderShape, ExpertShape, decoder_shape
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.planning.virtual.cost import (
    Attainable,
    CostModel,
    cost_model,
    moved_values_per_row,
)
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.suites.hardware_files import load_all

from .pass_costs import PassCost, pass_cost

SPECS = load_all([default_directory()])
PEAKS = Attainable(
    memory=1,
    gemm=1,
    attention=1,
    grouped_gemm=1,
    tile_rows=0,
    interconnect=1,
    iteration_s=0,
    layer_s=0,
    expert_layer_s=0,
    all_reduce_s=0,
)
# hidden 4, one layer, 2 query heads of 2 on one key-value head, 3 experts of width 5 of which a token takes 2
TINY = DecoderShape(
    name="tiny",
    source="made up to be worked out by hand",
    qk_norm=True,
    vocab_size=10,
    hidden=4,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=2,
    experts=ExpertShape(num_experts=3, experts_per_token=2),
    intermediate=5,
    rope_theta=1e4,
    rms_eps=1e-6,
)


def device(flops_per_s: float, bytes_per_s: float, link_bytes_per_s: float | None = None) -> HardwareSpec:
    """A made-up device with these peaks in fp32."""
    figure = {name: Figure(value=value, unit="", source="") for name, value in
              (("flops", flops_per_s), ("bytes", bytes_per_s), ("link", link_bytes_per_s)) if value}  # fmt: skip
    peak = replace(
        SPECS["nvidia-h100"].peak,
        flops_per_s={"fp32": figure["flops"]},
        memory_bandwidth_bytes_per_s=figure["bytes"],
        interconnect_bandwidth_bytes_per_s=figure.get("link"),
    )
    return replace(SPECS["nvidia-h100"], peak=peak)


def tiny_costs(flops_per_s: float, bytes_per_s: float, reach: Attainable = PEAKS) -> CostModel:
    return cost_model(TINY, device(flops_per_s, bytes_per_s), tensor_parallel=1, dtype="fp32", attainable=reach)


def one_decode_row(costs: CostModel, context_tokens: int, activations: int) -> PassCost:
    return pass_cost(
        costs,
        0,
        1,
        decode_rows=1,
        context_tokens=context_tokens,
        window_tokens=0,
        prefill=(),
        activations=activations,
    )


def test_one_layer_one_row_by_bytes() -> None:
    """At endless FLOP/s and 1 byte/s a second is a byte.

    Attention: q 4x4, k and v 2x4 each, o 4x4 = 48 weights, router 4x3 = 12: 60 x 4 B. An expert: 3 x 4 x 5 = 60.
    Keys and values of a token: 2 x 1 x 2 = 4 values. Vocabulary: 40 values.
    """
    costs = tiny_costs(1e30, 1)
    cost = one_decode_row(costs, context_tokens=7, activations=2)
    assert cost.shared_s == pytest.approx(240)
    assert cost.attention_s == pytest.approx(7 * 4 * 4)
    assert cost.experts_s == pytest.approx(2 * 60 * 4)
    # 10 hidden + 4 x 3 heads x 2 + 2 copies x (3 hidden + 6 x 5) + hidden = 40 + 24 + 84 + 4 = 152 values
    assert cost.moved_s == pytest.approx(152 * 4)
    assert costs.sampling_s(3) == pytest.approx(160)
    assert cost.total_s == pytest.approx(240 + 112 + 480 + 608)


def test_one_layer_one_row_by_operations() -> None:
    """At endless bandwidth and 1 FLOP/s: two operations a weight and row, 4 x heads x head_dim a pair."""
    costs = tiny_costs(1, 1e30)
    cost = one_decode_row(costs, context_tokens=7, activations=2)
    assert cost.shared_s == pytest.approx(2 * 60)
    assert cost.attention_s == pytest.approx(7 * 4 * 2 * 2)
    assert cost.experts_s == pytest.approx(2 * 2 * 60)
    assert costs.sampling_s(3) == pytest.approx(3 * 2 * 40)


def test_a_prompt_multiplies_every_pair_and_reads_its_context_once() -> None:
    row = PrefillRow(request=0, first_token=5, num_tokens=3)  # pairs 6 + 7 + 8
    arguments = {"decode_rows": 0, "context_tokens": 0, "window_tokens": 0, "prefill": (row,), "activations": 3}
    by_operations = pass_cost(tiny_costs(1, 1e30), 0, 1, **arguments)
    assert by_operations.attention_s == pytest.approx((6 + 7 + 8) * 16)
    assert by_operations.shared_s == pytest.approx(3 * 120)
    assert by_operations.experts_s == pytest.approx(3 * 240)
    by_bytes = pass_cost(tiny_costs(1e30, 1), 0, 1, **arguments)
    assert by_bytes.attention_s == pytest.approx(8 * 4 * 4)
    assert by_bytes.experts_s == pytest.approx(3 * 240)


def test_utilisation_of_a_grouped_product_is_t_over_t_plus_the_tile() -> None:
    """6 rows of 2 experts each over 3 experts are t = 4 rows an expert: with a tile of 12, a quarter of the peak."""
    arguments = {"decode_rows": 6, "context_tokens": 0, "window_tokens": 0, "prefill": (), "activations": 3}
    full = pass_cost(tiny_costs(1, 1e30), 0, 1, **arguments).experts_s
    tiled = pass_cost(tiny_costs(1, 1e30, replace(PEAKS, tile_rows=12)), 0, 1, **arguments).experts_s
    assert full / tiled == pytest.approx(4 / (4 + 12))


def test_fractions_divide_and_fixed_times_add() -> None:
    reach = replace(PEAKS, memory=0.5, iteration_s=3, layer_s=5, expert_layer_s=7)
    costs, peaks = tiny_costs(1e30, 1, reach), tiny_costs(1e30, 1)
    slow, fast = one_decode_row(costs, 7, 2), one_decode_row(peaks, 7, 2)
    assert slow.shared_s == pytest.approx(2 * fast.shared_s)
    assert slow.attention_s == pytest.approx(2 * fast.attention_s)
    assert slow.moved_s == pytest.approx(2 * fast.moved_s)
    assert slow.experts_s == pytest.approx(2 * fast.experts_s)
    assert slow.fixed_s == 12
    assert costs.iteration_s == 3


def test_tensor_parallel_shares_the_work_and_pays_for_the_links() -> None:
    """A ring all-reduce of two devices sends each value once; two a layer, 2048 values of 2 bytes, at 450 GB/s."""
    shape, spec = decoder_shape("qwen3-30b-a3b"), SPECS["nvidia-h100"]
    one, two = (cost_model(shape, spec, tensor_parallel=n, dtype="bf16", attainable=PEAKS) for n in (1, 2))
    for name in (
        "shared_read_s",
        "shared_row_s",
        "expert_read_s",
        "expert_row_s",
        "context_s",
        "pair_s",
        "head_read_s",
    ):
        assert getattr(two, name) == pytest.approx(getattr(one, name) / 2)
    assert one.link_row_s == 0
    assert two.link_row_s == pytest.approx(2 * 2048 * 2 / 450e9)
    four = cost_model(shape, spec, tensor_parallel=4, dtype="bf16", attainable=PEAKS)
    assert four.link_row_s == pytest.approx(1.5 * two.link_row_s)


def test_the_docstrings_worked_example() -> None:
    costs = cost_model(
        decoder_shape("qwen3-30b-a3b"), SPECS["nvidia-h100"], tensor_parallel=1, dtype="bf16", attainable=PEAKS
    )
    cost = one_decode_row(costs, 1, 8)
    assert cost.shared_s == pytest.approx(11.4e-6, rel=0.01)
    assert cost.experts_s == pytest.approx(22.5e-6, rel=0.01)


def test_a_dense_decoder_has_no_experts_and_reads_its_feed_forward_block() -> None:
    costs = cost_model(
        decoder_shape("qwen3-8b"), SPECS["nvidia-h100"], tensor_parallel=1, dtype="bf16", attainable=PEAKS
    )
    cost = one_decode_row(costs, 1, 0)
    assert cost.experts_s == 0
    assert cost.shared_s == pytest.approx((4096 * 128 * 2 * 40 + 3 * 4096 * 12288) * 2 / 3.35e12)
    dense = decoder_shape("qwen3-8b")
    assert moved_values_per_row(dense, 1, dense.all_layers[0]) == 12 * 4096 + 4 * 40 * 128 + 6 * 12288


@given(
    first=st.integers(0, 300),
    num_tokens=st.integers(1, 200),
    window=st.integers(1, 150),
    layers=st.tuples(st.integers(0, 12), st.integers(1, 12)),
)
@settings(max_examples=60, deadline=None)
def test_windowed_attention_counts_what_a_loop_counts(
    first: int, num_tokens: int, window: int, layers: tuple[int, int]
) -> None:
    shape = replace(TINY, num_layers=24, sliding_window=window)
    costs = cost_model(shape, device(1, 1e30), tensor_parallel=1, dtype="fp32", attainable=PEAKS)
    start, stop = layers[0], layers[0] + layers[1]
    row = PrefillRow(request=0, first_token=first, num_tokens=num_tokens)
    cost = pass_cost(
        costs, start, stop, decode_rows=2, context_tokens=90, window_tokens=40, prefill=(row,), activations=0
    )
    pairs = 0
    for layer in range(start, stop):
        for token in range(first, first + num_tokens):
            pairs += min(token + 1, window) if layer % 2 == 0 else token + 1
        pairs += 40 if layer % 2 == 0 else 90
    assert cost.attention_s == pytest.approx(16 * pairs)


@given(first=st.integers(0, 300), num_tokens=st.integers(1, 200), window=st.integers(1, 150))
@settings(max_examples=40, deadline=None)
def test_windowed_attention_reads_the_keys_that_any_of_its_queries_sees(
    first: int, num_tokens: int, window: int
) -> None:
    shape = replace(TINY, sliding_window=window)
    costs = cost_model(shape, device(1e30, 1), tensor_parallel=1, dtype="fp32", attainable=PEAKS)
    row = PrefillRow(request=0, first_token=first, num_tokens=num_tokens)
    cost = pass_cost(costs, 0, 1, decode_rows=0, context_tokens=0, window_tokens=0, prefill=(row,), activations=0)
    tokens = range(first, first + num_tokens)
    seen = {key for token in tokens for key in range(max(0, token + 1 - window), token + 1)}
    assert cost.attention_s == pytest.approx(16 * len(seen))


SHAPES = ("qwen3-30b-a3b", "gpt-oss-20b", "qwen3-8b")


WORK = {"rows": 300, "context": 100_000, "activations": 24 * 32, "tokens": 9000, "first": 9000}
LEAST = {"rows": 1, "context": 1, "activations": 0, "tokens": 1, "first": 0}


@given(
    name=st.sampled_from(SHAPES),
    less=st.fixed_dictionaries({what: st.integers(LEAST[what], most) for what, most in WORK.items()}),
    added=st.fixed_dictionaries({what: st.integers(0, most) for what, most in WORK.items()}),
)
@settings(max_examples=80, deadline=None)
def test_more_work_never_takes_less_time(name: str, less: dict[str, int], added: dict[str, int]) -> None:
    costs = cost_model(decoder_shape(name), SPECS["nvidia-h100"], tensor_parallel=2, dtype="bf16")
    window = min(less["context"], 128 * less["rows"])

    def cost(work: dict[str, int], window_tokens: int) -> PassCost:
        prefill = (PrefillRow(1, work["first"], work["tokens"]),)
        batch = {"decode_rows": work["rows"], "context_tokens": work["context"], "activations": work["activations"]}
        return pass_cost(costs, 0, 24, **batch, window_tokens=window_tokens, prefill=prefill)

    least = cost(less, window)
    more = cost({what: number + added[what] for what, number in less.items()}, window + added["rows"])
    for kind, at_least in zip(more, least, strict=True):
        assert kind >= at_least * (1 - 1e-12)
    assert min(least) >= 0


@given(name=st.sampled_from(SHAPES), cut=st.integers(1, 23), rows=st.integers(1, 64), tokens=st.integers(0, 2000))
@settings(max_examples=40, deadline=None)
def test_cutting_a_pass_in_two_never_makes_it_faster(name: str, cut: int, rows: int, tokens: int) -> None:
    """Sums of maxima are at least the maximum of sums; with equal activations a layer they are the same."""
    costs = cost_model(decoder_shape(name), SPECS["nvidia-h100"], tensor_parallel=2, dtype="bf16")
    prefill = (PrefillRow(1, 0, tokens),) if tokens else ()
    each = 0 if decoder_shape(name).is_dense else 20
    arguments = {"decode_rows": rows, "context_tokens": 900 * rows, "window_tokens": 128 * rows, "prefill": prefill}
    whole = pass_cost(costs, 0, 24, **arguments, activations=24 * each).total_s
    first = pass_cost(costs, 0, cut, **arguments, activations=cut * each).total_s
    second = pass_cost(costs, cut, 24, **arguments, activations=(24 - cut) * each).total_s
    assert first + second == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize(
    ("spec", "devices", "dtype", "words"),
    [
        ("cpu", 1, "fp32", "'cpu' states no peak.memory_bandwidth_bytes_per_s"),
        ("nvidia-a100", 1, "fp8", "'nvidia-a100' states no peak.flops_per_s.fp8"),
        ("nvidia-a100-40gb", 2, "bf16", "'nvidia-a100-40gb' states no peak.interconnect_bandwidth_bytes_per_s"),
        ("nvidia-h100", 3, "bf16", "has 4 key-value heads to share out; want one of 1, 2, 4, 8, 16, 32"),
        ("nvidia-h100", 1, "fp12", "dtype 'fp12'; want one of fp32"),
    ],
)
def test_what_the_model_needs_is_named(spec: str, devices: int, dtype: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cost_model(decoder_shape("qwen3-30b-a3b"), SPECS[spec], tensor_parallel=devices, dtype=dtype)


def test_a_head_that_two_devices_hold_is_read_by_each_and_all_else_is_shared_out() -> None:
    """4 key-value heads on 8 devices, as the eight v5e of the scheduling suite have them."""
    four, eight = (
        cost_model(decoder_shape("qwen3-30b-a3b"), SPECS["tpu-v5e"], tensor_parallel=count, dtype="bf16")
        for count in (4, 8)
    )
    assert eight.context_read_s == pytest.approx(four.context_read_s)
    assert eight.shared_read_s == pytest.approx(four.shared_read_s / 2)


def test_two_devices_of_one_chip_have_half_of_its_peaks_each() -> None:
    chip = device(8e12, 2e12)
    whole, half = (
        cost_model(TINY, replace(chip, devices_per_chip=count), tensor_parallel=1, dtype="fp32", attainable=PEAKS)
        for count in (1, 2)
    )
    assert half.shared_read_s == pytest.approx(2 * whole.shared_read_s)
    assert half.shared_row_s == pytest.approx(2 * whole.shared_row_s)


def test_the_room_for_keys_and_values() -> None:
    """(160e9 x 0.9 - 61.06e9) / 98,304; one device has 72 GB to use, 10.9 GB of them beside the weights."""
    qwen, h100 = decoder_shape("qwen3-30b-a3b"), SPECS["nvidia-h100"]
    assert default_kv_capacity_tokens(qwen, h100, tensor_parallel=2, dtype="bf16") == 843_666
    one = default_kv_capacity_tokens(qwen, h100, tensor_parallel=1, dtype="bf16")
    assert one == pytest.approx((72e9 - 61.06e9) / 98_304, rel=1e-3)
    with pytest.raises(
        ConfigError, match=r"122\.1 GB of weights; 1 x nvidia-h100 can use 72\.0 GB \(90% of its memory"
    ):
        default_kv_capacity_tokens(qwen, h100, tensor_parallel=1, dtype="fp32")
    with pytest.raises(ConfigError, match=r"'cpu' states no peak\.memory_bytes"):
        default_kv_capacity_tokens(qwen, SPECS["cpu"], tensor_parallel=1, dtype="fp32")
    assert [dtype_bytes(dtype) for dtype in ("fp32", "bf16", "fp8", "int4")] == [4, 2, 1, 0.5]
