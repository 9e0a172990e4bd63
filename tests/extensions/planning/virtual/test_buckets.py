"""Step costs from LENS profiles, against an engine whose latencies are a table: all token times, to 1e-9 s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.engines.request_batch import Prompt
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.engines.static_buckets import StaticBuckets
from pytest_npubench.errors import ConfigError, LengthError, MeasurementError
from pytest_npubench.extensions.planning.joining_pairs import PairVisit, joining_s, waking_s
from pytest_npubench.extensions.planning.slots import SlotExecutor, serve_slots
from pytest_npubench.extensions.planning.virtual.buckets import BucketCost
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepWork
from pytest_npubench.predictors.lens import BucketProfile, BucketTiming
from pytest_npubench.predictors.two_point import fit, plan_points
from pytest_npubench.serving.arrivals import load_of
from pytest_npubench.serving.clock import VirtualClock, WallClock
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult

TTFT_S = {16: 0.010, 32: 0.018, 64: 0.037}
TBT_S = {16: 0.002, 32: 0.003, 64: 0.005}
MOVE_S = {32: 0.0007, 64: 0.0011}
NUM_SLOTS = 3
WAKING_S = (0.005, 0.002, 0.0, 0.001)
JOINING_S = (0.003, 0.001)


class Table(StaticBuckets):
    """A machine of its own: no time passes on it but what the tables say."""

    name = "table"
    buckets = tuple(TTFT_S)
    batch_size = NUM_SLOTS
    compiles = ()
    shape = dense_shape("tiny-llama")

    def __init__(self) -> None:
        self.now_s = 0.0
        self.path: list[int] = []
        self.decoded = self.joined = False  # in this iteration

    def load(self, buckets: Sequence[int]) -> None:
        pass

    def begin(self, bucket: int) -> None:
        self.path.append(bucket)

    def prefill_row(self, bucket: int, row: int, prompt: Prompt) -> Prompt:
        assert len(prompt) <= bucket
        self.now_s += TTFT_S[bucket]
        self.joined = self.decoded
        return np.zeros(NUM_SLOTS, np.int32)

    def start_step(self, bucket: int) -> Callable[[], Prompt]:
        self.now_s += TBT_S[bucket]
        self.decoded = True
        return lambda: np.zeros(NUM_SLOTS, np.int32)

    def move_caches(self, bucket: int, neighbour: int) -> None:
        assert (min(bucket, neighbour), max(bucket, neighbour)) in pairwise(self.buckets)
        self.path.append(neighbour)
        self.now_s += MOVE_S[max(bucket, neighbour)]

    def end(self, bucket: int) -> None:
        assert bucket == self.path[-1]


class TableClock(WallClock):
    """The machine's. With `extras` its first iterations behind a wait take WAKING_S longer, one after the other, and
    those from a prompt on that joins others JOINING_S."""

    def __init__(self, machine: Table, *, extras: bool = False) -> None:
        super().__init__()
        self._machine = machine
        self._extras = extras
        self._left_s: list[float] = []

    def start(self) -> None:
        self._machine.now_s = 0.0

    def now_s(self) -> float:
        return self._machine.now_s

    def advance(self, duration_s: float | None) -> float:
        machine = self._machine
        if self._extras and machine.joined and not self._left_s:
            self._left_s = list(JOINING_S)
        machine.decoded = machine.joined = False
        if self._left_s:
            machine.now_s += self._left_s.pop(0)
        return super().advance(duration_s)

    def wait_until(self, at_s: float) -> None:
        assert at_s > self._machine.now_s
        self._machine.now_s = at_s
        if self._extras:
            self._left_s = list(WAKING_S)


def profile(**changes: object) -> BucketProfile:
    found = BucketProfile(
        buckets={bucket: BucketTiming(ttft_s=TTFT_S[bucket], tbt_s=TBT_S[bucket]) for bucket in TTFT_S},
        batch_size=NUM_SLOTS,
        transitions_s=MOVE_S,
    )
    return replace(found, **changes)


def simulated(
    requests: Sequence[ServingRequest],
    known: BucketProfile,
    waking: Sequence[float] = (),
    joining: Sequence[float] = (),
) -> ServingResult:
    executor = VirtualExecutor(
        Table.shape,
        None,
        tensor_parallel=1,
        dtype="fp32",
        kv_capacity_tokens=NUM_SLOTS * 64,
        block_size_tokens=64,
        cost=BucketCost({NUM_SLOTS: known}, waking_s=waking, joining_s=joining),
    )
    return serve_slots(requests, executor, VirtualClock())


def token_times(result: ServingResult) -> np.ndarray:
    return np.concatenate([record.token_times_s for record in result.records])


LOADS = st.lists(st.tuples(st.floats(0, 0.05), st.integers(1, 40), st.integers(1, 25)), min_size=1, max_size=12)


@given(load=LOADS)
@settings(max_examples=60, deadline=None)
def test_an_engine_of_known_latencies_is_predicted_exactly(load: list[tuple[float, int, int]]) -> None:
    arrivals_s = np.cumsum([gap_s for gap_s, _, _ in load])
    requests = [
        ServingRequest(id=index, arrival_s=float(at_s), prompt_tokens=prompt, output_tokens=output)
        for index, (at_s, (_, prompt, output)) in enumerate(zip(arrivals_s, load, strict=True))
    ]
    machine = Table()
    real = serve_slots(requests, SlotExecutor(machine, requests), TableClock(machine))
    assert np.allclose(token_times(simulated(requests, profile())), token_times(real), rtol=0, atol=1e-9)


BURSTS = st.lists(
    st.tuples(
        st.tuples(st.just(0.0), st.integers(1, 40), st.integers(13, 24)),
        st.lists(
            st.tuples(st.floats(0, 0.004) | st.floats(0.025, 0.03), st.integers(1, 40), st.integers(1, 24)),
            max_size=NUM_SLOTS - 1,
        ),
    ).map(lambda burst: [burst[0], *sorted(burst[1])]),
    min_size=1,
    max_size=4,
)


def pair(pause_s: float, joins_s: float, lengths: Sequence[tuple[int, int]] = ((4, 12), (4, 6))) -> PairVisit:
    machine = Table()
    requests = load_of((pause_s, pause_s + joins_s), lengths)
    served = serve_slots(requests, SlotExecutor(machine, requests), TableClock(machine, extras=True))
    first, second = ((one.arrival_s, *one.token_times_s) for one in served.records)
    return PairVisit(first_s=first, second_s=second)


@given(
    bursts=BURSTS,
    joins_s=st.lists(st.floats(0.025, 0.035), min_size=1, max_size=3),
    pause_s=st.floats(0.001, 1.0),
)
@settings(max_examples=60, deadline=None)
def test_an_engine_of_extra_steps_is_predicted_by_pairs(
    bursts: list[list[tuple[float, int, int]]], joins_s: list[float], pause_s: float
) -> None:
    """Pauses of at least a second before each burst, whose first request is there until all others have come."""
    pairs = [(pair(pause_s, one), profile().buckets[16]) for one in joins_s]
    waking, joining = waking_s(pairs), joining_s(pairs)
    assert waking == pytest.approx((*WAKING_S, *[0.0] * (len(waking) - 4)), abs=1e-9)
    assert joining == pytest.approx((*JOINING_S, *[0.0] * 4), abs=1e-9)
    lengths = [lengths for burst in bursts for _, *lengths in burst]
    arrivals_s = [2.0 * index + at_s for index, burst in enumerate(bursts, 1) for at_s, *_ in burst]
    requests = load_of(arrivals_s, lengths)
    machine = Table()
    real = serve_slots(requests, SlotExecutor(machine, requests), TableClock(machine, extras=True))
    predicted = simulated(requests, profile(), WAKING_S, JOINING_S)
    assert np.allclose(token_times(predicted), token_times(real), rtol=0, atol=1e-9)


def test_a_second_that_met_nobody_says_nothing_of_joining() -> None:
    timing = profile().buckets[16]
    late, met, early = ((pair(1.0, joins_s), timing) for joins_s in (0.5, 0.03, 0.001))
    assert joining_s([late]) == ()
    assert joining_s([late, met]) == joining_s([met]) != ()
    assert waking_s([late])[:4] == pytest.approx(WAKING_S, abs=1e-9)
    assert waking_s([early, late]) == waking_s([late])
    with pytest.raises(MeasurementError, match="no pair in which the first request had a token"):
        waking_s([early])


def test_its_profile_is_found_by_two_points_a_bucket() -> None:
    """Served, so each prompt but the first runs beside those that decode already."""
    machine, samples = Table(), {}
    for point in plan_points(Table.buckets, output_tokens=9, first_output_tokens=NUM_SLOTS):
        requests = [
            ServingRequest(
                id=row, arrival_s=0.0, prompt_tokens=point.input_tokens, output_tokens=point.output_tokens - row
            )
            for row in range(NUM_SLOTS)
        ]
        served = serve_slots(requests, SlotExecutor(machine, requests), TableClock(machine))
        samples[point] = [served.ended_s]
        assert len({record.token_times_s[-1] for record in served.records}) == 1
    found = fit(samples, batch_size=NUM_SLOTS)
    assert len(samples) == 2 * len(TTFT_S)
    for bucket, timing in found.buckets.items():
        assert (timing.ttft_s, timing.tbt_s) == pytest.approx((TTFT_S[bucket], TBT_S[bucket]), rel=1e-9)


def test_the_cache_goes_up_and_comes_back() -> None:
    """Request 0 lives in 16; 1 takes the cache through 32 to 64 and ends; then it comes back."""
    machine = Table()
    requests = [
        ServingRequest(id=0, arrival_s=0.0, prompt_tokens=3, output_tokens=10),
        ServingRequest(id=1, arrival_s=0.001, prompt_tokens=40, output_tokens=3),
    ]
    serve_slots(requests, SlotExecutor(machine, requests), TableClock(machine))
    assert machine.path == [16, 32, 64, 32, 16]


def test_the_docstrings_worked_example() -> None:
    known = BucketProfile(
        buckets={128: BucketTiming(ttft_s=0.010, tbt_s=0.002), 256: BucketTiming(ttft_s=0.018, tbt_s=0.003)},
        batch_size=2,
        transitions_s={256: 0.001},
    )
    both = PassWork(0, 2, (PrefillRow(2, 0, 200),), 0)
    cost = BucketCost({2: known})
    assert cost.seconds(step(rows=1, longest=119)) == pytest.approx(0.002)
    assert cost.seconds(step(rows=1, longest=120, passes=(both,))) == pytest.approx(0.022)
    cost = BucketCost({2: known}, waking_s=(0.005, 0.002))
    alone = PassWork(0, 2, (PrefillRow(1, 0, 120),), 0)
    work = step(rows=0, longest=0, passes=(alone,))._replace(is_from_idle=True)
    assert cost.seconds(work) == pytest.approx(0.015)
    assert [cost.seconds(step(rows=1, longest=121)) for _ in range(2)] == pytest.approx([0.004, 0.002])


def test_no_iteration_takes_less_than_nothing() -> None:
    cost = BucketCost({NUM_SLOTS: profile()}, waking_s=(-1.0,))
    assert cost.seconds(step(rows=1, longest=16)._replace(is_from_idle=True)) == 0.0


def test_a_batch_is_padded_to_the_next_size_and_its_prompts_may_share_a_prefill() -> None:
    larger = profile(
        batch_size=8, buckets={64: BucketTiming(ttft_s=0.050, tbt_s=0.009)}, prefill_shared=True, transitions_s=None
    )
    cost = BucketCost({8: larger, NUM_SLOTS: profile(transitions_s=None)})
    assert cost.seconds(step(rows=3, longest=16)) == pytest.approx(0.002)
    assert cost.seconds(step(rows=4, longest=16)) == pytest.approx(0.009)
    prompts = PassWork(0, 2, (PrefillRow(8, 0, 20), PrefillRow(9, 0, 30)), 0)
    assert cost.seconds(step(rows=3, longest=16, passes=(prompts,))) == pytest.approx(0.059)
    assert cost.seconds(step(rows=1, longest=16, passes=(prompts,))) == pytest.approx(2 * 0.018 + 0.003)


def step(rows: int, longest: int, passes: Sequence[PassWork] = ()) -> StepWork:
    return StepWork(passes, rows, float(rows * longest), 0.0, rows, longest_context=longest)


def test_what_no_profile_holds_is_named() -> None:
    cost = BucketCost({NUM_SLOTS: profile()})
    with pytest.raises(LengthError, match="a KV length of 65; the profiles hold 16, 32, 64"):
        cost.seconds(step(rows=1, longest=65))
    with pytest.raises(LengthError, match="a batch of 4; the profiles hold 3"):
        cost.seconds(step(rows=4, longest=6))
    with pytest.raises(ConfigError, match="no bucket profile"):
        BucketCost({})
    with pytest.raises(ConfigError, match="a profile of batch size 3 under 4"):
        BucketCost({4: profile()})
    uneven = profile(transitions_s=None, buckets={16: BucketTiming(ttft_s=1.0), 32: BucketTiming(tbt_s=1.0)})
    with pytest.raises(ConfigError, match=r"prefill has the buckets \(16,\), decode has \(32,\)"):
        BucketCost({NUM_SLOTS: uneven})


def test_a_request_that_no_bucket_holds_is_refused_before_it_runs() -> None:
    with pytest.raises(LengthError, match="65 is longer than the largest bucket"):
        SlotExecutor(Table(), ()).begin(0, 60, 6)


def test_parts_of_prompts_do_not_run_on_slots() -> None:
    from pytest_npubench.serving.loop import serve
    from pytest_npubench.serving.schedulers import make_scheduler

    machine = Table()
    chunked = make_scheduler("chunked", num_layers=2, kv_blocks=3, block_size_tokens=64, chunk_size_tokens=8)
    requests = [ServingRequest(id=0, arrival_s=0.0, prompt_tokens=20, output_tokens=2)]
    with pytest.raises(ConfigError, match="static buckets prefill a whole prompt at once"):
        serve(OpenLoad(requests), chunked, SlotExecutor(machine, requests), TableClock(machine))
