"""The scheduling suite on the real vLLM, end to end: small models, all policies that vLLM has, one command."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec

import pytest
from suite_folder import SuiteFolder, serving

from pytest_npubench.extensions.vllm.process import PYTHON_VARIABLE

SHAPE = """
import dataclasses

from tests.engines.written_shapes import DENSE, MOE


def pytest_npubench_shapes():
    return [dataclasses.replace(MOE, name="suite-moe"), dataclasses.replace(DENSE, name="suite-dense")]
"""
EXPERIMENTS = ("policy", "identical_tokens", "answers", "expert_loads", "expert_coverage", "chunk_sweep")
POLICIES = ("static", "chunked", "layered", "hybrid")
CASE = "scheduling/{}/served-suite-moe-b8-{}layered-arxiv-div64-u0.7"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A whole run."""
    if not os.environ.get(PYTHON_VARIABLE) and find_spec("vllm") is None:
        pytest.skip(f"vLLM is not installed here, and {PYTHON_VARIABLE} names no environment with it")
    folder = SuiteFolder(tmp_path_factory.mktemp("served"))
    changes = {"experiments": EXPERIMENTS, "policies": POLICIES, "num_requests": 6, "utilisation": 0.7}
    folder.hardware("served", serving("suite-moe", **changes))
    options = ("-k", "served", "-rs", "-v", *folder.plugin("suite_shapes", SHAPE), "--npubench-engine=vllm")
    return folder.run("scheduling", *options, "--npubench-accept", "--npubench-require=cpu")


def test_everything_is_measured_and_what_vllm_cannot_do_is_skipped(served):
    done, cases = served.process, served.cases
    assert done.returncode in (0, 1), done.stdout + done.stderr
    kinds = {name: record["verdict"]["kind"] for name, record in cases.items()}
    assert "invalid" not in kinds.values(), done.stdout
    measured = {CASE.format("policy", f"{policy}-") for policy in ("chunked", "layered", "hybrid")}
    assert measured < set(kinds)
    assert not any("static" in name for name in kinds)
    assert "vLLM: policy static" in done.stdout


def test_tokens_are_the_same_under_all_policies(served):
    cases = served.cases
    record = cases[CASE.format("identical_tokens", "")]
    assert record["verdict"]["kind"] != "failed"
    assert record["detail"]["round_and_request"] == {"layered": [], "hybrid": []}
    assert record["detail"]["num_requests"] == 12


def test_answers_are_those_of_float64_under_all_policies(served):
    """On the weights that vLLM read from its directory, which the host makes again."""
    cases = served.cases
    record = cases["scheduling/answers/served-suite-moe-b8"]
    assert record["verdict"]["kind"] == "no-baseline", record["verdict"]
    assert record["verdict"]["reason"].startswith("answers right: "), record["verdict"]
    assert set(record["detail"]["farthest"]) == {"odd chunks", "layered", "hybrid", "alone"}


def test_layered_prefill_loads_fewer_experts_than_chunked_prefill(served):
    """Exact counters: requests of this size are cut into several chunks, and layered prefill visits a layer once."""
    cases = served.cases
    record = cases[CASE.format("expert_loads", "")]
    assert 0 < record["metrics"]["expert_load_ratio"]["value"] < 1
    assert record["verdict"]["kind"] != "failed"


def test_counters_are_exact(served):
    """The same prompts and batches in each round: the same experts."""
    cases = served.cases
    found = [record for name, record in cases.items() if "/expert_coverage/" in name or "/chunk_sweep/" in name]
    assert len(found) == 4 + 5  # batches of 1 to 8; chunks of 32 to 512
    assert {record["verdict"]["kind"] for record in found} <= {"passed", "no-baseline"}
    coverage = [record["detail"]["coverage"] for name, record in cases.items() if "/expert_coverage/" in name]
    assert coverage == sorted(coverage)
    loads = [record["detail"]["expert_load_bytes"] for name, record in cases.items() if "/chunk_sweep/" in name]
    assert loads == sorted(loads, reverse=True)


def test_times_and_tokens_of_a_block_fit_together(served):
    rounds = [record["points"] for record in served.of_kind("round")]
    assert len(rounds) == 2
    for points in rounds:
        for name in [name for name in points if name.endswith("/request.tokens_crc")]:
            point = name.rpartition("/")[0]
            column = {part: points[f"{point}/request.{part}"] for part in ("arrival_s", "scheduled_s", "output_tokens")}
            assert len(points[f"{point}/request.token_times_s"]) == sum(column["output_tokens"])
            assert all(at <= then for at, then in zip(column["arrival_s"], column["scheduled_s"], strict=True))
            ends = set(points[f"{point}/iteration.end_s"])
            assert ends


def test_the_run_says_that_it_was_vllm(served):
    done, cases = served.process, served.cases
    assert "vLLM, suite-moe, chunked: max_num_batched_tokens=2048, max_num_scheduled_tokens=32" in done.stdout
    assert "vLLM, suite-moe, layered: scheduler_cls=" in done.stdout
    compared = " ".join(done.stdout.partition("layered / chunked: ")[2].partition(")")[0].split())
    assert compared.endswith(", vLLM")
    devices = served.of_kind("device")
    assert all("vllm" in device["fingerprint"]["device"]["runtime"] for device in devices)
    assert all("torch" in json.dumps(device) for device in devices)
    assert {record["detail"]["engine"] for record in cases.values()} == {"vllm"}
