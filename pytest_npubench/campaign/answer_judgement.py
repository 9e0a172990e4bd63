"""Whether an engine's answers are right, by limits that no accepted session is needed for, and the metrics by which
later sessions are held against this one.

A limit is a multiple of what rounding alone does (engines/answer_reference.py): 4 in fp32, where two stacks differ by
up to 2, and 2 below it, where every bit of the rounding model is used. Distances from the reference are held to it in
the root mean square, and one by one to the same multiple of the largest. Pairs that mean the same must agree, and
changed prompts must differ, by that largest one.

Worked example: a rounding of 4e-6 and at most 1.1e-5 in fp32: 5.7e-6 from float64 with at most 2.2e-5 is right (1.6e-5
and 4.4e-5 are allowed), and so is a repeat with junk behind its prompts that moves 3e-6; int8 weights (0.013) are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_npubench.campaign.answer_visit import NO_PAIR, AnswerVisit, Pairs
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.answers import listed, where_beyond
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.verdict import Verdict

FP32_FACTOR, FACTOR = 4.0, 2.0
LOW_PRECISION = 0.1  # int8 weights and bf16 products stay below it, a lost mask does not


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersDetail:
    """`error` is the distance from float64, None without a reference, `limit` what is allowed. num_pairs were held
    against each other; `inconsistent` says of those beyond the limit, by name, at which prompt lengths. `farthest` is
    the largest distance of each kind of pair that must agree, `nearest` the smallest of each that must differ.
    `middles` are the visit's."""

    dtype: str
    lengths: tuple[int, ...]
    limit: float
    error: float | None = None
    largest_error: float | None = None
    largest_limit: float = 0.0
    num_pairs: int = 0
    inconsistent: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    farthest: Mapping[str, float] = field(default_factory=dict)
    nearest: Mapping[str, float] = field(default_factory=dict)
    middles: tuple[int, ...] = ()


def judge_answers(visit: AnswerVisit, dtype: str, *, has_experts: bool = False) -> Judgement:
    """Judges one check of an engine that computes in a dtype. Below fp32 rounding may choose another expert where two
    are tied, which moves a single answer far: there the median stands for the farthest, and the distance of a pair is
    that of all its answers."""
    factor = FP32_FACTOR if dtype == "fp32" else FACTOR
    detail = _detail(visit, dtype, factor, has_ties=has_experts and dtype != "fp32")
    wrong = sum(map(len, detail.inconsistent.values()))
    metrics = [
        Metric(name="answer_change", unit="", value=0.0, samples=visit.logits, gate="answers", margin=detail.limit),
        Metric(name="inconsistent_pairs", unit="", value=float(wrong), gate="identical"),
    ]
    if detail.error is not None:
        metrics.append(Metric(name="answer_error", unit="", value=detail.error, gate="accuracy"))
    if visit.weights_bits is not None:
        metrics.append(Metric(name="weights_bits", unit="", value=float(visit.weights_bits), gate="identical"))
    return Judgement(verdict=_verdict(visit, detail, wrong), what="answers", metrics=tuple(metrics), detail=detail)


