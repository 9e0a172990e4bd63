"""A bucket that does not compile, or finds no memory, takes its own points along and no others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_npubench.core.measurement import Move, Request, Run
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.suites.buckets.bench import BucketBench, is_out_of_memory
from pytest_npubench.suites.buckets.points import BucketPoint

EXHAUSTED = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 16.90G of 15.75G hbm.\nsecond line"


class XlaRuntimeError(RuntimeError):
    """Named as jaxlib's."""


class TorchOutOfMemory(RuntimeError):
    """As torch.OutOfMemoryError is one of RuntimeError."""


TorchOutOfMemory.__name__ = "OutOfMemoryError"


class StandIn(Engine):
    """Loads what it is asked for, in order, except the buckets in `broken`; with canaries of its own."""

    name, prefill_shared, finished = "stand-in", False, "freeze"
    canaries = SimpleNamespace(load=lambda kernel: None, time=lambda kernel: 0.001)

    def __init__(self, broken):
        self.broken, self.asked = broken, []

    def load(self, buckets):
        self.asked += buckets
        for bucket in buckets:
            if bucket in self.broken:
                raise self.broken[bucket]

    def run(self, requests):
        return Run(e2e_s=0.01, segments=(), moves=())

    def time_move(self, small, large):
        return Move(from_bucket=small, to_bucket=large, duration_s=0.001)


def loaded(plan, broken):
    """The engine and the failures after loading a point of every bucket, large ones first, moves and a canary."""
    points = [plan.profile_point(point) for point in reversed(plan.profile_points(plan.buckets))]
    batch = BucketPoint(name="batch", requests=(Request(input_tokens=10, output_tokens=50),), warm_up=False)
    canary = BucketPoint(name="canary", kernel="matmul")
    engine = StandIn(broken)
    bench = BucketBench(SimpleNamespace(), plan, lambda runtime, plan: engine)
    failures = bench.load([*points, batch, *plan.moves(plan.buckets), canary], [], lambda text: None)
    return engine, failures


def names(plan, *buckets):
    return {plan.profile_point(point).name for point in plan.profile_points(buckets)}


def test_the_largest_bucket_runs_out_of_memory_and_the_others_go_on(plan):
    engine, failures = loaded(plan, {64: XlaRuntimeError(EXHAUSTED)})
    assert engine.asked[:3] == [16, 32, 64]  # small before large, whatever the points' order
    reason = f"bucket 64: XlaRuntimeError: {EXHAUSTED.splitlines()[0]}"
    assert failures == dict.fromkeys({*names(plan, 64), "batch", "move/32/64"}, reason)


def test_larger_buckets_than_one_without_memory_are_not_compiled(plan):
    engine, failures = loaded(plan, {32: XlaRuntimeError(EXHAUSTED)})
    assert 64 not in engine.asked
    assert failures.keys() == {*names(plan, 32, 64), "batch", "move/16/32", "move/32/64"}
    (larger,) = {failures[name] for name in names(plan, 64)}
    assert larger.startswith("not tried: bucket 32: XlaRuntimeError: RESOURCE_EXHAUSTED")


def test_a_bucket_that_fails_otherwise_does_not_keep_larger_ones_from_being_tried(plan):
    engine, failures = loaded(plan, {32: ValueError("no such kernel")})
    assert engine.asked[:3] == [16, 32, 64]
    assert not failures.keys() & names(plan, 16, 64)
    assert {failures[name] for name in names(plan, 32)} == {"bucket 32: ValueError: no such kernel"}


def test_where_no_bucket_can_be_had_the_campaign_says_why(plan):
    with pytest.raises(MemoryError, match="nothing left"):
        loaded(plan, {16: MemoryError("nothing left")})


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (XlaRuntimeError(EXHAUSTED), True),
        (TorchOutOfMemory("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (TorchOutOfMemory("no words"), True),
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), True),
        (ValueError("a shape of 3 memory spaces"), False),
    ],
)
def test_what_counts_as_out_of_memory(error, expected):
    assert is_out_of_memory(error) is expected
