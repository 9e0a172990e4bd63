"""What every iteration ran and cost, by columns: a run has hundreds of thousands of them.

Journals and metrics read the columns by their names.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan, PrefillRow

TIMES = ("start_s", "end_s")
COSTS = (
    "expert_activations",
    "padded_expert_activations",
    "expert_load_bytes",
    "kv_bytes",
    "hidden_bytes",
    "energy_j",
    "host_s",
)
MAYBE_UNKNOWN = ("energy_j", "host_s")
COLUMNS = (
    *TIMES,
    "num_decode",
    "num_prefill_tokens",
    "num_prefill_layers",
    "num_prefill_pairs",
    "num_running",
    "num_waiting",
    *COSTS,
)


class IterationLog:
    """One entry an iteration in each column; only ever appended to.

    num_decode, num_prefill_tokens, num_prefill_layers and num_prefill_pairs describe the plan: decode rows, prompt
    tokens of the pass that has them, the layers that these ran through, and over these tokens how many each attends to,
    itself counted: 3 tokens behind 10 make 11 + 12 + 13 pairs. num_running counts all admitted requests, in flight or
    decoding, and num_waiting the queue, both while the iteration ran. The others are those of IterationOutcome;
    energy_j and host_s are None where nothing told them.
    """

    __slots__ = COLUMNS

    start_s: array[float]
    end_s: array[float]
    num_decode: array[int]
    num_prefill_tokens: array[int]
    num_prefill_layers: array[int]
    num_prefill_pairs: array[int]
    num_running: array[int]
    num_waiting: array[int]
    expert_activations: array[int]
    padded_expert_activations: array[int]
    expert_load_bytes: array[int]
    kv_bytes: array[int]
    hidden_bytes: array[int]
    energy_j: list[float | None]
    host_s: list[float | None]

    def __init__(self) -> None:
        for name in COLUMNS:
            setattr(self, name, [] if name in MAYBE_UNKNOWN else array("d" if name in TIMES else "q"))

    def __len__(self) -> int:
        return len(self.end_s)

    def __eq__(self, other: object) -> bool:
        return self.columns() == other.columns() if isinstance(other, IterationLog) else NotImplemented

    def __repr__(self) -> str:
        return f"IterationLog({self.columns()})"

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
        num_tokens, num_layers, num_pairs = prefill_work(plan)
        self.start_s.append(start_s)
        self.end_s.append(end_s)
        self.num_decode.append(len(plan.decode))
        self.num_prefill_tokens.append(num_tokens)
        self.num_prefill_layers.append(num_layers)
        self.num_prefill_pairs.append(num_pairs)
        self.num_running.append(num_running)
        self.num_waiting.append(num_waiting)
        self.expert_activations.append(outcome.expert_activations)
        self.padded_expert_activations.append(outcome.padded_expert_activations)
        self.expert_load_bytes.append(outcome.expert_load_bytes)
        self.kv_bytes.append(outcome.kv_bytes)
        self.hidden_bytes.append(outcome.hidden_bytes)
        self.energy_j.append(outcome.energy_j)
        self.host_s.append(outcome.host_s)

    def add(self, outcome: IterationOutcome, **others: float) -> None:
        """One iteration more: what it cost, and its entries in the other columns by name."""
        for name in COSTS:
            getattr(self, name).append(getattr(outcome, name))
        for name, value in others.items():
            getattr(self, name).append(value)

    def extend(self, columns: Mapping[str, Sequence[float | None]], by_s: float = 0.0) -> None:
        """Iterations more, by column; their times so much later. What no column says is 0, or unknown."""
        unknown = dict.fromkeys(COLUMNS, 0) | dict.fromkeys(MAYBE_UNKNOWN)
        for name, column in self.columns().items():
            values: Iterable[Any] = columns.get(name) or [unknown[name]] * len(columns.get("end_s", ()))
            if name in TIMES:
                values = [value + by_s for value in values]
            column.extend(values if name in (*MAYBE_UNKNOWN, *TIMES) else map(int, values))

    def columns(self) -> dict[str, Any]:
        """Each column by its name."""
        return {name: getattr(self, name) for name in COLUMNS}


def prefill_work(plan: IterationPlan) -> tuple[int, int, int]:
    """Returns a plan's num_prefill_tokens, num_prefill_layers and num_prefill_pairs (IterationLog)."""
    num_tokens = num_layers = num_pairs = 0
    for (first, stop), rows in plan.passes:
        if rows:
            pass_tokens, pass_pairs = _tokens_and_pairs(rows)
            if pass_tokens > num_tokens:
                num_tokens, num_pairs = pass_tokens, pass_pairs
            num_layers += stop - first
    return num_tokens, num_layers, num_pairs


def prefill_pairs(rows: Sequence[PrefillRow]) -> int:
    """Over the tokens of these rows, how many each attends to, itself counted."""
    return _tokens_and_pairs(rows)[1]


def _tokens_and_pairs(rows: Sequence[PrefillRow]) -> tuple[int, int]:
    num_tokens = num_pairs = 0
    for _, first, number in rows:
        num_tokens += number
        num_pairs += number * (2 * first + number + 1) // 2
    return num_tokens, num_pairs


def merged(logs: Sequence[IterationLog]) -> IterationLog:
    """Returns the iterations of several devices as one log, in the order in which they ended."""
    whole = IterationLog()
    for log in logs:
        for name, column in log.columns().items():
            getattr(whole, name).extend(column)
    order = np.argsort(np.asarray(whole.end_s), kind="stable")
    for name, column in whole.columns().items():
        if isinstance(column, array):
            ordered: Any = array(column.typecode, np.asarray(column)[order].tobytes())
        else:
            ordered = [column[index] for index in order.tolist()]
        setattr(whole, name, ordered)
    return whole
