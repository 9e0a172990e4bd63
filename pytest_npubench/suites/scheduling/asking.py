"""Asks the serving engine for its answers to the probe prompts under each policy, and holds them against each other.

A policy decides when a token is computed, not what it is. So these must agree with the answers under chunked prefill,
whatever their plans:

    POLICY        each other policy of the profile that the engine has, in a cache that was full of junk
    odd chunks    chunks that end inside of prompts and of blocks of the KV cache, which holds all prompts and no token
                  more, so that requests are preempted
    alone         the answer behind each of the longest prompts and its forced tokens, prefilled in one piece, alone

and after a change of either half of the longest prompt but its last token, the engine must answer something else. A
small model on a processor gives its answers under chunked prefill on as many threads as it is timed with, all others on
one.

An engine that schedules by itself has the KV cache that it was started with, so that nothing is preempted, and what is
in its cache is what it was asked before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from pytest_npubench.campaign.answer_visit import AnswerVisit, answer_visit
from pytest_npubench.engines.answer_reference import answer_reference
from pytest_npubench.engines.answers import Answers, Logits, check_finite, distances, root_mean_square
from pytest_npubench.engines.probe import Asked, ProbePrompts, probe_prompts
from pytest_npubench.serving.clock import WallClock
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.scheduling.pair import POLICY as ON_TWO_DEVICES
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import all_at_once, scheduler_of, served
from pytest_npubench.suites.scheduling.service import AskedExecutor, BlockServer, service_of
from pytest_npubench.suites.scheduling.spec import LoadSpec

AGAINST = "chunked"
CHUNKS = 1.5  # of the longest prompt
CACHE_PARTS = 6  # all prompts have less than three times the tokens of the longest
SHORT = 5
NUM_FORCED = 3  # each step reads as many weights as the prefill of a chunk; none has to cross a bucket's edge
NUM_ALONE = 2  # of the longest prompts: one of each text


def asked(plan: ServingPlan, executor: AskedExecutor, folder: Path) -> AnswerVisit:
    """Nothing is timed. The float64 reference is kept in `folder`. Raises MeasurementError where an answer is no
    number."""
    prompts = _prompts(plan)
    asking = _Asking(plan, prompts, partial(_served, plan, executor))
    logits = asking.answers()
    executor.fill_cache_with_junk()
    less = _with_little_room(plan, prompts)
    with executor.on_one_thread():
        odd_chunks = _Asking(less, prompts, partial(_served, less, executor)).in_odd_chunks()
        answers = asking.compared(logits, odd_chunks)
    bits, made_bits = executor.weights_bits()
    return _visit(plan, replace(answers, weights_bits=bits, made_bits=made_bits), folder)


def asked_of_server(plan: ServingPlan, server: BlockServer, folder: Path) -> AnswerVisit:
    """Asks an engine that schedules by itself. Raises what it raises."""
    asking = _Asking(plan, _prompts(plan).with_one_token(), server.answers)
    answers = asking.compared(asking.answers(), asking.in_odd_chunks())
    return _visit(plan, replace(answers, weights=server.weights), folder)


def _visit(plan: ServingPlan, answers: Answers, folder: Path) -> AnswerVisit:
    reference = answer_reference(plan.shape, plan.serving.dtype, answers.prompts, folder, answers.weights)
    return answer_visit(answers, reference)


def _prompts(plan: ServingPlan) -> ProbePrompts:
    """Returns a short one, one of a chunk, whose steps need another block of the cache, and one that ends with CHUNKS
    chunks, so far as all of them fit the KV cache. Where experts are tied more are asked, around these edges."""
    room = plan.serving.kv_capacity_tokens // CACHE_PARTS
    chunk, largest = (min(int(chunks * plan.serving.tokens_per_iteration), room) for chunks in (1, CHUNKS))
    made = replace(probe_prompts(plan.shape.vocab_size, sorted({chunk, largest})), middles=())
    if _has_ties(plan):
        return made
    lengths = {min(length, largest - NUM_FORCED) for length in (SHORT, chunk, largest)}
    return replace(made, lengths=tuple(sorted(lengths)), num_forced=NUM_FORCED)


def _has_ties(plan: ServingPlan) -> bool:
    """Whether rounding may choose another expert, which moves a single answer far: then many answers are needed."""
    return not plan.shape.is_dense and plan.serving.dtype != "fp32"


def _farthest(apart: Logits) -> Logits:
    """Returns the largest distance of each prompt [prompts], over its positions."""
    farthest: Logits = apart.max(axis=-1)
    return farthest


def _together(apart: Logits) -> Logits:
    """Gives each prompt [prompts] the mean over all answers: ties between experts move a single one far."""
    return np.full(len(apart), root_mean_square(apart))


class _Asking:
    """One engine, which answers [requests, positions, NUM_FIXED] to requests under the policy of a point."""

    def __init__(
        self, plan: ServingPlan, prompts: ProbePrompts, answer: Callable[[ServedPoint, Sequence[Asked]], Logits]
    ) -> None:
        self._plan, self._prompts, self._answer = plan, prompts, answer
        self._against = _point(plan, AGAINST)

    def answers(self) -> Logits:
        """Answers all prompts at once."""
        return self._under(self._against)

    def in_odd_chunks(self) -> Logits:
        chunk = sum(self._prompts.lengths) * 2 // 3 + 1
        settings = {**dict(self._against.settings), "chunk_size_tokens": chunk}
        return self._under(replace(self._against, settings=tuple(settings.items())))

    def compared(self, logits: Logits, in_odd_chunks: Logits) -> Answers:
        """These answers, beside all others that must agree with them or differ."""
        others = {"odd chunks": in_odd_chunks, **self._policies()}
        farthest = _together if _has_ties(self._plan) else _farthest
        agree = {name: farthest(distances(answers, logits)) for name, answers in others.items()}
        alone = farthest(distances(self._alone(), logits[-NUM_ALONE:, -1:]))
        differ = {half: distances(answers, logits[-1:, 0]) for half, answers in self._changed().items()}

        def of_all(apart: Logits) -> Logits:
            return np.concatenate([np.full(len(logits) - len(apart), np.nan), apart])

        return Answers(
            prompts=self._prompts,
            logits=logits,
            agree={**agree, "alone": of_all(alone)},
            differ={half: of_all(apart) for half, apart in differ.items()},
        )

    def _under(self, point: ServedPoint) -> Logits:
        return self._answer(point, self._prompts.asked())

    def _policies(self) -> dict[str, Logits]:
        points = [
            _point(self._plan, name) for name in self._plan.size.policies if name not in (AGAINST, ON_TWO_DEVICES)
        ]
        return {
            point.policy: self._under(point)
            for point in points
            if not service_of(self._plan).why_unsupported(self._plan, [point])
        }

    def _alone(self) -> Logits:
        """Returns the last answer to each of the longest prompts [prompts, 1, NUM_FIXED]."""
        whole = [Asked(np.concatenate(asked), asked.forced[:0]) for asked in self._prompts.asked()[-NUM_ALONE:]]
        return np.concatenate([self._answer(all_at_once(self._plan), [one]) for one in whole])

    def _changed(self) -> dict[str, Logits]:
        """Returns the first answer to the longest prompt with a half changed [1, NUM_FIXED], by which."""
        longest = {half: requests[-1] for half, requests in self._prompts.changed().items()}
        return dict(zip(longest, self._answer(all_at_once(self._plan), tuple(longest.values())), strict=True))


def _served(plan: ServingPlan, executor: AskedExecutor, point: ServedPoint, requests: Sequence[Asked]) -> Logits:
    """Serves the requests by our scheduler's plans."""
    executor.ask(requests)
    load = OpenLoad(
        [
            ServingRequest(
                id=index, arrival_s=0.0, prompt_tokens=len(request.prompt), output_tokens=len(request.forced) + 1
            )
            for index, request in enumerate(requests)
        ]
    )
    serve(load, scheduler_of(plan, point), executor, WallClock())
    answers: Logits = np.stack(executor.answers())
    check_finite(answers)
    return answers


def _with_little_room(plan: ServingPlan, prompts: ProbePrompts) -> ServingPlan:
    block = plan.serving.block_size_tokens
    return replace(
        plan,
        serving=replace(plan.serving, kv_capacity=block * sum(-(-length // block) for length in prompts.lengths)),
    )


def _point(plan: ServingPlan, policy: str) -> ServedPoint:
    return served(policy, plan, LoadSpec(model=plan.model, workload="probe prompts"))
