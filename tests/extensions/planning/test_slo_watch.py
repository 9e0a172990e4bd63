"""A load that can no longer attain ends early, and no other one does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving.runs import loads
from serving.virtual_pair import VirtualPair

from pytest_npubench.extensions.planning.pools import Pools, PoolWorker
from pytest_npubench.extensions.planning.replicas import Replica, serve_replicas
from pytest_npubench.extensions.planning.slo_watch import SloWatch
from pytest_npubench.serving.disaggregated import serve_disaggregated
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.metrics import Slo
from pytest_npubench.serving.metrics.slo import slo_attainment
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers.disaggregated import DisaggregatedScheduler

from .test_replicas import DENSE, KV_BLOCKS, SECOND, UNEVEN, device, policy


def halves() -> DisaggregatedScheduler:
    return DisaggregatedScheduler(num_layers=DENSE.num_layers, kv_blocks=KV_BLOCKS, block_size_tokens=4)


def served(
    load: Sequence[ServingRequest], name: str, number: int, *, is_asynchronous: bool, watch: SloWatch | None = None
) -> ServingResult:
    if name == "disaggregated":
        if watch is None:
            pair = VirtualPair(device(UNEVEN), device(UNEVEN), transfer_s=lambda num_bytes: 0.5)
            return serve_disaggregated(OpenLoad(load), halves(), pair)
        prefill, decode = (PoolWorker(halves(), device(UNEVEN), decodes) for decodes in (False, True))
        return Pools([prefill], [decode], transfer_s=lambda num_bytes: 0.5, watch=watch).serve(load)
    replicas = [Replica(policy(name), device(UNEVEN), watch) for _ in range(number)]
    return serve_replicas(load, replicas, is_asynchronous=is_asynchronous, watch=watch)


@pytest.mark.parametrize(
    ("name", "number"),
    [*product(["chunked", "layered", "hybrid", "continuous", "static"], [1, 2]), ("disaggregated", 2)],
)
@given(
    load=loads(),
    is_asynchronous=st.booleans(),
    slo=st.builds(Slo, ttft_s=st.floats(1.0, 60.0), tbt_s=st.floats(1.0, 10.0)),
    attainment=st.sampled_from([0.01, 0.3, 0.5, 0.9, 1.0]),
)
def test_what_is_lost_does_not_attain_and_all_else_is_served_as_without_a_watch(
    name: str, number: int, load: Sequence[ServingRequest], is_asynchronous: bool, slo: Slo, attainment: float
) -> None:
    whole = served(load, name, number, is_asynchronous=is_asynchronous)
    attained = slo_attainment(whole.records, slo)
    watch = SloWatch(slo, attainment=attainment, num_requests=len(load))
    found = served(load, name, number, is_asynchronous=is_asynchronous, watch=watch)
    assert watch.attainment_at_most >= attained
    if watch.is_lost:
        assert attained < attainment
    else:
        assert found == whole


def test_it_ends_with_the_first_request_too_many() -> None:
    """Iterations of 1 s, one prompt at a time, a limit of 2.5 s: requests 0 and 1 are in time, request 2 is not, and
    request 3 has waited too long when that is known."""
    load = [ServingRequest(id=number, arrival_s=0.0, prompt_tokens=16, output_tokens=1) for number in range(4)]
    for attainment, num_iterations in ((0.75, 3), (1.0, 3), (0.5, 4)):
        watch = SloWatch(Slo(ttft_s=2.5, tbt_s=9.0), attainment=attainment, num_requests=4)
        replica = Replica(policy("chunked", chunk_size_tokens=16), device(SECOND), watch)
        result = serve_replicas(load, [replica], watch=watch)
        assert len(result.log) == num_iterations
        assert watch.is_lost == (attainment > 0.5)


def test_requests_that_decode_in_a_long_iteration_are_lost() -> None:
    """2 requests of 3 tokens, the first decode of both takes 1 s where 0.9 s are allowed."""
    load = [ServingRequest(id=number, arrival_s=0.0, prompt_tokens=4, output_tokens=3) for number in range(2)]
    watch = SloWatch(Slo(ttft_s=9.0, tbt_s=0.9), attainment=0.5, num_requests=2)
    result = serve_replicas(load, [Replica(policy(), device(SECOND), watch)], watch=watch)
    assert len(result.log) == 3  # the prompts, then both decodes at once: nothing happens between them
    assert watch.attainment_at_most == 0.0
    assert [len(record.token_times_s) for record in result.records] == [3, 3]
