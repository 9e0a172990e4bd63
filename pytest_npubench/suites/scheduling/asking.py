"""Asks the serving engine for its answers to the probe prompts under each policy, and holds them against each other.

A policy decides when a token is computed, not what it is. So these must agree with the answers under chunked prefill,
whatever their plans:

    POLICY        each other policy of the profile that the engine has, in a cache that was full of junk
    odd chunks    chunks that end inside of those compared, and inside of blocks of the KV cache
    little room   a KV cache that holds all prompts and no token more, so that requests are preempted
    alone         the answer behind a prompt and its forced tokens, prefilled in one piece, alone

and after a change of either half of a prompt but its last token, the engine must answer something else.

An engine that schedules by itself has the KV cache that it was started with, so it is not asked in little room, and
what is in its cache is what it was asked before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from pytest_npubench.campaign.answer_visit import AnswerVisit, answer_visit
from pytest_npubench.engines.answer_reference import answer_reference
from pytest_npubench.engines.answers import Answers, Logits, distances, root_mean_square
from pytest_npubench.engines.probe import Asked, ProbePrompts, probe_prompts
from pytest_npubench.serving.clock import WallClock
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.scheduling.pair import POLICY as ON_TWO_DEVICES
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import all_at_once, scheduler_of, served
from pytest_npubench.suites.scheduling.service import AskedExecutor, BlockServer
from pytest_npubench.suites.scheduling.spec import LoadSpec

AGAINST = "chunked"
CHUNKS = 2  # of the longest prompt
CACHE_PARTS = 6  # all prompts have less than three times the tokens of the longest
NUM_COMPARED = 6  # forced tokens of walks that are held against the first one


def asked(plan: ServingPlan, executor: AskedExecutor, folder: Path) -> AnswerVisit:
    """Nothing is timed. The float64 reference is kept in `folder`. Raises MeasurementError where an answer is no
    number."""
    prompts = _prompts(plan)
    asking = _Asking(plan, prompts, partial(_served, plan, executor))
    logits = asking.answers()
    executor.fill_cache_with_junk()
    less = _with_little_room(plan, prompts)
    little_room = _Asking(less, prompts, partial(_served, less, executor)).under(all_at_once(less))
    bits, made_bits = executor.weights_bits()
    answers = asking.compared(logits, {"little room": little_room})
    return _visit(plan, replace(answers, weights_bits=bits, made_bits=made_bits), folder)


def asked_of_server(plan: ServingPlan, server: BlockServer, folder: Path) -> AnswerVisit:
    """The same of an engine that schedules by itself. Raises what it raises."""
    asking = _Asking(plan, _prompts(plan).with_one_token(), server.answers)
    return _visit(plan, replace(asking.compared(asking.answers(), {}), weights=server.weights), folder)


def _visit(plan: ServingPlan, answers: Answers, folder: Path) -> AnswerVisit:
    reference = answer_reference(plan.shape, plan.serving.dtype, answers.prompts, folder, answers.weights)
    return answer_visit(answers, reference)


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
    """One engine, which answers [requests, positions, NUM_FIXED] to requests under the policy of a point."""

    def __init__(
        self, plan: ServingPlan, prompts: ProbePrompts, answer: Callable[[ServedPoint, Sequence[Asked]], Logits]
    ) -> None:
        self._plan, self._prompts, self._answer = plan, prompts, answer
        self._against = _point(plan, AGAINST)

    def answers(self) -> Logits:
        """To all prompts at once."""
        return self._answer(self._against, self._prompts.asked())

    def compared(self, logits: Logits, others: Mapping[str, Logits]) -> Answers:
        """These answers, beside all others that must agree with them or differ."""
        others = {**others, "odd chunks": self.under(_in_odd_chunks(self._plan, self._against)), **self._policies()}
        apart = {name: distances(answers, logits[:, : answers.shape[1]]) for name, answers in others.items()}
        apart["alone"] = distances(self._alone(), logits[:, -1:])
        differ = {
            half: self._answer(all_at_once(self._plan), edited) for half, edited in self._prompts.changed().items()
        }
        farthest = _farthest if self._plan.shape.is_dense or self._plan.serving.dtype == "fp32" else _together
        return Answers(
            prompts=self._prompts,
            logits=logits,
            agree={name: farthest(distance) for name, distance in apart.items()},
            differ={half: distances(answers, logits[:, :1])[:, 0] for half, answers in differ.items()},
        )

    def under(self, point: ServedPoint) -> Logits:
        """Of the first NUM_COMPARED forced tokens."""
        return self._answer(point, [Asked(one.prompt, one.forced[:NUM_COMPARED]) for one in self._prompts.asked()])

    def _policies(self) -> dict[str, Logits]:
        points = [
            _point(self._plan, name) for name in self._plan.size.policies if name not in (AGAINST, ON_TWO_DEVICES)
        ]
        return {
            point.policy: self.under(point)
            for point in points
            if not self._plan.service.why_unsupported(self._plan, [point])
        }

    def _alone(self) -> Logits:
        """The last answer to each prompt [prompts, 1, NUM_FIXED]."""
        whole = [Asked(np.concatenate(asked), asked.forced[:0]) for asked in self._prompts.asked()]
        return np.concatenate([self._answer(all_at_once(self._plan), [one]) for one in whole])


def _served(plan: ServingPlan, executor: AskedExecutor, point: ServedPoint, requests: Sequence[Asked]) -> Logits:
    """By our scheduler's plans."""
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
    return np.stack(executor.answers())


def _with_little_room(plan: ServingPlan, prompts: ProbePrompts) -> ServingPlan:
    block = plan.serving.block_size_tokens
    return replace(
        plan,
        serving=replace(plan.serving, kv_capacity=block * sum(-(-length // block) for length in prompts.lengths)),
    )


def _in_odd_chunks(plan: ServingPlan, point: ServedPoint) -> ServedPoint:
    chunk = plan.serving.tokens_per_iteration * 2 // 3 + 1
    return replace(point, settings=tuple({**dict(point.settings), "chunk_size_tokens": chunk}.items()))


def _point(plan: ServingPlan, policy: str) -> ServedPoint:
    return served(policy, plan, LoadSpec(model=plan.model, workload="probe prompts"))
