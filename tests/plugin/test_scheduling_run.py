"""The scheduling suite from the command line, on the real torch engine and a small model."""

import json

import pytest
from suite_folder import SuiteFolder, serving

from pytest_npubench.plugin.outcome import ExitStatus

pytest.importorskip("torch", reason="the torch engine needs torch")

POLICIES = ("static", "continuous", "chunked", "layered", "hybrid")
EXPERIMENTS = ("policy", "expert_loads", "expert_coverage", "chunk_sweep")
FURTHER = """
[[serving.load]]
model = "small-gpt-oss"
workload = "nobody-knows-it"
rate_per_s = 2
[[slo]]
model = "*"
workload = "*"
ttft_s = 600
tbt_s = 600
source = "none: these tests judge no time"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = SuiteFolder(tmp_path_factory.mktemp("serving"))
    folder.hardware("served", serving(experiments=EXPERIMENTS, policies=POLICIES) + FURTHER)
    return folder


@pytest.fixture(scope="module")
def served(folder):
    """A whole run."""
    return folder.run("scheduling", "-k", "served", "--npubench-accept")


def test_every_policy_is_measured_and_a_workload_that_is_not_there_fails_alone(served):
    assert served.process.returncode == ExitStatus.INVALID, served.process.stdout
    for kind, reason in served.verdicts("nobody-knows-it"):
        assert kind == "invalid"
        assert "nobody-knows-it" in reason
    served.assert_measured("layered-arxiv-div64")
    for policy in POLICIES:
        record = served.cases[f"scheduling/policy/served-small-gpt-oss-b8-{policy}-layered-arxiv-div64-u0.5"]
        assert record["metrics"]["ttft_mean_s"]["value"] > 0
        assert len(record["metrics"]["ttft_mean_s"]["samples"]) == 2
        assert record["detail"]["clock"] == "wall"
        shares = ("prefilled / prompt tokens", "decoded / asked", "answered / asked")
        assert record["work"] == {"requests": 3, **dict.fromkeys(shares, 1)}


def test_the_stack_of_these_cases_is_torch(served):
    devices = served.of_kind("device")
    assert all("torch" in json.dumps(device) for device in devices)
    assert {record["fingerprint"] for record in served.cases.values()} == {device["digest"] for device in devices}


def test_layered_prefill_loads_fewer_expert_bytes_than_chunked(served):
    record = served.cases["scheduling/expert_loads/served-small-gpt-oss-b8-layered-arxiv-div64-u0.5"]
    assert 0 < record["metrics"]["expert_load_ratio"]["value"] < 1


def test_a_resumed_run_measures_nothing_twice_and_tries_again_what_was_invalid(served, folder):
    resumed = folder.run("scheduling", "-k", "served and not nobody", "--npubench-accept", "--npubench-resume")
    assert "resumed" in resumed.process.stdout
    assert resumed.of_kind("round") == served.of_kind("round")
    metrics, before = ({key: case["metrics"] for key, case in run.cases.items()} for run in (resumed, served))
    assert metrics == before
