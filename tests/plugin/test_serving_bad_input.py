"""What a serving campaign cannot do is said by name: before the run where possible, else by its own cases alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_npubench.plugin.exit_status import ExitStatus
from pytest_npubench.store.journal import read_journal

pytest.importorskip("torch", reason="the torch engine needs torch")

ROOT = Path(__file__).resolve().parents[2]
HARDWARE = """
title = "A small serving device of the tests"
family = "cpu"
[probe]
match = ['.*']
[buckets]
set = [16]
source = "the test's own"
[models]
default = ["tiny-llama"]
dtype = "fp32"
batch_sizes = [1]
[serving]
models = ["small-gpt-oss"]
dtype = "fp32"
max_batch_size = 8
kv_capacity_tokens = 2048
tokens_per_iteration = 32
[[serving.load]]
model = "small-gpt-oss"
workload = "layered-arxiv-div64"
utilisation = 0.5
[serving.profile.quick]
experiments = ["expert_loads"]
policies = ["chunked"]
num_requests = 3
min_rounds = 2
max_rounds = 2
budget_s = 1
"""
PROFILE = """
[profile.{name}]
workloads = ["azure-conv-sample"]
num_draws = 1
min_rounds = 2
max_rounds = 2
budget_s = 1
"""
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

def pytest_npubench_schedulers():
    return (("five-groups", too_many_groups), ("no-chunk", no_chunk))
"""


@pytest.fixture
def run(tmp_path):
    """Runs the scheduling suite on the hardware file with some parts of it replaced: output, and verdicts by case."""

    def run(*changes: tuple[str, str], more: str = "", threads: int = 1):
        text = HARDWARE + "".join(PROFILE.format(name=name) for name in ("quick", "nightly", "full")) + more
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        (tmp_path / "hardware").mkdir()
        (tmp_path / "hardware" / "served.toml").write_text(text, encoding="utf-8")
        (tmp_path / "own_parts.py").write_text(PLUGIN, encoding="utf-8")
        journal = tmp_path / "journal.jsonl"
        options = [f"--npubench-hardware={tmp_path / 'hardware'}", f"--npubench-journal={journal}"]
        options += [f"--npubench-baselines={tmp_path / 'none'}", "--npubench-accept", "--npubench-other-load=1"]
        command = [sys.executable, "-m", "pytest", "suites/scheduling", "-k", "served", "-qrs"]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", "-p", "own_parts", "--benchmark-disable", *options],
            cwd=ROOT,
            # threads that spin are slow on a machine that does other work
            env={
                **os.environ,
                "OMP_NUM_THREADS": str(threads),
                "OMP_WAIT_POLICY": "passive",
                "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        records = read_journal(journal).records if journal.exists() else ()
        cases = {record["case"]: record for record in records if record["record"] == "case"}
        return done, cases

    return run


def verdicts(cases, part):
    return {(record["verdict"]["kind"], record["verdict"]["reason"]) for name, record in cases.items() if part in name}


def assert_measured(cases, part):
    """Whatever is thought of it: no accepted session is there to compare with."""
    kinds = {kind for kind, _ in verdicts(cases, part)}
    assert kinds
    assert kinds <= {"passed", "failed", "no-baseline"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tokens_per_iteration = 32", "tokens_per_iteration = 0", "serving.tokens_per_iteration: want a whole number"),
        ("kv_capacity_tokens = 2048", "kv_capacity_tokens = 0", "serving.kv_capacity_tokens: want a whole number"),
        ("utilisation = 0.5", "rate_per_s = -1", "serving.load[0].rate_per_s: want a finite number above 0"),
        (
            "[serving]",
            '[[slo]]\nmodel = "*"\nworkload = "*"\nttft = 10\ntbt_s = 0.1\nsource = "ours"\n[serving]',
            "slo[0].ttft: unknown key, did you mean 'ttft_s'?",
        ),
        (
            "[serving]",
            '[[slo]]\nmodel = "*"\nworkload = "*"\nttft_s = "10 s"\ntbt_s = 0.1\nsource = "ours"\n[serving]',
            "slo[0].ttft_s: want a finite number above 0",
        ),
    ],
    ids=["no chunk", "no KV cache", "negative rate", "SLO without unit", "SLO as text"],
)
def test_a_hardware_file_with_a_mistake_is_refused_before_anything_runs(run, old, new, message):
    done, cases = run((old, new))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert message in done.stdout + done.stderr
    assert not cases


