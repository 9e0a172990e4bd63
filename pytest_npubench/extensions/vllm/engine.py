"""vLLM's LLMEngine in this process: requests of token ids in, every iteration's new tokens out, with vLLM's own times.

Greedy, end-of-sequence ignored, so that a request gives as many tokens as it asks for; prefix caching off, so that no
request is faster for another's sake. What is in force is held against what was asked: vLLM corrects settings silently.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.vllm.answer import NewTokens, Scheduled, VllmRequest
from pytest_npubench.extensions.vllm.platform import VllmPlatform, running_platform
from pytest_npubench.extensions.vllm.schedule_watch import ScheduleWatch
from pytest_npubench.extensions.vllm.settings import EngineSettings, engine_arguments, environment
from pytest_npubench.extensions.vllm.version import supported_vllm
from pytest_npubench.extensions.vllm.vllm_errors import named_errors


class VllmEngine:
    """One model under one policy.

    Raises DeviceUnavailableError without vLLM, ConfigError for a version outside the range, a directory or settings
    that cannot be used, MeasurementError where memory does not suffice.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.settings, self.installed = settings, supported_vllm()
        arguments = engine_arguments(settings)
        os.environ.update(environment(settings))
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        with named_errors(f"{settings.model.name} under {settings.policy}"):
            from vllm.engine.arg_utils import EngineArgs
            from vllm.v1.engine.llm_engine import LLMEngine

            self.platform: VllmPlatform = running_platform()
            self._engine: Any = LLMEngine.from_engine_args(EngineArgs(**arguments))
        self._scored: dict[int, tuple[int, ...]] = {}  # by the request's id
        self._check_in_force()
        self._watch = ScheduleWatch(self._scheduler)

    @property
    def model_config(self) -> Any:
        """Returns the model's config.json as vLLM read it."""
        return self._engine.vllm_config.model_config.hf_text_config

    @property
    def config(self) -> Any:
        """Returns the VllmConfig that is in force."""
        return self._engine.vllm_config

    @property
    def device_type(self) -> str:
        """Returns the device as torch names it."""
        from vllm.platforms import current_platform

        return str(current_platform.device_type)

    @property
    def has_unfinished(self) -> bool:
        return bool(self._engine.has_unfinished_requests())

    def add(self, request: VllmRequest) -> None:
        """Raises ConfigError for a request that vLLM does not take: too long, or a token outside the vocabulary."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        parameters = SamplingParams(
            temperature=0.0,
            max_tokens=request.output_tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            logprob_token_ids=list(request.scored) or None,
            allowed_token_ids=None if request.forced is None else [request.forced],
        )
        with named_errors(f"request {request.id}"):
            self._check_tokens(request.id, request.prompt)
            self._scored[request.id] = request.scored
            self._engine.add_request(str(request.id), {"prompt_token_ids": list(request.prompt)}, parameters)

    def step(self) -> tuple[NewTokens, ...]:
        """One iteration. Raises MeasurementError where vLLM fails in it."""
        with named_errors("an iteration"):
            return tuple(_new_tokens(output, self._scored[int(output.request_id)]) for output in self._engine.step())

    def take_scheduled(self) -> Scheduled | None:
        """What the latest iteration ran; None where it ran nothing."""
        return self._watch.take()

    def set_chunk(self, tokens: int) -> None:
        """The tokens of an iteration from the next one on. Raises ConfigError for an engine without room for them."""
        room = self.settings.room_tokens
        if self.settings.policy != "chunked" or room is None or not 1 <= tokens <= room:
            raise ConfigError(
                f"chunk_size_tokens {tokens} under {self.settings.policy} with room for {room or 'no other'}; want a "
                "chunked engine with that room"
            )
        scheduler = self._scheduler
        scheduler.max_num_scheduled_tokens = tokens
        scheduler.max_num_active_reqs = min(self.settings.max_batch_size, tokens)  # each needs a token of the chunk

    def apply_model(self, function: Callable[[Any], Any]) -> Any:
        """What function gives of the torch module, on the one rank there is."""
        return self._engine.apply_model(function)[0]

    @property
    def _scheduler(self) -> Any:
        return self._engine.engine_core.engine_core.scheduler

    def _check_tokens(self, request: int, prompt: Sequence[int]) -> None:
        vocab_size = self.model_config.vocab_size
        if not prompt or not all(0 <= token < vocab_size for token in (min(prompt), max(prompt))):
            raise ConfigError(f"request {request}: want at least one token, all of 0..{vocab_size - 1}")

    def _check_in_force(self) -> None:
        """Raises ConfigError where vLLM runs under other settings than were asked for."""
        asked = engine_arguments(self.settings)
        config = self._engine.vllm_config
        in_force = {
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "max_num_scheduled_tokens": config.scheduler_config.max_num_scheduled_tokens,
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "enable_chunked_prefill": config.scheduler_config.enable_chunked_prefill,
            "async_scheduling": bool(config.scheduler_config.async_scheduling),
            "enable_prefix_caching": config.cache_config.enable_prefix_caching,
            "block_size": config.cache_config.block_size,
            "max_model_len": config.model_config.max_model_len,
        }
        for name, value in in_force.items():
            if name in asked and value != asked[name]:
                raise ConfigError(f"vLLM runs with {name} {value!r}; {asked[name]!r} was asked for")
        capacity = (config.cache_config.num_gpu_blocks - 1) * config.cache_config.block_size
        if capacity != self.settings.kv_capacity_tokens:
            raise ConfigError(f"vLLM's KV cache holds {capacity} tokens; want {self.settings.kv_capacity_tokens}")


def _new_tokens(output: Any, scored: Sequence[int]) -> NewTokens:
    completion, times = output.outputs[0], output.metrics
    failed = None
    if output.finished and completion.finish_reason != "length":
        failed = f"vLLM ended it: {completion.finish_reason}"
    return NewTokens(
        request=int(output.request_id),
        tokens=tuple(completion.token_ids),
        at_s=times.last_token_ts,
        scheduled_at_s=times.scheduled_ts,
        num_preemptions=times.num_preemptions,
        finished=output.finished,
        failed=failed,
        logprobs=tuple(
            tuple(float(by_token[token].logprob) for token in scored) for by_token in completion.logprobs or ()
        ),
    )
