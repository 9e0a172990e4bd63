"""`--npubench-engine` with other people's engines: one of another distribution on the fake device, NxD Inference and
MaxText on stand-ins of their packages, and the reason where they cannot run."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.lock import device_lock
from pytest_npubench.plugin.exit_status import ExitStatus

from .project import Project, make_project

HERE = Path(__file__).parent
ADAPTERS = HERE.parent / "engines"
OUTSIDE = "--npubench-engine=outside"
NEURON = {"family": "neuron", "classes": ["npu"], "match": "AWS Neuron device", "num_devices": 2}
NEURON_LS = [{"neuron_device": 0, "nc_count": 2, "memory_size": 34359738368, "neuron_processes": []}]
PYCONFIG = """
from types import SimpleNamespace


def initialize(arguments):
    texts = dict(argument.split("=", 1) for argument in arguments[2:])
    return SimpleNamespace(**{key: int(text) if text.isdigit() else text for key, text in texts.items()})
"""
MAXENGINE = """
import time


class MaxEngine(StandIn):
    def __init__(self, config):
        super().__init__(slots=int(float(config.per_device_batch_size)), config=config)

    def prefill(self, *, params, padded_tokens, true_length):
        time.sleep(2e-4 * len(padded_tokens))
        return super().prefill(params=params, padded_tokens=padded_tokens % VOCAB, true_length=true_length)

    def generate(self, params, decode_state):
        time.sleep(5e-4)
        return super().generate(params, decode_state)
"""
NEURON_MODEL = """
import time


class NeuronLlamaForCausalLM(StandInForCausalLM):
    def forward(self, input_ids=None, attention_mask=None, **rest):
        neuron, mask = self.config.neuron_config, attention_mask.shape[1]
        assert neuron.is_continuous_batching and input_ids.shape[0] <= neuron.batch_size
        sets = neuron.context_encoding_buckets if input_ids.shape[1] > 1 else neuron.token_generation_buckets
        bucket = next((bucket for bucket in sets if mask < bucket), sets[-1])
        time.sleep(bucket * (2e-4 if input_ids.shape[1] > 1 else 2e-5))
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, **rest)
"""


def registered(project: Project, *names: str, value: str = "outside_engine:ENGINE") -> None:
    """A distribution in the project's folder, which python -m pytest puts on the path."""
    shutil.copy(HERE / "outside_engine.py", project.root)
    project.write(
        "outside_engine-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: outside-engine\nVersion: 1.2\n"
    )
    lines = "".join(f"{name} = {value}\n" for name in names)
    project.write("outside_engine-1.2.dist-info/entry_points.txt", f"[pytest_npubench.engines]\n{lines}")


def package(project: Project, name: str, text: str) -> None:
    path = project.write(name, text)
    for folder in path.relative_to(project.root).parents[:-1]:
        project.write(f"{folder}/__init__.py", "")


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


@pytest.fixture
def neuron(tmp_path: Path) -> tuple[Project, dict[str, str]]:
    """A project on a machine with two NeuronCores, as a stand-in of neuron-ls has them."""
    project = make_project(tmp_path)
    project.hardware("trn", **NEURON)
    tool = project.write("bin/neuron-ls", f"#!{sys.executable}\nprint({json.dumps(NEURON_LS)!r})\n")
    tool.chmod(0o755)
    return project, {"PATH": f"{tool.parent}:/usr/bin:/bin"}


def test_neuron_cores_are_no_matter_of_the_reference(neuron) -> None:
    project, env = neuron
    result = project.run("-rs", "-m", "neuron", "-k", "trn", env=env)
    said = "reference does not serve neuron; it serves cpu, cuda, tpu, openvino, qualcomm"
    assert any(said in line for line in result.outlines if line.startswith("SKIPPED"))
    result = project.run("-m", "neuron", "-k", "trn", "--npubench-require=trn", env=env)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--npubench-require trn: found AWS Neuron device, AWS Neuron device, but {said}" in result.errlines[0]


