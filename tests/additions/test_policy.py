"""A scheduling policy: one file, held to the limits that it says it keeps, with its settings in a simulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plugin.project import HARDWARE, PROFILE, Project
from suite_folder import serving

from pytest_npubench.errors import BrokenEntryError
from pytest_npubench.serving import schedulers

from .conftest import OnPath
from .third_party import ROOT, copy_of_the_package, distribution, fake_project, npubench, with_path

POLICY = '''
"""Chunked prefill of at most `width_tokens` prompt tokens an iteration, one prompt at a time."""

from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.prompts import chunk_of_prompts
from pytest_npubench.serving.settings import check_count


class Narrow:
    name = "narrow"
    num_devices = 1
    keeps_slo = True

    def __init__(self, *, num_layers, kv_blocks, block_size_tokens, width_tokens=64, max_batch_size=256):
        check_count(self.name, "width_tokens", width_tokens)
        self.settings = {"width_tokens": width_tokens, "max_batch_size": max_batch_size}
        self.batch = Batch(
            num_layers=num_layers,
            kv_blocks=kv_blocks,
            block_size_tokens=block_size_tokens,
            max_batch_size=max_batch_size,
        )

    @staticmethod
    def iteration_work(tokens, *, decode_counts):
        return {"width_tokens": tokens}

    def plan(self):
        return self.batch.plan(chunk_of_prompts(self.batch, self.settings["width_tokens"]))


SCHEDULER = Narrow
'''
FILES = {"pytest_npubench/serving/schedulers/narrow.py": POLICY}
SLO = """
[[slo]]
model = "*"
workload = "*"
ttft_s = 1e-9
tbt_s = 1e-9
source = "the test's own: nobody can keep it"
"""
SERVING = serving(experiments=["policy"], policies=["static", "narrow"]).replace("utilisation = 0.5", "rate_per_s = 50")
QUESTION = (
    *("simulate", "--hardware", "nvidia-h100", "--model", "qwen3-30b-a3b", "--tensor-parallel", "2", "--json"),
    *("--workload", "layered-arxiv", "--rate", "2", "--num-requests", "3", "--policy", "narrow"),
)
POINTS = {"pytest_npubench.schedulers": {"narrow": "npubench_narrow:SCHEDULER"}}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """One that serves requests on the host's processors, under limits that no policy keeps."""
    pytest.importorskip("torch", reason="requests are served by torch")
    project = fake_project(tmp_path)
    (project.root / "test_policy.py").write_bytes((ROOT / "suites" / "scheduling" / "test_policy.py").read_bytes())
    device = HARDWARE.format(
        title="serving", family="cpu", classes=[], match=".*", num_devices=1, buckets=[16], case_error=1, mean_error=1
    ).replace("mini-llama", "tiny-llama")
    sizes = (
        PROFILE.format(name=name, workloads=["lengths.csv"], min_rounds=2, max_rounds=2)
        for name in ("quick", "nightly", "full")
    )
    project.write("hw/served.toml", device + SLO + SERVING + "".join(sizes))
    return project


@pytest.mark.soak  # fresh processes with torch; test_suite.py and test_predictor.py add to a copy too
def test_a_policy_is_one_file(project: Project, tmp_path: Path) -> None:
    assert len(FILES) == 1
    copy = copy_of_the_package(tmp_path / "copy")
    for name, text in FILES.items():
        (copy / name).write_text(text, encoding="utf-8")
    env = {**with_path(copy), "OMP_NUM_THREADS": "1"}
    done = project.run("test_policy.py", "-k", "served", "--npubench-accept", env=env)
    done.assert_outcomes(passed=1, failed=1)
    by_policy = {record["detail"]["policy"]: record for record in project.cases().values()}
    assert by_policy["narrow"]["verdict"]["kind"] == "failed"
    assert "requests that miss the SLO" in by_policy["narrow"]["verdict"]["reason"]
    assert by_policy["narrow"]["detail"]["settings"] == {"width_tokens": 32}
    assert by_policy["static"]["verdict"]["kind"] == "no-baseline", "shown, and not held to the limits"
    answer = npubench(project, *QUESTION, "--set", "width_tokens=48", "--max-batch", "4", path=copy)
    (run,) = json.loads(answer.stdout)["runs"]
    assert run["settings"] == {"width_tokens": 48, "max_batch_size": 4}
    unknown = npubench(project, *QUESTION, "--set", "depth=3", path=copy)
    assert "--set depth is a setting of none of the policies asked for: narrow" in unknown.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [(POLICY, ""), ("SCHEDULER = 3\n", "is no class or function"), ("import nowhere_at_all\n", "cannot be imported")],
    ids=["right", "no policy", "an import"],
)
def test_a_policy_of_another_distribution(tmp_path: Path, on_path: OnPath, text: str, words: str) -> None:
    on_path(distribution(tmp_path / "outside", "npubench-narrow", {"npubench_narrow.py": text}, POINTS))
    assert "narrow" in schedulers.scheduler_names()
    if words:
        with pytest.raises(BrokenEntryError, match=f"scheduling policy 'narrow' of npubench-narrow.*{words}"):
            schedulers.keeps_slo("narrow")
    else:
        assert schedulers.keeps_slo("narrow")
        assert schedulers.setting_names("narrow") == ("width_tokens", "max_batch_size")
        assert schedulers.iteration_work("narrow", 32, decode_counts=True) == {"width_tokens": 32}
    assert schedulers.keeps_slo("chunked")
    assert not schedulers.keeps_slo("static")
