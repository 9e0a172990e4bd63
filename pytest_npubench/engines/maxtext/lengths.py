"""The lengths that a MaxText configuration declares.

Prompts are padded to the lengths of `inference_microbenchmark_prefill_lengths`, as far as they fit, and to
`max_prefill_predict_length`; every decode step works on the whole state, so decode has one bucket, `max_target_length`.

Worked example: lengths "64,128,256,2048", max_prefill_predict_length 512, max_target_length 1024: prefill buckets 64,
128, 256, 512; decode bucket 1024; at most 512 decode steps, so 513 output tokens, however short the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_npubench.core.buckets import SmallestBucket
from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import ConfigError, LengthError

LISTED = "inference_microbenchmark_prefill_lengths"
MAX_PREFILL, MAX_TARGET = "max_prefill_predict_length", "max_target_length"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTextLengths:
    """keys: the bucket of a length, by phase. max_decode_steps: the generated tokens that a slot's ring holds."""

    keys: SmallestBucket
    max_decode_steps: int

    @property
    def buckets(self) -> tuple[int, ...]:
        """The buckets of prefill and decode together, in increasing order."""
        return tuple(sorted({*self.keys.prefill_buckets, *self.keys.decode_buckets}))

    def check(self, requests: list[Request]) -> None:
        """Raises LengthError for a prompt above the longest one, or more steps than a ring holds."""
        for row, request in enumerate(requests):
            if request.input_tokens > self.keys.max_input_tokens:
                raise LengthError(
                    f"request {row}: a prompt of {request.input_tokens} tokens; {MAX_PREFILL} is "
                    f"{self.keys.max_input_tokens}"
                )
            if request.output_tokens - 1 > self.max_decode_steps:
                raise LengthError(
                    f"request {row}: {request.output_tokens} output tokens; at most {self.max_decode_steps + 1} fit, "
                    f"{MAX_TARGET} - {MAX_PREFILL} and the one of prefill"
                )


def declared_lengths(config: Any) -> MaxTextLengths:
    """Of a MaxText configuration. Raises ConfigError, naming the key, for one that is missing or no length."""
    longest, target = _length(config, MAX_PREFILL), _length(config, MAX_TARGET)
    if target <= longest:
        raise ConfigError(f"{MAX_TARGET} is {target} and {MAX_PREFILL} {longest}; want room to generate in")
    listed = {length for length in _listed(config) if length < longest}
    return MaxTextLengths(
        keys=SmallestBucket(prefill_buckets=(*sorted(listed), longest), decode_buckets=(target,)),
        max_decode_steps=target - longest,
    )


def _length(config: Any, key: str) -> int:
    value = getattr(config, key, None)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"MaxText's {key} is {value!r}; want a number of tokens above 0")
    return value


def _listed(config: Any) -> list[int]:
    text = getattr(config, LISTED, "")
    try:
        lengths = [int(part) for part in str(text).split(",") if part.strip()]
    except ValueError:
        lengths = [0]
    if any(length < 1 for length in lengths):
        raise ConfigError(f"MaxText's {LISTED} is {text!r}; want lengths with commas between, as 64,128,256")
    return lengths
