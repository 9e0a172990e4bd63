"""Asks a server for its greedy answers to fixed prompts: alone, alone again, and all at once.

Nobody knows a server's weights, so there is no reference: it must repeat itself, and its answers must depend on what it
is asked. Where it tells log-probabilities, those of the first tokens of each answer are kept, to be held against
accepted ones; the texts' checksum else. An answer that ends sooner is followed by tokens that are certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pytest_npubench.campaign.visits import Visit
from pytest_npubench.engines.answers import distances
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.greedy import GreedyAnswer, greedy_answer
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.server.prompts import Prompts

NUM_TOKENS = 16
DIGITS = 6
QUESTIONS = (
    "The capital of France is",
    "One, two, three, four, five,",
    "def fibonacci(n):",
    "A haiku about the sea:",
    "Water boils at a temperature of",
    "In German, the word for house is",
)
LENGTHS = (5, 17, 33, 64, 129, 200)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswers(Visit):
    """logprobs [prompts x NUM_TOKENS] of the answers alone, none where the server tells none. Of each prompt a distance
    from its first answer: of that given `again`, of that given `at_once` with all others, and of its neighbour's, which
    must be another. Of texts without log-probabilities it is 0 or 1. text: a checksum of all texts."""

    logprobs: tuple[float, ...]
    again: tuple[float, ...]
    at_once: tuple[float, ...]
    neighbour: tuple[float, ...]
    text: int

    signed: ClassVar[bool] = True


def fixed_prompts(form: str, token_ids: tuple[int, int]) -> list[str | tuple[int, ...]]:
    """Returns the same prompts in every run: questions as words, or token ids as the hardware file has them."""
    if form == "words":
        return list(QUESTIONS)
    prompts = Prompts(form=form, token_ids=token_ids, run="answers")
    return [prompts.prompt(length, str(length)) for length in LENGTHS]


def asked(endpoint: Endpoint, prompts: Sequence[str | tuple[int, ...]]) -> ServerAnswers:
    """Nothing is timed. Raises MeasurementError where one prompt has no answer, or an empty one."""

    def ask(prompt: str | tuple[int, ...]) -> GreedyAnswer:
        return greedy_answer(endpoint, prompt, NUM_TOKENS)

    alone, again = list(map(ask, prompts)), list(map(ask, prompts))
    with ThreadPoolExecutor(len(prompts)) as pool:
        at_once = list(pool.map(ask, prompts))
    if empty := [index for index, answer in enumerate(alone) if not answer.text]:
        raise MeasurementError(f"{len(empty)} of {len(prompts)} fixed prompts have an empty answer")
    first = _logprobs(alone)
    return ServerAnswers(
        logprobs=tuple(float(f"{value:.{DIGITS}g}") for value in first.ravel()),
        again=_apart(again, alone),
        at_once=_apart(at_once, alone),
        neighbour=_apart([*alone[1:], alone[0]], alone),
        text=crc32("\0".join(answer.text for answer in alone).encode()),
    )


def _logprobs(answers: Sequence[GreedyAnswer]) -> npt.NDArray[np.float64]:
    """[prompts, NUM_TOKENS]; [prompts, 0] where one tells none."""
    if not all(answer.logprobs for answer in answers):
        return np.zeros((len(answers), 0))
    logprobs = np.zeros((len(answers), NUM_TOKENS))
    for row, answer in zip(logprobs, answers, strict=True):
        given = answer.logprobs[:NUM_TOKENS]
        row[: len(given)] = given
    return logprobs


def _apart(answers: Sequence[GreedyAnswer], others: Sequence[GreedyAnswer]) -> tuple[float, ...]:
    measured, wanted = _logprobs(answers), _logprobs(others)
    by_text = [float(one.text != other.text) for one, other in zip(answers, others, strict=True)]
    if not (measured.size and wanted.size):
        return tuple(by_text)
    apart = distances(measured, wanted)
    distance = np.where(np.isfinite(apart), apart, by_text)  # log-probabilities that are all alike tell nothing
    return tuple(float(f"{value:.{DIGITS}g}") for value in distance)
