"""A step cost from the requests of one's own server: lengths, arrivals, and when first and last tokens came.

Nobody sees the iterations of a server, so the terms (calibrated.py) are those under which the simulated run answers as
the real one did. Each term is a count over a published peak, times a factor whose logarithm is normal beforehand. A
schedule that changes by one iteration makes what a request shows rough, and slopes of it useless. Over many draws it is
smooth: near what is known, logarithms of latencies are linear in the seconds of the terms, and what the line leaves is
added to what the form cannot explain. So

    draw factors around what is known    simulate the load with each    a line through what they answered
    what is known: the posterior of that line, by population Monte Carlo (Cappé et al., J. Comput. Graph. Stat., 2004)

and again, nearer. Residuals are logarithms of simulated over measured TTFT, E2E and TPOT. Requests of one run share
their iterations, so all of them together count as NUM_INDEPENDENT. The one cost that stands for the posterior has the
mean seconds of each term: where only the sum of two terms is known, means of logarithms would add up to less.

Worked example: a decode step of llama-3.1-8b reads 16.1 GB of weights; at 1.79 TB/s that is 9.0 ms at a factor of 1,
and a server whose tokens come every 12 ms with one request running has one of 1.3 less its fixed part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost, Curve
from pytest_npubench.extensions.planning.virtual.cost import Attainable, check_split
from pytest_npubench.extensions.planning.virtual.mixed_layers import layer_kinds

Array = npt.NDArray[np.float64]
Simulate = Callable[[CalibratedCost], Array]
"""TTFT, E2E and TPOT of each request in order of arrival, seconds, [requests, 3]."""

NUM_DRAWS, NUM_GENERATIONS = 48, 6
"""Simulated runs."""
NUM_GUESSES, LEAST_EQUAL = 1920, 100
"""Of what the line says; and how many equal ones they are to be worth."""
NUM_LOGS = 200
LARGEST_AWAY = 3.0  # logarithms: the line ends there
NUM_INDEPENDENT = 10.0
SCALES = np.array([0.15, 0.04, 0.04])
"""What of TTFT, E2E and TPOT the form cannot explain, as a standard deviation of logarithms: a request that comes just
before an iteration starts waits a whole one less than one just after."""
MEAN_SCALE = 0.02
"""The same of their means, in which the luck of single requests is averaged out."""
ROBUST = 2.0  # standard deviations, beyond which a residual counts linearly (Huber)
LEAST_REQUESTS = 5
LEAST_KNOWN = 2  # requests, where another calibration is known: a long prompt, and a long output
READ = frozenset(("weights_s", "context_s", "activation_s"))
TOGETHER = frozenset(product(READ, READ)) | {("row_s", "pair_s"), ("pair_s", "row_s")}
"""What is read moves together, and so does what is multiplied."""
PAIRS_OWN = 0.35
"""What the factor of a prompt's attention differs by from that of other products: it is a kernel of its own."""
WAKING = (1e-3, 5.0, 1.0)
"""Seconds, factor and its spread: 3 and 21 ms were seen."""
MOVES = {
    "fixed_s": 0.5,
    "weights_s": 0.25,
    "context_s": 0.25,
    "activation_s": 0.25,
    "row_s": 0.35,
    "pair_s": 0.35,
    "waking_s": 0.5,
}
"""How far a term's factor moves from one device or stack to another, as a standard deviation of logarithms."""
OWN_MOVE = 0.05
"""Of that, what those that are read do each for itself."""
WIDER = 1.5  # than what is known so far: draws that are too close together never find out


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Seconds of each term where its factor is 1, and the logarithm of its factor beforehand, with its covariance; and
    the curve of rows, which is taken as known."""

    names: tuple[str, ...]
    unit_s: Array
    mean: Array
    covariance: Array
    curve: Curve = ()

    def without(self, name: str) -> Prior:
        """Of the other terms."""
        kept = [index for index, one in enumerate(self.names) if one != name]
        return replace(
            self,
            names=tuple(self.names[index] for index in kept),
            unit_s=self.unit_s[kept],
            mean=self.mean[kept],
            covariance=self.covariance[np.ix_(kept, kept)],
        )

    def with_waking(self) -> Prior:
        """And what an iteration from idle takes more."""
        unit_s, factor, deviation = WAKING
        covariance = np.pad(self.covariance, (0, 1))
        covariance[-1, -1] = deviation**2
        return replace(
            self,
            names=(*self.names, "waking_s"),
            unit_s=np.append(self.unit_s, unit_s),
            mean=np.append(self.mean, np.log(factor)),
            covariance=covariance,
        )

    def moved_from(self, other: Calibration) -> Prior:
        """The same terms, believed beforehand to be what they were in another calibration, of another device or stack:
        what is read moves together, and what is multiplied, each for itself a little. Terms that the other lacks are
        believed as they go with those that it has. Raises ConfigError where only one of both has experts."""
        if ("activation_s" in self.names) != ("activation_s" in other.prior.names):
            raise ConfigError(
                f"a cost of the terms {', '.join(other.prior.names)} says nothing of {', '.join(self.names)}; want one "
                f"of a model {'with experts' if 'activation_s' in self.names else 'without experts'}"
            )
        names = [name for name in self.names if name in other.prior.names]
        there = [other.prior.names.index(name) for name in names]
        alike = np.array([[one == two or (one, two) in TOGETHER for two in names] for one in names])
        moves = np.array([MOVES[name] for name in names])
        covariance = np.atleast_2d(np.cov(other.logs[:, there], rowvar=False))
        covariance += np.outer(moves, moves) * alike + OWN_MOVE**2 * np.eye(len(names))
        return self._given([self.names.index(name) for name in names], other.centre[there], covariance)

    def _given(self, which: list[int], mean: Array, covariance: Array) -> Prior:
        """Where so much is known of some terms, and of the others what they are where those are."""
        slopes = np.linalg.solve(self.covariance[np.ix_(which, which)], self.covariance[which]).T
        left = self.covariance - slopes @ self.covariance[which]  # 0 for those that are known
        return replace(
            self,
            mean=self.mean + slopes @ (mean - self.mean[which]),
            covariance=left + slopes @ covariance @ slopes.T,
        )

    def cost(self, shape: DecoderShape, logs: Array) -> CalibratedCost:
        terms = dict(zip(self.names, (self.unit_s * np.exp(logs)).tolist(), strict=True))
        return CalibratedCost(
            num_layers=shape.num_layers,
            curve=self.curve,
            has_experts=not shape.is_dense,
            expert_share=shape.expert_share,
            state_tokens=2 * shape.state_bytes(2) / shape.kv_bytes_per_token(2),
            **terms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """logs: posterior draws of the factors' logarithms, [draws, terms], equally likely; centre: those of the one cost
    that stands for them, [terms]."""

    prior: Prior
    shape: DecoderShape
    logs: Array
    centre: Array

    @property
    def best(self) -> CalibratedCost:
        return self.prior.cost(self.shape, self.centre)

    def draws(self, number: int) -> list[CalibratedCost]:
        """Evenly over the draws, each from the middle of its part."""
        chosen = ((np.arange(number) + 0.5) / number * len(self.logs)).astype(int)
        return [self.prior.cost(self.shape, self.logs[index]) for index in chosen]

    def factors(self) -> dict[str, tuple[float, float, float]]:
        """Of each term over its peak: median and the bounds of its 90 % interval."""
        quantiles = np.exp(np.quantile(self.logs, [0.5, 0.05, 0.95], axis=0))
        low_to_high = quantiles.T.tolist()
        return {name: tuple(values) for name, values in zip(self.prior.names, low_to_high, strict=True)}


def prior_of(
    shape: DecoderShape,
    spec: HardwareSpec,
    *,
    tensor_parallel: int,
    dtype: str,
    kv_dtype: str | None = None,
    num_sharing: int = 1,
) -> Prior:
    """From the hardware file's peaks; num_sharing: replicas that share their experts. What links take is in the
    factors. Raises ConfigError where it lacks one."""
    at_peak = Attainable(memory=1.0, gemm=1.0, attention=1.0, grouped_gemm=1.0, interconnect=1.0, tile_rows=0.0)
    check_split(shape, tensor_parallel)
    kinds = layer_kinds(shape, spec, tensor_parallel=1, dtype=dtype, kv_dtype=kv_dtype, attainable=at_peak)
    peak = kinds[-1].cost
    layers = [(kind.cost, kind.number) for kind in kinds]
    # layers that look at all tokens: half of gpt-oss's
    whole = [(cost, number if cost.window is None else 0 if shape.layers else number // 2) for cost, number in layers]
    index_pair_s, index_s = (
        sum(number * getattr(cost, name) for cost, number in layers) for name in ("index_pair_s", "index_read_s")
    )
    rows_s = sum(number * (cost.shared_row_s + cost.expert_row_s) for cost, number in layers) + peak.head_row_s
    weights_s = sum(number * cost.shared_read_s for cost, number in layers) + peak.head_read_s
    expert_s = max(cost.expert_read_s for cost, _ in layers)
    terms = {
        # seconds at the peak, factor beforehand, its spread. A product reached 0.49 to 1.09 of the published peak on
        # the devices that were looked at
        "fixed_s": (1e-3, 2.0, 0.7),
        "weights_s": (weights_s, 1.25, 0.2),
        "row_s": (rows_s, 1.45, 0.35),
        "pair_s": (sum(number * cost.pair_s for cost, number in whole) + index_pair_s, 2.0, PAIRS_OWN),
        "context_s": (sum(number * cost.context_read_s for cost, number in whole) + index_s, 1.45, 0.35),
        **({} if shape.is_dense else {"activation_s": (expert_s, 1.35, 0.35)}),
    }
    unit, factor, deviation = (np.array(values) for values in zip(*terms.values(), strict=True))
    devices = [num_sharing * tensor_parallel if name == "activation_s" else tensor_parallel for name in terms]
    unit[1:] /= devices[1:]  # the fixed part is shared out by nobody
    # attention is faster where products are, and slower by what is its own
    moves, names = np.diag(deviation), list(terms)
    moves[names.index("pair_s"), names.index("row_s")] = terms["row_s"][2]
    return Prior(names=tuple(names), unit_s=unit, mean=np.log(factor), covariance=moves @ moves.T)


def calibrate(
    shape: DecoderShape,
    prior: Prior,
    simulate: Simulate,
    measured: Array,
    *,
    least: int = LEAST_REQUESTS,
    seed: int = 0,
    on_generation: Callable[[int], None] = lambda _: None,
) -> Calibration:
    """measured: TTFT, E2E and TPOT of the first requests, [requests, 3]; `simulate` may answer for more.

    Raises ConfigError for too few requests, or where none of them had a token after its first: without decode steps
    nothing tells weights from keys and values.
    """
    if len(measured) < least:
        raise ConfigError(f"{len(measured)} requests to calibrate on; want at least {least}")
    if not (measured[:, 2] > 0).any():
        raise ConfigError("no request had a token after its first: want requests that decode, longer outputs")
    random = np.random.default_rng(seed)
    centre, spread = prior.mean, prior.covariance
    seen: list[Array] = []
    answers: list[Array] = []
    for generation in range(NUM_GENERATIONS):
        seen.append(random.multivariate_normal(centre, spread, NUM_DRAWS))
        answers.append(np.array([_logarithms(simulate(prior.cost(shape, one))[: len(measured)]) for one in seen[-1]]))
        # the later half of the generations, which were drawn near the answer
        recent = slice(generation // 2, None)
        answered = _Answered.of(np.concatenate(seen[recent]), np.concatenate(answers[recent]), centre, spread)
        posterior, chance = _posterior(answered, prior, measured, spread, random)
        # the mean of seconds, and not of logarithms: terms that are known in sum only keep their sum
        centre = np.log(chance @ np.exp(posterior))
        spread = WIDER * _covariance(posterior, chance)
        on_generation(generation + 1)
    chosen = random.choice(len(posterior), NUM_LOGS, p=chance)
    return Calibration(prior=prior, shape=shape, logs=posterior[np.sort(chosen)], centre=centre)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """How the load answers near `centre`: logarithms of what requests showed, and of their means, linear in each term's
    seconds, by least squares of what simulated runs answered, those near by foremost; off_by: what they were off by."""

    centre: Array
    slopes: Array
    off_by: Array

    @classmethod
    def of(cls, logs: Array, answers: Array, centre: Array, spread: Array) -> _Answered:
        away = logs - centre
        far = np.einsum("ij,jk,ik->i", away, np.linalg.inv(spread), away) - len(centre)
        near = np.exp(-np.maximum(far, 0.0) / 8)[:, None]
        terms = _terms(away)
        is_finite = np.isfinite(answers).all(axis=0)
        slopes = np.linalg.lstsq(near * terms, near * np.where(is_finite, answers, 0.0), rcond=None)[0]
        off = near * (answers - terms @ slopes)
        off_by = np.sqrt((off**2).sum(axis=0) / (near**2).sum())
        return cls(centre=centre, slopes=slopes, off_by=np.where(is_finite, off_by, np.nan))

    def at(self, logs: Array) -> Array:
        answer: Array = _terms(logs - self.centre) @ self.slopes
        return answer


def _terms(away: Array) -> Array:
    """One, and what each term takes more than at the centre, over what it takes there, [draws, 1 + terms]."""
    return np.column_stack([np.ones(len(away)), np.expm1(np.clip(away, -LARGEST_AWAY, LARGEST_AWAY))])


def _logarithms(latencies: Array) -> Array:
    """Logarithms of what the requests showed, request by request, and of the means; infinite where that is 0."""
    with np.errstate(divide="ignore"):
        logarithms: Array = np.log(np.concatenate([latencies.ravel(), latencies.mean(axis=0)]))
    return logarithms


def _posterior(
    answered: _Answered, prior: Prior, measured: Array, spread: Array, random: np.random.Generator
) -> tuple[Array, Array]:
    """Logarithms of factors, [guesses, terms], and the chance of each, by population Monte Carlo."""
    aim = _logarithms(measured)
    usable = np.isfinite(aim) & np.isfinite(answered.off_by)
    number = len(measured)
    scales = np.concatenate([np.tile(SCALES, number), np.full(3, MEAN_SCALE)])
    scales = np.sqrt(scales**2 + answered.off_by**2)[usable]
    means = (np.arange(len(aim)) >= 3 * number)[usable]
    weights = np.where(means, 1.0, min(1.0, NUM_INDEPENDENT / number))
    precision = np.linalg.inv(prior.covariance)

    def likely(logs: Array) -> Array:
        residuals = np.abs(answered.at(logs)[:, usable] - aim[usable]) / scales
        loss = np.where(means | (residuals <= ROBUST), residuals**2, ROBUST * (2 * residuals - ROBUST))
        off = logs - prior.mean
        score: Array = -0.5 * (loss @ weights + np.einsum("ij,jk,ik->i", off, precision, off))
        return score

    centre = answered.centre
    for _ in range(NUM_GENERATIONS):
        drawn = random.multivariate_normal(centre, spread, NUM_GUESSES)
        scores = np.concatenate([likely(part) for part in np.array_split(drawn, NUM_GUESSES // NUM_DRAWS)])
        chance = _tempered(scores - _log_normal(drawn, centre, spread), LEAST_EQUAL)
        centre = chance @ drawn
        spread = WIDER * _covariance(drawn, chance)
    return drawn, chance


def _covariance(draws: Array, chance: Array) -> Array:
    off = draws - chance @ draws
    covariance: Array = off.T @ (chance[:, None] * off) + 1e-8 * np.eye(off.shape[1])
    return covariance


def _log_normal(draws: Array, centre: Array, spread: Array) -> Array:
    off = draws - centre
    squares: Array = np.einsum("ij,jk,ik->i", off, np.linalg.inv(spread), off)
    return -0.5 * (squares + float(np.linalg.slogdet(spread)[1]))


def _tempered(logs: Array, least: float) -> Array:
    """Probabilities in proportion to exp(logs), flattened until they are worth `least` equal draws: the first
    generations would otherwise rest on one of them."""
    power = 1.0
    while True:
        chance: Array = np.exp(power * (logs - logs.max()))
        chance /= chance.sum()
        if 1 / (chance**2).sum() >= least or power < 1e-3:
            return chance
        power *= 0.7


def latencies(requests: Sequence[Any]) -> Array:
    """TTFT, E2E and TPOT of measured requests, [requests, 3], seconds."""
    return np.array([[one.ttft_s, one.e2e_s, one.tpot_s] for one in requests])
