"""The bucket suite on stand-ins of NxD Inference and MaxText, and the reason where they cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin.project import Project, make_project, neuron_project, skipped

from pytest_npubench import engines
from pytest_npubench.suites.buckets.plan import SEARCHES

HERE = Path(__file__).parent
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
        assert neuron.is_continuous_batching == (neuron.batch_size > 1) and input_ids.shape[0] <= neuron.batch_size
        sets = neuron.context_encoding_buckets if input_ids.shape[1] > 1 else neuron.token_generation_buckets
        bucket = next((bucket for bucket in sets if mask < bucket), sets[-1])
        time.sleep(bucket * (2e-4 if input_ids.shape[1] > 1 else 2e-5))
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, **rest)
"""


def package(project: Project, name: str, text: str) -> None:
    path = project.write(name, text)
    for folder in path.relative_to(project.root).parents[:-1]:
        project.write(f"{folder}/__init__.py", "")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


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
    assert any(reason in why for why in skipped(result))
    assert not project.journal_path.exists()
    result = project.run(*chosen, f"--npubench-require={marker}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--npubench-require {marker}: {reason}" in result.errlines[0]


@pytest.mark.parametrize(
    ("suite", "family", "reason"),
    [
        ("buckets", "cpu", "nxd does not serve cpu; it serves neuron"),
        ("scheduling", "neuron", "nxd does not serve the suite scheduling; it serves buckets"),
    ],
)
def test_whom_it_does_not_serve(suite: str, family: str, reason: str) -> None:
    assert engines.engine("nxd").why_not_served(suite, family) == reason


def test_the_bucket_suite_on_a_stand_in_of_nxd_inference(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    project, env = neuron_project(tmp_path)
    text = (tmp_path / "hw/trn.toml").read_text(encoding="utf-8").replace("batch_sizes = [2]", "batch_sizes = [1, 2]")
    searched = "[profile.quick]\nbatch_sizes = [2]\nsearch_batch_sizes = [1, 2]\nsearch_buckets = [16, 64]"
    project.write("hw/trn.toml", text.replace("[profile.quick]", searched))
    stand_in = (HERE / "nxd" / "stand_in.py").read_text(encoding="utf-8")
    package(project, "neuronx_distributed_inference/models/llama/modeling_llama.py", stand_in + NEURON_MODEL)
    loader = "def load_pretrained_config(path):\n    return lambda config: None\n"
    package(project, "neuronx_distributed_inference/utils/hf_adapter.py", loader)
    result = project.run("-k", "trn", "--npubench-engine=nxd", "--npubench-require=neuron", env=env)
    cases = project.cases()
    kinds = {case.split("/")[1] for case in cases}
    judged = {"profile", "steps", "prediction", "mean_error", "batch_search", "bucket_search", "bucket_choice"}
    assert kinds == judged, result.outlines  # no canary runs there
    measured = {case: record["verdict"] for case, record in cases.items()}
    assert "invalid" not in {verdict["kind"] for verdict in measured.values()}, measured
    for case, record in cases.items():
        is_search = case.split("/")[1] in SEARCHES
        assert is_search or record["detail"]["engine"] == "nxd"
        assert record["campaign"] == f"trn-mini-llama-b2{'-search' if is_search else ''}-nxd"
        assert record["device"] == "neuron:0, neuron:1"
    steps = [record["detail"] for case, record in cases.items() if case.startswith("buckets/steps/")]
    edges = {detail["bucket"]: detail["declared"] for detail in steps}
    assert edges == {16: [15], 32: [31], 64: [64]}  # a prompt that fills its bucket runs in the next larger one
    engines_of_search = ("b1-16-64/", "b2-16-64/", "b2-64/")
    compiled = {f"{prefix}NeuronLlamaForCausalLM" for prefix in ("", *engines_of_search)}
    assert {record["name"] for record in project.records("compile")} == compiled
    assert (project.root / ".npubench" / "models" / "mini-llama-fp32" / "config.json").is_file()


def test_the_bucket_suite_on_a_stand_in_of_maxtext(project: Project) -> None:
    stand_in = (HERE / "maxtext" / "stand_in.py").read_text(encoding="utf-8")
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
