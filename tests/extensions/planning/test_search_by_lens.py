"""Searches of bucket sets and batch sizes against brute force over everything that could be chosen."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import ConfigError, InfeasibleError, LengthError
from pytest_npubench.extensions.planning.batch_search import BatchSpeed, batch_speed, best_batch
from pytest_npubench.extensions.planning.bucket_search import Demand, Limits, best_sets, set_seconds
from pytest_npubench.predictors.lens import LensPredictor
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming

times = st.integers(1, 40).map(lambda value: value / 1000)


@st.composite
def searches(draw):
    """A profile whose times rise and fall as they will, and batches that its largest bucket holds."""
    edges = sorted(draw(st.lists(st.integers(2, 60), min_size=1, max_size=7, unique=True)))
    buckets = {edge: BucketTiming(ttft_s=draw(times), tbt_s=draw(times)) for edge in edges}
    moves = {edge: draw(times) for edge in edges[1:]} if draw(st.booleans()) else None
    shared = draw(st.booleans())
    size = draw(st.integers(1, 3))
    profile = BucketProfile(buckets=buckets, batch_size=size, transitions_s=moves, prefill_shared=shared)
    pair = st.integers(1, edges[-1]).flatmap(
        lambda prompt: st.tuples(st.just(prompt), st.integers(1, edges[-1] - prompt + 1))
    )
    return profile, draw(st.lists(st.lists(pair, min_size=1, max_size=size), min_size=1, max_size=5))


def only(profile, chosen):
    """The profile of an engine that has these buckets alone."""
    moves = profile.transitions_s and {bucket: profile.transitions_s[bucket] for bucket in chosen[1:]}
    return BucketProfile(
        buckets={bucket: profile.buckets[bucket] for bucket in chosen},
        batch_size=profile.batch_size,
        prefill_shared=profile.prefill_shared,
        transitions_s=moves or None,
    )


def all_sets(profile, batches):
    """Every set that holds all lengths, with what LENS predicts of it alone."""
    longest = max(max(prompt, prompt + output - 1) for batch in batches for prompt, output in batch)
    for size in range(1, len(profile.buckets) + 1):
        for chosen in combinations(profile.buckets, size):
            if chosen[-1] >= longest:
                lens = LensPredictor(only(profile, chosen))
                yield chosen, sum(lens.predict_batch(batch, finished="freeze").e2e_s for batch in batches)


@given(found=searches(), most=st.integers(1, 7), data=st.data())
@settings(max_examples=150, deadline=None)
def test_the_best_set_is_that_of_brute_force(found, most, data):
    profile, batches = found
    compile_s = {bucket: data.draw(st.integers(1, 5)) for bucket in profile.buckets}
    memory_bytes = {bucket: data.draw(st.integers(1, 5)) for bucket in profile.buckets}
    limits = Limits(
        max_buckets=most,
        max_compile_s=data.draw(st.none() | st.integers(1, 12)),
        max_memory_bytes=data.draw(st.none() | st.integers(1, 12)),
        compile_s=compile_s,
        memory_bytes=memory_bytes,
    )
    allowed = {
        chosen: seconds
        for chosen, seconds in all_sets(profile, batches)
        if len(chosen) <= most
        and (limits.max_compile_s is None or sum(map(compile_s.get, chosen)) <= limits.max_compile_s)
        and (limits.max_memory_bytes is None or sum(map(memory_bytes.get, chosen)) <= limits.max_memory_bytes)
    }
    demand = Demand.of(profile, batches, "freeze")
    if not allowed:
        with pytest.raises(InfeasibleError, match=r"compile time|memory"):
            best_sets(demand, profile, limits)
        return
    sets = best_sets(demand, profile, limits)
    assert sets[-1].seconds == pytest.approx(min(allowed.values()))
    for one in sets:
        size = len(one.buckets)
        assert one.seconds == pytest.approx(min(s for chosen, s in allowed.items() if len(chosen) <= size))
        assert allowed[one.buckets] == pytest.approx(one.seconds)
        assert set_seconds(demand, profile, one.buckets) == pytest.approx(one.seconds)


@given(found=searches(), most=st.integers(1, 7))
@settings(max_examples=100, deadline=None)
def test_the_fastest_bucket_of_a_set_is_that_of_brute_force(found, most):
    """Each prompt and each step on its own, in whatever bucket that holds it is fastest; requests one by one."""
    profile, batches = found
    alone = [pair for batch in batches for pair in batch]

    def seconds(chosen):
        total = 0.0
        for prompt, output in alone:
            total += min(profile.buckets[bucket].ttft_s for bucket in chosen if bucket >= prompt)
            for kv in range(prompt + 1, prompt + output):
                total += min(profile.buckets[bucket].tbt_s for bucket in chosen if bucket >= kv)
        return total

    fitting = [chosen for chosen, _ in all_sets(profile, batches) if len(chosen) <= most]
    demand = Demand.of(profile, [[pair] for pair in alone])
    best = best_sets(demand, profile, Limits(max_buckets=most), "fastest")[-1]
    assert best.seconds == pytest.approx(min(map(seconds, fitting)))
    assert seconds(best.buckets) == pytest.approx(best.seconds)


def test_a_finer_set_loses_where_a_larger_bucket_is_faster():
    """LENS, 5.4.2: the compiler's fast shape is the larger one. Worked number of the module."""
    ttft_s = {128: 0.010, 256: 0.030, 512: 0.020}
    profile = BucketProfile(buckets={b: BucketTiming(ttft_s=s, tbt_s=0.001) for b, s in ttft_s.items()})
    demand = Demand.of(profile, [[(100, 1)], [(200, 1)]])
    assert best_sets(demand, profile, Limits())[-1].buckets == (128, 512)
    assert set_seconds(demand, profile, (128, 256, 512)) == pytest.approx(0.040)
    assert set_seconds(demand, profile, (128, 512)) == pytest.approx(0.030)
    assert set_seconds(demand, profile, (128, 256, 512), "fastest") == pytest.approx(0.030)


