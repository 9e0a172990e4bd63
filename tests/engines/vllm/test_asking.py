"""Answers of vLLM by log-probabilities, from a server of the tests' own to the verdict. No vLLM runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace

import pytest

from pytest_npubench.campaign.answer_judgement import judge_answers
from pytest_npubench.campaign.answer_visit import answer_visit
from pytest_npubench.engines.answer_reference import no_reference
from pytest_npubench.engines.probe import probe_prompts
from pytest_npubench.engines.shapes import SHAPES
from pytest_npubench.engines.vllm.answer import NewTokens, VllmAnswer, VllmRequest, VllmRun
from pytest_npubench.engines.vllm.bucket_engine import VllmBucketEngine
from pytest_npubench.engines.vllm.engine import _new_tokens
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.result import Judgement

VOCABULARY, BUCKETS = 64, (64, 128)
Seen = Callable[[Sequence[int], int, int], Sequence[object]]
"""What the model sees of a text before a token, where its prompt ends and how many are in the batch."""


def all_of_it(before: Sequence[int], prompt_tokens: int, batch: int) -> Sequence[object]:
    return before


class Model:
    """A token and its log-probability hang on what the model sees of the text before it."""

    def __init__(self, sees: Seen = all_of_it) -> None:
        self._sees = sees

    def serve(self, requests: Sequence[VllmRequest]) -> VllmRun:
        assert all(request.tells_logprobs for request in requests)
        assert all(len(request.prompt) + request.output_tokens - 1 <= BUCKETS[-1] for request in requests)
        answers = tuple(self._answer(request, len(requests)) for request in requests)
        return VllmRun(answers=answers, iterations=(), ended_s=1.0)

    def close(self) -> None:
        """Nothing was started."""

    def _answer(self, request: VllmRequest, batch: int) -> VllmAnswer:
        tokens = list(request.prompt)
        for _ in range(request.output_tokens):
            tokens.append(self._draw(tokens, len(request.prompt), batch).randrange(VOCABULARY))
        logprobs = [
            -self._draw((*tokens[:index], -token), len(request.prompt), batch).random()
            for index, token in enumerate(tokens)
        ]
        return VllmAnswer(
            request=request,
            tokens=tuple(tokens[len(request.prompt) :]),
            prompt_logprobs=tuple(logprobs[1 : len(request.prompt)]),
            logprobs=tuple(logprobs[len(request.prompt) :]),
        )

    def _draw(self, text: Sequence[int], prompt_tokens: int, batch: int) -> Random:
        return Random(str(list(self._sees(text, prompt_tokens, batch))))


def judged(model: Model, batch_size: int = 2) -> Judgement:
    engine = VllmBucketEngine(model, vocab_size=VOCABULARY, batch_size=batch_size, buckets=BUCKETS)
    prompts = probe_prompts(VOCABULARY, BUCKETS)
    answers = engine.answers(prompts)
    assert not answers.is_of_probe
    reference = no_reference(SHAPES["tiny-llama"], "bf16", answers.logits.shape[1])
    return judge_answers(answer_visit(answers, reference, prompts), "bf16")


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_a_sound_engine_is_consistent_and_not_compared(batch_size: int) -> None:
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


def test_log_probabilities_are_those_of_the_tokens_themselves() -> None:
    """As vLLM hands them over: by token, with the most likely one beside it; the first of a prompt has none."""

    def told(token: int, logprob: float) -> dict[int, SimpleNamespace]:
        return {7: SimpleNamespace(logprob=-0.01), token: SimpleNamespace(logprob=logprob)}

    output = SimpleNamespace(
        request_id="3",
        prompt_token_ids=[5, 6, 8],
        prompt_logprobs=[None, told(6, -1.5), told(8, -2.5)],
        outputs=[SimpleNamespace(token_ids=[9], logprobs=[told(9, -0.5)], finish_reason="length")],
        metrics=SimpleNamespace(last_token_ts=2.0, scheduled_ts=1.0, num_preemptions=0),
        finished=True,
    )
    expected = NewTokens(
        request=3,
        tokens=(9,),
        at_s=2.0,
        scheduled_at_s=1.0,
        num_preemptions=0,
        finished=True,
        logprobs=(-0.5,),
        prompt_logprobs=(-1.5, -2.5),
    )
    assert _new_tokens(output) == expected
    output.prompt_logprobs = output.outputs[0].logprobs = None
    assert _new_tokens(output).logprobs == _new_tokens(output).prompt_logprobs == ()
