"""What cannot be served is refused by name, before anything runs."""

from __future__ import annotations

import pytest

from pytest_npubench.errors import ConfigError, RegistryError, WorkloadError
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.layered_flight import layer_groups
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.schedulers import make_scheduler

from .fake_executor import FakeExecutor
from .runs import BLOCK, requests, run

ENGINE = {"num_layers": 4, "kv_blocks": 250, "block_size_tokens": BLOCK}


@pytest.mark.parametrize("policy", ["static", "continuous", "chunked", "layered", "hybrid", "disaggregated"])
@pytest.mark.parametrize(("prompt", "output", "fits"), [(40, 1, True), (37, 4, True), (41, 1, False), (38, 4, False)])
def test_a_request_that_can_never_fit(policy, prompt, output, fits):
    arriving = requests((0, 4, 1), (0, prompt, output))
    if fits:
        assert len(run(policy, arriving, kv_blocks=10).tokens[1]) == output
        return
    with pytest.raises(WorkloadError, match=f"request 1: {prompt} prompt.* 40"):
        run(policy, arriving, kv_blocks=10)


def test_nothing_has_run_when_a_request_is_refused():
    executor = FakeExecutor()
    with pytest.raises(WorkloadError, match="request 1"):
        serve(
            OpenLoad(requests((0, 4, 1), (9, 1000, 2))), make_scheduler("chunked", **ENGINE), executor, VirtualClock()
        )
    assert not executor.plans
    assert not executor.held


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        (
            "chunked",
            {"chunk_size_tokens": 0},
            "policy chunked: chunk_size_tokens is 0; want a whole number of at least 1",
        ),
        (
            "chunked",
            {"chunk": 3},
            "policy chunked has no setting 'chunk'; settings: chunk_size_tokens, decode_counts, max_batch_size",
        ),
        ("chunked", {"chunk_size_tokens": 2.5}, "chunk_size_tokens is 2.5"),
        ("chunked", {"decode_counts": "no"}, "decode_counts is 'no'; want true or false"),
        (
            "layered",
            {"num_layer_groups": 5},
            "num_layer_groups is 5; want a whole number from 1 to 4, the model's layers",
        ),
        ("layered", {"num_layer_groups": 0}, "num_layer_groups is 0; want a whole number from 1 to 4"),
        ("layered", {"num_layer_groups": True}, "num_layer_groups is True"),
        ("layered", {"tokens_per_iteration": 0}, "tokens_per_iteration is 0"),
        ("layered", {"merge_cap_tokens": -1}, "merge_cap_tokens is -1"),
        ("hybrid", {"chunk_size_tokens": 0}, "policy hybrid: chunk_size_tokens is 0"),
        ("hybrid", {"num_layer_groups": 9}, "policy hybrid: num_layer_groups is 9; want a whole number from 1 to 4"),
        ("hybrid", {"tokens_per_iteration": None}, "tokens_per_iteration is None"),
        ("continuous", {"max_prefill_tokens": 0}, "max_prefill_tokens is 0; want a whole number of at least 1 or none"),
        ("static", {"batch_size": 0}, "batch_size is 0; want a whole number from 1 to 256 or none"),
        ("static", {"batch_size": 9, "max_batch_size": 8}, "batch_size is 9; want a whole number from 1 to 8"),
        ("static", {"wait_for_full_batch": 1}, "wait_for_full_batch is 1; want true or false"),
        ("disaggregated", {"decode_kv_blocks": 0}, "decode_kv_blocks is 0"),
        ("disaggregated", {"max_prefill_tokens": 0}, "max_prefill_tokens is 0"),
    ],
)
def test_settings_out_of_their_range(policy, settings, message):
    with pytest.raises(ConfigError, match=message):
        make_scheduler(policy, **ENGINE, **settings)


def test_an_unknown_policy():
    known = "chunked, continuous, disaggregated, hybrid, layered, static"
    with pytest.raises(RegistryError, match=f"no scheduling policy 'layred'; known: {known}"):
        make_scheduler("layred", **ENGINE)


@pytest.mark.parametrize("name", ["num_layers", "kv_blocks", "block_size_tokens"])
@pytest.mark.parametrize("policy", ["static", "continuous", "chunked", "layered", "hybrid", "disaggregated"])
def test_an_engine_without_layers_or_memory(policy, name):
    with pytest.raises(ConfigError, match=f"{name} is 0; want at least 1"):
        make_scheduler(policy, **{**ENGINE, name: 0})


@pytest.mark.parametrize("num_groups", [0, 5])
def test_layer_groups_that_do_not_exist(num_groups):
    with pytest.raises(ConfigError, match=f"num_layer_groups is {num_groups}; want 1 to 4"):
        layer_groups(4, num_groups)


@pytest.mark.parametrize(
    ("policy", "executor", "message"),
    [
        ("chunked", {"num_layers": 5}, "plans 4 layers, the executor has 5"),
        ("chunked", {"block_size_tokens": 8}, "plans 4 tokens a KV block, the executor has 8"),
        ("chunked", {"kv_capacity_tokens": 999}, "a KV cache of 1000 tokens, the executor's holds 999"),
        ("disaggregated", {}, "policy disaggregated needs 2 devices; see serve_disaggregated"),
    ],
)
def test_an_executor_that_does_not_fit_the_scheduler(policy, executor, message):
    scheduler = make_scheduler(policy, **ENGINE)
    with pytest.raises(ConfigError, match=message):
        serve(OpenLoad(requests((0, 4, 1))), scheduler, FakeExecutor(**executor), VirtualClock())


def test_a_scheduler_serves_once():
    scheduler = make_scheduler("chunked", **ENGINE)
    serve(OpenLoad(requests((0, 4, 1))), scheduler, FakeExecutor(), VirtualClock())
    with pytest.raises(ConfigError, match="has served a load already; want a new one for each run"):
        serve(OpenLoad(requests((0, 4, 1))), scheduler, FakeExecutor(), VirtualClock())


@pytest.mark.parametrize(
    ("arriving", "message"), [((), "no request arrives"), (((1, 4, 1), (0, 4, 1)), "want arrivals in order")]
)
def test_loads_that_cannot_be_served(arriving, message):
    with pytest.raises(WorkloadError, match=message):
        OpenLoad(requests(*arriving))