def test_a_prompt_longer_than_the_kv_cache_fails_alone(run):
    """The prompt of chunk_sweep has 16 x 32 tokens; blocks hold only requests that fit."""
    done, cases = run(
        ("kv_capacity_tokens = 2048", "kv_capacity_tokens = 480"),
        ('["expert_loads"]', '["expert_loads", "chunk_sweep"]'),
    )
    assert done.returncode == ExitStatus.INVALID
    refused = verdicts(cases, "/chunk_sweep/")
    assert {kind for kind, _ in refused} == {"invalid"}
    assert all("request 0: 512 prompt" in reason and "480" in reason for _, reason in refused)
    assert_measured(cases, "/expert_loads/")


def test_a_workload_of_which_nothing_fits_the_kv_cache(run):
    _, cases = run(
        ("kv_capacity_tokens = 2048", "kv_capacity_tokens = 16"), ("max_batch_size = 8", "max_batch_size = 1")
    )
    ((kind, reason),) = verdicts(cases, "/expert_loads/")
    assert kind == "invalid"
    assert "16" in reason


def test_a_policy_whose_settings_are_out_of_range_fails_alone(run):
    _, cases = run(
        ('["expert_loads"]', '["policy"]'),
        ('policies = ["chunked"]', 'policies = ["chunked", "five-groups", "no-chunk", "nobodys"]'),
    )
    ((kind, reason),) = verdicts(cases, "five-groups")
    assert kind == "invalid"
    assert "num_layer_groups is 5; want a whole number from 1 to 4, the model's layers" in reason
    ((kind, reason),) = verdicts(cases, "no-chunk")
    assert kind == "invalid"
    assert "chunk_size_tokens is 0; want a whole number of at least 1" in reason
    ((kind, reason),) = verdicts(cases, "nobodys")
    assert kind == "invalid"
    assert "no scheduling policy 'nobodys'; known: chunked" in reason
    assert_measured(cases, "-chunked-")


def test_a_model_that_memory_does_not_hold_is_skipped_alone(run):
    """Without touching the memory: a CPU lends more than it has and then kills whoever uses it."""
    done, cases = run(
        ('models = ["small-gpt-oss"]', 'models = ["small-gpt-oss", "huge-moe"]'),
        (
            "utilisation = 0.5",
            'utilisation = 0.5\n[[serving.load]]\nmodel = "huge-moe"\nworkload = "layered-arxiv-div64"\nrate_per_s = 1',
        ),
    )
    assert not verdicts(cases, "huge-moe")
    # 4 layers x 16 experts x (3 x 256 + 2 biases) x 10^9 weights of 4 bytes
    assert "needs 197120.0 GB of weights, 0.0 GB of cache and " in done.stdout
    assert_measured(cases, "small-gpt-oss")


def test_a_kv_cache_that_memory_does_not_hold(run):
    done, cases = run(("kv_capacity_tokens = 2048", "kv_capacity_tokens = 100000000000"))
    assert not cases
    # 2 x 4 layers x 2 heads x 32 x 4 bytes a token
    assert "GB of weights, 204800.0 GB of cache and " in done.stdout


DISAGGREGATED = ("utilisation = 0.5", "utilisation = 4")  # all but at once, so that it is over soon


@pytest.mark.soak
def test_prefill_and_decode_in_two_processes(run):
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two processes want a processor each")
    done, cases = run(DISAGGREGATED, ('["expert_loads"]', '["disaggregated"]'), threads=2)
    assert_measured(cases, "/disaggregated/")
    (record,) = cases.values()
    detail = record["detail"]
    assert set(detail["policies"]) == {"chunked", "layered", "hybrid", "disaggregated"}
    assert 0 < detail["handover"]["num_requests"] <= 6, done.stdout
    assert detail["handover"]["bytes"] > 0
    assert detail["handover"]["mean_s"] > 0
    assert len(record["metrics"]["tbt_apart_over_layered"]["samples"]) == 2


def test_two_processes_on_one_processor_s_share_fail_alone(run):
    _, cases = run(DISAGGREGATED, ('["expert_loads"]', '["disaggregated", "expert_loads"]'), threads=1)
    ((kind, reason),) = verdicts(cases, "/disaggregated/")
    assert kind == "invalid"
    assert "the engine computes with 1 threads on" in reason
    assert "want at least 2 threads (OMP_NUM_THREADS) and a processor for each" in reason
    assert_measured(cases, "/expert_loads/")


def test_a_kv_cache_without_room_for_a_decode_batch(run):
    """What the SLO goes by cannot be measured then: the campaign's cases say so."""
    _, cases = run(("kv_capacity_tokens = 2048", "kv_capacity_tokens = 112"))
    ((kind, reason),) = verdicts(cases, "/expert_loads/")
    assert kind == "invalid"
    assert "a KV cache of 112 tokens in blocks of 16 has no room for a decode batch of 8 requests" in reason
