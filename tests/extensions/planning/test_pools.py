"""Prefill and decode on several workers each, against the loop for one of each and against separate runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving.runs import loads
from serving.virtual_pair import VirtualPair

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.cli.simulation import System, simulate
from pytest_npubench.extensions.planning.pools import Pools, PoolWorker
from pytest_npubench.serving.arrivals import load_of
from pytest_npubench.serving.disaggregated import DisaggregatedResult, serve_disaggregated
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.hardware_files import folders_of_runs, load_all

from .test_replicas import UNEVEN, device
from .test_slo_watch import halves


def _transfer_s(num_bytes: int) -> float:
    return 0.25 + num_bytes / 1e9


def _pools(load: Sequence[ServingRequest], num_prefill: int, num_decode: int) -> DisaggregatedResult:
    def workers(number: int, *, decodes: bool) -> list[PoolWorker]:
        return [PoolWorker(halves(), device(UNEVEN), decodes) for _ in range(number)]

    prefill, decode = workers(num_prefill, decodes=False), workers(num_decode, decodes=True)
    return Pools(prefill, decode, transfer_s=_transfer_s).serve(load)


@given(load=loads())
def test_one_of_each_is_the_pair_of_devices(load: Sequence[ServingRequest]) -> None:
    pair = VirtualPair(device(UNEVEN), device(UNEVEN), transfer_s=_transfer_s)
    assert _pools(load, 1, 1) == serve_disaggregated(OpenLoad(load), halves(), pair)


@given(number=st.integers(2, 4), rounds=st.integers(1, 4), lengths=st.tuples(st.integers(1, 40), st.integers(2, 12)))
def test_equal_requests_at_once_are_separate_runs(number: int, rounds: int, lengths: tuple[int, int]) -> None:
    """Each worker is sent every number-th of them, and they go on to as many decode workers in turn."""
    load = load_of((1.0,) * number * rounds, [lengths] * number * rounds)
    whole = _pools(load, number, number)
    for index in range(number):
        alone = _pools(load[index::number], 1, 1)
        assert whole.records[index::number] == alone.records
        assert whole.handover_s[index::number] == alone.handover_s


@given(load=loads(), numbers=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_everybody_is_served_with_every_token(load: Sequence[ServingRequest], numbers: tuple[int, int]) -> None:
    result = _pools(load, *numbers)
    assert [len(record.token_times_s) for record in result.records] == [request.output_tokens for request in load]
    assert all(list(record.token_times_s) == sorted(record.token_times_s) for record in result.records)
    assert len(result.handover_s) == sum(request.output_tokens > 1 for request in load)


def test_two_requests_prefill_and_are_sent_at_once_on_two_workers_and_decode_together_on_one() -> None:
    spec = load_all(folders_of_runs())["nvidia-h100"]
    system = System(
        shape=decoder_shape("qwen3-8b"), spec=spec, tensor_parallel=2, dtype="bf16", kv_capacity_tokens=9000, seed=0
    )
    load = load_of((0.0, 0.0), [(700, 3)] * 2)
    (alone,) = simulate(system, "disaggregated", {}, load[:1]).records
    one, two = simulate(replace(system, prefill_replicas=2), "disaggregated", {}, load).records
    assert one.ttft_s == two.ttft_s == alone.ttft_s
    assert one.token_times_s[1] == two.token_times_s[1] > alone.token_times_s[1]
    apart = simulate(replace(system, prefill_replicas=2, decode_replicas=2), "disaggregated", {}, load).records
    assert [list(record.token_times_s) for record in apart] == [pytest.approx(list(alone.token_times_s))] * 2
