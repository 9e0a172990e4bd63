"""Layered and hybrid prefill in stock vLLM against its own chunked prefill: the same tokens, fewer expert loads.

One child process serves all scenarios (scenarios.py), in this environment or in the one that NPUBENCH_VLLM_PYTHON
names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from engines.written_shapes import DENSE, MOE

from pytest_npubench.engines.model_directory import write_model_directory
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.vllm.process import PYTHON_VARIABLE

from . import scenarios

Answers = dict[str, dict[str, Any]]
ROOT = Path(__file__).parents[4]
PROMPT_TOKENS = sum(prompt_tokens for prompt_tokens, _, _ in scenarios.STAGGERED)


@pytest.fixture(scope="module")
def models(directories: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("named")
    named = {name: write_model_directory(folder / name, decoder_shape(name)) for name in scenarios.NAMED}
    return {"moe": directories[MOE.name], "dense": directories[DENSE.name], **named}


@pytest.fixture(scope="module")
def answers(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Answers:
    python = os.environ.get(PYTHON_VARIABLE) or (sys.executable if find_spec("vllm") else None)
    if python is None:
        pytest.skip(f"vLLM is not installed here, and {PYTHON_VARIABLE} names no environment with it")
    folder = tmp_path_factory.mktemp("layered")
    plan, answer = folder / "plan.json", folder / "answer.json"
    runs = {"models": models, "runs": scenarios.all_runs()}
    plan.write_text(json.dumps(runs, default=str), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
        "OMP_NUM_THREADS": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9",  # nothing listens there: a look at the network would fail
    }
    child = subprocess.run(
        [python, "-m", f"{__package__}.child", str(plan), str(answer)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert child.returncode == 0, child.stdout[-8000:]
    loaded: Answers = json.loads(answer.read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize("policy", ["chunked 32", "layered", "hybrid"])
def test_tokens_are_those_of_chunked_prefill(answers: Answers, policy: str) -> None:
    assert answers[policy]["tokens"] == answers["chunked 1024"]["tokens"]
    assert [len(tokens) for tokens in answers[policy]["tokens"].values()] == [n for _, n, _ in scenarios.STAGGERED]


@pytest.mark.parametrize("name", scenarios.NAMED)
def test_tokens_are_those_of_transformers(answers: Answers, models: dict[str, Path], name: str) -> None:
    """The named shapes of both suites, Llama and Qwen3-MoE, by the reference implementation."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = transformers.AutoModelForCausalLM.from_pretrained(models[name], dtype=torch.float32)
    for request in scenarios.requests(scenarios.SHORT):
        ids = torch.tensor([request["prompt"]])
        generated = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, eos_token_id=None, pad_token_id=0,
            max_new_tokens=request["output_tokens"],
        )  # fmt: skip
        assert answers[name]["tokens"][str(request["id"])] == generated[0, ids.shape[1] :].tolist()


def test_tokens_depend_on_the_prompt(answers: Answers) -> None:
    """Else identical tokens would say nothing."""
    assert len({tuple(tokens) for tokens in answers["layered"]["tokens"].values()}) == len(scenarios.STAGGERED)
    assert len({token for tokens in answers["layered"]["tokens"].values() for token in tokens}) > 20


def test_expert_activations_fall(answers: Answers) -> None:
    """A chunk of 32 loads experts again and again; whole prompts, layer group by layer group, load them once."""
    activations = {policy: answers[policy]["activations"] for policy in scenarios.POLICIES}
    assert activations["layered"] < activations["chunked 32"]
    assert activations["hybrid"] < activations["chunked 32"]
    assert all(answers[policy]["expert_layers"] == MOE.num_layers for policy in scenarios.POLICIES)


@pytest.mark.parametrize("policy", ["layered", "hybrid"])
def test_the_worker_counts_what_the_hooks_count(answers: Answers, policy: str) -> None:
    assert answers[policy]["counts"]["num_activations"] == answers[policy]["activations"]


@pytest.mark.parametrize("policy", ["layered", "hybrid"])
def test_each_prompt_token_ran_once_in_each_layer(answers: Answers, policy: str) -> None:
    counts = answers[policy]["counts"]
    assert counts["num_token_layers"] == PROMPT_TOKENS * MOE.num_layers
    assert counts["num_stages"] > counts["num_whole_stages"]


