"""What a model answers, against what was accepted."""

import re

import numpy as np
import pytest

from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.answers import distance, judge_accuracy, judge_answers, judge_identical
from pytest_npubench.verdict.result import Metric

RNG = np.random.default_rng(7)
THEN = RNG.normal(3.0, 2.0, (21, 16))


def by_numpy(now, then):
    now, then = (side - side.mean(axis=1, keepdims=True) for side in (now, then))
    relative = np.linalg.norm(now - then, axis=1) / np.linalg.norm(then, axis=1)
    return float(np.sqrt((relative**2).mean()))


def test_the_distance_is_that_of_centred_blocks():
    now = THEN + RNG.normal(0, 0.1, THEN.shape)
    assert distance(now.ravel().tolist(), THEN.ravel().tolist()) == pytest.approx(by_numpy(now, THEN), rel=1e-12)


def test_a_constant_added_to_all_logits_of_a_position_changes_nothing():
    now = THEN + RNG.normal(0, 5.0, (21, 1))
    assert distance(now.ravel().tolist(), THEN.ravel().tolist()) < 1e-14


def test_the_worked_example():
    block = [1.0, -1.0] * 8
    swapped = [-1.0, 1.0, *block[2:]]
    assert distance(swapped, block) == pytest.approx(0.7071, rel=1e-3)
    assert distance([*swapped, *block * 3], block * 4) == pytest.approx(0.3536, rel=1e-3)


@pytest.mark.parametrize(("now", "by"), [([2.0] * 16, 0.0), ([*[2.0] * 15, 3.0], 1.0)])
def test_a_position_that_was_constant_counts_one_where_it_changed(now, by):
    assert distance(now, [1.0] * 16) == by


@pytest.mark.parametrize(
    ("noise", "kind", "words"),
    [
        (1e-6, VerdictKind.UNCHANGED, r"answers unchanged: [0-9.e-]+ of 1\.6e-05 allowed \(rounding\)"),
        (1e-1, VerdictKind.REGRESSED, r"answers changed: 0\.[0-9]+ \(limit 1\.6e-05\), beyond it at 21 of 21.*"),
    ],
)
def test_up_to_its_limit_a_vector_is_unchanged(noise, kind, words):
    now = THEN * (1 + RNG.normal(0, noise, THEN.shape))
    found = judge_answers(now.ravel().tolist(), THEN.ravel().tolist(), 1.6e-5)
    assert found.kind is kind
    assert re.fullmatch(words, found.reason)


def test_zeroed_matrices_are_other_answers():
    assert distance([0.0] * THEN.size, THEN.ravel().tolist()) == pytest.approx(1.0)


def test_what_was_never_accepted_is_never_the_same():
    for found in (judge_answers([0.0] * 16, None, 1.0), judge_accuracy(1e-6, None), judge_identical(5.0, None)):
        assert found.kind is VerdictKind.NO_BASELINE
        assert found.reason == "answers were never accepted: recorded at the next acceptance"


def test_another_number_of_positions_is_incomparable():
    found = judge_answers([0.0] * 32, [0.0] * 16, 1.0)
    assert found.kind is VerdictKind.INCOMPARABLE
    assert "32 numbers, accepted were 16" in found.reason


@pytest.mark.parametrize(
    ("now", "kind", "words"),
    [
        (1.04e-6, VerdictKind.UNCHANGED, "answers as exact: 1 x"),
        (0.3e-6, VerdictKind.UNCHANGED, "answers as exact: 0.3 x"),
        (1.3e-6, VerdictKind.INCONCLUSIVE, "answers less exact: 1.3 x the accepted error against float64"),
        (2.3e-6, VerdictKind.REGRESSED, "answers less exact: 2.3 x the accepted error against float64; lower"),
    ],
)
def test_an_error_against_float64_is_a_ratio_to_the_accepted_one(now, kind, words):
    found = judge_accuracy(now, 1e-6)
    assert found.kind is kind
    assert found.reason.startswith(words)
    assert found.ratio == pytest.approx(now / 1e-6)


def test_an_accepted_error_of_nothing():
    assert judge_accuracy(0.0, 0.0).kind is VerdictKind.UNCHANGED
    found = judge_accuracy(1e-9, 0.0)
    assert (found.kind, found.ratio) == (VerdictKind.REGRESSED, None)


def test_one_bit_of_a_check_sum_is_regressed():
    assert judge_identical(4_000_000_001.0, 4_000_000_001.0).kind is VerdictKind.UNCHANGED
    found = judge_identical(4_000_000_001.0, 4_000_000_000.0)
    assert found.kind is VerdictKind.REGRESSED
    assert "4000000001, accepted 4000000000" in found.reason


def test_a_vector_is_no_sample_of_its_value():
    about = {"name": "answer_change", "unit": "", "value": 0.0, "samples": (1.0, -2.0)}
    assert Metric(gate="answers", **about).value_samples == ()
    assert Metric(gate="accuracy", **about).value_samples == (1.0, -2.0)
