"""What vLLM answers to the probe prompts, as log-probabilities of the fixed tokens (probe.fixed_tokens).

A log-probability is a logit less what all logits of its position have in common, which a distance leaves out. vLLM
can be forced to one token alone, so that each prompt goes on with one, again and again (ProbePrompts.with_one_token).
It reads its weights from a directory that we wrote, so that the host can make them again (written_weights.py).

In the bucket suite these must agree with answers in batches:

    alone     each prompt by itself
    prefill   the answer behind the forced tokens, these being a part of the prompt

and, after a change of either half of the prompt, it must answer something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pytest_npubench.engines.answers import Answers, Logits, check_finite, distances
from pytest_npubench.engines.probe import Asked, HostWeights, ProbePrompts, fixed_tokens
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.vllm.answer import VllmAnswer, VllmRequest

Serve = Callable[[Sequence[VllmRequest]], Sequence[VllmAnswer]]
"""Requests that are all there at once."""


def answered(serve: Serve, asked: Sequence[Asked], vocab_size: int) -> Logits:
    """Answers [requests, positions, NUM_FIXED] to requests of as many forced tokens each, all of one kind. Raises
    MeasurementError where a request fails."""
    answers = serve(
        [
            VllmRequest(
                id=index,
                arrival_s=0.0,
                prompt=tuple(prompt.tolist()),
                output_tokens=len(forced) + 1,
                scored=fixed_tokens(vocab_size),
                forced=int(forced[0]) if len(forced) else None,
            )
            for index, (prompt, forced) in enumerate(asked)
        ]
    )
    if failed := [answer.failed for answer in answers if answer.failed]:
        raise MeasurementError(f"{len(failed)} of {len(answers)} prompts failed: {failed[0]}")
    logprobs: Logits = np.array([answer.logprobs for answer in answers])
    check_finite(logprobs)
    return logprobs


def answers_in_batches(
    serve: Serve, prompts: ProbePrompts, vocab_size: int, batch_size: int, weights: HostWeights | None
) -> Answers:
    """Returns the answers of an engine that takes batch_size requests at a time; `weights` are the engine's."""
    prompts = prompts.with_one_token()

    def logits_of(asked: Sequence[Asked], together: int = batch_size) -> Logits:
        starts = range(0, len(asked), together)
        return np.concatenate([answered(serve, asked[start : start + together], vocab_size) for start in starts])

    asked = prompts.asked()
    logits = logits_of(asked)
    whole = [Asked(np.concatenate(each), each.forced[:0]) for each in asked]
    return Answers(
        prompts=prompts,
        logits=logits,
        agree={
            "alone": distances(logits_of(asked, together=1), logits).max(axis=-1),
            "prefill": distances(logits_of(whole)[:, 0], logits[:, -1]),
        },
        differ={half: distances(logits_of(edited)[:, 0], logits[:, 0]) for half, edited in prompts.changed().items()},
        weights=weights,
    )
