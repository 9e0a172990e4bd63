"""How servers want to be asked, where they differ: the fields of a request that each takes in the place of ours.

A field that is None is left out. The text OUTPUT_TOKENS stands for the number of tokens that a request asks for.

Worked example: a request for 16 tokens in the dialect "openai" has no max_tokens and no temperature, and
max_completion_tokens 16.
"""

from __future__ import annotations

from collections.abc import Mapping

OUTPUT_TOKENS = "$output_tokens"
USAGE_AT_THE_END = {"include_usage": True}
LENGTH_FIXED = {"ignore_eos": True}
_OPENAI: Mapping[str, object] = {
    "max_tokens": None,
    "max_completion_tokens": OUTPUT_TOKENS,
    "temperature": None,  # models that reason take their own alone
    "stream_options": USAGE_AT_THE_END,
}
DIALECTS: Mapping[str, Mapping[str, object]] = {
    "openai": _OPENAI,
    "vllm": LENGTH_FIXED,
    "sglang": LENGTH_FIXED,
    "llamacpp": {**LENGTH_FIXED, "stream_options": USAGE_AT_THE_END},
    "ollama": {"stream_options": USAGE_AT_THE_END},
    "azure": _OPENAI,
    "tgi": {"temperature": None, "stream_options": USAGE_AT_THE_END},  # takes none of 0
}
OF_WORDS = ("openai", "ollama", "azure", "tgi")
"""Servers that take no token ids, and are best asked by the chat API."""
