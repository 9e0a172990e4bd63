"""Which prompt tokens an iteration takes up: whole prompts, or as many tokens as a budget allows.

Both keep to the order of arrival. Worked example of a budget of 512: a prompt with 100 of its 300 tokens left to run
and a waiting one of 1,000 give rows of 100 and 412 tokens; the second prompt's other 588 stay for the next iterations.
"""

from __future__ import annotations

from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import PrefillRow, made
from pytest_npubench.serving.member import BatchMember


def whole_prompts(
    batch: Batch, *, max_tokens: int | None = None, max_prompts: int | None = None, reserve_output: bool = False
) -> tuple[PrefillRow, ...]:
    """Waiting prompts, admitted while their total is within the limits; the first one whatever its length.

    With `reserve_output` each holds KV blocks for its whole output too, and is never preempted.
    """
    rows: list[PrefillRow] = []
    total = 0
    while max_prompts is None or len(rows) < max_prompts:
        member = batch.next_waiting(whole=reserve_output)
        if member is None:
            break
        total += member.prompt_tokens - batch.blocks.cached_tokens(member)
        if rows and max_tokens is not None and total > max_tokens:
            break
        batch.admit_next(whole=reserve_output)
        rows.append(PrefillRow(member.id, member.prefilled_tokens, member.prompt_tokens - member.prefilled_tokens))
    return tuple(rows)


def chunk_of_prompts(batch: Batch, budget_tokens: int) -> tuple[PrefillRow, ...]:
    """At most that many tokens: of prompts in flight first, then of waiting ones, admitted as long as some are left."""
    rows: list[PrefillRow] = []
    for member in batch.in_flight.values():
        if budget_tokens <= 0:
            break
        rows.append(row := _first_tokens(member, budget_tokens))
        budget_tokens -= row.num_tokens
    while budget_tokens > 0 and batch.waiting and (admitted := batch.admit_next()) is not None:
        rows.append(row := _first_tokens(admitted, budget_tokens))
        budget_tokens -= row.num_tokens
    return tuple(rows)


def _first_tokens(member: BatchMember, most: int) -> PrefillRow:
    """At most so many of those that its prompt has left."""
    first_token = member.prefilled_tokens
    num_left = member.prompt_tokens - first_token
    return made(PrefillRow, (member.id, first_token, num_left if num_left < most else most))
