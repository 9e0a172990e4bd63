"""Streams whose every event repeats the text so far, as some gateways send them: what an event brought is what it has
more than the one before.

Of what came only lengths and hashes are kept, by key, so that no answer takes more memory for it. A stream is taken for
one that repeats where each event goes on from the one before, and two of them from some text; the last event may add
nothing.

Worked example: the texts "a", "a bc" and "a bc d" brought 1, 3 and 2 characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from pytest_npubench.engines.http.delta import REASONING, Delta

LEAST_REPEATED = 2
NOTHING = (0, hash(""))


class Repeated:
    """is_possible: no event has contradicted it yet."""

    __slots__ = ("_new_chars", "_num_repeated", "_seen", "is_possible")

    def __init__(self) -> None:
        self.is_possible = True
        self._seen: dict[str, tuple[int, int]] = {}
        self._new_chars: list[int] = []
        self._num_repeated = 0

    @property
    def is_certain(self) -> bool:
        return self.is_possible and self._num_repeated >= LEAST_REPEATED

    def add(self, texts: Mapping[str, str], *, is_last: bool) -> None:
        """Looks at the next event with text, which is by key."""
        new: dict[str, int] = {}
        for name, text in texts.items():
            length, before = self._seen.get(name, NOTHING)
            if hash(text[:length]) != before:
                self.is_possible = False
                return
            new[name] = len(text) - length
            self._num_repeated += length > 0
            self._seen[name] = len(text), hash(text)
        reasoning = max((number for name, number in new.items() if name in REASONING), default=0)
        self._new_chars.append(reasoning + sum(number for name, number in new.items() if name not in REASONING))
        self.is_possible = self._new_chars[-1] > 0 or is_last

    def without(self, deltas: Sequence[tuple[float, Delta]]) -> list[tuple[float, Delta]]:
        """Returns an answer's deltas with what each brought; lists of tokens that grow with the text repeat as well."""
        texts = [delta for _, delta in deltas if delta.num_chars]
        listed = [delta.num_tokens for delta, number in zip(texts, self._new_chars, strict=True) if number]
        grows = all(before and after and before < after for before, after in pairwise(listed))
        new_chars, before, new = iter(self._new_chars), 0, []
        for at_s, delta in deltas:
            if delta.num_chars:
                num_tokens = delta.num_tokens
                if grows and num_tokens:
                    num_tokens, before = max(0, num_tokens - before), num_tokens
                delta = delta._replace(num_chars=next(new_chars), num_tokens=num_tokens)
            new.append((at_s, delta))
        return new
