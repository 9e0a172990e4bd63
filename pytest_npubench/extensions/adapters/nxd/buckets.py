"""The buckets of NxD Inference: one set for prompts, one for the KV cache, and which of them a length runs in.

Without `enable_bucketing` each phase has one bucket, max_context_length and max_length. With it, the sets are those of
`context_encoding_buckets` and `token_generation_buckets`; where one is not given, NxD takes the powers of two from 128
up to but without the one nearest to the largest length, then that length.

The wrapper of a model looks for the first bucket that is larger than the attention mask ("first_fit"), and takes the
largest one for a mask of just its length. The mask of a decode step is one token shorter than the KV cache after it, so
decode follows LENS, Eq. 1; a prompt's mask is the prompt, so one that fills its bucket runs in the next larger one.

Worked example: max_length 1000, nothing given: 128, 256, 512, 1000, as 1000 is nearest to 1024. A prompt of 127 tokens
runs in 128, one of 128 in 256; the decode step that makes the KV cache 128 tokens long runs in 128.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

from pytest_npubench.core.buckets import Lengths, SmallestBucket, bucket_of, check_buckets, check_lengths
from pytest_npubench.errors import ConfigError

SMALLEST_EXPONENT = 7  # 128 tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFit(SmallestBucket):
    """buckets.BucketKeys of NxD Inference: Eq. 1 but for prompts that fill their bucket, see the module. Raises
    ConfigError, with NxD's names, for a set that is none."""

    def __post_init__(self) -> None:
        check_buckets(self.prefill_buckets, "context_encoding_buckets")
        check_buckets(self.decode_buckets, "token_generation_buckets")

    def prefill_key(self, input_tokens: Lengths) -> Lengths:
        """Returns the first bucket larger than the prompt, or the largest one for a prompt of its length."""
        check_lengths("input_tokens", input_tokens)  # no prompt at all must not become one token
        return bucket_of(self.prefill_buckets, input_tokens + (input_tokens < self.prefill_buckets[-1]))


def declared_buckets(neuron_config: Any) -> FirstFit:
    """Returns the sets of a NeuronConfig.

    Raises ConfigError for one that is none, or of two dimensions (prefix caching, chunked prefill, batch buckets).
    """
    longest_prompt, longest = neuron_config.max_context_length, neuron_config.max_length
    if not neuron_config.enable_bucketing:
        return FirstFit(prefill_buckets=(longest_prompt,), decode_buckets=(longest,))
    for feature in ("is_prefix_caching", "is_chunked_prefill", "token_generation_batches"):
        if getattr(neuron_config, feature, None):
            raise ConfigError(f"NxD Inference with {feature} has buckets of two dimensions; want it off")
    return FirstFit(
        prefill_buckets=_set(neuron_config.context_encoding_buckets, longest_prompt),
        decode_buckets=_set(neuron_config.token_generation_buckets, longest),
    )


def generated_buckets(longest: int) -> tuple[int, ...]:
    """What NxD Inference takes where no set is given."""
    if longest < 1:
        raise ConfigError(f"a longest length of {longest} tokens; want at least 1")
    powers = (2**exponent for exponent in range(SMALLEST_EXPONENT, round(log2(longest))))
    return (*powers, longest)


def _set(given: Sequence[int] | None, longest: int) -> tuple[int, ...]:
    return generated_buckets(longest) if given is None else tuple(given)
