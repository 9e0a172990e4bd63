"""The scheduling suite from the command line, on the real torch engine and a small model."""

import json
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
[[serving.load]]
model = "small-gpt-oss"
workload = "nobody-knows-it"
rate_per_s = 2
[serving.profile.quick]
experiments = ["policy", "expert_loads", "expert_coverage", "chunk_sweep"]
policies = ["static", "continuous", "chunked", "layered", "hybrid"]
num_requests = 3
min_rounds = 2
max_rounds = 2
budget_s = 1
"""
NEVER_MISSED = """
[[slo]]
model = "*"
workload = "*"
ttft_s = 600
tbt_s = 600
source = "none: these tests judge no time"
"""
PROFILE = """
[profile.{name}]
workloads = ["azure-conv-sample"]
num_draws = 1
min_rounds = 2
max_rounds = 2
budget_s = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving")
    profiles = "".join(PROFILE.format(name=name) for name in ("quick", "nightly", "full"))
    (folder / "hardware").mkdir()
    (folder / "hardware" / "served.toml").write_text(HARDWARE + profiles + NEVER_MISSED, encoding="utf-8")
    return folder


def run(folder, *arguments):
    options = [f"--npubench-hardware={folder / 'hardware'}", f"--npubench-journal={folder / 'journal.jsonl'}"]
    options += [f"--npubench-baselines={folder / 'none'}", "--npubench-accept", "--npubench-other-load=1"]
    command = [sys.executable, "-m", "pytest", "suites/scheduling", "-k", "served", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *options, "--benchmark-disable", *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # two threads that spin are slow on a machine that does other work
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def served(folder):
    """A whole run: its output, and its case records by id."""
    done = run(folder)
    records = [record for record in read_journal(folder / "journal.jsonl").records if record["record"] == "case"]
    return done, {record["case"]: record for record in records}


def test_every_policy_is_measured_and_a_workload_that_is_not_there_fails_alone(served):
    done, records = served
    assert done.returncode == ExitStatus.INVALID, done.stdout
    kinds = {name: record["verdict"]["kind"] for name, record in records.items()}
    absent = {name for name in kinds if "nobody-knows-it" in name}
    assert {kinds[name] for name in absent} == {"invalid"}
    assert all("nobody-knows-it" in records[name]["verdict"]["reason"] for name in absent)
    assert "invalid" not in {kind for name, kind in kinds.items() if name not in absent}
    for policy in ("static", "continuous", "chunked", "layered", "hybrid"):
        record = records[f"scheduling/policy/served-small-gpt-oss-b8-{policy}-layered-arxiv-div64-u0.5"]
        assert record["metrics"]["ttft_mean_s"]["value"] > 0
        assert len(record["metrics"]["ttft_mean_s"]["samples"]) == 2
        assert record["detail"]["clock"] == "wall"
        shares = ("prefilled / prompt tokens", "decoded / asked", "answered / asked")
        assert record["work"] == {"requests": 3, **dict.fromkeys(shares, 1)}


def test_the_stack_of_these_cases_is_torch(served, folder):
    _, records = served
    devices = [record for record in read_journal(folder / "journal.jsonl").records if record["record"] == "device"]
    assert all("torch" in json.dumps(device) for device in devices)
    assert {record["fingerprint"] for record in records.values()} == {device["digest"] for device in devices}


def test_layered_prefill_loads_fewer_expert_bytes_than_chunked(served):
    _, records = served
    record = records["scheduling/expert_loads/served-small-gpt-oss-b8-layered-arxiv-div64-u0.5"]
    assert 0 < record["metrics"]["expert_load_ratio"]["value"] < 1


def test_a_resumed_run_measures_nothing_twice_and_tries_again_what_was_invalid(served, folder):
    _, records = served
    before = sum(record["record"] == "round" for record in read_journal(folder / "journal.jsonl").records)
    done = run(folder, "--npubench-resume", "-k", "served and not nobody")
    assert "resumed" in done.stdout
    journal = read_journal(folder / "journal.jsonl")
    assert sum(record["record"] == "round" for record in journal.records) == before
    latest = {record["case"]: record for record in journal.records if record["record"] == "case"}
    assert {name: record["metrics"] for name, record in latest.items()} == {
        name: record["metrics"] for name, record in records.items()
    }
