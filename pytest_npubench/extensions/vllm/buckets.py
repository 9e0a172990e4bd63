"""Which lengths a vLLM build pads to: what it declares and what its log says.

Declared sets stand in configuration objects and in log lines. Their kinds here:

    tokens, requests, attention requests       vLLM on TPU: tokens of an iteration, requests of one
    context_encoding, token_generation         Neuron (NxD Inference): prompt length, KV length
    cudagraph                                  CUDA: tokens of an iteration that a captured graph serves

Which of them the clock shows is the steps kind's (suites/buckets/kinds/steps.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_npubench.core.buckets import check_buckets

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


def declared_in_config(config: Any) -> tuple[DeclaredBuckets, ...]:
    """Returns the sets of a configuration: a VllmConfig, the config of a Neuron model, or mappings of the same names.

    An empty or absent set is none. Raises ConfigError, naming the entry, for one that is no set of buckets.
    """
    configured = ((kind, _get(config, path), path) for path, kind in _CONFIGURED.items())
    return tuple(_declared(kind, values, path) for kind, values, path in configured if values)


def declared_in_log(lines: Iterable[str]) -> tuple[DeclaredBuckets, ...]:
    """Returns the sets that a log names, the last one of each kind. Raises ConfigError for one that is no set of
    buckets."""
    declared: dict[str, DeclaredBuckets] = {}
    for number, line in enumerate(lines, start=1):
        for kind, pattern in _LOGGED.items():
            match = re.search(pattern, line)
            values = ast.literal_eval(match[1]) if match else ()
            if values:
                declared[kind] = _declared(kind, values, f"log, line {number}")
    return tuple(declared.values())


def prompt_buckets(declared: Iterable[DeclaredBuckets], largest: int) -> tuple[int, ...]:
    """Returns the lengths, up to `largest`, that a prompt alone in its iteration is padded to; empty where nothing pads
    it.

    Worked example: tokens (16, 32, 64, 128) and requests (8, 16) declared, largest 64: (16, 32, 64).
    """
    by_kind = {found.kind: found.buckets for found in declared}
    padded = next((by_kind[kind] for kind in _OF_PROMPTS if kind in by_kind), ())
    return tuple(bucket for bucket in padded if bucket <= largest)


def planned_buckets(family: str, buckets: Sequence[int]) -> tuple[int, ...]:
    """Returns a hardware file's buckets with the smaller ones that vLLM on this family pads to as well.

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


def _declared(kind: str, values: Iterable[Any], source: str) -> DeclaredBuckets:
    """Sorted: vLLM has logged capture sizes in either order."""
    return DeclaredBuckets(kind=kind, buckets=check_buckets(sorted(values), source), source=source)


def _get(holder: Any, path: str) -> Any:
    for name in path.split("."):
        holder = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return holder
