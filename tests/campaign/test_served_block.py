"""Blocks of served requests: what a round holds of one, spelled out, and back; several as one run."""

from __future__ import annotations

import json
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.campaign.served_block import Calibration, ServedBlock, failures_of, pooled
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.metrics import RequestRecord, Slo
from pytest_npubench.serving.result import ServingResult

LOGGED = {
    "start_s": [0.25, 0.5],
    "end_s": [0.5, 1.0],
    "num_decode": [0, 1],
    "num_prefill_tokens": [4, 3],
    "num_prefill_layers": [2, 1],
    "num_prefill_pairs": [10, 6],
    "num_running": [1, 2],
    "num_waiting": [1, 0],
    "expert_activations": [5, 6],
    "padded_expert_activations": [5, 7],
    "expert_load_bytes": [500, 600],
    "kv_bytes": [40, 70],
    "hidden_bytes": [0, 8],
}
KEPT = {
    "request.arrival_s": [0.0, 0.25],
    "request.dispatched_s": [0.125, 0.375],
    "request.scheduled_s": [0.25, 0.25],  # the second was never scheduled, so its arrival stands there
    "request.prompt_tokens": [4, 3],
    "request.output_tokens": [2, 5],
    "request.num_preemptions": [1, 0],
    "aborted/the engine died": [1],
    "request.num_times": [4, 1],
    "request.tokens_crc": [crc32(b"7,9"), crc32(b"")],
    "request.token_times_s": [0.5, 1.0],
    **{f"iteration.{name}": values for name, values in LOGGED.items()},
    "run": [0.0, 1.5, 2, 4.0, 10.0, 0.125],
    "energy_j": [3.5],
    "calibration": [8.0, 0.01],
}


def result() -> ServingResult:
    records = (
        RequestRecord(
            id=0,
            arrival_s=0.0,
            dispatched_s=0.125,
            scheduled_s=0.25,
            prompt_tokens=4,
            output_tokens=2,
            num_preemptions=1,
            token_times_s=(0.5, 1.0),
            tokens=(7, 9),
        ),
        RequestRecord(
            id=1,
            arrival_s=0.25,
            dispatched_s=0.375,
            prompt_tokens=3,
            output_tokens=5,
            token_times_s=(),
            aborted="the engine\ndied",
        ),
    )
    log = IterationLog()
    log.extend(LOGGED)
    return ServingResult(
        records=records, log=log, clock="wall", policy="p", settings={}, started_s=0.0, ended_s=1.5, num_layers=2
    )


def made(**changes: object) -> ServedBlock:
    """What the columns above come from, and back through JSON."""
    calibration = Calibration(full_rate_per_s=8.0, decode_step_s=0.01)
    slo = Slo(ttft_s=10.0, tbt_s=0.125)
    block = ServedBlock.of_result(result(), rate_per_s=4.0, slo=slo, energy_j=3.5, calibration=calibration)
    (again,) = ServedBlock.of_columns(json.loads(json.dumps(block.columns())))
    return replace(again, **changes)


def test_a_round_holds_these_columns_of_a_block():
    assert {name: list(values) for name, values in made().columns().items()} == KEPT


def test_a_block_comes_back_from_them():
    (found,) = ServedBlock.of_columns(KEPT)
    first, second = result().records
    assert found.records == (replace(first, tokens=()), replace(second, aborted="the engine died"))
    assert found.log == result().log
    assert (found.started_s, found.ended_s, found.num_layers, found.rate_per_s) == (0.0, 1.5, 2, 4.0)
    assert (found.slo, found.limits.tbt_s, found.energy_j) == (Slo(ttft_s=10.0, tbt_s=0.125), 0.125, 3.5)
    assert found.calibration == Calibration(full_rate_per_s=8.0, decode_step_s=0.01)
    assert failures_of(found.records) == "1 of 2 requests failed: the engine died"
    assert Calibration.of_columns(KEPT) == (found.calibration,)
    assert Calibration.of_columns({}) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"run": None},
        {"run": [0.0]},
        {"request.output_tokens": None},
        {"request.num_times": [4]},
        {"request.arrival_s": [0.0]},
        {"request.token_times_s": [0.5]},
        {"request.dispatched_s": [-1.0, 0.375]},
    ],
)
def test_columns_of_something_else_are_an_error(changes):
    columns = {name: values for name, values in {**KEPT, **changes}.items() if values is not None}
    with pytest.raises(MeasurementError):
        ServedBlock.of_columns(columns)


