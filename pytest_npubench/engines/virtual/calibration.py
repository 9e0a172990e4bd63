"""A step cost from the requests of one's own server: lengths, arrivals, and when first and last tokens came.

Nobody sees the iterations of a server, so the terms (calibrated.py) are those under which the simulated run answers as
the real one did. Each term is a count over a published peak, times a factor whose logarithm is normal beforehand; the
posterior is sampled by population Monte Carlo (Cappé et al., J. Comput. Graph. Stat. 13, 2004), since a schedule that
changes by one iteration makes the likelihood rough, and slopes of it useless:

    draw factors around what is known    simulate the load with each    weigh each by how well it answers

Residuals are logarithms of simulated over measured TTFT, E2E and TPOT. Requests of one run share their iterations, so
all of them together count as NUM_INDEPENDENT.

Worked example: a decode step of llama-3.1-8b reads 16.1 GB of weights; at 1.79 TB/s that is 9.0 ms at a factor of 1,
and a server whose tokens come every 12 ms with one request running has one of 1.3 less its fixed part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.virtual.calibrated import CalibratedCost, Curve
from pytest_npubench.engines.virtual.cost import Attainable, check_split, cost_model
from pytest_npubench.errors import ConfigError

Array = npt.NDArray[np.float64]
Simulate = Callable[[CalibratedCost], Array]
"""TTFT, E2E and TPOT of each request in order of arrival, seconds, [requests, 3]."""

NUM_DRAWS, NUM_GENERATIONS = 48, 6
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
MOVES = {"fixed_s": 0.5, "weights_s": 0.25, "context_s": 0.25, "activation_s": 0.25, "row_s": 0.35}
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

    def moved_from(self, other: Calibration) -> Prior:
        """The same terms, believed beforehand to be what they were in another calibration, of another device or stack:
        what is read moves together, and what is multiplied, each for itself a little. Raises ConfigError where the
        other has other terms: nothing carries over between dense models and models with experts."""
        if other.prior.names != self.names:
            raise ConfigError(
                f"a cost of the terms {', '.join(other.prior.names)} says nothing of {', '.join(self.names)}; want one "
                f"of a model {'with experts' if 'activation_s' in self.names else 'without experts'}"
            )
        alike = np.array([[READ.issuperset((one, two)) or one == two for two in self.names] for one in self.names])
        moves = np.array([MOVES[name] for name in self.names])
        shift = np.outer(moves, moves) * alike
        own = OWN_MOVE**2 * np.eye(len(moves))
        known = np.atleast_2d(np.cov(other.logs, rowvar=False))
        return replace(self, mean=other.logs.mean(axis=0), covariance=known + shift + own)

    def cost(self, shape: DecoderShape, logs: Array) -> CalibratedCost:
        terms = dict(zip(self.names, (self.unit_s * np.exp(logs)).tolist(), strict=True))
        return CalibratedCost(
            num_layers=shape.num_layers,
            curve=self.curve,
            has_experts=not shape.is_dense,
            expert_share=shape.expert_share,
            **terms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """logs: posterior draws of the factors' logarithms, [draws, terms], equally likely; best: their mean."""

    prior: Prior
    shape: DecoderShape
    logs: Array

    @property
    def best(self) -> CalibratedCost:
        return self.prior.cost(self.shape, self.logs.mean(axis=0))

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
    peak = cost_model(shape, spec, tensor_parallel=1, dtype=dtype, kv_dtype=kv_dtype, attainable=at_peak)
    layers = shape.num_layers
    rows_s = layers * (peak.shared_row_s + peak.expert_row_s) + peak.head_row_s
    terms = {
        # seconds at the peak, factor beforehand, its spread. A product reached 0.49 to 1.09 of the published peak on
        # the devices that were looked at
        "fixed_s": (1e-3, 2.0, 0.7),
        "weights_s": (layers * peak.shared_read_s + peak.head_read_s, 1.25, 0.2),
        "row_s": (rows_s, 1.45, 0.35),
        "context_s": (layers * peak.context_read_s, 1.45, 0.35),
        **({} if shape.is_dense else {"activation_s": (peak.expert_read_s, 1.35, 0.35)}),
    }
    unit, factor, deviation = (np.array(values) for values in zip(*terms.values(), strict=True))
    devices = [num_sharing * tensor_parallel if name == "activation_s" else tensor_parallel for name in terms]
    unit[1:] /= devices[1:]  # the fixed part is shared out by nobody
    return Prior(names=tuple(terms), unit_s=unit, mean=np.log(factor), covariance=np.diag(deviation**2))


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
    precision = np.linalg.inv(prior.covariance)
    seen: list[Array] = []
    weights: list[Array] = []
    for generation in range(NUM_GENERATIONS):
        draws = random.multivariate_normal(centre, spread, NUM_DRAWS)
        scores = np.array([_log_likelihood(simulate(prior.cost(shape, one)), measured) for one in draws])
        off = draws - prior.mean
        scores -= 0.5 * np.einsum("ij,jk,ik->i", off, precision, off)
        weights.append(scores - _log_normal(draws, centre, spread))
        seen.append(draws)
        # the later half of the generations, which were drawn near the answer
        recent = slice(generation // 2, None)
        found, chance = np.concatenate(seen[recent]), _tempered(np.concatenate(weights[recent]))
        centre = chance @ found
        spread = WIDER * (found - centre).T @ (chance[:, None] * (found - centre)) + 1e-8 * np.eye(len(centre))
        on_generation(generation + 1)
    chosen = random.choice(len(found), 200, p=chance)
    return Calibration(prior=prior, shape=shape, logs=found[np.sort(chosen)])


def _log_likelihood(simulated: Array, measured: Array) -> float:
    both = simulated[: len(measured)]
    usable = (both > 0) & (measured > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        residuals = np.where(usable, np.abs(np.log(both / measured)) / SCALES, 0.0)
    loss = np.where(residuals <= ROBUST, residuals**2, ROBUST * (2 * residuals - ROBUST))
    means = np.log(both.mean(axis=0) / measured.mean(axis=0)) / MEAN_SCALE if usable.any() else np.zeros(3)
    share = min(1.0, NUM_INDEPENDENT / len(measured))
    return float(-0.5 * (share * loss.sum() + (means**2).sum()))


def _log_normal(draws: Array, centre: Array, spread: Array) -> Array:
    off = draws - centre
    squares: Array = np.einsum("ij,jk,ik->i", off, np.linalg.inv(spread), off)
    return -0.5 * (squares + float(np.linalg.slogdet(spread)[1]))


def _tempered(logs: Array, least: float = 12.0) -> Array:
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
