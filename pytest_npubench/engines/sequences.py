"""Requests as an engine knows them: their token ids, how many of these the layers have seen, and what lies between two
layers; and whether a plan runs every token once through every layer, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from pytest_npubench.engines.answers import Logits
from pytest_npubench.engines.probe import NUM_FIXED, Asked
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.iteration import IterationPlan, PrefillRow

JUNK_SPREAD = 4.0  # of what nobody may look at: keys, values and hidden states of slots without a request
MOST_PADDING_TOKENS = 1024
StatesT = TypeVar("StatesT", bound=Sized)


@dataclass(slots=True)
class Sequence:
    """token_ids are the prompt and what came after it; num_entered of them have been through layer 0."""

    request: int
    token_ids: list[int]
    num_entered: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


class Sequences:
    """All requests that have begun and not ended."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self._seed, self._vocab_size = seed, vocab_size
        self._sequences: dict[int, Sequence] = {}
        self._ended_tokens: deque[int] = deque((0,), maxlen=MOST_PADDING_TOKENS)

    def __getitem__(self, request: int) -> Sequence:
        """Raises MeasurementError for a request that has not begun, or has ended."""
        if request not in self._sequences:
            raise MeasurementError(f"request {request} has not begun, or has ended")
        return self._sequences[request]

    def prompt(self, request: int, num_tokens: int) -> list[int]:
        """Uniform ids of the seed and the request's id, the same under every policy and on every device."""
        ids: list[int] = np.random.default_rng((self._seed, request)).integers(0, self._vocab_size, num_tokens).tolist()
        return ids

    def begin(self, request: int, prompt_tokens: int) -> None:
        """Raises MeasurementError for a request that has begun already or has no prompt."""
        if request in self._sequences:
            raise MeasurementError(f"request {request} has begun already")
        if prompt_tokens < 1:
            raise MeasurementError(f"request {request} has a prompt of {prompt_tokens} tokens; want at least 1")
        self._sequences[request] = Sequence(request, self.prompt(request, prompt_tokens))

    def end(self, request: int) -> None:
        self._ended_tokens.append(self[request].token_ids[-1])
        del self._sequences[request]

    def decode_row(self, request: int) -> PrefillRow:
        """The latest token as a row of one, the only token that the layers have not seen."""
        return PrefillRow(request, self[request].num_tokens - 1, 1)

    def enter(self, row: PrefillRow) -> None:
        """The row goes into layer 0. Raises MeasurementError unless tokens come once, in order, and exist."""
        sequence, stop = self[row.request], row.first_token + row.num_tokens
        if row.first_token != sequence.num_entered or row.num_tokens < 1 or stop > sequence.num_tokens:
            raise MeasurementError(
                f"request {row.request}: the plan runs {row.num_tokens} tokens from token {row.first_token} on; want "
                f"token {sequence.num_entered} next, of {sequence.num_tokens} known"
            )
        sequence.num_entered = stop

    def check_entered(self, row: PrefillRow) -> None:
        """Raises MeasurementError for a row that has not been through layer 0."""
        stop, num_entered = row.first_token + row.num_tokens, self[row.request].num_entered
        if stop > num_entered:
            raise MeasurementError(
                f"request {row.request}: the plan runs its tokens up to {stop - 1} through later layers; layer 0 has "
                f"seen {num_entered}"
            )

    def is_last(self, row: PrefillRow) -> bool:
        """Whether the row ends with the last token known, so that the next one can be told from it."""
        return row.first_token + row.num_tokens == self[row.request].num_tokens

    def token_ids(self, rows: Iterable[PrefillRow]) -> list[int]:
        """The ids of all rows, one after another."""
        ids: list[int] = []
        for request, first, count in rows:
            ids += self[request].token_ids[first : first + count]
        return ids

    def padding_ids(self, num_rows: int) -> list[int]:
        """What ended rows of a static batch go on with: the last tokens of the requests that ended last."""
        return [self._ended_tokens[-1 - index % len(self._ended_tokens)] for index in range(num_rows)]


