"""Which lengths a vLLM build pads to: what it declares, what its log says, and what the clock shows.

Declared sets stand in configuration objects and in log lines. Their kinds here:

    tokens, requests, attention requests       vLLM on TPU: tokens of an iteration, requests of one
    context_encoding, token_generation         Neuron (NxD Inference): prompt length, KV length
    cudagraph                                  CUDA: tokens of an iteration that a captured graph serves

Observed: an engine that pads to b runs b - 1 and b tokens in the same time, and b + 1 in that of the next bucket. So at
each boundary three lengths are timed, and a step is a ratio of neighbours that is proven to exceed 1 + min_step:

    log ratio = mean(log t(l + 1)) - mean(log t(l)) +- Student t of its standard error (Welch 1947)

Worked example: times 10.0, 10.1 ms at 127, 10.1, 10.0 at 128, 19.8, 20.2 at 129: flat behind 127, a factor 1.99 behind
128, so 128 is observed. A set (16, 32, 64) declared, with steps behind 16, 32 and 48: observed 16, 32, 48; extra 48;
untested 64, since nothing longer than the largest bucket runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.buckets import bucket_of, check_buckets, check_lengths
from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import FloatArray, positive, require, row
from pytest_npubench.stats.margin_test import interval

_LOGGED = {
    "tokens": r"Prepared token paddings: (\[[\d, ]*\])",
    "requests": r"Prepared request paddings: (\[[\d, ]*\])",
    "attention requests": r"Prepared attn request paddings: (\[[\d, ]*\])",
    "cudagraph": r"'cudagraph_capture_sizes': (\[[\d, ]*\])",
    "context_encoding": r"[\"']?context_encoding_buckets[\"']?\s*[:=]\s*(\[[\d, ]*\])",
    "token_generation": r"[\"']?token_generation_buckets[\"']?\s*[:=]\s*(\[[\d, ]*\])",
}
_CONFIGURED = {
    "compilation_config.cudagraph_capture_sizes": "cudagraph",
    "neuron_config.context_encoding_buckets": "context_encoding",
    "neuron_config.token_generation_buckets": "token_generation",
    "additional_config.override_neuron_config.context_encoding_buckets": "context_encoding",
    "additional_config.override_neuron_config.token_generation_buckets": "token_generation",
}

Step = Literal["step", "flat", "inconclusive"]
_OF_PROMPTS = ("context_encoding", "tokens", "cudagraph")
"""Kinds that pad a prompt which is alone in its iteration."""
_SMALLEST = {"tpu": 16}
"""The token padding that vLLM starts from, where that is below what hardware files name; the next ones double."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredBuckets:
    """A set that an engine says it has, in increasing order. kind is one of those above; source says where."""

    kind: str
    buckets: tuple[int, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSet:
    """A declared set against the steps that were timed. All are lengths, in increasing order.

    observed: a step lies directly behind them, whether they were declared or not. missing: declared, and flat. extra:
    observed, and not declared. inconclusive: too noisy to tell. untested: declared, and the next length was not timed.
    """

    declared: tuple[int, ...]
    observed: tuple[int, ...]
    missing: tuple[int, ...]
    extra: tuple[int, ...]
    inconclusive: tuple[int, ...]
    untested: tuple[int, ...]

    @property
    def agrees(self) -> bool:
        """Nothing missing and nothing extra; of inconclusive and untested ones nothing is said."""
        return not self.missing and not self.extra


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingWaste:
    """What a trace of lengths is padded by. Lengths above the largest bucket, which some engines run unpadded and
    others refuse, are counted in num_above and in no other figure but num_lengths."""

    num_lengths: int
    num_above: int
    true_tokens: int
    padded_tokens: int

    @property
    def padding_fraction(self) -> float | None:
        """(padded - true) / padded over all tokens; None where no length fits."""
        return (self.padded_tokens - self.true_tokens) / self.padded_tokens if self.padded_tokens else None


def declared_in_config(config: Any) -> tuple[DeclaredBuckets, ...]:
    """The sets of a configuration: a VllmConfig, the config of a Neuron model, or mappings of the same names.

    An empty or absent set is none. Raises ConfigError, naming the entry, for one that is no set of buckets.
    """
    found = ((kind, _get(config, path), path) for path, kind in _CONFIGURED.items())
    return tuple(_declared(kind, values, path) for kind, values, path in found if values)


def declared_in_log(lines: Iterable[str]) -> tuple[DeclaredBuckets, ...]:
    """The sets that a log names, the last one of each kind. Raises ConfigError for one that is no set of buckets."""
    found: dict[str, DeclaredBuckets] = {}
    for number, line in enumerate(lines, start=1):
        for kind, pattern in _LOGGED.items():
            match = re.search(pattern, line)
            values = ast.literal_eval(match[1]) if match else ()
            if values:
                found[kind] = _declared(kind, values, f"log, line {number}")
    return tuple(found.values())


def prompt_buckets(declared: Iterable[DeclaredBuckets], largest: int) -> tuple[int, ...]:
    """The lengths, up to `largest`, that a prompt alone in its iteration is padded to; empty where nothing pads it.

    Worked example: tokens (16, 32, 64, 128) and requests (8, 16) declared, largest 64: (16, 32, 64).
    """
    by_kind = {found.kind: found.buckets for found in declared}
    padded = next((by_kind[kind] for kind in _OF_PROMPTS if kind in by_kind), ())
    return tuple(bucket for bucket in padded if bucket <= largest)


def planned_buckets(family: str, buckets: Sequence[int]) -> tuple[int, ...]:
    """A hardware file's buckets with the smaller ones that vLLM on this family pads to as well.

    vLLM on TPU pads the tokens of an iteration to powers of two from 16, unless VLLM_TPU_BUCKET_PADDING_GAP is set;
    NxD Inference to powers of two from 128; on CPUs and eager GPUs nothing is padded. What an engine then declares is
    held against this set.

    Worked example: tpu and (128, 256): (16, 32, 64, 128, 256). cpu: (128, 256).
    """
    smaller, smallest = [], _SMALLEST.get(family, buckets[0])
    while smallest < buckets[0]:
        smaller.append(smallest)
        smallest *= 2
    return (*smaller, *buckets)


def boundary_lengths(buckets: Sequence[int]) -> tuple[int, ...]:
    """The lengths to time for a set: each bucket and its neighbours, as far as a bucket holds them."""
    edges = check_buckets(buckets)
    wanted = {edge + offset for edge in edges for offset in (-1, 0, 1)}
    return tuple(sorted(length for length in wanted if 1 <= length <= edges[-1]))


def compare_buckets(
    declared: Sequence[int], times_s: Mapping[int, Sequence[float]], *, min_step: float = 0.1, coverage: float = 0.99
) -> BucketSet:
    """The declared set against seconds by length; a step is looked for between l and l + 1 where both were timed.

    Raises ConfigError for a set that is none, and as step_between does.
    """
    buckets = check_buckets(declared, "declared")
    steps = {
        length: step_between(times_s[length], times_s[length + 1], min_step=min_step, coverage=coverage)
        for length in sorted(times_s)
        if length + 1 in times_s
    }
    observed = _lengths(steps, "step")
    return BucketSet(
        declared=buckets,
        observed=observed,
        missing=tuple(length for length in _lengths(steps, "flat") if length in buckets),
        extra=tuple(length for length in observed if length not in buckets),
        inconclusive=_lengths(steps, "inconclusive"),
        untested=tuple(length for length in buckets if length not in steps),
    )


def step_between(
    shorter_s: Sequence[float], longer_s: Sequence[float], *, min_step: float = 0.1, coverage: float = 0.99
) -> Step:
    """Does time step up from one length to the next? "step" and "flat" are proven at that coverage.

    Raises MeasurementError for fewer than two times or one that is not above 0; ConfigError for a min_step or coverage
    that is none.
    """
    shorter, longer = _log_times("shorter_s", shorter_s), _log_times("longer_s", longer_s)
    variances = np.array([one.var(ddof=1) / one.size for one in (shorter, longer)])
    freedom = _freedom(variances, np.array([shorter.size - 1.0, longer.size - 1.0]))
    low, high = interval(longer.mean() - shorter.mean(), np.sqrt(variances.sum()), freedom, coverage)
    limit = np.log1p(positive("min_step", min_step))
    if low > limit:
        return "step"
    return "flat" if high < limit else "inconclusive"


def padding_waste(buckets: Sequence[int], lengths: npt.ArrayLike) -> PaddingWaste:
    """Each length is padded to the smallest bucket that holds it. Raises ConfigError or LengthError for what is none.

    Worked example: (16, 32) and lengths 10, 17, 40: 48 - 27 of 48 tokens, 0.4375; one length is above.
    """
    edges = check_buckets(buckets)
    trace = check_lengths("lengths", lengths).ravel()
    served = trace[trace <= edges[-1]]
    return PaddingWaste(
        num_lengths=int(trace.size),
        num_above=int(trace.size - served.size),
        true_tokens=int(served.sum()),
        padded_tokens=int(bucket_of(edges, served).sum()),
    )


def _declared(kind: str, values: Iterable[Any], source: str) -> DeclaredBuckets:
    """Sorted: vLLM has logged capture sizes in either order."""
    return DeclaredBuckets(kind=kind, buckets=check_buckets(sorted(values), source), source=source)


def _get(holder: Any, path: str) -> Any:
    for name in path.split("."):
        holder = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return holder


def _log_times(name: str, samples_s: Sequence[float]) -> FloatArray:
    samples = row(name, samples_s)
    if samples.size < 2:
        raise MeasurementError(f"{name}: one time; want two at least, to know how they spread")
    return np.asarray(np.log(require(name, samples, samples > 0, "more than 0 seconds")))


def _freedom(variances: FloatArray, freedoms: FloatArray) -> float:
    """Welch and Satterthwaite. Without any spread the interval is a point, whatever they are."""
    total = variances.sum()
    shares = variances / total if total > 0 else np.full(2, 0.5)
    return float(1 / (shares**2 / freedoms).sum())


def _lengths(steps: Mapping[int, Step], wanted: Step) -> tuple[int, ...]:
    return tuple(sorted(length for length, step in steps.items() if step == wanted))
