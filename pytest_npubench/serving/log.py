"""What every iteration ran and cost, by columns: a run has hundreds of thousands of them.

Journals and metrics read the columns by their names. An iteration, or a stretch of those that only decode, is one
entry (log_entries.py, which names its fields) until somebody reads a column.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np

from pytest_npubench.serving.iteration import DecodeStretch, EachDecode, IterationOutcome, IterationPlan, PrefillRow
from pytest_npubench.serving.log_entries import Entries

MANY_STRETCHES = 8192  # that wait to be packed: until then they take four times the memory

T = TypeVar("T")


class _Column(Generic[T]):
    """A column of a log, complete when it is read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, log: None, owner: type) -> _Column[T]: ...
    @overload
    def __get__(self, log: IterationLog, owner: type) -> T: ...
    def __get__(self, log: IterationLog | None, owner: type) -> _Column[T] | T:
        if log is None:
            return self
        column: T = log.column(self._name)
        return column

    def __set__(self, log: IterationLog, column: T) -> None:
        log.written()[self._name] = column


class IterationLog:
    """One entry an iteration in each column; only ever appended to.

    num_decode, num_prefill_tokens, num_prefill_layers and num_prefill_pairs describe the plan: decode rows, prompt
    tokens of the pass that has them, the layers that these ran through, and over these tokens how many each attends to,
    itself counted: 3 tokens behind 10 make 11 + 12 + 13 pairs. num_running counts all admitted requests, in flight or
    decoding, and num_waiting the queue, both while the iteration ran. The others are those of IterationOutcome;
    energy_j is None where nothing told it.
    """

    start_s: _Column[array[float]] = _Column()
    end_s: _Column[array[float]] = _Column()
    num_decode: _Column[array[int]] = _Column()
    num_prefill_tokens: _Column[array[int]] = _Column()
    num_prefill_layers: _Column[array[int]] = _Column()
    num_prefill_pairs: _Column[array[int]] = _Column()
    num_running: _Column[array[int]] = _Column()
    num_waiting: _Column[array[int]] = _Column()
    expert_activations: _Column[array[int]] = _Column()
    padded_expert_activations: _Column[array[int]] = _Column()
    expert_load_bytes: _Column[array[int]] = _Column()
    kv_bytes: _Column[array[int]] = _Column()
    hidden_bytes: _Column[array[int]] = _Column()
    energy_j: _Column[list[float | None]] = _Column()

    __slots__ = (
        "_apart",
        "_columns",
        "_energies",
        "_entries",
        "_num_in",
        "_num_unpacked",
        "_single",
        "_stretches",
    )

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {name: [] if name == "energy_j" else array(_typecode(name)) for name in _NAMES}
        self._entries: list[Entries] = []  # what some column does not have yet
        self._num_in = dict.fromkeys(_NAMES, 0)  # how many of these each column has
        # what is not packed yet (log_entries)
        self._single: list[tuple[float, ...]] = []
        self._energies: list[tuple[int, float]] = []
        self._stretches: list[tuple[float, ...]] = []
        self._apart: list[tuple[int, EachDecode]] = []
        self._num_unpacked = 0

    def __len__(self) -> int:
        waiting = self._entries[self._num_in["end_s"] :]
        return len(self._columns["end_s"]) + sum(entries.number for entries in waiting) + self._num_unpacked

    def __eq__(self, other: object) -> bool:
        return self.written() == other.written() if isinstance(other, IterationLog) else NotImplemented

    def __repr__(self) -> str:
        return f"IterationLog({self.written()})"

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
        num_tokens = num_layers = num_pairs = 0
        for group, prefill in plan.passes:
            if prefill:
                own_tokens = 0
                for _, _, number in prefill:
                    own_tokens += number
                if own_tokens > num_tokens:
                    num_tokens, num_pairs = own_tokens, prefill_pairs(prefill)
                num_layers += group.stop - group.first
        self._single.append(
            (
                self._num_unpacked,
                start_s,
                end_s,
                len(plan.decode),
                num_running,
                num_waiting,
                outcome.kv_bytes,
                outcome.hidden_bytes,
                num_tokens,
                num_layers,
                num_pairs,
                outcome.expert_activations,
                outcome.padded_expert_activations,
                outcome.expert_load_bytes,
            )
        )
        if outcome.energy_j is not None:
            self._energies.append((self._num_unpacked, outcome.energy_j))
        self._num_unpacked += 1

    def add(self, outcome: IterationOutcome, **others: float) -> None:
        """One iteration more: what it cost, and its entries in the other columns by name."""
        columns = self.written()
        for name in _COSTS:
            columns[name].append(getattr(outcome, name))
        for name, value in others.items():
            columns[name].append(value)

    def add_decode(
        self, stretch: DecodeStretch, start_s: float, *, num_decode: int, num_running: int, num_waiting: int
    ) -> None:
        """Iterations of one plan that only decodes, the first from start_s on."""
        number, end_s, step_s, growth_s, kv_bytes, kv_growth, hidden_bytes, each = stretch
        place = self._num_unpacked
        self._stretches.append(
            (
                place,
                start_s,
                end_s,
                num_decode,
                num_running,
                num_waiting,
                kv_bytes,
                hidden_bytes,
                number,
                step_s,
                growth_s,
                kv_growth,
            )
        )
        if each is not None:
            self._apart.append((place, each))
        self._num_unpacked += number
        if len(self._stretches) >= MANY_STRETCHES:
            self._pack()

    def extend(self, columns: Mapping[str, Sequence[float | None]], by_s: float = 0.0) -> None:
        """Iterations more, by column; their times so much later. What no column says is 0, and energy unknown."""
        unknown = dict.fromkeys(_NAMES, 0) | {"energy_j": None}
        for name, column in self.written().items():
            values: Iterable[Any] = columns.get(name) or [unknown[name]] * len(columns.get("end_s", ()))
            if name in _TIMES:
                values = [value + by_s for value in values]
            column.extend(values if name == "energy_j" or name in _TIMES else map(int, values))

    def columns(self) -> dict[str, Any]:
        """Each column by its name."""
        return dict(self.written())

    def column(self, name: str) -> Any:
        """The column itself, with all iterations."""
        if self._num_unpacked:
            self._pack()
        column = self._columns[name]
        for entries in self._entries[self._num_in[name] :]:
            if name == "energy_j":
                column += entries.energy_j()
            else:
                column.frombytes(entries.column(name).data.cast("B"))
        self._num_in[name] = len(self._entries)
        return column

    def written(self) -> dict[str, Any]:
        """The columns themselves, all with all iterations."""
        if self._num_unpacked or self._entries:
            for name in _NAMES:
                self.column(name)
            self._entries, self._num_in = [], dict.fromkeys(_NAMES, 0)
        return self._columns

    def _pack(self) -> None:
        self._entries.append(Entries(self._single, self._stretches, self._energies, self._apart))
        self._single, self._stretches, self._energies, self._apart = [], [], [], []
        self._num_unpacked = 0


_NAMES = tuple(name for name, column in vars(IterationLog).items() if isinstance(column, _Column))
_TIMES = ("start_s", "end_s")
_COSTS = _NAMES[_NAMES.index("expert_activations") :]


def prefill_pairs(rows: Sequence[PrefillRow]) -> int:
    """Over the tokens of these rows, how many each attends to, itself counted."""
    num_pairs = 0
    for _, first, number in rows:
        num_pairs += number * (2 * first + number + 1) // 2
    return num_pairs


def _typecode(name: str) -> str:
    return "d" if name in _TIMES else "q"


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
