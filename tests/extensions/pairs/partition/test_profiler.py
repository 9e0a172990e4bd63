"""The profiler on a made-up pair whose times are known: what it finds, its budget, going on, and regret after it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from partition_regret import exhaustive

from pytest_npubench.errors import MeasurementError, PartitionError
from pytest_npubench.extensions.pairs.partition import profiler
from pytest_npubench.extensions.pairs.partition.latency import LatencyModel
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, alone
from pytest_npubench.extensions.pairs.partition.model_shapes import OperatorShape
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.profiler import ProfileProgress, measure_profile
from pytest_npubench.extensions.pairs.partition.regret import regret_between, summarize
from pytest_npubench.extensions.pairs.partition.solver import solve
from pytest_npubench.extensions.pairs.partition.strategies import all_splits
from pytest_npubench.extensions.pairs.partition.unit import visit

from .fake_pair import FakePair, gpu_time_s, npu_time_s

OPTIONS = SplitOptions(standard_sizes=(1, 64, 128), tile=32, max_small_parts=2)
SHAPES = (
    OperatorShape(name="attention_q", rows=256, cols=256),
    OperatorShape(name="attention_output", rows=256, cols=256),
    OperatorShape(name="ffn_down", rows=256, cols=512),
)
LENGTHS = (1, 64, 100, 150)


def measured(pair: FakePair, shapes=SHAPES, **settings):
    given = {"budget_s": 1e6, "options": OPTIONS, "clock": pair.clock, "max_rounds": 3} | settings
    return measure_profile(pair, shapes, LENGTHS, **given)


def test_what_is_known_is_found():
    pair = FakePair()
    profile = measured(pair)
    assert profile.is_finished
    assert {(item.rows, item.cols) for item in profile.latencies if item.rows == 256} == {(256, 256), (256, 512)}
    for item in profile.latencies:
        wanted_s = (gpu_time_s if item.unit == GPU else npu_time_s)(item.rows, item.cols, item.tokens)
        assert item.samples_s == pytest.approx((wanted_s,) * 3)
    assert [(item.mechanism, item.p50_s) for item in profile.syncs] == [
        ("flag", pytest.approx(20e-6)),
        ("pipe", pytest.approx(200e-6)),
    ]
    assert all(item.median_s == pytest.approx(item.num_bytes * 1e-10) for item in profile.copies)
    assert {item.compile_s for item in profile.graphs} == {0.02}
    assert len(profile.slowdowns) == 2 * len(LENGTHS)
    for item in profile.slowdowns:
        assert (item.gpu_factor, item.npu_factor) == pytest.approx((1.2, 1.1))
    assert profile.copy_inside
    assert not profile.decode_sync_inside
    assert not profile.prefill_sync_inside
    assert dict(profile.fingerprint)["gpu"] == "fake gpu"


def test_every_split_is_then_predicted_exactly():
    """The GPU's times at lengths in between lie on a line but near its threshold, so those are left out."""
    pair = FakePair()
    profile = measured(pair)
    for shape in SHAPES:
        for tokens in LENGTHS:
            matmul = shape.matmul(tokens)
            for item in solve(profile, matmul).alternatives:
                if min((part.num_tokens for part in item.split.of(GPU)), default=64) >= 16 or tokens == 1:
                    assert item.predicted_s == pytest.approx(pair.timing(matmul, item.split).total_s, rel=1e-6)


def test_a_hidden_signal_is_noticed():
    """The GPU's half is much the slower one here, and then nothing is left of the signal."""
    pair = FakePair(hides_sync=True, gpu_s=lambda rows, cols, tokens: 1e-4 + 1e-9 * rows * tokens)
    assert measured(pair).decode_sync_inside
    assert measured(pair).prefill_sync_inside


def test_a_copy_is_as_many_bytes_as_its_number_format_has():
    """The FAKE pair's copies take as long in every format, so that half of the bytes take the same time."""
    halves = measured(FakePair(), [replace(shape, dtype="bf16") for shape in SHAPES])
    assert halves.copies
    assert all(item.median_s == pytest.approx(2 * item.num_bytes * 1e-10) for item in halves.copies)
    matmul = replace(SHAPES[0], dtype="bf16").matmul(64)
    assert LatencyModel(halves).predict(matmul, alone(matmul, NPU)).copy_s == pytest.approx(256 * 64 * 4e-10)


