"""Every strategy that the registry knows keeps the contract, and each makes what the paper describes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import PartitionError, RegistryError
from pytest_npubench.extensions.pairs.partition import strategies
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Part, Split, check_split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions, ratio_text
from pytest_npubench.extensions.pairs.partition.strategies import (
    all_splits,
    solver_names,
    strategy,
    strategy_names,
)

OPTIONS = SplitOptions(standard_sizes=(64, 128, 256), tile=32)


def operator(tokens: int, rows: int = 1024, cols: int = 512) -> Matmul:
    return Matmul(name="ffn_down", rows=rows, cols=cols, tokens=tokens)


def made(name: str, tokens: int, options: SplitOptions = OPTIONS, rows: int = 1024) -> list[Split]:
    return list(strategy(name).splits(operator(tokens, rows), options))


def graphs(split: Split) -> list[int]:
    return [part.padded_tokens for part in split.of(NPU)]


def test_shipped_names():
    assert strategy_names() == (
        *("activation_centric", "chunked", "gpu_only", "hybrid"),
        *("npu_only", "online_prepare", "pipe", "weight_centric"),
    )
    assert set(strategy_names()) - set(solver_names()) == {"chunked", "online_prepare", "pipe"}


@pytest.mark.parametrize("name", strategy_names())
@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 700),
    rows=st.integers(1, 500),
    tile=st.sampled_from([1, 8, 32, 33]),
    sizes=st.sets(st.integers(1, 300), max_size=4),
    shares=st.lists(st.floats(0, 1), max_size=5),
)
def test_contract(name, tokens, rows, tile, sizes, shares):
    """Whatever the options, each split covers the operator once, carries the name, and uses graphs there are."""
    options = SplitOptions(
        standard_sizes=tuple(sorted(sizes)),
        tile=tile,
        decode_shares=tuple(shares),
        prefill_shares=tuple(shares),
        max_small_parts=2,
    )
    found = list(strategy(name).splits(operator(tokens, rows, cols=8), options))
    assert len({split.parts for split in found}) == len(found) or name == "chunked"
    for split in found:
        check_split(operator(tokens, rows, cols=8), split)
        assert split.strategy == name
        for part in split.of(NPU):
            assert split.prepares_online or options.is_standard(part.padded_tokens)
            assert part.num_rows == rows or part.num_rows % tile == 0
        assert all(part.padded_tokens == part.num_tokens for part in split.of(GPU))
        if name in ("weight_centric", "hybrid", "activation_centric"):
            assert split.units == (GPU, NPU), "a share of 0 or 1 is a single unit's"


def test_npu_only_is_padded_to_the_smallest_size_that_holds_the_tokens():
    for tokens, wanted in ((1, [64]), (64, [64]), (65, [128]), (200, [256]), (300, [256, 64]), (513, [256, 256, 64])):
        assert [graphs(split) for split in made("npu_only", tokens)] == [wanted]


def test_weight_centric_cuts_rows_by_the_grid_on_the_tile():
    found = made("weight_centric", 128)
    assert [(split.of(GPU)[0].num_rows, graphs(split)) for split in found] == [
        (1024 - npu, [128]) for npu in (832, 608, 416, 192)
    ]
    assert made("weight_centric", 100) == []


def test_one_token_has_the_grid_of_decode():
    options = SplitOptions(standard_sizes=(1,), tile=32)
    assert [split.of(GPU)[0].num_rows for split in made("weight_centric", 1, options)] == [256, 512, 768]


def test_rows_that_the_tile_does_not_divide_leave_the_rest_to_the_gpu():
    options = SplitOptions(standard_sizes=(64,), tile=32, prefill_shares=(0.5,))
    (split,) = made("weight_centric", 64, options, rows=100)
    assert (split.of(GPU)[0].num_rows, split.of(NPU)[0].num_rows) == (36, 64)


@pytest.mark.parametrize("shares", [(0.0,), (1.0,), (0.0, 1.0), (0.001,), (0.999,)])
def test_a_share_that_leaves_a_unit_without_a_tile_is_not_made(shares):
    options = SplitOptions(standard_sizes=(64,), tile=32, prefill_shares=shares)
    assert made("weight_centric", 64, options) == []
    assert made("hybrid", 63, options) == []


def test_hybrid_pads_for_the_npu_alone():
    found = made("hybrid", 200)
    assert {split.of(GPU)[0].padded_tokens for split in found} == {200}
    assert {tuple(graphs(split)) for split in found} == {(256,)}
    assert made("hybrid", 256) == []


def test_activation_centric_is_every_multiset_below_the_length():
    """By brute force over how often each size comes, the smaller ones at most 3 times together."""
    for tokens in (1, 64, 65, 129, 300, 525):
        wanted = {
            (256,) * largest + (128,) * middle + (64,) * small
            for largest, middle, small in product(range(4), repeat=3)
            if 0 < 256 * largest + 128 * middle + 64 * small < tokens and middle + small <= 3
        }
        found = made("activation_centric", tokens)
        assert {tuple(graphs(split)) for split in found} == wanted
        assert len(found) == len(wanted)
        assert all(split.of(GPU)[0].num_tokens == tokens - sum(graphs(split)) for split in found)


def test_the_baselines_of_figure_14():
    assert [graphs(split) for split in made("pipe", 525)] == [[256, 256, 64]]
    assert [graphs(split) for split in made("pipe", 300)] == [[256, 64]]
    assert [graphs(split) for split in made("chunked", 300)] == [[64] * 5, [128] * 3, [256] * 2]
    (online,) = made("online_prepare", 300)
    assert (graphs(online), online.prepares_online) == ([300], True)


def test_without_standard_sizes_every_length_has_a_graph():
    options = SplitOptions(standard_sizes=(), prefill_shares=(0.5,))
    assert [graphs(split) for split in made("npu_only", 77, options)] == [[77]]
    assert len(made("weight_centric", 77, options)) == 1
    assert made("activation_centric", 77, options) == made("hybrid", 77, options) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"standard_sizes": (64, 64)}, "want whole numbers from 1 that increase"),
        ({"standard_sizes": (0, 64)}, "want whole numbers from 1"),
        ({"standard_sizes": (64,), "tile": 0}, "tile 0"),
        ({"standard_sizes": (64,), "max_small_parts": -1}, "max_small_parts -1"),
        ({"standard_sizes": (64,), "decode_shares": (1.5,)}, "a share of 1.5 of the rows; want 0 to 1"),
        ({"standard_sizes": (64,), "prefill_shares": (float("nan"),)}, "a share of nan"),
    ],
)
def test_options_that_cannot_be(wrong, words):
    with pytest.raises(PartitionError, match=words):
        SplitOptions(**wrong)


def test_ratios_are_small_whole_numbers():
    assert [ratio_text(share) for share in (0.5, 0.75, 0.4, 1632 / 4096, 832 / 1024)] == [
        *("1:1", "3:1", "2:3", "2:3", "13:3")
    ]


class Halves:
    """A strategy of one's own: the first half of the rows on the GPU, unpadded."""

    name = "halves"
    is_baseline = False

    def splits(self, matmul, options):
        half = matmul.rows // 2
        shape = {"first_token": 0, "num_tokens": matmul.tokens, "padded_tokens": matmul.tokens}
        gpu = Part(unit=GPU, first_row=0, num_rows=half, **shape)
        npu = Part(unit=NPU, first_row=half, num_rows=matmul.rows - half, **shape)
        yield Split(strategy=self.name, parts=(gpu, npu))


def test_a_strategy_of_one_s_own(monkeypatch):
    monkeypatch.setitem(strategies.STRATEGIES.added, "halves", Halves())
    assert "halves" in solver_names()
    assert [split.strategy for split in all_splits(operator(128), OPTIONS, ["halves"])] == ["halves"]


def test_what_is_no_strategy():
    with pytest.raises(RegistryError, match="no strategy 'half'; known: activation_centric, chunked"):
        strategy("half")
    assert strategies.STRATEGIES.fits(Halves(), "halves")
    assert not strategies.STRATEGIES.fits(Halves(), "thirds")
    assert not strategies.STRATEGIES.fits(type("Nothing", (), {"name": "nothing"})(), "nothing")


def test_a_split_of_one_s_own_that_does_not_cover_the_operator_is_refused(monkeypatch):
    class Broken(Halves):
        name = "broken"

        def splits(self, matmul, options):
            for split in super().splits(matmul, options):
                yield Split(strategy=self.name, parts=split.parts[:1])

    monkeypatch.setitem(strategies.STRATEGIES.added, "broken", Broken())
    with pytest.raises(PartitionError, match="broken of ffn_down: its parts cover 65536 of 131072 outputs"):
        all_splits(operator(128), OPTIONS, ["broken"])
