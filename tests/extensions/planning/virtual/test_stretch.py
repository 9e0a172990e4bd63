"""Iterations that only decode, taken at once, and their log, against the loop that takes them one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving.runs import BLOCK, ONE_DEVICE, fewest_blocks, policies, requests

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.engines.shapes import DecoderShape, decoder_shape
from pytest_npubench.extensions.planning.replicas import Replica, serve_replicas
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.cost import cost_model
from pytest_npubench.extensions.planning.virtual.kept_blocks import KeptBlocks
from pytest_npubench.extensions.planning.virtual.step_cost import StepCost, StepWork
from pytest_npubench.extensions.planning.virtual.stretch import DecodeStretch, EachDecode
from pytest_npubench.extensions.planning.virtual.stretch_log import StretchLog
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan, LayerGroup, LayerPass, PrefillRow
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.log import COLUMNS, MAYBE_UNKNOWN
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler
from pytest_npubench.suites.hardware_files import load_all

from .devices import device_of

SPEC = load_all([default_directory()])["nvidia-h100"]
SHAPES = {name: decoder_shape(name) for name in ("small-moe", "small-dense", "gpt-oss-20b")}


def roofline(shape: DecoderShape) -> StepCost:
    return cost_model(shape, SPEC, tensor_parallel=1, dtype="bf16")


def calibrated(shape: DecoderShape) -> StepCost:
    return CalibratedCost(
        num_layers=shape.num_layers,
        fixed_s=2e-3,
        weights_s=4e-3,
        row_s=3e-4,
        context_s=1e-5,
        activation_s=2e-6,
        has_experts=not shape.is_dense,
    )


class Counting:
    """A cost that says how often it was asked."""

    is_affine = True

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self.num_asked = 0

    def seconds(self, work: StepWork) -> float:
        self.num_asked += 1
        return self._cost.seconds(work)


@st.composite
def arriving(draw: st.DrawFn) -> list[ServingRequest]:
    """From a few iterations apart to far apart; contexts on both sides of a window of 128."""
    gaps_s = draw(st.lists(st.sampled_from([0.0, 0.001, 0.0137, 0.31, 9.0]), min_size=1, max_size=10))
    lengths = st.tuples(st.integers(1, 160), st.integers(1, 90))
    at_s = [sum(gaps_s[: number + 1]) for number in range(len(gaps_s))]
    return requests(*((time_s, *draw(lengths)) for time_s in at_s))


def served(
    load: list[ServingRequest],
    shape: DecoderShape,
    cost: StepCost,
    policy: str,
    chosen: dict[str, Any],
    *,
    kv_blocks: int,
    keeps: bool = False,
    is_asynchronous: bool = False,
    is_stamped: bool = False,
) -> ServingResult:
    replica = replica_of(shape, cost, policy, chosen, kv_blocks=kv_blocks, keeps=keeps)
    return serve_replicas(load, [replica], is_asynchronous=is_asynchronous, is_stamped=is_stamped)


def replica_of(
    shape: DecoderShape, cost: StepCost, policy: str, chosen: dict[str, Any], *, kv_blocks: int, keeps: bool
) -> Replica:
    scheduler = make_scheduler(
        policy, num_layers=shape.num_layers, kv_blocks=kv_blocks, block_size_tokens=BLOCK, **chosen
    )
    if keeps:
        scheduler.batch.blocks = KeptBlocks(num_blocks=kv_blocks, block_size_tokens=BLOCK)
    executor = device_of(shape, cost, kv_blocks=kv_blocks, block_size_tokens=BLOCK)
    return Replica(scheduler, executor)


def check_same(one: ServingResult, other: ServingResult) -> None:
    columns, others = one.log.columns(), other.log.columns()
    for name in columns:
        if name in ("start_s", "end_s"):
            assert list(columns[name]) == pytest.approx(list(others[name]), rel=0, abs=1e-9)
        else:
            assert list(columns[name]) == list(others[name]), name
    for record, expected in zip(one.records, other.records, strict=True):
        assert list(record.token_times_s) == pytest.approx(list(expected.token_times_s), rel=0, abs=1e-9)
        assert record.num_preemptions == expected.num_preemptions
        assert record.scheduled_s == pytest.approx(expected.scheduled_s, rel=0, abs=1e-9)
        assert record.dispatched_s == pytest.approx(expected.dispatched_s, rel=0, abs=1e-9)


class OneByOne:
    """A cost that does not say that it is affine."""

    def __init__(self, cost: StepCost) -> None:
        self.seconds = cost.seconds


@given(data=st.data(), load=arriving(), keeps=st.booleans())
@settings(max_examples=150, deadline=None)
def test_times_and_log_are_those_of_the_plain_loop(
    data: st.DataObject, load: list[ServingRequest], keeps: bool
) -> None:
    shape = SHAPES[data.draw(st.sampled_from(sorted(SHAPES)))]
    cost = data.draw(st.sampled_from([roofline, calibrated]))(shape)
    policy, chosen = data.draw(policies(shape.num_layers))
    kv_blocks = fewest_blocks(load) + data.draw(st.sampled_from([0, 1, 3, 9, 30, 2000]))
    plain = replica_of(shape, cost, policy, chosen, kv_blocks=kv_blocks, keeps=keeps)
    fast = served(load, shape, cost, policy, chosen, kv_blocks=kv_blocks, keeps=keeps)
    check_same(fast, serve(OpenLoad(load), plain.scheduler, plain.executor, VirtualClock()))


@given(data=st.data(), load=arriving(), is_stamped=st.booleans())
@settings(max_examples=75, deadline=None)
def test_times_of_an_asynchronous_engine_are_those_of_iterations_one_by_one(
    data: st.DataObject, load: list[ServingRequest], is_stamped: bool
) -> None:
    shape = SHAPES[data.draw(st.sampled_from(sorted(SHAPES)))]
    policy, chosen = data.draw(policies(shape.num_layers))
    kv_blocks = fewest_blocks(load) + data.draw(st.sampled_from([0, 1, 3, 9, 30, 2000]))
    how: dict[str, Any] = {"kv_blocks": kv_blocks, "is_asynchronous": True, "is_stamped": is_stamped}
    cost = calibrated(shape)
    check_same(
        served(load, shape, cost, policy, chosen, **how), served(load, shape, OneByOne(cost), policy, chosen, **how)
    )


@pytest.mark.parametrize("policy", ONE_DEVICE)
def test_a_long_answer_asks_the_cost_a_few_times(policy: str) -> None:
    """500 iterations, of one batch: its prompt, and a decode iteration of each of 32 numbers of experts at the most."""
    shape = SHAPES["small-moe"]
    load, cost = requests((0.0, 8, 500)), Counting(roofline(shape))
    result = served(load, shape, cost, policy, {}, kv_blocks=200)
    assert len(result.log) >= 500
    assert cost.num_asked < 60


def test_a_policy_that_says_nothing_of_itself_runs_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_npubench.serving.schedulers.chunked import ChunkedPrefillScheduler

    monkeypatch.setattr(ChunkedPrefillScheduler, "is_steady", False)
    shape = SHAPES["small-dense"]
    cost = Counting(roofline(shape))
    result = served(requests((0.0, 8, 500)), shape, cost, "chunked", {}, kv_blocks=200)
    assert cost.num_asked >= len(result.log) == 500


class PlainLog:
    """The same columns as lists, an iteration at a time."""

    def __init__(self) -> None:
        self.columns: dict[str, list[float | None]] = {name: [] for name in COLUMNS}

    def add(self, **entry: float | None) -> None:
        for name, column in self.columns.items():
            column.append(entry.get(name, None if name in MAYBE_UNKNOWN else 0))


COUNT = st.integers(0, 2**40)
SINGLES = st.tuples(st.just("single"), st.integers(0, 5), COUNT, COUNT, st.none() | st.floats(0, 1))
STRETCHES = st.tuples(st.just("stretch"), st.integers(1, 5), COUNT, st.integers(0, 9), st.booleans())


@settings(max_examples=200)
@given(st.lists(SINGLES | STRETCHES, max_size=12), st.permutations(COLUMNS))
def test_columns_are_those_of_a_plain_log_in_whatever_order_they_are_read(
    steps: list[tuple[Any, ...]], order: list[str]
) -> None:
    log, plain, now_s = StretchLog(), PlainLog(), 0.0
    for what, *how in steps:
        now_s += 0.25  # idle
        if what == "single":
            rows, num_bytes, num_activations, joules = how
            plan = IterationPlan(
                decode=tuple(range(rows)), passes=(LayerPass(LayerGroup(1, 4), (PrefillRow(9, 10, 3),)),)
            )
            outcome = IterationOutcome(
                duration_s=0.5, expert_activations=num_activations, kv_bytes=num_bytes, energy_j=joules
            )
            log.append(now_s, now_s + 0.5, plan, outcome, num_running=rows, num_waiting=2)
            plain.add(
                start_s=now_s,
                end_s=now_s + 0.5,
                num_decode=rows,
                num_prefill_tokens=3,
                num_prefill_layers=3,
                num_prefill_pairs=11 + 12 + 13,
                num_running=rows,
                num_waiting=2,
                expert_activations=num_activations,
                kv_bytes=num_bytes,
                energy_j=joules,
            )
            now_s += 0.5
        else:
            number, num_bytes, num_hidden, is_apart = how
            step_s, growth_s = 0.5, 0.25  # exact in binary
            ends_s = [now_s + (k + 1) * (step_s + k * growth_s / 2) for k in range(number)]
            found = list(range(number))
            each = EachDecode([end_s + 1 for end_s in ends_s], found, found, found) if is_apart else None
            ends_s = each.end_s if each else ends_s
            stretch = DecodeStretch(number, ends_s[-1], step_s, growth_s, num_bytes, 7.5, num_hidden, each)
            assert stretch.last_start_s(now_s) == ([now_s, *ends_s])[-2]
            log.add_decode(stretch, now_s, num_decode=4, num_running=5, num_waiting=6)
            for k, (start_s, end_s) in enumerate(zip([now_s, *ends_s], ends_s, strict=False)):
                of_each = dict.fromkeys(EachDecode._fields, k) if is_apart else {}
                fixed = {"num_decode": 4, "num_running": 5, "num_waiting": 6, "hidden_bytes": num_hidden}
                held = {"kv_bytes": int(num_bytes + k * 7.5)}
                plain.add(**(of_each | fixed | held | {"start_s": start_s, "end_s": end_s}))
            now_s = ends_s[-1]
        assert len(log) == len(plain.columns["end_s"])
    for name in order:
        assert list(getattr(log, name)) == plain.columns[name]
