"""Prompts of a wanted length that no server has seen before.

Servers keep the keys and values of prompts they have prefilled: a prompt that came before, in an earlier run too, is
answered sooner than it could be computed. So the tokens of a prompt are drawn anew for each run, and only its length is
the workload's. Prompts that share their beginning do so where a run asks for it.

Words stand for tokens where an API takes text: each of these is one token with the space before it in the vocabularies
in use, and a chat template adds a few of its own. The length is then what was meant, not what the server counted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

COMMON = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city community name team minute idea body back parent face others "
    "level office door health person art war history party result change morning reason research girl guy moment air "
    "teacher force education"
)
WORDS = COMMON.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """form: "tokens" (ids from first to last of token_ids) or "words". run: what tells this run from all others. Of the
    prompts shared_fraction begin with the same shared_tokens tokens, or as many of them as leave one of their own; the
    run before began with others."""

    form: str
    token_ids: tuple[int, int]
    run: str
    shared_tokens: int = 0
    shared_fraction: float = 1.0

    def prompt(self, num_tokens: int, request: str, index: int = 0) -> str | tuple[int, ...]:
        """Returns a prompt of that length; `request` tells it from the others of the run, of which it is number
        `index`."""
        shares = int((index + 1) * self.shared_fraction) > int(index * self.shared_fraction)
        num_shared = min(self.shared_tokens, num_tokens - 1) if shares else 0
        shared, rest = random.Random(f"{self.run}/shared"), random.Random(f"{self.run}/{request}")
        if self.form == "words":
            return " ".join((*shared.choices(WORDS, k=num_shared), *rest.choices(WORDS, k=num_tokens - num_shared)))
        ids = range(self.token_ids[0], self.token_ids[1] + 1)
        return (*shared.choices(ids, k=num_shared), *rest.choices(ids, k=num_tokens - num_shared))