def test_a_static_unit_that_writes_in_place_has_no_copies():
    profile = measured(FakePair(copy_s_per_byte=0))
    assert (profile.copies, profile.copy_inside) == ((), False)


def test_the_most_valuable_points_come_first_and_the_rest_later():
    """With a budget for little, whole operators are known and shares are not; the budget is kept."""
    pair = FakePair()
    little = measured(pair, budget_s=0.03)
    assert not little.is_finished
    assert pair.now_s < 0.04
    assert {item.rows for item in little.latencies} == {256}
    assert {item.cols for item in little.latencies} == {256, 512}, "each operator has its share"
    whole = measured(pair, unfinished=little)
    assert whole.is_finished
    assert len(whole.latencies) > len(little.latencies)
    first = {item.key: item.samples_s for item in little.latencies}
    assert all(item.samples_s[: len(first.get(item.key, ()))] == first.get(item.key, ()) for item in whole.latencies)


def test_slow_signals_leave_every_operator_its_share():
    """A machine that is busy otherwise: 200 trips of 1 and of 10 ms would take all of the budget."""
    pair = FakePair(sync_s=1e-3)
    little = measured(pair, budget_s=2.0)
    assert {item.cols for item in little.latencies} == {256, 512}
    assert [item.p50_s for item in little.syncs] == pytest.approx([1e-3, 1e-2])


def test_a_finished_profile_is_not_measured_again():
    pair = FakePair()
    profile = measured(pair)
    num_runs = pair.num_runs
    assert measured(pair, unfinished=profile).latencies == profile.latencies
    assert pair.num_runs - num_runs < num_runs / 2, "signals are measured anew, points are not"


def test_progress_is_told():
    told: list[ProfileProgress] = []
    pair = FakePair()
    measured(pair, on_progress=told.append)
    assert {(item.operator, item.number, item.num_operators) for item in told} == {
        ("attention_q", 1, 2),
        ("ffn_down", 2, 2),
    }
    assert [item.num_rounds for item in told if item.number == 1] == [1, 2, 3]
    assert [item.elapsed_s for item in told] == sorted(item.elapsed_s for item in told)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"budget_s": 0}, "0 s; want one or more of each, above 0"),
        ({"budget_s": float("nan")}, "nan s"),
        ({"mechanism": "smoke"}, "no synchronisation by 'smoke'; it has flag, pipe"),
    ],
)
def test_what_cannot_be_measured(wrong, words):
    with pytest.raises(PartitionError, match=words):
        measured(FakePair(), **wrong)
    with pytest.raises(PartitionError, match=r"0 operators, lengths \(1,\)"):
        measure_profile(FakePair(), (), (1,), budget_s=1, options=OPTIONS)
    with pytest.raises(PartitionError, match=r"lengths \(0, 4\)"):
        measure_profile(FakePair(), SHAPES, (0, 4), budget_s=1, options=OPTIONS)


def test_a_profile_of_another_pair_or_grid_is_not_gone_on_with():
    pair = FakePair()
    profile = measured(pair, budget_s=0.02)
    other = SplitOptions(standard_sizes=(64,))
    with pytest.raises(
        PartitionError, match=r"the unfinished profile is of SplitOptions\(standard_sizes=\(1, 64, 128\)"
    ):
        measured(pair, unfinished=profile, options=other)
    pair.gpu = type(pair).npu
    with pytest.raises(PartitionError, match="measured elsewhere: gpu fake gpu -> fake npu"):
        measured(pair, unfinished=profile)


def test_one_token_is_measured_on_cold_weights_and_priced_by_them():
    profile = measured(FakePair(cold=3.0, factors=(1.0, 1.0)))
    assert {item.tokens for item in profile.latencies if item.is_cold} == {1}
    for item in profile.latencies:
        time_s = {GPU: gpu_time_s, NPU: npu_time_s}[item.unit](item.rows, item.cols, item.tokens)
        assert item.median_s == pytest.approx(time_s * (3 if item.is_cold else 1))
    (whole,) = [split for split in all_splits(SHAPES[2].matmul(1), OPTIONS) if split.strategy == "gpu_only"]
    predicted_s = LatencyModel(profile).predict(SHAPES[2].matmul(1), whole).total_s
    assert predicted_s == pytest.approx(3 * gpu_time_s(256, 512, 1))