def _detail(visit: AnswerVisit, dtype: str, factor: float, *, has_ties: bool) -> AnswersDetail:
    most = factor * (visit.rounding if has_ties else visit.largest_rounding)
    errors = sorted(visit.errors)
    agree, differ = _with_pair(visit.agree), _with_pair(visit.differ)
    inconsistent = {
        **{name: _lengths(visit, apart, lambda far: not far <= most) for name, apart in visit.agree.items()},
        **{f"changed {name}": _lengths(visit, apart, lambda far: far <= most) for name, apart in visit.differ.items()},
    }
    squares = [error * error for error in visit.errors]
    return AnswersDetail(
        dtype=dtype,
        lengths=visit.lengths,
        limit=factor * visit.rounding,
        error=(sum(squares) / len(squares)) ** 0.5 if squares else None,
        largest_error=errors[len(errors) // 2 if has_ties else -1] if errors else None,
        largest_limit=most,
        num_pairs=sum(map(len, (*agree.values(), *differ.values()))),
        inconsistent={name: lengths for name, lengths in inconsistent.items() if lengths},
        farthest={name: max(apart) for name, apart in agree.items()},
        nearest={name: min(apart) for name, apart in differ.items()},
        middles=visit.middles,
    )


def _verdict(visit: AnswerVisit, detail: AnswersDetail, wrong: int) -> Verdict:
    """Passed or failed by the limits, in words of answers."""
    differing = visit.weights_bits is not None and visit.weights_bits != visit.made_bits
    gates = [
        Gate(metric="inconsistent_pairs", value=wrong, limit=0),
        Gate(metric="weights of other bits than the host made", value=float(differing), limit=0),
        Gate(metric="greedy tokens that are not float64's", value=float(sum(visit.wrong_tokens)), limit=0),
    ]
    if detail.error is not None and detail.largest_error is not None:
        gates.append(Gate(metric="answer_error", value=detail.error, limit=detail.limit))
        gates.append(Gate(metric="largest answer_error", value=detail.largest_error, limit=detail.largest_limit))
    verdict = judge_gates(tuple(gates))
    said = [
        _error_words(visit, detail),
        _pair_words(detail),
        _token_words(visit),
        "weights changed" if differing else "",
    ]
    return replace(verdict, reason="; ".join(filter(None, said)))


def _error_words(visit: AnswerVisit, detail: AnswersDetail) -> str:
    if detail.error is None or detail.largest_error is None:
        from pytest_npubench.engines.answer_reference import ROUNDING  # with it comes numpy

        of_dtype = "" if detail.dtype in ROUNDING else f" in {detail.dtype}"
        return "" if detail.inconsistent else f"answers consistent, not compared: there is no reference{of_dtype}"
    allowed = f"allowed {detail.limit:.2g} in {detail.dtype} (rounding)"
    if detail.error <= detail.limit and detail.largest_error <= detail.largest_limit:
        return f"answers right: {detail.error:.2g} from float64, {allowed}"
    where = where_beyond(visit.errors, detail.lengths, visit.num_positions, detail.largest_limit, visit.middles)
    most = f"at most {detail.largest_error:.2g}, allowed {detail.largest_limit:.2g}"
    if detail.error < LOW_PRECISION and detail.dtype == "fp32":
        most += "; so much is explained by products in tf32 or bf16, or weights of fewer bits"
    return f"answers wrong: {detail.error:.2g} from float64, {allowed}; {most}" + (f"; {where}" if where else "")


def _pair_words(detail: AnswersDetail) -> str:
    if not detail.inconsistent:
        return f"{detail.num_pairs} pairs consistent"
    parts = [f"{name}, prompts of {listed(lengths)} tokens" for name, lengths in detail.inconsistent.items()]
    wrong = sum(map(len, detail.inconsistent.values()))
    return f"{wrong} of {detail.num_pairs} pairs inconsistent: {'; '.join(parts)}"


def _token_words(visit: AnswerVisit) -> str:
    lengths = [length for length, number in zip(visit.lengths, visit.wrong_tokens, strict=False) if number]
    if not lengths:
        return ""
    return f"{sum(visit.wrong_tokens)} greedy tokens are not float64's: prompts of {listed(lengths)} tokens"


def _with_pair(pairs: Pairs) -> dict[str, list[float]]:
    """Returns the distances of each pair's prompts, without prompts that lack the pair."""
    return {name: distances for name, apart in pairs.items() if (distances := [far for far in apart if far != NO_PAIR])}


def _lengths(visit: AnswerVisit, apart: Iterable[float], is_wrong: Callable[[float], bool]) -> tuple[int, ...]:
    """Returns the lengths of the prompts whose pair is wrong."""
    return tuple(length for length, one in zip(visit.lengths, apart, strict=True) if one != NO_PAIR and is_wrong(one))
