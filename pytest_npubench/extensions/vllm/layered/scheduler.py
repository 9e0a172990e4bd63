"""vLLM's V1 scheduler, with prompts that go through the model a layer group an iteration.

vLLM knows no layers: it plans tokens. So a flight's tokens are planned again in every stage, and until the last stage
`num_computed_tokens` goes back to where the flight began: to vLLM each of these iterations prefilled nothing. Meanwhile
nobody is admitted. The budget is what the others decode plus the flight's tokens, so that a chunk of a prompt keeps its
length from stage to stage.

Worked example: prompt A of 600 tokens, T = 512, 4 layers, B decoding. Iteration 1 plans {B: 1, A: 600}, stage [0, 2),
A's computed tokens go 0 -> 600 -> 0; iteration 2 plans {B: 1, A: 600} again, stage [2, 4), A has 600 computed tokens
and its first token.

Why the tokens planned for a flight never change: admission is in order of arrival, so the flight stands at the end of
`running`, only its last prompt may be cut by the chunk, and preemption takes from the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from vllm import __version__ as vllm_version
from vllm.platforms import current_platform
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from pytest_npubench.extensions.vllm.layered.flight import Flight, FlightStage, set_off
from pytest_npubench.extensions.vllm.layered.refusals import check_supported


@dataclass
class LayeredSchedulerOutput(SchedulerOutput):  # type: ignore[misc] # vLLM is absent where types are checked
    """A plan of vLLM's with the stage of the flight; None: nothing is on its way."""

    stage: FlightStage | None = None

    @classmethod
    def of(cls, plan: Any, stage: FlightStage | None) -> LayeredSchedulerOutput:
        return cls(**{field.name: getattr(plan, field.name) for field in fields(plan)}, stage=stage)


class LayeredScheduler(Scheduler):  # type: ignore[misc] # likewise
    """Given to vLLM as scheduler_cls. Raises ConfigError where layered prefill cannot run (refusals.py)."""

    max_num_active_reqs: int  # these two are vLLM's own
    max_num_scheduled_tokens: int

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        self._settings = check_supported(vllm_config, vllm_version)
        super().__init__(vllm_config, *args, **kwargs)
        self._num_layers = vllm_config.model_config.get_num_layers(vllm_config.parallel_config)
        self._flight: Flight | None = None
        self._stage: FlightStage | None = None
        self._decoding: frozenset[str] = frozenset()
        self.num_left_in_flight = 0
        """Requests that were preempted or aborted between two stages."""

    def schedule(self, *args: Any, **kwargs: Any) -> LayeredSchedulerOutput:
        self._keep_in_flight(request.request_id for request in self.running)
        self._decoding = frozenset(one.request_id for one in self.running if not one.is_prefill_chunk)
        self._stage = None
        with self._limits():
            plan = super().schedule(*args, **kwargs)
        return LayeredSchedulerOutput.of(plan, self._stage)

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        """vLLM calls this at the end of schedule(), when it is known who runs."""
        super()._update_after_schedule(scheduler_output)
        planned: dict[str, int] = scheduler_output.num_scheduled_tokens
        if not planned:  # paused, or nothing to do
            return
        if self._flight is None:
            self._flight = self._set_off({one: count for one, count in planned.items() if one not in self._decoding})
        else:
            self._keep_in_flight(planned)
        if self._flight is not None:
            assert all(planned[one] == count for one, count in self._flight.tokens.items()), (
                "a prompt changed its length"
            )
            self._run_stage(self._flight)

    def _run_stage(self, flight: Flight) -> None:
        self._stage = flight.stage
        self._flight = flight.after_stage()
        if not self._stage.is_last:
            for request_id, count in flight.tokens.items():
                self._roll_back(request_id, count)

    def _roll_back(self, request_id: str, count: int) -> None:
        request = self.requests[request_id]
        request.num_computed_tokens -= count
        request.is_prefill_chunk = True  # no token yet: no grammar bitmask for it
        self._inflight_prefills.add(request)

    def _set_off(self, tokens: dict[str, int]) -> Flight | None:
        return set_off(tokens, self._num_layers, self._settings, whole=any(map(self._runs_whole, tokens)))

    def _runs_whole(self, request_id: str) -> bool:
        """vLLM takes a prompt's log probabilities from every iteration that runs it; and it takes back a random draw
        that it threw away by moving the generator's offset, which a CPU's generator does not have."""
        wanted = self.requests[request_id].sampling_params
        if wanted is None:
            return False
        return wanted.prompt_logprobs is not None or (wanted.seed is not None and current_platform.is_cpu())

    def _keep_in_flight(self, request_ids: Iterable[str]) -> None:
        if self._flight is not None:
            before = len(self._flight.tokens)
            self._flight = self._flight.among(frozenset(request_ids))
            self.num_left_in_flight += before - (len(self._flight.tokens) if self._flight else 0)

    @contextmanager
    def _limits(self) -> Iterator[None]:
        """While a flight is on its way nobody is admitted and it gets its own tokens; else it may fill up the room."""
        active, tokens = self.max_num_active_reqs, self.max_num_scheduled_tokens
        if self._flight is not None:
            self.max_num_active_reqs = 0
        wanted = self._room() if self._flight is None else self._flight.num_tokens
        self.max_num_scheduled_tokens = min(tokens, len(self._decoding) + wanted)
        try:
            yield
        finally:
            self.max_num_active_reqs, self.max_num_scheduled_tokens = active, tokens

    def _room(self) -> int:
        """Tokens that may set off together: a chunk, or whole prompts up to the merge cap, the first however long."""
        if self._settings.chunk_size_tokens is not None:
            return self._settings.chunk_size_tokens
        first = self.waiting.peek_request().num_tokens if self.waiting else 0
        return max(self._settings.merge_cap_tokens, first)