def test_limits_that_cannot_be_kept_are_named():
    profile = BucketProfile(buckets={b: BucketTiming(ttft_s=0.01, tbt_s=0.001) for b in (128, 256)})
    demand = Demand.of(profile, [[(100, 2)]])
    costs = {128: 4.0, 256: 2.0}
    with pytest.raises(InfeasibleError, match=r"the compile time: .* at least 2 s, the limit is 1 s"):
        best_sets(demand, profile, Limits(max_compile_s=1, compile_s=costs))
    with pytest.raises(InfeasibleError, match=r"the memory: .* at least 2 bytes, the limit is 1.5 bytes"):
        best_sets(demand, profile, Limits(max_memory_bytes=1.5, memory_bytes=costs))
    crossed = Limits(max_compile_s=3, compile_s=costs, max_memory_bytes=3, memory_bytes={128: 2, 256: 4})
    with pytest.raises(InfeasibleError, match="compile time and memory together"):
        best_sets(demand, profile, crossed)
    with pytest.raises(ConfigError, match="memory of bucket 256 is not known"):
        best_sets(demand, profile, Limits(max_memory_bytes=1.5, memory_bytes={128: 1}))
    with pytest.raises(ConfigError, match="max_buckets is 0"):
        best_sets(demand, profile, Limits(max_buckets=0))
    with pytest.raises(LengthError, match="300 at index 0 is longer than the largest bucket"):
        Demand.of(profile, [[(300, 1)]])
    with pytest.raises(ConfigError, match="a batch of 2 requests"):
        Demand.of(profile, [[(3, 1), (3, 1)]])


@given(found=searches(), quantile=st.sampled_from([0.5, 0.9, 1.0]))
@settings(max_examples=100, deadline=None)
def test_a_batch_size_is_as_fast_as_its_batches(found, quantile):
    profile, batches = found
    requests = [pair for batch in batches for pair in batch]
    size = profile.batch_size
    cut = [requests[start : start + size] for start in range(0, len(requests), size)]
    speed = batch_speed("x", profile, requests, finished="freeze", quantile=quantile, price_per_hour=3600)
    predicted = [LensPredictor(profile).predict_batch(batch, finished="freeze") for batch in cut]
    tokens_per_s = sum(output for _, output in requests) / sum(one.e2e_s for one in predicted)
    assert speed.tokens_per_s == pytest.approx(tokens_per_s)
    assert speed.cost == pytest.approx(1e6 / tokens_per_s)
    steps_s = []
    for batch in cut:
        for step in range(max(output for _, output in batch) - 1):
            kv = max(prompt + min(step + 1, output - 1) for prompt, output in batch)
            steps_s.append(next(timing.tbt_s for edge, timing in profile.buckets.items() if kv <= edge))
    expected = float(np.quantile(steps_s, quantile, method="inverted_cdf")) if steps_s else None
    assert speed.tbt_s == expected
    assert speed.ttft_s in [one.prefill_s for one in predicted]


def _speed(batch_size, ttft_s, tbt_s, cost):
    return BatchSpeed(
        name=f"b{batch_size}", batch_size=batch_size, tokens_per_s=1, ttft_s=ttft_s, tbt_s=tbt_s, cost=cost
    )


def test_the_cheapest_batch_within_its_limits():
    speeds = [_speed(1, 0.1, 0.02, 9.0), _speed(2, 0.2, 0.01, 4.0), _speed(4, 0.4, 0.03, 5.0)]
    assert best_batch(speeds).batch_size == 2
    assert best_batch(speeds, max_ttft_s=0.15).batch_size == 1
    with pytest.raises(InfeasibleError, match=r"no batch size keeps a TTFT of 0.05 s; the least is 0.1 s, of b1"):
        best_batch(speeds, max_ttft_s=0.05)
    with pytest.raises(InfeasibleError, match=r"no batch size keeps a TBT of 0.005 s; the least is 0.01 s, of b2"):
        best_batch(speeds, max_tbt_s=0.005)
    with pytest.raises(InfeasibleError, match="TTFT and TBT together"):
        best_batch(speeds, max_ttft_s=0.15, max_tbt_s=0.015)
