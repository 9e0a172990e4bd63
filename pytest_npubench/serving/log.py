"""What every iteration ran and cost, by columns: a run has hundreds of thousands of them.

num_decode, num_prefill_tokens and num_prefill_layers describe the plan: decode rows, prompt tokens of the pass that has
them, and the layers that these ran through. num_running counts all admitted requests, in flight or decoding, and
num_waiting the queue, both while the iteration ran.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan


def _seconds() -> array[float]:
    return array("d")


def _whole() -> array[int]:
    return array("q")


@dataclass(slots=True)
class IterationLog:
    """One entry an iteration in each column; only ever appended to."""

    start_s: array[float] = field(default_factory=_seconds)
    end_s: array[float] = field(default_factory=_seconds)
    num_decode: array[int] = field(default_factory=_whole)
    num_prefill_tokens: array[int] = field(default_factory=_whole)
    num_prefill_layers: array[int] = field(default_factory=_whole)
    num_running: array[int] = field(default_factory=_whole)
    num_waiting: array[int] = field(default_factory=_whole)
    expert_activations: array[int] = field(default_factory=_whole)
    padded_expert_activations: array[int] = field(default_factory=_whole)
    expert_load_bytes: array[int] = field(default_factory=_whole)
    kv_bytes: array[int] = field(default_factory=_whole)
    hidden_bytes: array[int] = field(default_factory=_whole)
    energy_j: list[float | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.end_s)

    def append(
        self,
        start_s: float,
        end_s: float,
        plan: IterationPlan,
        outcome: IterationOutcome,
        *,
        num_running: int,
        num_waiting: int,
    ) -> None:
        """One iteration more."""
        num_tokens = num_layers = 0
        for group, prefill in plan.passes:
            if prefill:
                num_tokens = max(num_tokens, sum(row.num_tokens for row in prefill))
                num_layers += group.stop - group.first
        self.start_s.append(start_s)
        self.end_s.append(end_s)
        self.num_decode.append(len(plan.decode))
        self.num_prefill_tokens.append(num_tokens)
        self.num_prefill_layers.append(num_layers)
        self.num_running.append(num_running)
        self.num_waiting.append(num_waiting)
        self.expert_activations.append(outcome.expert_activations)
        self.padded_expert_activations.append(outcome.padded_expert_activations)
        self.expert_load_bytes.append(outcome.expert_load_bytes)
        self.kv_bytes.append(outcome.kv_bytes)
        self.hidden_bytes.append(outcome.hidden_bytes)
        self.energy_j.append(outcome.energy_j)


def merged(logs: Sequence[IterationLog]) -> IterationLog:
    """The iterations of several devices as one log, in the order in which they ended."""
    order = sorted((log.end_s[index], which, index) for which, log in enumerate(logs) for index in range(len(log)))
    whole = IterationLog()
    for column in fields(IterationLog):
        columns = [getattr(log, column.name) for log in logs]
        getattr(whole, column.name).extend([columns[which][index] for _, which, index in order])
    return whole
