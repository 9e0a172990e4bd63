"""What served blocks, prompts and decode batches did, by the engine's counters, and times that no device has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.suites.scheduling.points import DecodePoint, DecodeSteps, PromptPoint, PromptVisit
from pytest_npubench.suites.scheduling.policies import served
from pytest_npubench.suites.scheduling.work import impossible, work_of

from .conftest import kept, serving_plan

PLAN = serving_plan()
ON_TWO = replace(PLAN, spec=replace(PLAN.spec, tensor_parallel=2))
"""Of the cost model's two devices."""
(LOAD, _) = PLAN.serving.loads
POLICIES = [served(policy, PLAN, LOAD) for policy in ("layered", "chunked", "hybrid", "static")]
STEP = DecodePoint(batch_size=8, context_tokens=16)
PROMPT = PromptPoint(prompt_tokens=1024, chunk_size_tokens=512)


def test_a_block_runs_every_token_once_under_every_policy(make_bench):
    for point in POLICIES:
        bench, _ = make_bench(PLAN, [point])
        found = Measured(rounds=[kept(point, bench.sample(point, index)) for index in range(2)])
        assert work_of([point], found) == {
            "requests": 10,
            "prefilled / prompt tokens": pytest.approx(1),
            "decoded / asked": 1,
            "answered / asked": 1,
        }
        assert impossible(ON_TWO, [point], found) == ""
        for row in found.rounds:
            row[f"{point.name}/iteration.num_decode"] = [0 for _ in row[f"{point.name}/iteration.num_decode"][:-1]] + [
                9
            ]
        decoded = sum(output - 1 for row in found.rounds for output in row[f"{point.name}/request.output_tokens"])
        assert work_of([point], found)["decoded / asked"] == pytest.approx(2 * 9 / decoded)


def test_prompts_and_steps_show_their_counters():
    steps = DecodeSteps(step_s=(0.01, 0.01), expert_activations=(40, 42))
    prompt = PromptVisit(prefill_s=0.1, expert_load_bytes=4096)
    found = Measured(rounds=[{**kept(STEP, steps), **kept(PROMPT, prompt)}] * 2, failures={"idle": "no counter"})
    want = {"decode steps": 2, "expert activations": 82, "expert load bytes": 4096}
    assert work_of([STEP, PROMPT, STEP], found) == want
    found.failures[STEP.name] = "out of memory"
    assert work_of([STEP, PROMPT], found) == {"expert load bytes": 4096}


@pytest.mark.parametrize(
    ("point", "of_bound", "is_possible"),
    [(STEP, 1.1, True), (STEP, 0.5, False), (PROMPT, 1.1, True), (PROMPT, 0.5, False)],
)
def test_the_weights_that_a_step_loads_take_their_time(point, of_bound, is_possible):
    """qwen3-30b-a3b on one H100, by hand: 48 layers of 18.9 million weights of attention and 262,144 of the router,
    311 million of the vocabulary, 2 bytes each; 9,437,184 bytes an expert; 2^28 bytes may be on the chip in a pass."""
    attention = 2048 * 128 * 2 * (32 + 4)
    shared = 2 * (48 * (attention + 2048 * 128) + 151_936 * 2048)
    experts = 400 * 9_437_184
    if point is STEP:
        least_s = (shared + experts - 2**28) / 3.35e12
        visit = DecodeSteps(step_s=(10 * least_s, of_bound * least_s), expert_activations=(400, 400))
    else:
        flops = 2 * 1024 * 48 * (attention + 2048 * 128 + 8 * 9_437_184 / 2)
        least_s = max(flops / 989.4e12, (experts - 2 * 2**28) / 3.35e12)
        visit = PromptVisit(prefill_s=of_bound * least_s, expert_load_bytes=experts)
    reason = impossible(PLAN, [point], Measured(rounds=[kept(point, visit)]))
    assert (reason == "") is is_possible
    assert is_possible or reason.startswith("faster than the device can be (0.5 of the time that its ")
