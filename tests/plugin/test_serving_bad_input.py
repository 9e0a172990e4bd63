"""What a serving campaign cannot do is said by name: before the run where possible, else by its own cases alone."""

from __future__ import annotations

import os

import pytest
from additions.third_party import distribution
from suite_folder import SuiteFolder, SuiteRun, serving

from pytest_npubench.plugin.outcome import ExitStatus

pytest.importorskip("torch", reason="the torch engine needs torch")

PLUGIN = """
from dataclasses import replace
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.serving.schedulers import make_scheduler

def pytest_npubench_shapes():
    return (replace(decoder_shape("small-gpt-oss"), name="huge-moe", intermediate=10**9),)

def too_many_groups(**engine):
    return make_scheduler("layered", **engine, num_layer_groups=5)

def no_chunk(**engine):
    return make_scheduler("chunked", **engine, chunk_size_tokens=0)
"""
POINTS = {"pytest_npubench.schedulers": {"five-groups": "own_parts:too_many_groups", "no-chunk": "own_parts:no_chunk"}}
HUGE_LOAD = """
[[serving.load]]
model = "huge-moe"
workload = "layered-arxiv-div64"
rate_per_s = 1
"""


def test_a_hardware_file_with_a_mistake_is_refused_before_anything_runs(tmp_path):
    folder = SuiteFolder(tmp_path)
    folder.hardware("served", serving().replace("utilisation = 0.5", "rate_per_s = -1"))
    run = folder.run("scheduling", "-k", "served")
    run.assert_refused("serving.load[0].rate_per_s: want a finite number above 0")


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> SuiteRun:
    """One run over hardware files each of which wants something that cannot be had, most beside something that can."""
    folder = SuiteFolder(tmp_path_factory.mktemp("served"))
    experiments = ["expert_loads", "disaggregated", "policy"]
    policies = ["chunked", "five-groups", "no-chunk", "nobodys"]
    text = serving(models=["small-gpt-oss", "huge-moe"], experiments=experiments, policies=policies)
    folder.hardware("served-parts", text + HUGE_LOAD)
    folder.hardware("served-short", serving(kv_capacity_tokens=480, experiments=["expert_loads", "chunk_sweep"]))
    folder.hardware("served-tiny", serving(kv_capacity_tokens=16, max_batch_size=1))
    folder.hardware("served-narrow", serving(kv_capacity_tokens=112))
    folder.hardware("served-endless", serving(kv_capacity_tokens=100000000000))
    distribution(folder.path, "own-parts", {}, POINTS)
    return folder.run("scheduling", "-k", "served", "-rs", "--npubench-accept", *folder.plugin("own_parts", PLUGIN))


def test_a_prompt_longer_than_the_kv_cache_fails_alone(together):
    """The prompt of chunk_sweep has 16 x 32 tokens; blocks hold only requests that fit."""
    assert together.process.returncode == ExitStatus.INVALID
    refused = together.verdicts("/chunk_sweep/served-short")
    assert {kind for kind, _ in refused} == {"invalid"}
    assert all("request 0: 512 prompt" in reason and "480" in reason for _, reason in refused)
    together.assert_measured("/expert_loads/served-short")


def test_a_workload_of_which_nothing_fits_the_kv_cache(together):
    assert "16" in together.reason("/expert_loads/served-tiny")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("five-groups", "num_layer_groups is 5; want a whole number from 1 to 4, the model's layers"),
        ("no-chunk", "chunk_size_tokens is 0; want a whole number of at least 1"),
        ("nobodys", "no scheduling policy 'nobodys'; known: chunked"),
    ],
)
def test_a_policy_whose_settings_are_out_of_range_fails_alone(together, policy, words):
    assert words in together.reason(policy)
    together.assert_measured("-chunked-")


def test_a_model_that_memory_does_not_hold_is_skipped_alone(together):
    """Without touching the memory: a CPU lends more than it has and then kills whoever uses it."""
    assert not [key for key in together.cases if "huge-moe" in key]
    # 4 layers x 16 experts x (3 x 256 + 2 biases) x 10^9 weights of 4 bytes
    assert "needs 197120.0 GB of weights, 0.0 GB of cache and " in together.process.stdout
    together.assert_measured("/expert_loads/served-parts")


def test_a_kv_cache_that_memory_does_not_hold(together):
    assert not [key for key in together.cases if "served-endless" in key]
    # 2 x 4 layers x 2 heads x 32 x 4 bytes a token
    assert "GB of weights, 204800.0 GB of cache and " in together.process.stdout


def test_two_processes_on_one_processor_s_share_fail_alone(together):
    reason = together.reason("/disaggregated/served-parts")
    assert "the engine computes with 1 threads on" in reason
    assert "want at least 2 threads (OMP_NUM_THREADS) and a processor for each" in reason


def test_a_kv_cache_without_room_for_a_decode_batch(together):
    """What the SLO goes by cannot be measured then: the campaign's cases say so."""
    words = "a KV cache of 112 tokens in blocks of 16 has no room for a decode batch of 8 requests"
    assert words in together.reason("/expert_loads/served-narrow")


@pytest.mark.soak
def test_prefill_and_decode_in_two_processes(tmp_path):
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two processes want a processor each")
    folder = SuiteFolder(tmp_path)
    # the requests come all but at once, so that it is over soon
    folder.hardware("served", serving(utilisation=4, experiments=["disaggregated"]))
    run = folder.run("scheduling", "-k", "served", "--npubench-accept", env={"OMP_NUM_THREADS": "2"})
    run.assert_measured("/disaggregated/")
    (record,) = run.cases.values()
    detail = record["detail"]
    assert set(detail["policies"]) == {"chunked", "layered", "hybrid", "disaggregated"}
    assert 0 < detail["handover"]["num_requests"] <= 6, run.process.stdout
    assert detail["handover"]["bytes"] > 0
    assert detail["handover"]["mean_s"] > 0
    assert len(record["metrics"]["tbt_apart_over_layered"]["samples"]) == 2
