"""What a model answers, held against the answers that were accepted: the same, less exact, or others.

Answers are deterministic, so no statistics is needed and the newest accepted session is enough. They are one vector of
fixed logits, a block of 16 for each position that was looked at. From each block its mean is taken off, because a
constant that is added to all logits changes no token. The distance of a position is

    |now - then| / |then|

and that of the vector the root mean square over its positions: a harmless change, such as another order of a sum, is as
large as rounding makes it, which the case's own margin says.

Worked example: a block with +1 and -1 in turn, in which the first two numbers are exchanged, differs by
sqrt(2^2 + 2^2) / sqrt(16) = 0.71; beside three blocks that are equal the vector differs by 0.71 / sqrt(4) = 0.35.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import UNKNOWN_PROMPTS, AskedPrompts

BLOCK = 16
LESS_EXACT, FAR_LESS_EXACT = 1.25, 2.0
"""An error against float64, relative to the accepted one: other roundings stay below the first (measured: 1.04), 8-bit
weights exceed the second."""
NEVER_ACCEPTED = "answers were never accepted: recorded at the next acceptance"


def distance(now: Sequence[float], then: Sequence[float]) -> float:
    """Measures the distance of two vectors of one length, which are blocks of 16 numbers one after the other. A
    position that was constant, so that its change has no measure, counts 1 where it changed."""
    return together(block_distances(now, then))


def together(apart: Sequence[float]) -> float:
    """Returns the distance of two vectors whose positions are so far `apart`."""
    return math.sqrt(math.fsum(by**2 for by in apart) / len(apart))


def block_distances(now: Sequence[float], then: Sequence[float]) -> list[float]:
    """Measures the distance of each position of two vectors of one length."""
    starts = range(0, len(then), BLOCK)
    return [_block_distance(now[start : start + BLOCK], then[start : start + BLOCK]) for start in starts]


def judge_answers(
    now: Sequence[float], then: Sequence[float] | None, limit: float, prompts: AskedPrompts = UNKNOWN_PROMPTS
) -> Verdict:
    """Unchanged up to a distance of `limit`, else regressed, with the prompts and steps at which. `then` is None where
    nothing was accepted."""
    if then is None:
        return Verdict(kind=VerdictKind.NO_BASELINE, reason=NEVER_ACCEPTED)
    if len(now) != len(then):
        reason = f"answers are {len(now)} numbers, accepted were {len(then)}: other positions were asked for"
        return Verdict(kind=VerdictKind.INCOMPARABLE, reason=reason)
    apart = block_distances(now, then)
    by = together(apart)
    if by <= limit:
        reason = f"answers unchanged: {by:.2g} of {limit:.2g} allowed (rounding)"
        return Verdict(kind=VerdictKind.UNCHANGED, reason=reason)
    reason = f"answers changed: {by:.2g} (limit {limit:.2g}), beyond it at "
    reason += f"{sum(not one <= limit for one in apart)} of {len(apart)} positions"
    if prompts.lengths:
        num_positions = len(apart) // len(prompts.lengths)
        reason += f": {where_beyond(apart, prompts.lengths, num_positions, limit, prompts.middles)}"
    return Verdict(kind=VerdictKind.REGRESSED, reason=reason)


def judge_accuracy(now: float, then: float | None) -> Verdict:
    """Returns an error against float64, as its ratio to the accepted error: a notice from 1.25 on, regressed from 2
    on."""
    if then is None:
        return Verdict(kind=VerdictKind.NO_BASELINE, reason=NEVER_ACCEPTED)
    ratio = now / then if then else 1.0 if now == then else math.inf
    times = f"{ratio:.2g} x the accepted error against float64"
    shown = ratio if math.isfinite(ratio) else None
    if ratio < LESS_EXACT:
        return Verdict(kind=VerdictKind.UNCHANGED, reason=f"answers as exact: {times}", ratio=shown)
    kind = VerdictKind.REGRESSED if ratio >= FAR_LESS_EXACT else VerdictKind.INCONCLUSIVE
    cause = "; lower precision inside (8 bits?)" if kind is VerdictKind.REGRESSED else ""
    return Verdict(kind=kind, reason=f"answers less exact: {times}{cause}", ratio=shown)


def judge_identical(now: float, then: float | None) -> Verdict:
    """Returns a check sum of bits, or a count that has one right value: any difference is regressed."""
    if then is None:
        return Verdict(kind=VerdictKind.NO_BASELINE, reason=NEVER_ACCEPTED)
    if now == then:
        return Verdict(kind=VerdictKind.UNCHANGED, reason=f"{now:.12g}, as accepted")
    return Verdict(kind=VerdictKind.REGRESSED, reason=f"{now:.12g}, accepted {then:.12g}: want the same")


def where_beyond(
    apart: Iterable[float],
    lengths: tuple[int, ...],
    num_positions: int,
    limit: float,
    middles: tuple[int, ...] = (),
) -> str:
    """Says in words which of the answers lie farther apart than the limit. Distances are given prompt by prompt: of
    each prompt that of its prefill, one for each step, and one for each of its `middles`. The text is empty where none
    does.

    Worked example: two prompts of 5 and 120 tokens with (0, 0, 9) and (0, 0, 0) beyond 1: "only prompts of 5 tokens,
    from step 2; prefill agrees"."""
    values = list(apart)
    rows = [values[start : start + num_positions] for start in range(0, len(values), num_positions)]
    beyond = {
        length: [place for place, value in enumerate(row) if not value <= limit]
        for length, row in zip(lengths, rows, strict=False)
    }
    places = [place for row in beyond.values() for place in row]
    if not places:
        return ""
    hit = [length for length, row in beyond.items() if row]
    prompts = "at all prompts" if len(hit) == len(rows) else f"only prompts of {listed(hit)} tokens"
    num_middles = len(middles) // len(lengths)
    num_steps = num_positions - num_middles
    if min(places) >= num_steps:
        numbers = (number * num_middles - num_steps for number in range(len(lengths)))
        at = [middles[start + place] for start, row in zip(numbers, beyond.values(), strict=False) for place in row]
        return f"{prompts}, only steps inside of them: at {listed(sorted(set(at)))}"
    places = [place for place in places if place < num_steps]
    if min(places) > 0:
        return f"{prompts}, from step {min(places)}; prefill agrees"
    return f"{prompts}; steps agree" if max(places) == 0 else prompts


def listed(lengths: Iterable[int]) -> str:
    """Writes prompt lengths one after the other, such as "5, 120"."""
    return ", ".join(map(str, lengths))


def _block_distance(now: Sequence[float], then: Sequence[float]) -> float:
    size = math.hypot(*_centred(then))
    change = math.dist(_centred(now), _centred(then))
    if not size:
        return 1.0 if change else 0.0
    return change / size


def _centred(block: Sequence[float]) -> list[float]:
    mean = math.fsum(block) / len(block)
    return [value - mean for value in block]