def test_without_limits_nothing_is_attained():
    (found,) = ServedBlock.of_columns({**KEPT, "run": KEPT["run"][:4]})
    assert found.slo is None
    with pytest.raises(MeasurementError, match="without limits"):
        _ = found.limits


def test_blocks_follow_one_another_a_second_apart():
    first, second = made(), made(energy_j=None, handover_s=(0.5,), handover_bytes=(9,))
    whole = pooled([first, second])
    assert (whole.started_s, whole.ended_s, whole.duration_s) == (0.0, 4.0, 4.0)
    assert [record.id for record in whole.records] == [0, 1, 2, 3]
    assert [record.arrival_s for record in whole.records] == [0.0, 0.25, 2.5, 2.75]
    assert whole.records[2].token_times_s == (3.0, 3.5)
    assert whole.records[3].scheduled_s is None
    assert list(whole.log.end_s) == [0.5, 1.0, 3.0, 3.5]
    assert list(whole.log.kv_bytes) == [40, 70, 40, 70]
    assert whole.log.energy_j == [None] * 4
    assert (whole.energy_j, pooled([first, first]).energy_j) == (None, 7.0)
    assert (whole.handover_s, whole.handover_bytes) == ((0.5,), (9,))
    assert whole.expert_load_bytes == 2200
    assert (whole.num_output_tokens, whole.num_tokens) == (4, 18)


def test_stalls_are_those_of_the_worst_block():
    blocks = [made(stalls_s=(0.1, 0.5, 0.9)), made(stalls_s=(0.2, 0.4, 1.0))]
    assert pooled(blocks).stalls_s == (0.2, 0.5, 1.0)
    assert pooled([made()]).stalls_s == ()


def test_what_an_iteration_cost_goes_to_the_columns_of_its_name():
    log = IterationLog()
    log.add(IterationOutcome(expert_activations=3, kv_bytes=9, energy_j=1.5), start_s=0.0, end_s=1.0, num_decode=2)
    assert (log.expert_activations[0], log.kv_bytes[0], log.energy_j, log.num_decode[0]) == (3, 9, [1.5], 2)
    assert not hasattr(log, "duration_s")


times = st.integers(0, 10**9).map(lambda microseconds: microseconds / 1e6)


@st.composite
def requests(draw: st.DrawFn) -> RequestRecord:
    points = sorted(draw(st.lists(times, min_size=3, max_size=8)))
    known = draw(st.integers(1, len(points)))
    arrival_s, *rest = points[:known]
    is_aborted = known < 4 or draw(st.booleans())
    return RequestRecord(
        arrival_s=arrival_s,
        dispatched_s=rest[0] if rest else None,
        scheduled_s=rest[1] if len(rest) > 1 else None,
        token_times_s=tuple(rest[2:]),
        prompt_tokens=draw(st.integers(1, 9)),
        output_tokens=max(1, known - 3) + 2 * is_aborted,
        num_preemptions=draw(st.integers(0, 3)),
        aborted=draw(st.sampled_from(["lost", "a/slash"])) if is_aborted else None,
    )


@given(drawn=st.lists(requests(), min_size=1, max_size=5), slo=st.none() | st.just(Slo(ttft_s=1.0, tbt_s=0.5)))
def test_every_block_comes_back_as_it_was(drawn, slo):
    records = tuple(replace(record, id=index) for index, record in enumerate(drawn))
    block = ServedBlock(records=records, ended_s=1e4, rate_per_s=2.0, slo=slo)
    for host_s in (0.25, None) if slo is None else (0.25, 0.5):
        block.log.append(0.0, 1.0, IterationPlan(), IterationOutcome(host_s=host_s), num_running=1, num_waiting=0)
    columns = json.loads(json.dumps(block.columns()))
    assert columns.get("iteration.host_s") == (None if slo is None else [0.25, 0.5])
    if slo is None:  # what not every iteration tells is not kept
        block.log.host_s[:] = [None, None]
    assert all(columns.values())  # the rounds of a campaign take no empty column
    assert ServedBlock.of_columns(columns) == (block,)
