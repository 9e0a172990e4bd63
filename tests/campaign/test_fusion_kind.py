"""A matrix product and the operator after it: what is hidden by closed forms, and the kernels for real on this CPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.backends import backend
from pytest_npubench.campaign.points import Measured
from pytest_npubench.engines import fusion_kernels
from pytest_npubench.engines.canary_kernels import CanaryKernels
from pytest_npubench.engines.fusion_kernels import OPERATORS, FusionSizes, kernels_of, traffic_share
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.buckets.kinds.fusion import bound_words, interval_of
from pytest_npubench.verdict import VerdictKind

from .conftest import cases, with_size

KIND = case_kind("fusion")


def rounds(operator: str, *times_s: tuple[float, float, float]) -> Measured:
    """Of (product, operator, both) in each round, each seen twice."""
    names = [f"fusion/{kernel}" for kernel in kernels_of(operator)]
    return Measured(rounds=[{name: (value, value) for name, value in zip(names, row, strict=True)} for row in times_s])


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("hidden", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("matmul_s", "after_s"), [(0.05, 1.0), (1.0, 1e-4), (0.3, 0.2)])
def test_the_share_that_was_hidden_is_found(plan, operator, matmul_s, after_s, hidden):
    """Rounds that differ by a hundredth of the operator, so that the interval is a narrow one."""
    (case,) = [one for one in cases(plan, "fusion") if one.axis("operator") == operator]
    wobbles = (-0.01, 0.0, 0.01, 0.0)
    row = [(matmul_s, after_s, matmul_s + (1 - hidden + wobble) * after_s) for wobble in wobbles]
    judged = KIND.judge(case, plan, rounds(operator, *row))
    assert judged.verdict.kind is VerdictKind.PASSED
    assert judged.detail.hidden == pytest.approx(hidden, abs=1e-6)
    low, high = judged.detail.interval
    assert low <= judged.detail.hidden <= high
    assert judged.detail.what == {0.0: "not fused", 0.3: "partly", 1.0: "hidden"}[hidden]


def test_a_round_that_was_slow_counts_by_its_median(plan):
    (case,) = [one for one in cases(plan, "fusion") if one.axis("operator") == "add"]
    found = rounds("add", (2.0, 1.0, 2.5), (2.0, 1.0, 2.5))
    found.rounds[0]["fusion/fusion-matmul"] = (2.0, 2.0, 90.0)
    assert KIND.judge(case, plan, found).detail.hidden == pytest.approx(0.5)


def test_what_is_told_follows_the_interval():
    assert bound_words(None, 0.5) == "undecided"
    assert bound_words((-0.5, 0.9), 0.67) == "undecided"
    assert bound_words((0.5, 0.95), 0.67) == "undecided"
    assert bound_words((0.2, 0.85), 0.67) == "undecided"  # more than traffic explains is not out of the question
    assert bound_words((0.7, 0.95), 0.67) == "hidden"
    assert bound_words((0.7, 0.85), 1.0) == "partly"  # of silu kept traffic explains all
    assert interval_of([0.5]) is None


@given(shares=st.lists(st.floats(-1, 2), min_size=2, max_size=20))
def test_the_interval_is_scipy_s(shares):
    from scipy import stats

    low, high = interval_of(shares)
    error = stats.sem(shares)
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, len(shares) - 1) * error, abs=1e-9)
    assert (low + high) / 2 == pytest.approx(np.mean(shares), abs=1e-9)


def test_traffic_is_what_the_operators_read_and_write():
    """In matrices: add reads two and writes one; beside its product only the other operand is read."""
    assert [traffic_share(operator) for operator in OPERATORS] == pytest.approx([2 / 3, 2 / 3, 1.0, 6 / 8])


def test_only_the_first_campaign_of_a_long_profile_has_it(plan):
    long = with_size(plan, num_draws=12)
    first = replace(long, batch_size=long.spec.batch_sizes_of(long.size.models[0], long.size)[0])
    assert first.includes("fusion")
    assert not replace(first, batch_size=first.batch_size + 1).includes("fusion")
    assert not with_size(first, num_draws=1).includes("fusion")
    assert not replace(first, engine="vllm").includes("fusion")
    assert not replace(first, spec=replace(first.spec, family="openvino")).includes("fusion")


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_kernels_run_here_and_both_are_the_one_after_the_other(operator, monkeypatch):
    """On this CPU through XLA; what `both` gives is numpy's, by the arguments that it was compiled for."""
    pytest.importorskip("jax")
    monkeypatch.setattr(fusion_kernels, "HOST", FusionSizes(rows=48, inner=16, dtype="float32"))
    cpu = backend("cpu")
    runtime = cpu.open(cpu.probe(timeout_s=60).devices, None)
    seen = {}

    class Compiling:
        devices = runtime.devices

        def compile(self, name, function, *arguments, **options):
            seen[name] = (function, arguments)
            return runtime.compile(name, function, *arguments, **options)

    kernels = CanaryKernels(Compiling())
    for kernel in kernels_of(operator):
        kernels.load(kernel)
        assert kernels.time(kernel) > 0
    function, (left, right, *others) = seen[kernels_of(operator)[2]]
    expected = np.asarray(left, np.float64) @ np.asarray(right, np.float64)
    steps = {
        "add": lambda y, c: y + c,
        "mul": lambda y, c: y * c,
        "silu": lambda y: y / (1 + np.exp(-y)),
        "chain": lambda y, c, d: (y + c) / (1 + np.exp(-(y + c))) * d,
    }
    wanted = steps[operator](expected, *(np.asarray(other, np.float64) for other in others))
    np.testing.assert_allclose(np.asarray(function(left, right, *others)), wanted, rtol=2e-4, atol=2e-4)
    alone = [name for name in seen if name.startswith(f"fusion-{operator}-")]
    assert len(alone) == (3 if operator == "chain" else 1)
    assert all(one < other for one, other in pairwise(alone))
