"""Answers of vLLM by log-probabilities, from a server of the tests' own to the verdict. No vLLM runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace

import pytest

from pytest_npubench.campaign.answer_judgement import judge_answers
from pytest_npubench.campaign.answer_visit import answer_visit
from pytest_npubench.engines.answer_reference import answer_reference
from pytest_npubench.engines.probe import probe_prompts
from pytest_npubench.engines.shapes import SHAPES
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.vllm.answer import NewTokens, VllmAnswer, VllmRequest, VllmRun
from pytest_npubench.extensions.vllm.asking import answered
from pytest_npubench.extensions.vllm.bucket_engine import VllmBucketEngine
from pytest_npubench.extensions.vllm.engine import _new_tokens
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.result import Judgement

VOCABULARY, BUCKETS = 64, (64, 128)
TOO_WIDE = dataclasses.replace(SHAPES["tiny-llama"], intermediate=10**9)
Seen = Callable[[Sequence[int], int, int], Sequence[object]]
"""What the model sees of a text before a token, where its prompt ends and how many are in the batch."""


def all_of_it(before: Sequence[int], prompt_tokens: int, batch: int) -> Sequence[object]:
    return before


class Model:
    """A token's log-probability hangs on what the model sees of the text before it. vLLM is forced by token alone."""

    def __init__(self, sees: Seen = all_of_it) -> None:
        self._sees = sees

    def serve(self, requests: Sequence[VllmRequest]) -> VllmRun:
        assert all(len(request.prompt) + request.output_tokens - 1 <= BUCKETS[-1] for request in requests)
        answers = tuple(self._answer(request, len(requests)) for request in requests)
        return VllmRun(answers=answers, iterations=(), ended_s=1.0)

    def close(self) -> None:
        """Nothing was started."""

    def _answer(self, request: VllmRequest, batch: int) -> VllmAnswer:
        texts = [(*request.prompt, *[request.forced] * step) for step in range(request.output_tokens)]
        told = [Random(str(list(self._sees(text, len(request.prompt), batch)))) for text in texts]
        return VllmAnswer(
            request=request,
            tokens=(request.forced or 0,) * request.output_tokens,
            logprobs=tuple(tuple(random.random() for _ in request.scored) for random in told),
        )


def judged(model: Model, batch_size: int = 2) -> Judgement:
    engine = VllmBucketEngine(model, vocab_size=VOCABULARY, batch_size=batch_size, buckets=BUCKETS)
    answers = engine.answers(probe_prompts(VOCABULARY, BUCKETS))
    reference = answer_reference(TOO_WIDE, "bf16", answers.prompts)
    return judge_answers(answer_visit(answers, reference), "bf16")


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_a_sound_engine_is_consistent_and_not_compared_where_no_reference_is_affordable(batch_size: int) -> None:
    found = judged(Model(), batch_size)
    assert found.verdict.kind is VerdictKind.PASSED
    assert found.verdict.reason.startswith("answers consistent, not compared: there is no reference; ")
    assert [metric.name for metric in found.metrics] == ["answer_change", "inconsistent_pairs"]


FAULTS: dict[str, Seen] = {
    "alone": lambda before, prompt_tokens, batch: [*before, batch],
    "prefill": lambda before, prompt_tokens, batch: before if len(before) <= prompt_tokens else before[1:],
    "first half": lambda before, prompt_tokens, batch: before[-3:],
}


@pytest.mark.parametrize("pair", FAULTS)
def test_what_batches_decode_or_a_lost_context_change_is_found(pair: str) -> None:
    found = judged(Model(FAULTS[pair]))
    assert found.verdict.kind is VerdictKind.FAILED
    assert pair in found.verdict.reason


def test_a_request_that_failed_is_the_reason() -> None:
    def serve(requests: Sequence[VllmRequest]) -> list[VllmAnswer]:
        return [VllmAnswer(request=request, failed="the engine died") for request in requests]

    with pytest.raises(MeasurementError, match="5 of 5 prompts failed: the engine died"):
        answered(serve, probe_prompts(VOCABULARY, BUCKETS).asked(), VOCABULARY)


def test_log_probabilities_are_those_of_the_scored_tokens() -> None:
    """As vLLM hands them over: by token, with the one that it went on with among them."""
    logprobs = {7: SimpleNamespace(logprob=-0.01), 9: SimpleNamespace(logprob=-2.5), 8: SimpleNamespace(logprob=-1.5)}
    output = SimpleNamespace(
        request_id="3",
        outputs=[SimpleNamespace(token_ids=[7], logprobs=[logprobs], finish_reason="length")],
        metrics=SimpleNamespace(last_token_ts=2.0, scheduled_ts=1.0, num_preemptions=0),
        finished=True,
    )
    expected = NewTokens(
        request=3,
        tokens=(7,),
        at_s=2.0,
        scheduled_at_s=1.0,
        num_preemptions=0,
        finished=True,
        logprobs=((-1.5, -2.5),),
    )
    assert _new_tokens(output, (8, 9)) == expected
    output.outputs[0].logprobs = None
    assert _new_tokens(output, ()).logprobs == ()
