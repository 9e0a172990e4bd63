"""`--npubench-engine` with an engine of another distribution on the fake device, and the reason where it cannot run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from additions.third_party import distribution

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.lock import device_lock
from pytest_npubench.plugin.outcome import ExitStatus

from .project import Project, neuron_project, skipped

HERE = Path(__file__).parent
OUTSIDE = "--npubench-engine=outside"


def registered(project: Project, *names: str, value: str = "outside_engine:ENGINE") -> None:
    """A distribution in the project's folder, which python -m pytest puts on the path."""
    shutil.copy(HERE / "outside_engine.py", project.root)
    points = {"pytest_npubench.engines": dict.fromkeys(names, value)}
    distribution(project.root, "outside-engine", {}, points)


def test_an_engine_of_another_distribution_runs_the_bucket_suite(project: Project) -> None:
    project.fake()
    registered(project, "outside")
    result = project.run("-k", "fake", OUTSIDE, "--npubench-require=npu")
    assert result.ret == 0, result.outlines
    cases = project.cases()
    assert {case.split("/")[1] for case in cases} == {"profile", "steps", "prediction", "mean_error"}
    for record in cases.values():
        assert record["detail"]["engine"] == "outside"
        assert record["campaign"] == "fake-mini-llama-b2-outside"
    (prediction,) = [record for record in cases.values() if "/prediction/" in record["case"]]
    assert prediction["detail"]["gate_error"] == pytest.approx(0.0, abs=1e-9)  # how it batches is what LENS was told
    (device,) = project.records("device")
    assert device["fingerprint"]["device"]["runtime"] == "outside 1.2, fake runtime"


def test_it_says_why_it_cannot_run(project: Project) -> None:
    project.fake()
    registered(project, "outside")
    result = project.run("-rs", OUTSIDE, "-m", "cpu and buckets")
    assert any("outside does not serve cpu; it serves openvino" in line for line in result.outlines)
    project.write("missing.txt", "no licence for it")
    result = project.run("-k", "fake", OUTSIDE, "--npubench-require=npu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--npubench-require npu: no licence for it" in "\n".join(result.errlines)
    assert not (project.root / "probes.txt").exists()  # before any device is looked for


@pytest.mark.parametrize(
    ("names", "value", "option", "words"),
    [
        (("outside",), "nowhere:ENGINE", OUTSIDE, "engine 'outside' of outside-engine cannot be imported: ModuleNotFo"),
        (
            ("outside",),
            "outside_engine:ENGINE",
            "--npubench-engine=outsize",
            " or outside; did you mean 'out",
        ),
    ],
    ids=["failed import", "unknown name"],
)
def test_one_that_cannot_be_had_is_named(project: Project, names, value, option, words) -> None:
    registered(project, *names, value=value)
    result = project.run(option, "--collect-only")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in "\n".join(result.errlines)
    assert project.run("-k", "mini", "--collect-only", "-q").ret == 0  # no matter of those who ask for another one


def test_a_name_that_is_taken_leaves_ours(project: Project) -> None:
    registered(project, "vllm", value="outside_engine:ENGINE")
    result = project.run("-k", "fake and mini and profile")
    said = "\n".join(result.outlines)
    assert "error: a second engine is called 'vllm': that of outside-engine, which is left out; rename it" in said


def test_neuron_cores_are_no_matter_of_the_reference(tmp_path: Path) -> None:
    project, env = neuron_project(tmp_path)
    result = project.run("-rs", "-m", "neuron", "-k", "trn", env=env)
    said = "reference does not serve neuron; it serves cpu, cuda, tpu, openvino"
    assert any(said in reason for reason in skipped(result))
    result = project.run("-m", "neuron", "-k", "trn", "--npubench-require=trn", env=env)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--npubench-require trn: found AWS Neuron device, AWS Neuron device, but {said}" in result.errlines[0]


def test_an_engine_whose_devices_are_not_there_needs_no_turn(project: Project) -> None:
    """Another run has the device: one on it is refused, one on an engine that has none of its own is not."""
    project.fake()
    registered(project, "outside")
    with device_lock([Device(family="openvino", ordinal=0, name="Fake accelerator")], 10.0):
        refused = project.run("-k", "fake and steps", OUTSIDE, "--npubench-lock-timeout=0.2")
        assert refused.ret == ExitStatus.INVALID
        said = refused.stdout.str()  # while it waits, and again as the reason
        assert said.index("is in use by process") < said.index("; waiting 0.2 s") < said.index("; waited 0.2 s")
        project.root.joinpath("outside_engine.py").write_text(
            (HERE / "outside_engine.py").read_text(encoding="utf-8") + "Outside.has_devices = False\n", encoding="utf-8"
        )
        assert project.run("-k", "fake and steps", OUTSIDE, "--npubench-lock-timeout=0").ret == 0
