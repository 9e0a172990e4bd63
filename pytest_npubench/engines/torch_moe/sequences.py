"""Requests as the engine knows them: their token ids, and how many of them the layers have seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.iteration import PrefillRow

MOST_PADDING_TOKENS = 1024


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