@pytest.mark.parametrize("policy", ["layered", "hybrid", "tight layered", "abort"])
def test_hidden_states_are_held_and_freed(answers: Answers, policy: str) -> None:
    counts = answers[policy]["counts"]
    assert counts["hidden_bytes"] == 0 < counts["peak_hidden_bytes"]


def test_a_merged_batch_holds_two_vectors_a_token(answers: Answers) -> None:
    """No more than the largest batch that set off: the prompts of 200 and 77 tokens at most, in fp32."""
    assert answers["layered"]["counts"]["peak_hidden_bytes"] <= PROMPT_TOKENS * 2 * MOE.hidden * 4
    assert answers["hybrid"]["counts"]["peak_hidden_bytes"] == 128 * 2 * MOE.hidden * 4


def test_a_dense_model_gives_the_same_tokens(answers: Answers) -> None:
    assert answers["dense layered"]["tokens"] == answers["dense chunked 1024"]["tokens"]
    assert answers["dense layered"]["activations"] == 0


@pytest.mark.parametrize("policy", ["chunked 1024", "layered", "hybrid"])
def test_tokens_survive_preemption(answers: Answers, policy: str) -> None:
    assert answers["roomy"]["preemptions"] == 0
    assert answers[f"tight {policy}"]["preemptions"] > 0
    assert answers[f"tight {policy}"]["tokens"] == answers["roomy"]["tokens"]


def test_tokens_survive_a_preemption_between_two_stages(answers: Answers) -> None:
    assert answers["in flight"]["counts"]["num_left_in_flight"] > 0
    assert answers["in flight"]["preemptions"] > 0
    assert answers["in flight"]["tokens"] == answers["in flight, chunked"]["tokens"]


@pytest.mark.parametrize("policy", ["layered", "hybrid"])
def test_tokens_of_a_random_load_in_a_tight_cache(answers: Answers, policy: str) -> None:
    assert answers[f"random {policy}"]["preemptions"] > 0
    assert answers[f"random {policy}"]["tokens"] == answers["random chunked"]["tokens"]
    assert answers[f"random {policy}"]["counts"]["hidden_bytes"] == 0


def test_who_is_aborted_between_two_stages_changes_nobody_s_tokens(answers: Answers) -> None:
    aborted, others = answers["abort"]["tokens"], dict(answers["chunked 1024"]["tokens"])
    assert answers["abort"]["counts"]["num_left_in_flight"] == 1
    assert len(aborted.pop("1")) < len(others.pop("1"))
    assert aborted == others


@pytest.mark.parametrize("kind", ["seeded", "scored"])
def test_what_a_stage_cannot_give_runs_whole(answers: Answers, kind: str) -> None:
    """Random draws with a seed, and log probabilities of a prompt."""
    layered, chunked = answers[f"{kind} layered"], answers[f"{kind} chunked 1024"]
    assert layered["tokens"] == chunked["tokens"]
    assert layered["counts"]["num_whole_stages"] == layered["counts"]["num_stages"]
    assert layered["scores"].keys() == chunked["scores"].keys()
    for request, scores in layered["scores"].items():
        assert scores == pytest.approx(chunked["scores"][request], abs=1e-4)


def test_prompt_scores_were_given(answers: Answers) -> None:
    assert len(answers["scored layered"]["scores"]) == len(scenarios.STAGGERED)
    assert answers["seeded layered"]["tokens"] != answers["layered"]["tokens"]


@pytest.mark.parametrize(
    ("wrong", "how"),
    [
        ("prefix caching", "--no-enable-prefix-caching"),
        ("graphs", "--enforce-eager"),
        ("a stock worker", "--worker-cls pytest_npubench"),
        ("a stock scheduler", "--scheduler-cls pytest_npubench"),
        ("chunking", "--no-enable-chunked-prefill"),
    ],
)
def test_vllm_does_not_start_where_tokens_could_be_wrong(answers: Answers, wrong: str, how: str) -> None:
    assert "ConfigError: layered prefill in vLLM cannot start" in answers["refusals"][wrong]
    assert how in answers["refusals"][wrong]
