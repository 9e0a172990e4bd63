"""What vLLM answers to the probe prompts, by log-probabilities of their tokens: logits of others it does not tell.

vLLM reads its weights from a directory, so they are not those of probe.py, and there is no reference. An answer is
NUM_FIXED log-probabilities: of the last tokens of a prompt, which prefill tells, and of as many tokens that follow it
greedily, which decode tells. These must agree with them:

    alone     each prompt by itself, in the place of a batch
    prefill   the greedy tokens as part of a prompt

and, after a change of either half of the prompt, prefill must tell something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pytest_npubench.engines.answers import Answers, Logits, distances
from pytest_npubench.engines.probe import NUM_FIXED, ProbePrompts
from pytest_npubench.engines.request_batch import Prompt
from pytest_npubench.engines.vllm.answer import VllmAnswer

Told = Callable[[Sequence[Prompt], int], Sequence[VllmAnswer]]
"""Prompts that are served together, and how many tokens follow each."""


def answers_of(tell: Told, prompts: ProbePrompts, most_tokens: int, batch_size: int) -> Answers:
    """Of an engine whose requests have at most so many tokens."""
    whole = [
        np.concatenate([prompts.prompt(index), prompts.forced(index)])[: most_tokens - NUM_FIXED]
        for index in range(len(prompts.lengths))
    ]

    def told(asked: Sequence[Prompt], num_tokens: int, together: int = batch_size) -> list[VllmAnswer]:
        starts = range(0, len(asked), together)
        return [answer for start in starts for answer in tell(asked[start : start + together], num_tokens)]

    batched = told(whole, NUM_FIXED)
    logits = np.stack([_prefilled(batched), _decoded(batched)], axis=1)
    alone = told(whole, NUM_FIXED, together=1)
    longer = [np.append(asked, answer.tokens).astype(np.int32) for asked, answer in zip(whole, batched, strict=True)]
    halves = {
        "first half": [_changed(asked, slice(0, len(asked) // 2), prompts.junk) for asked in whole],
        "second half": [_changed(asked, slice(len(asked) // 2, None), prompts.junk) for asked in whole],
    }
    return Answers(
        logits=logits,
        agree={
            "alone": distances(np.stack([_prefilled(alone), _decoded(alone)], axis=1), logits).max(axis=-1),
            "prefill": distances(_prefilled(told(longer, 1)), logits[:, 1]),
        },
        differ={name: distances(_prefilled(told(asked, 1)), logits[:, 0]) for name, asked in halves.items()},
        is_of_probe=False,
    )


def _prefilled(answers: Sequence[VllmAnswer]) -> Logits:
    """Of the last tokens of each prompt [prompts, NUM_FIXED]."""
    return np.stack([_padded(answer.prompt_logprobs[-NUM_FIXED:]) for answer in answers])


def _decoded(answers: Sequence[VllmAnswer]) -> Logits:
    """Of the tokens behind each prompt [prompts, NUM_FIXED]."""
    return np.stack([_padded(answer.logprobs[:NUM_FIXED]) for answer in answers])


def _padded(logprobs: Sequence[float]) -> Logits:
    """A prompt shorter than NUM_FIXED has less."""
    return np.pad(np.asarray(logprobs, np.float64), (0, NUM_FIXED - len(logprobs)))


def _changed(prompt: Prompt, part: slice, num_tokens: int) -> Prompt:
    changed: Prompt = prompt.copy()
    changed[part] = (changed[part] + 1) % num_tokens
    return changed
