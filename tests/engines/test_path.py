"""The path of a run through the buckets is the one that LENS writes down, and its parts fit into its whole.

Walked here step by step after LENS (arXiv 2606.18042): a prompt is prefilled in bucket(l_in) (Eq. 1 and 2), decode
step t has KV length c_t = l_in + t + 1 (Eq. 3), and a batch steps in the bucket of its largest c_t (Eq. 8). A row whose
output is complete keeps the c_t of its last step (finished = "freeze"). Prefill emits the first token, so the longest
output of n tokens takes n - 1 steps: a prompt of 5 with 5 tokens has c = 6, 7, 8 in bucket 8 and 9 in bucket 16.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_npubench.core.measurement import Phase, Request, Run
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine
from pytest_npubench.engines.request_batch import Generation, Prompt, random_prompts

from .conftest import Served
from .decoders import BATCH_SIZE, BUCKETS

LARGEST = BUCKETS[-1]
Lengths = Sequence[tuple[int, int]]


@pytest.fixture(scope="module")
def engine(serve: Callable[[str], Served]) -> StaticBucketEngine:
    return serve("tied").engine


def run(engine: StaticBucketEngine, lengths: Lengths) -> Run:
    return engine.run([Request(input_tokens=inputs, output_tokens=outputs) for inputs, outputs in lengths])


def bucket(length: int) -> int:
    return next(size for size in BUCKETS if length <= size)


def visits(lengths: Lengths) -> list[tuple[Phase, int]]:
    """Phase and bucket of every prompt, shortest first, then of every step."""
    found = [(Phase.PREFILL, bucket(inputs)) for inputs, _ in sorted(lengths)]
    for step in range(max(outputs for _, outputs in lengths) - 1):
        kv_lengths = [inputs + min(step + 1, outputs - 1) for inputs, outputs in lengths]
        found.append((Phase.DECODE, bucket(max(kv_lengths))))
    return found


def check(found: Run, lengths: Lengths) -> None:
    walked = visits(lengths)
    want = [(*key, len(list(group))) for key, group in itertools.groupby(walked)]
    assert [(segment.phase, segment.bucket, segment.num_steps) for segment in found.segments] == want
    crossed = [size for size in BUCKETS if walked[0][1] <= size <= walked[-1][1]]
    assert [(move.from_bucket, move.to_bucket) for move in found.moves] == list(itertools.pairwise(crossed))
    parts = [part.duration_s for part in (*found.segments, *found.moves)]
    assert min(parts) > 0
    assert found.e2e_s >= sum(parts)


P, D = Phase.PREFILL, Phase.DECODE


@pytest.mark.parametrize(
    ("lengths", "segments", "moves"),
    [
        pytest.param([(5, 1)], [(P, 8, 1)], [], id="prefill only"),
        pytest.param([(5, 4)], [(P, 8, 1), (D, 8, 3)], [], id="c = 6, 7, 8"),
        pytest.param([(5, 5)], [(P, 8, 1), (D, 8, 3), (D, 16, 1)], [(8, 16)], id="c = 6, 7, 8, 9"),
        pytest.param([(8, 2)], [(P, 8, 1), (D, 16, 1)], [(8, 16)], id="a full bucket: c = 9"),
        pytest.param([(9, 2)], [(P, 16, 1), (D, 16, 1)], [], id="one past the edge"),
        pytest.param(
            [(7, 27)],
            [(P, 8, 1), (D, 8, 1), (D, 16, 8), (D, 32, 16), (D, 300, 1)],
            [(8, 16), (16, 32), (32, 300)],
            id="three boundaries: c = 8..33",
        ),
        pytest.param(
            [(20, 2), (3, 6), (5, 9)],
            [(P, 8, 2), (P, 32, 1), (D, 32, 8)],
            [(8, 16), (16, 32)],
            id="the longest prompt decides: two prompts in 8, then c = 21 frozen",
        ),
        pytest.param(
            [(14, 3), (6, 14)],
            [(P, 8, 1), (P, 16, 1), (D, 16, 10), (D, 32, 3)],
            [(8, 16), (16, 32)],
            id="c = 15, 16, 16 .. until the other row overtakes at 17",
        ),
        pytest.param([(299, 2)], [(P, 300, 1), (D, 300, 1)], [], id="to the last place"),
    ],
)
def test_a_path_by_hand(
    engine: StaticBucketEngine, lengths: Lengths, segments: list[tuple[Phase, int, int]], moves: list[tuple[int, int]]
) -> None:
    found = run(engine, lengths)
    assert [(segment.phase, segment.bucket, segment.num_steps) for segment in found.segments] == segments
    assert [(move.from_bucket, move.to_bucket) for move in found.moves] == moves
    check(found, lengths)


def request_within(outputs: int) -> st.SearchStrategy[tuple[int, int]]:
    """Input lengths that leave room for the outputs, edges of buckets among them."""
    longest = LARGEST - outputs + 1
    edges = [edge for size in BUCKETS for edge in (size - 1, size, size + 1) if edge <= longest]
    return st.tuples(st.one_of(st.sampled_from(edges), st.integers(1, longest)), st.just(outputs))


requests = st.lists(st.integers(1, 40).flatmap(request_within), min_size=1, max_size=BATCH_SIZE)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(lengths=requests)
@example(lengths=[(LARGEST, 1), (1, 40), (8, 1)])
@example(lengths=[(1, 1), (1, 1), (1, 1)])
def test_any_path(engine: StaticBucketEngine, lengths: list[tuple[int, int]]) -> None:
    found = run(engine, lengths)
    check(found, lengths)
    steps = sum(segment.num_steps for segment in found.segments if segment.phase is Phase.DECODE)
    assert steps == max(outputs for _, outputs in lengths) - 1
    prompts = sum(segment.num_steps for segment in found.segments if segment.phase is Phase.PREFILL)
    assert prompts == len(lengths)


def test_a_run_is_a_generation_of_seeded_prompts() -> None:
    """Each prompt depends on the seed, the run and its place in the batch alone."""
    lengths = [Request(input_tokens=50, output_tokens=1)] * 2
    (first, other), (again, _) = (random_prompts(lengths, 64, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert 0 <= first.min() < first.max() < 64
    assert not np.array_equal(first, random_prompts(lengths, 64, seed=4)[0])
    assert not np.array_equal(first, random_prompts(lengths, 64, seed=3, run=1)[0])


def test_an_engine_that_remembers_prompts_gains_nothing(
    engine: StaticBucketEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No prompt of a visit was in an earlier one, whatever the lengths."""
    seen: list[bytes] = []
    generate = engine.generate

    def remembering(prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> Generation:
        seen.extend(prompt.tobytes() for prompt in prompts)
        return generate(prompts, output_tokens)

    monkeypatch.setattr(engine, "generate", remembering)
    for _ in range(3):
        engine.run([Request(input_tokens=10, output_tokens=2)] * 2)
    assert len(set(seen)) == len(seen) == 6


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("tpu", "start 0 start 1 fetch 0 fetch 1 move start 2 start 3 fetch 2 start 4 fetch 3 fetch 4"),
        ("cpu", "start 0 fetch 0 start 1 fetch 1 move start 2 fetch 2 start 3 fetch 3 start 4 fetch 4"),
    ],
)
def test_a_step_starts_before_the_one_before_it_is_fetched_where_a_device_runs_it(
    engine: StaticBucketEngine, monkeypatch: pytest.MonkeyPatch, platform: str, expected: str
) -> None:
    """c = 7, 8 in bucket 8, then 9 .. 11 in 16; nothing is under way when the cache moves. Where a
    device runs the steps, each step's tokens begin to travel when it is started; on a CPU they lie there already."""
    engine.load(BUCKETS)
    monkeypatch.setattr(engine, "_compiler", SimpleNamespace(devices=[SimpleNamespace(platform=platform)]))
    events: list[str] = []
    travelling: list[object] = []
    array, copy = type(engine.weights["final_norm"]), type(engine.weights["final_norm"]).copy_to_host_async
    monkeypatch.setattr(array, "copy_to_host_async", lambda tokens: travelling.append(tokens) or copy(tokens))
    start_step, move_caches = engine.start_step, engine.move_caches

    def started(bucket: int) -> Callable[[], Prompt]:
        number = sum(event.startswith("start") for event in events)
        events.append(f"start {number}")
        fetch = start_step(bucket)

        def fetched() -> Prompt:
            events.append(f"fetch {number}")
            return fetch()

        return fetched

    def moved(bucket: int, neighbour: int) -> None:
        events.append("move")
        move_caches(bucket, neighbour)

    monkeypatch.setattr(engine, "start_step", started)
    monkeypatch.setattr(engine, "move_caches", moved)
    run(engine, [(6, 6)])
    assert " ".join(events) == expected
    assert len(travelling) == (5 if platform == "tpu" else 0)


def test_a_move_is_timed_alone(engine: StaticBucketEngine) -> None:
    move = engine.time_move(16, 32)
    assert (move.from_bucket, move.to_bucket) == (16, 32)
    assert move.duration_s > 0