@pytest.mark.parametrize(
    ("engine", "marker", "reason"),
    [
        ("nxd", "neuron", "NxD Inference needs neuronx_distributed_inference, which is not installed"),
        ("maxtext", "cpu", "MaxText is not installed; want `pip install 'maxtext[tpu]'`"),
    ],
)
def test_without_the_vendor_s_package_cases_skip_and_requiring_them_fails(project, engine, marker, reason) -> None:
    project.with_shipped()
    chosen = (f"--npubench-engine={engine}", "-m", f"{marker} and buckets")
    result = project.run("-rs", *chosen)
    assert result.ret == 0, result.outlines
    assert any(reason in line for line in result.outlines if line.startswith("SKIPPED"))
    assert not project.journal_path.exists()
    result = project.run(*chosen, f"--npubench-require={marker}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--npubench-require {marker}: {reason}" in result.errlines[0]


def test_the_bucket_suite_on_a_stand_in_of_nxd_inference(neuron) -> None:
    pytest.importorskip("torch")
    project, env = neuron
    stand_in = (ADAPTERS / "nxd" / "stand_in.py").read_text(encoding="utf-8")
    package(project, "neuronx_distributed_inference/models/llama/modeling_llama.py", stand_in + NEURON_MODEL)
    loader = "def load_pretrained_config(path):\n    return lambda config: None\n"
    package(project, "neuronx_distributed_inference/utils/hf_adapter.py", loader)
    result = project.run("-k", "trn", "--npubench-engine=nxd", "--npubench-require=neuron", env=env)
    cases = project.cases()
    kinds = {case.split("/")[1] for case in cases}
    assert kinds == {"profile", "steps", "prediction", "mean_error"}, result.outlines  # no canary runs there
    measured = {case: record["verdict"] for case, record in cases.items()}
    assert "invalid" not in {verdict["kind"] for verdict in measured.values()}, measured
    for record in cases.values():
        assert record["detail"]["engine"] == "nxd"
        assert record["campaign"] == "trn-mini-llama-b2-nxd"
        assert record["device"] == "neuron:0, neuron:1"
    steps = [record["detail"] for case, record in cases.items() if case.startswith("buckets/steps/")]
    edges = {detail["bucket"]: detail["declared"] for detail in steps}
    assert edges == {16: [15], 32: [31], 64: [64]}  # a prompt that fills its bucket runs in the next larger one
    assert [record["name"] for record in project.records("compile")] == ["NeuronLlamaForCausalLM"]
    assert (project.root / ".npubench" / "models" / "mini-llama-fp32" / "config.json").is_file()


def test_the_bucket_suite_on_a_stand_in_of_maxtext(project: Project) -> None:
    stand_in = (ADAPTERS / "maxtext" / "stand_in.py").read_text(encoding="utf-8")
    package(project, "maxtext/configs/pyconfig.py", PYCONFIG)
    package(project, "maxtext/inference/maxengine/maxengine.py", stand_in + MAXENGINE)
    chosen = ("-k", "mini and not canary", "-m", "cpu", "--npubench-engine=maxtext", "--npubench-require=cpu")
    result = project.run(*chosen)
    cases = project.cases()
    assert {case.split("/")[1] for case in cases} == {"profile", "steps", "prediction", "mean_error"}, result.outlines
    measured = {case: record["verdict"] for case, record in cases.items()}
    assert "invalid" not in {verdict["kind"] for verdict in measured.values()}, measured
    assert {record["campaign"] for record in cases.values()} == {"mini-mini-llama-b2-maxtext"}
    names = [record["name"] for record in project.records("compile")]
    assert names[0] == "generate-73"  # 64 and the profile's 9, more than any answer has
    assert set(names[1:]) == {"prefill-16", "prefill-32", "prefill-64"}
    (device,) = project.records("device")
    assert device["fingerprint"]["device"]["runtime"].startswith("maxtext, jax ")


def test_an_engine_whose_devices_are_not_there_needs_no_turn(project: Project) -> None:
    """Another run has the device: one on it is refused, one on an engine that has none of its own is not."""
    project.fake()
    registered(project, "outside")
    with device_lock([Device(family="openvino", ordinal=0, name="Fake accelerator")], 10.0):
        refused = project.run("-k", "fake and steps", OUTSIDE, "--npubench-lock-timeout=0")
        assert refused.ret == ExitStatus.INVALID
        assert "is in use by process" in refused.stdout.str()
        project.root.joinpath("outside_engine.py").write_text(
            (HERE / "outside_engine.py").read_text(encoding="utf-8") + "Outside.has_devices = False\n", encoding="utf-8"
        )
        assert project.run("-k", "fake and steps", OUTSIDE, "--npubench-lock-timeout=0").ret == 0
