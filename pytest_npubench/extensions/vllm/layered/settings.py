"""Settings of layered and hybrid prefill in vLLM, as its engine arguments.

The names are those of our own schedulers. They travel to the scheduler inside vLLM's additional_config, which exists
for classes from outside.

Layered prefill needs prompts whole, so chunking is off and an iteration has room for the longest prompt, or the merge
cap, beside one token of every other request. Worked number: max_model_len 4096, merge cap 8192, 256 requests:
max_num_batched_tokens 8192 + 256 = 8448. Hybrid prefill with a chunk of 512: 512 + 256 = 768.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pytest_npubench.errors import ConfigError

SCHEDULER = "pytest_npubench.extensions.vllm.layered.scheduler.LayeredScheduler"
WORKER = "pytest_npubench.extensions.vllm.layered.worker.LayeredWorker"
CONFIG_KEY = "npubench_layered"
ENVIRONMENT = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
"""What must stand in the environment before vLLM starts: only its V1 runner has the two methods we override."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredSettings:
    """How prompts go through the layers. chunk_size_tokens None: layered, whole prompts; a number: hybrid.

    num_layer_groups None: N(L) = min(layers, max(1, ceil(L / tokens_per_iteration))) for L tokens that set off together
    (Layered Prefill, section 4.4). merge_cap_tokens: how many tokens of whole prompts set off together; the first
    prompt may be longer. Raises ConfigError for a value that is no positive integer.
    """

    tokens_per_iteration: int = 512
    num_layer_groups: int | None = None
    merge_cap_tokens: int = 8192
    chunk_size_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            optional = name in ("num_layer_groups", "chunk_size_tokens")
            if not (optional and value is None) and not (type(value) is int and value > 0):
                raise ConfigError(f"{CONFIG_KEY}: {name} is {value!r}; want a whole number above 0")

    @classmethod
    def of(cls, additional_config: Mapping[str, Any]) -> LayeredSettings:
        """Reads vLLM's additional_config; what it leaves out has its default. Raises ConfigError for unknown names."""
        given = additional_config.get(CONFIG_KEY, {})
        names = [field.name for field in fields(cls)]
        if not isinstance(given, Mapping):
            raise ConfigError(f"{CONFIG_KEY} is {given!r}; want an object with {', '.join(names)}")
        for name in given:
            if name not in names:
                raise ConfigError(f"{CONFIG_KEY}: unknown setting {name!r}; known: {', '.join(names)}")
        return cls(**given)

    @property
    def is_hybrid(self) -> bool:
        return self.chunk_size_tokens is not None

    def needed_batch_tokens(self, *, max_model_len: int, max_num_seqs: int) -> int:
        """Returns the least max_num_batched_tokens: what sets off at once beside a token of every other request."""
        return (self.chunk_size_tokens or max_model_len) + max_num_seqs


def engine_arguments(settings: LayeredSettings, *, max_model_len: int, max_num_seqs: int) -> dict[str, Any]:
    """Keyword arguments of vLLM's EngineArgs or LLM; ENVIRONMENT must be set as well."""
    largest_batch = settings.chunk_size_tokens or max(max_model_len, settings.merge_cap_tokens)
    return {
        "scheduler_cls": SCHEDULER,
        "worker_cls": WORKER,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "enable_chunked_prefill": settings.is_hybrid,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": largest_batch + max_num_seqs,
        "additional_config": {CONFIG_KEY: asdict(settings)},
    }