def test_the_mechanism_asked_for_comes_first():
    assert measured(FakePair(), mechanism="pipe").syncs[0].mechanism == "pipe"


def test_regret_with_noise_is_small_and_without_is_none():
    for noise, most in ((0.0, 1e-6), (0.02, 0.05)):
        pair = FakePair(noise=noise, sync_s=1e-6)
        profile = measured(pair, max_rounds=7)
        regrets = []
        for shape in SHAPES[1:]:
            for tokens in LENGTHS:
                matmul = shape.matmul(tokens)
                found = exhaustive(pair, matmul, all_splits(matmul, OPTIONS), rounds=8)
                decision = solve(profile, matmul)
                regrets.append(regret_between(decision.split, decision.predicted_s, found))
        summary = summarize(regrets)
        assert summary.num == 8
        assert summary.median_regret <= most
        assert summary.median_error <= max(2 * noise, 0.001)
        assert summary.largest_speedup is not None
        assert summary.largest_speedup > 1


def test_the_best_is_reported_from_other_rounds_than_it_was_chosen_from():
    pair = FakePair(noise=0.3)
    matmul = SHAPES[0].matmul(64)
    found = exhaustive(pair, matmul, all_splits(matmul, OPTIONS), rounds=5)
    for split, samples_s in zip(found.splits, found.samples_s, strict=True):
        assert found.choosing_s(split) == sorted(samples_s[::2])[1]
        assert found.reported_s(split) == pytest.approx(sum(samples_s[1::2]) / 2)
    assert found.choosing_s(found.best()) == min(map(found.choosing_s, found.splits))


def test_rounds_are_shuffled_and_every_split_is_in_each():
    orders = []

    class Watched(FakePair):
        def run(self, matmul, split, *, mechanism=None):
            orders.append(split)
            return super().run(matmul, split, mechanism=mechanism)

    matmul = SHAPES[0].matmul(64)
    splits = all_splits(matmul, OPTIONS)
    pair = Watched(gpu_s=lambda rows, cols, tokens: 0.02, npu_s=lambda rows, cols, tokens: 0.02)
    exhaustive(pair, matmul, splits, rounds=4)
    orders = orders[-4 * len(splits) :]
    rounds = [tuple(orders[index : index + len(splits)]) for index in range(0, 4 * len(splits), len(splits))]
    assert all(set(order) == set(splits) for order in rounds)
    assert len(set(rounds)) == 4


def test_an_output_that_is_wrong_is_an_error_before_anything_is_timed():
    matmul, pair = SHAPES[0].matmul(64), FakePair(wrong="weight_centric")
    splits = all_splits(matmul, OPTIONS)
    with pytest.raises(MeasurementError, match=r"weight_centric of attention_q .* x 64 computes something else"):
        exhaustive(pair, matmul, splits, rounds=4)
    assert pair.num_runs <= 2 * len(splits)


@pytest.mark.parametrize(("wrong", "unit"), [("npu_only", NPU), ("gpu_only", GPU), ("weight_centric", NPU)])
def test_a_unit_that_computes_something_else_ends_a_profile_before_that_is_timed(monkeypatch, wrong, unit):
    timed = []
    monkeypatch.setattr(
        profiler, "visit", lambda *given, **more: timed.append(given[2].strategy) or visit(*given, **more)
    )
    with pytest.raises(MeasurementError, match=rf"{wrong} of \w+ .* computes something else: .* of the {unit}'s "):
        measured(FakePair(wrong=wrong, wrong_unit=unit))
    assert wrong not in timed


def test_what_cannot_be_compared():
    matmul, pair = SHAPES[0].matmul(64), FakePair()
    splits = all_splits(matmul, OPTIONS)
    with pytest.raises(PartitionError, match="3 rounds of 8 splits; want 4 or more"):
        exhaustive(pair, matmul, splits, rounds=3)
    npu_alone = [split for split in splits if split.units == (NPU,)]
    found = exhaustive(FakePair(), matmul, npu_alone, rounds=4)
    with pytest.raises(PartitionError, match="was not measured"):
        regret_between(solve(measured(FakePair()), matmul).split, 1.0, found)
    with pytest.raises(MeasurementError, match="no regrets"):
        summarize([])
