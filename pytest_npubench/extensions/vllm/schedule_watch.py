"""What vLLM's scheduler put into each iteration, read as it hands it over; it decides as without being watched.

A row of one token of a request that has generated some is a decode row; every other token is one of a prompt (or of a
preempted request, whose keys and values are made again).
"""

from __future__ import annotations

from typing import Any

from pytest_npubench.extensions.vllm.answer import Scheduled
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.serving.log import prefill_pairs


class ScheduleWatch:
    """Stands in front of one scheduler object's schedule()."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler, self._schedule = scheduler, scheduler.schedule
        self._last: Scheduled | None = None
        scheduler.schedule = self._watched

    def take(self) -> Scheduled | None:
        """Returns the iteration scheduled since it was last asked; None where none was, or it was empty."""
        last, self._last = self._last, None
        return last

    def _watched(self, *arguments: Any, **keywords: Any) -> Any:
        output = self._schedule(*arguments, **keywords)
        if output.num_scheduled_tokens:
            self._last = self._read(output)
        return output

    def _read(self, output: Any) -> Scheduled:
        counts: dict[str, int] = output.num_scheduled_tokens
        requests = self._scheduler.requests
        decode = {name for name, count in counts.items() if count == 1 and requests[name].num_output_tokens > 0}
        prompts = [
            PrefillRow(request=0, first_token=first, num_tokens=counts[name])
            for name, first in _firsts(output).items()
            if name not in decode
        ]
        stage = getattr(output, "stage", None)  # of layered prefill alone
        return Scheduled(
            num_decode=len(decode),
            num_prefill_tokens=sum(counts.values()) - len(decode),
            num_prefill_layers=None if stage is None else stage.group.num_layers,
            num_prefill_pairs=prefill_pairs(prompts),
            num_running=len(self._scheduler.running),
            num_waiting=len(self._scheduler.waiting),
            kv_fraction=self._scheduler.kv_cache_manager.usage,
        )


def _firsts(output: Any) -> dict[str, int]:
    """Returns the number of tokens that each scheduled request has in the KV cache already."""
    cached = output.scheduled_cached_reqs
    new = {one.req_id: one.num_computed_tokens for one in output.scheduled_new_reqs}
    return new | dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
