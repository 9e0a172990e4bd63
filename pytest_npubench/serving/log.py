"""What every iteration ran and cost, by columns: a run has hundreds of thousands of them.

The fields of IterationLog are the one list of these columns: what an iteration cost is taken over from its outcome by
name, and journals and metrics read the columns by their names.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from pytest_npubench.serving.iteration import DecodeStretch, IterationOutcome, IterationPlan


def _seconds() -> array[float]:
    return array("d")


def _whole() -> array[int]:
    return array("q")


@dataclass(slots=True)
class IterationLog:
    """One entry an iteration in each column; only ever appended to.

    num_decode, num_prefill_tokens and num_prefill_layers describe the plan: decode rows, prompt tokens of the pass that
    has them, and the layers that these ran through. num_running counts all admitted requests, in flight or decoding,
    and num_waiting the queue, both while the iteration ran. The others are those of IterationOutcome; energy_j is None
    where nothing told it.
    """

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
        """One iteration more, as it was planned."""
        num_tokens = num_layers = 0
        for group, prefill in plan.passes:
            if prefill:
                num_tokens = max(num_tokens, sum(row.num_tokens for row in prefill))
                num_layers += group.stop - group.first
        self.add(
            outcome,
            start_s=start_s,
            end_s=end_s,
            num_decode=len(plan.decode),
            num_prefill_tokens=num_tokens,
            num_prefill_layers=num_layers,
            num_running=num_running,
            num_waiting=num_waiting,
        )

    def add(self, outcome: IterationOutcome, **others: float) -> None:
        """One iteration more: what it cost, and its entries in the other columns by name."""
        self.expert_activations.append(outcome.expert_activations)
        self.padded_expert_activations.append(outcome.padded_expert_activations)
        self.expert_load_bytes.append(outcome.expert_load_bytes)
        self.kv_bytes.append(outcome.kv_bytes)
        self.hidden_bytes.append(outcome.hidden_bytes)
        self.energy_j.append(outcome.energy_j)
        for name, value in others.items():
            getattr(self, name).append(value)

    def add_decode(
        self, stretch: DecodeStretch, start_s: float, *, num_decode: int, num_running: int, num_waiting: int
    ) -> None:
        """Iterations of one plan that only decodes, the first from start_s on."""
        number = len(stretch.end_s)
        self.start_s.append(start_s)
        self.start_s.extend(stretch.end_s[:-1])
        self.end_s.extend(stretch.end_s)
        self.num_decode.extend([num_decode] * number)
        nothing = [0] * number
        self.num_prefill_tokens.extend(nothing)
        self.num_prefill_layers.extend(nothing)
        self.num_running.extend([num_running] * number)
        self.num_waiting.extend([num_waiting] * number)
        self.expert_activations.extend(stretch.expert_activations)
        self.padded_expert_activations.extend(stretch.padded_expert_activations)
        self.expert_load_bytes.extend(stretch.expert_load_bytes)
        self.kv_bytes.extend(stretch.kv_bytes)
        self.hidden_bytes.extend([stretch.hidden_bytes] * number)
        self.energy_j.extend([None] * number)

    def extend(self, columns: Mapping[str, Sequence[float | None]], by_s: float = 0.0) -> None:
        """Iterations more, by column; their times so much later. What no column says is 0, and energy unknown."""
        unknown = dict.fromkeys(_NAMES, 0) | {"energy_j": None}
        for name, column in self.columns().items():
            values: Iterable[Any] = columns.get(name) or [unknown[name]] * len(columns.get("end_s", ()))
            if name in _TIMES:
                values = [value + by_s for value in values]
            column.extend(values if name == "energy_j" or name in _TIMES else map(int, values))

    def columns(self) -> dict[str, Any]:
        """Each column by its name."""
        return {name: getattr(self, name) for name in _NAMES}


_NAMES = tuple(column.name for column in fields(IterationLog))
_TIMES = ("start_s", "end_s")


def merged(logs: Sequence[IterationLog]) -> IterationLog:
    """The iterations of several devices as one log, in the order in which they ended."""
    whole = IterationLog()
    for log in logs:
        for name, column in log.columns().items():
            getattr(whole, name).extend(column)
    order = np.argsort(np.asarray(whole.end_s), kind="stable")
    for name, column in whole.columns().items():
        if isinstance(column, array):
            ordered: Any = array(column.typecode, np.asarray(column)[order].tobytes())
        else:
            ordered = [column[place] for place in order.tolist()]
        setattr(whole, name, ordered)
    return whole
