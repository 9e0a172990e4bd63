"""Asks the serving engine for its answers to the probe prompts under each policy, and holds them against each other.

A policy decides when a token is computed, not what it is. So these must agree with the answers under chunked prefill,
whatever their plans:

    POLICY        each other policy of the profile, in a cache that was full of junk
    odd chunks    chunks that end inside of those compared, and inside of blocks of the KV cache
    little room   a KV cache that holds all prompts and no token more, so that requests are preempted
    alone         the answer behind a prompt and its forced tokens, prefilled in one piece, alone

and after a change of either half of a prompt but its last token, the engine must answer something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pytest_npubench.campaign.answer_visit import AnswerVisit, answer_visit
from pytest_npubench.engines.answer_reference import answer_reference
from pytest_npubench.engines.answers import Answers, Logits, distances, root_mean_square
from pytest_npubench.engines.probe import Asked, ProbePrompts, probe_prompts
from pytest_npubench.engines.request_batch import Prompt
from pytest_npubench.serving.clock import WallClock
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.scheduling.pair import POLICY as ON_TWO_DEVICES
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import all_at_once, scheduler_of, served
from pytest_npubench.suites.scheduling.service import AskedExecutor
from pytest_npubench.suites.scheduling.spec import LoadSpec

AGAINST = "chunked"
CHUNKS = 2  # of the longest prompt
CACHE_PARTS = 6  # all prompts have less than three times the tokens of the longest
NUM_COMPARED = 6  # forced tokens of walks that are held against the first one


def asked(plan: ServingPlan, executor: AskedExecutor, folder: Path) -> AnswerVisit:
    """Nothing is timed. The float64 reference is kept in `folder`. Raises MeasurementError where an answer is no
    number."""
    prompts = _prompts(plan)
    asking = _Asking(plan, executor, prompts)
    logits = asking.answers()
    executor.fill_cache_with_junk()
    others = {
        policy: asking.under(_point(plan, policy))
        for policy in plan.size.policies
        if policy not in (AGAINST, ON_TWO_DEVICES)
    }
    others["odd chunks"] = asking.in_odd_chunks()
    others["little room"] = asking.in_little_room()
    apart = {name: distances(answers, logits[:, : answers.shape[1]]) for name, answers in others.items()}
    apart["alone"] = distances(asking.alone(), logits[:, -1:])
    farthest = _farthest if plan.shape.is_dense or plan.serving.dtype == "fp32" else _together
    bits, made_bits = executor.weights_bits()
    answers = Answers(
        logits=logits,
        agree={name: farthest(found) for name, found in apart.items()},
        differ={name: distances(found, logits[:, 0]) for name, found in asking.changed().items()},
        weights_bits=bits,
        made_bits=made_bits,
    )
    return answer_visit(answers, answer_reference(plan.shape, plan.serving.dtype, prompts, folder), prompts)


def _prompts(plan: ServingPlan) -> ProbePrompts:
    """Around the edge of one chunk, the longest of CHUNKS chunks, so far as all of them fit the KV cache."""
    room = plan.serving.kv_capacity_tokens // CACHE_PARTS
    edges = {min(chunks * plan.serving.tokens_per_iteration, room) for chunks in (1, CHUNKS)}
    return probe_prompts(plan.shape.vocab_size, sorted(edges))


def _farthest(apart: Logits) -> Logits:
    """Of each prompt [prompts], over its positions."""
    farthest: Logits = apart.max(axis=-1)
    return farthest


def _together(apart: Logits) -> Logits:
    """Of all answers, and so the same of each prompt [prompts]: ties between experts move a single one far."""
    return np.full(len(apart), root_mean_square(apart))


class _Asking:
    """One executor with probe weights."""

    def __init__(self, plan: ServingPlan, executor: AskedExecutor, prompts: ProbePrompts) -> None:
        self._plan, self._executor, self._prompts = plan, executor, prompts
        self._indices = range(len(prompts.lengths))
        self._whole = [Asked(prompts.prompt(index), prompts.forced(index)) for index in self._indices]

    def answers(self) -> Logits:
        """[prompts, positions, NUM_FIXED] to all prompts at once."""
        return self._answers(self._whole, _point(self._plan, AGAINST), self._plan)

    def under(self, point: ServedPoint, plan: ServingPlan | None = None) -> Logits:
        """Of the first NUM_COMPARED forced tokens under another policy or plan."""
        begun = [Asked(one.prompt, one.forced[:NUM_COMPARED]) for one in self._whole]
        return self._answers(begun, point, plan or self._plan)

    def in_odd_chunks(self) -> Logits:
        chunk = self._plan.serving.tokens_per_iteration * 2 // 3 + 1
        return self.under(replace(_point(self._plan, AGAINST), settings=(("chunk_size_tokens", chunk),)))

    def in_little_room(self) -> Logits:
        serving = self._plan.serving
        blocks = sum(-(-length // serving.block_size_tokens) for length in self._prompts.lengths)
        plan = replace(self._plan, serving=replace(serving, kv_capacity=blocks * serving.block_size_tokens))
        return self.under(all_at_once(plan), plan)

    def alone(self) -> Logits:
        """The last answer to each prompt [prompts, 1, NUM_FIXED]."""
        alone = [Asked(np.concatenate(whole), whole.forced[:0]) for whole in self._whole]
        return np.concatenate([self._answers([one], all_at_once(self._plan), self._plan) for one in alone])

    def changed(self) -> dict[str, Logits]:
        """The first answers [prompts, NUM_FIXED] to prompts that were changed, by where."""
        halves = {
            "first half": [
                _changed(one.prompt, slice(0, len(one.prompt) // 2), self._prompts.junk) for one in self._whole
            ],
            "second half": [
                _changed(one.prompt, slice(len(one.prompt) // 2, -1), self._prompts.junk) for one in self._whole
            ],
        }
        return {
            name: self._answers([Asked(one, one[:0]) for one in changed], all_at_once(self._plan), self._plan)[:, 0]
            for name, changed in halves.items()
        }

    def _answers(self, requests: Sequence[Asked], point: ServedPoint, plan: ServingPlan) -> Logits:
        self._executor.ask(requests)
        load = OpenLoad(
            [
                ServingRequest(
                    id=index,
                    arrival_s=0.0,
                    prompt_tokens=len(request.prompt),
                    output_tokens=len(request.forced) + 1,
                )
                for index, request in enumerate(requests)
            ]
        )
        serve(load, scheduler_of(plan, point), self._executor, WallClock())
        return np.stack(self._executor.answers())


def _point(plan: ServingPlan, policy: str) -> ServedPoint:
    return served(policy, plan, LoadSpec(model=plan.model, workload="probe prompts"))


def _changed(prompt: Prompt, part: slice, num_tokens: int) -> Prompt:
    """The prompt with other tokens in a part; no token is num_tokens."""
    changed: Prompt = prompt.copy()
    changed[part] = (changed[part] + 1) % num_tokens
    return changed
