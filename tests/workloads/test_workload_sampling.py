"""Drawing requests: limits, counts, seeds. The oracle draws one row at a time."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.interpolate import PchipInterpolator

from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import WorkloadError
from pytest_npubench.workloads import LengthSample, TraceWorkload, Workload, workload
from pytest_npubench.workloads.quantiles import LEVELS, QuantileCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Workload):
    """input = 1 + floor(100 u1), output = 1 + floor(100 u2): simple enough to redo by hand."""

    def draw(self, uniforms):
        lengths = 1 + np.floor(100 * uniforms).astype(np.int64)
        return lengths[:, 0], lengths[:, 1]


LINE = Line(name="line", kind="test", source="here", note="")
TRACE = TraceWorkload(
    name="three",
    kind="trace",
    source="here",
    note="",
    input_tokens=(10, 20, 3000),
    output_tokens=(1, 2, 3),
    arrival_s=(0.0, 1.5, 4.0),
    num_unusable=0,
)


def one_by_one(num_requests: int, seed: int, max_total: float, max_input: float) -> LengthSample:
    generator = np.random.Generator(np.random.PCG64(seed))
    requests: list[Request] = []
    num_drawn = 0
    while len(requests) < num_requests:
        first, second = generator.random(), generator.random()
        num_drawn += 1
        request = Request(input_tokens=1 + int(100 * first), output_tokens=1 + int(100 * second))
        if request.input_tokens + request.output_tokens <= max_total and request.input_tokens <= max_input:
            requests.append(request)
    return LengthSample(requests=tuple(requests), num_drawn=num_drawn, num_dropped=num_drawn - num_requests)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(0, 2**32),
    st.none() | st.integers(30, 250),
    st.none() | st.integers(20, 120),
)
def test_a_sample_is_what_drawing_one_by_one_gives(num_requests, seed, max_total, max_input):
    sample = LINE.sample(num_requests, seed=seed, max_total_tokens=max_total, max_input_tokens=max_input)
    assert sample == one_by_one(num_requests, seed, max_total or np.inf, max_input or np.inf)


def test_a_sample_over_several_blocks_counts_every_draw():
    """About 1 in 4 passes, so 10,000 requests take more than two blocks of 16,384 draws."""
    sample = LINE.sample(10_000, seed=2, max_input_tokens=25)
    assert sample == one_by_one(10_000, 2, np.inf, 25)
    assert sample.num_drawn > 2 * 16_384
    assert sample.dropped_fraction == pytest.approx(0.75, abs=0.02)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["lens-sharegpt", "lens-arxiv", "lens-cnn-dailymail-1k", "layered-arxiv", "azure-conv-sample"]),
    st.integers(1, 200),
    st.integers(0, 1000),
    st.integers(2048, 20_000),
)
def test_shipped_workloads_keep_limits_and_counts_and_seeds(name, num_requests, seed, max_total):
    found = workload(name)
    sample = found.sample(num_requests, seed=seed, max_total_tokens=max_total, max_input_tokens=8000)
    totals = [request.input_tokens + request.output_tokens for request in sample.requests]
    assert len(totals) == num_requests
    assert max(totals) <= max_total
    assert all(1 <= request.input_tokens <= 8000 and request.output_tokens >= 1 for request in sample.requests)
    assert sample.num_drawn == sample.num_dropped + num_requests
    assert sample == found.sample(num_requests, seed=seed, max_total_tokens=max_total, max_input_tokens=8000)
    longer = found.sample(num_requests + 10, seed=seed, max_total_tokens=max_total, max_input_tokens=8000)
    assert longer.requests[:num_requests] == sample.requests


def test_other_seeds_give_other_samples():
    found = workload("lens-sharegpt")
    assert found.sample(50, seed=1).requests != found.sample(50, seed=2).requests


def test_the_stream_of_a_seed_is_pinned():
    """The first uniforms of PCG64(0) as numpy documents them, so the first request follows from the shipped knots."""
    sample = workload("lens-sharegpt").sample(2, seed=0)
    assert np.random.Generator(np.random.PCG64(0)).random(2) == pytest.approx([0.6369616873214543, 0.2697867137638703])
    assert [(request.input_tokens, request.output_tokens) for request in sample.requests] == [(47, 133), (3, 14)]


def test_a_limit_that_almost_nothing_passes_is_refused_with_the_figures():
    with pytest.raises(
        WorkloadError, match=r"'lens-arxiv': \d+ of 16384 draws are within max_total_tokens=200"
    ) as info:
        workload("lens-arxiv").sample(1, seed=0, max_total_tokens=200)
    assert "want at least 1 in 1000" in str(info.value)


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ({"num_requests": 0}, "num_requests is 0; want a whole number >= 1"),
        ({"num_requests": 1.5}, "num_requests is 1.5"),
        ({"num_requests": True}, "num_requests is True"),
        ({"seed": -1}, "seed is -1; want a whole number >= 0"),
        ({"max_total_tokens": 1}, "max_total_tokens is 1; want a whole number >= 2"),
        ({"max_input_tokens": 0}, "max_input_tokens is 0; want a whole number >= 1"),
    ],
)
def test_wrong_arguments_are_named(arguments, want):
    with pytest.raises(WorkloadError, match=want):
        LINE.sample(**{"num_requests": 1, "seed": 0, **arguments})


def test_a_trace_is_sampled_row_by_row_with_replacement():
    requests = TRACE.sample(3000, seed=4).requests
    rows = {(10, 1): 0, (20, 2): 0, (3000, 3): 0}
    for request in requests:
        rows[request.input_tokens, request.output_tokens] += 1  # an unknown pair would be a KeyError
    assert all(count == pytest.approx(1000, abs=150) for count in rows.values())
    assert TRACE.sample(5, seed=4).arrival_s is None


def test_a_whole_trace_keeps_order_and_arrivals_and_counts_what_is_over_the_limit():
    assert TRACE.rows() == LengthSample(
        requests=tuple(
            Request(input_tokens=inputs, output_tokens=outputs) for inputs, outputs in ((10, 1), (20, 2), (3000, 3))
        ),
        num_drawn=3,
        num_dropped=0,
        arrival_s=(0.0, 1.5, 4.0),
    )
    cut = TRACE.rows(max_total_tokens=22, max_input_tokens=100)
    assert (cut.num_drawn, cut.num_dropped, cut.arrival_s) == (3, 1, (0.0, 1.5))
    assert TRACE.rows(max_total_tokens=21).arrival_s == (0.0,)
    assert cut.dropped_fraction == pytest.approx(1 / 3)


def test_a_trace_with_nothing_within_the_limit_is_refused():
    with pytest.raises(WorkloadError, match="none of its 3 requests is within max_total_tokens=5"):
        TRACE.rows(max_total_tokens=5)


@given(
    st.floats(1, 1e5),
    st.lists(st.floats(1e-9, 1e4), min_size=len(LEVELS) - 1, max_size=len(LEVELS) - 1),
    st.lists(st.sampled_from(LEVELS) | st.floats(0, 1), min_size=1),
)
def test_a_curve_is_scipys_to_the_bit(lowest: float, steps: list[float], levels: list[float]) -> None:
    knots = tuple(np.cumsum([lowest, *steps]).tolist())
    assume(all(low < high for low, high in pairwise(knots)))
    expected = np.exp(PchipInterpolator(LEVELS, np.log(knots))(levels))
    assert QuantileCurve(knots=knots).quantile(np.array(levels)).tolist() == expected.tolist()