class AskedSequences(Sequences):
    """Requests whose prompts, and the tokens that they go on with, are told; what is answered beside these is kept."""

    def __init__(self, asked: Iterable[Asked], vocab_size: int) -> None:
        super().__init__(0, vocab_size)
        self._asked = tuple(asked)
        self.answers: list[Logits] = [np.full((len(request.forced) + 1, NUM_FIXED), np.nan) for request in self._asked]

    def prompt(self, request: int, num_tokens: int) -> list[int]:
        tokens: list[int] = self._asked[request].prompt[:num_tokens].tolist()
        return tokens

    def answered(self, request: int, logits: npt.ArrayLike, token: int) -> int:
        """Keeps the logits [NUM_FIXED] of the request's next position. Returns the token that it goes on with: the one
        it is forced to, behind the last of these the engine's."""
        asked = self._asked[request]
        position = self[request].num_tokens - len(asked.prompt)
        self.answers[request][position] = logits
        return int(asked.forced[position]) if position < len(asked.forced) else token


class AskedRequests:
    """The requests of an executor that is asked for its answers."""

    shape: DecoderShape
    _sequences: AskedSequences

    def ask(self, requests: Iterable[Asked]) -> None:
        """Request i is the i-th of these; nothing is known of its answers."""
        self._sequences = AskedSequences(requests, self.shape.vocab_size)

    def answers(self) -> list[Logits]:
        """The logits of probe.fixed_tokens() [positions, NUM_FIXED] of each request: at its prompt's end, then behind
        each forced token. Not a number where none were made."""
        return self._sequences.answers

    def on_one_thread(self) -> AbstractContextManager[None]:
        """As many threads as before, where an engine cannot choose."""
        return nullcontext()


class HiddenStates(Generic[StatesT]):
    """Hidden states of prompts between two layer groups, which a layered prefill keeps from one iteration to the next:
    by request and first token, each row's with the layer that it enters next. What an engine keeps of a row has the
    length of its tokens: the states themselves, or where they lie.

    Worked number: a token of qwen3-30b-a3b in bf16 keeps 2048 x 2 = 4 KiB, a merged batch of 8192 of them 32 MiB.
    """

    def __init__(self, bytes_per_token: int) -> None:
        self._bytes_per_token = bytes_per_token
        self._kept: dict[int, dict[int, tuple[int, StatesT]]] = {}

    @property
    def num_bytes(self) -> int:
        return self._bytes_per_token * sum(len(states) for rows in self._kept.values() for _, states in rows.values())

    def keep(self, row: PrefillRow, layer: int, states: StatesT) -> None:
        """What enters `layer` next."""
        self._kept.setdefault(row.request, {})[row.first_token] = (layer, states)

    def take(self, row: PrefillRow, layer: int) -> StatesT:
        """The states, which are kept no longer. Raises MeasurementError unless the row left layer - 1 last."""
        rows = self._kept.get(row.request, {})
        at, states = rows.pop(row.first_token, (0, None))
        if not rows:
            self._kept.pop(row.request, None)
        if states is None or at != layer or len(states) != row.num_tokens:
            instead = "none are kept" if states is None else f"those kept are of {len(states)} tokens before layer {at}"
            raise MeasurementError(
                f"request {row.request}: the plan runs {row.num_tokens} tokens from token {row.first_token} on into "
                f"layer {layer} and wants their hidden states; {instead}"
            )
        return states

    def check_none(self, request: int) -> None:
        """Raises MeasurementError where a part of the request is between two layers."""
        if request in self._kept:
            raise MeasurementError(f"request {request} has a prompt between two layers; want it through all of them")

    def free(self, request: int) -> None:
        self._kept.pop(request, None)


def check_layers(plan: IterationPlan, num_layers: int) -> None:
    """Raises MeasurementError unless the passes are in order, and with decode rows cover every layer."""
    reached = 0
    for item in plan.passes:
        first, stop = item.group
        if not reached <= first < stop <= num_layers or (plan.decode and first != reached):
            raise MeasurementError(
                f"the plan runs layers {first} to {stop - 1} of {num_layers} after layer {reached - 1}; want passes in "
                "order that do not overlap and, with decode rows, leave no layer out"
            )
        reached = stop
    if plan.decode and reached != num_layers:
        raise MeasurementError(f"the plan decodes through {reached} of {num_layers} layers; want all of them")


def check_finishing(plan: IterationPlan, finished: Collection[int]) -> None:
    """Raises MeasurementError unless the prompts that finish are those whose last token left the last layer."""
    if set(plan.finishing) != set(finished):
        raise MeasurementError(
            f"the plan says that the prompts of requests {sorted(plan.finishing)} finish; those that did are "
            f"{sorted(finished)}"
        )
