"""A log that takes a stretch of iterations as one entry (stretch.py), and makes a column when it is first read.

An entry begins with `index`, the number of iterations ahead of it, and what single iterations and stretches both have
(SAME). Worked example: a stretch of three iterations at index 1 that starts at 2.0 s, with steps of 0.1 s and no
growth, ends them at 2.1, 2.2 and 2.3 s; they are iterations 1, 2 and 3.
"""

from __future__ import annotations

from array import array
from functools import cached_property
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_npubench.extensions.planning.virtual.stretch import DecodeStretch, EachDecode
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan
from pytest_npubench.serving.log import COLUMNS, MAYBE_UNKNOWN, TIMES, IterationLog, prefill_work

Floats = npt.NDArray[np.float64]

SAME = ("index", "start_s", "end_s", "num_decode", "num_running", "num_waiting", "kv_bytes", "hidden_bytes")
OF_SINGLE = (
    "num_prefill_tokens",
    "num_prefill_layers",
    "num_prefill_pairs",
    "expert_activations",
    "padded_expert_activations",
    "expert_load_bytes",
)
OF_STRETCH = ("number", "step_s", "growth_s", "kv_growth")
_single = Struct(f"{len(SAME + OF_SINGLE)}d").pack
_stretch = Struct(f"{len(SAME + OF_STRETCH)}d").pack


class StretchLog(IterationLog):
    """An IterationLog that nothing is appended to once a column was read."""

    def __init__(self) -> None:
        self._single = bytearray()  # rows of doubles: a list of tuples takes four times the memory
        self._stretches = bytearray()
        self._energies: list[tuple[int, float]] = []  # by index, where they are known
        self._apart: list[tuple[int, EachDecode]] = []  # by index
        self._num_iterations = 0

    def __len__(self) -> int:
        return self._num_iterations

    def column(self, name: str) -> Any:
        """Makes a column of COLUMNS."""
        column: Any
        if name in MAYBE_UNKNOWN:
            column = [None] * len(self)
            for index, joules in self._energies if name == "energy_j" else ():
                column[index] = joules
        else:
            column = array("d" if name in TIMES else "q")
            column.frombytes(self._table.column(name).data.cast("B"))
        return column

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
        index = self._num_iterations
        num_tokens, num_layers, num_pairs = prefill_work(plan)
        self._single += _single(
            index,
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
        if outcome.energy_j is not None:
            self._energies.append((index, outcome.energy_j))
        self._num_iterations += 1

    def add_decode(
        self, stretch: DecodeStretch, start_s: float, num_decode: int, num_running: int, num_waiting: int
    ) -> None:
        """Iterations of one plan that only decodes, the first from start_s on."""
        number, end_s, step_s, growth_s, kv_bytes, kv_growth, hidden_bytes, each = stretch
        index = self._num_iterations
        self._stretches += _stretch(
            index,
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
        if each is not None:
            self._apart.append((index, each))
        self._num_iterations += number

    @cached_property
    def _table(self) -> _Table:
        return _Table(_rows(self._single, SAME + OF_SINGLE), _rows(self._stretches, SAME + OF_STRETCH), self._apart)


class _Column:
    """Makes a log's column when it is first read. A __getattr__ would slow down every other look-up."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, log: StretchLog, owner: type) -> Any:
        column = log.__dict__[self._name] = log.column(self._name)
        return column


for _name in COLUMNS:
    setattr(StretchLog, _name, _Column(_name))


def _rows(doubles: bytearray, names: tuple[str, ...]) -> Floats:
    """Whole numbers are exact up to 2^53, which bytes and pairs of tokens stay far below."""
    return np.frombuffer(doubles, np.float64).reshape(-1, len(names))


class _Table:
    """All entries in the order in which they ran."""

    def __init__(self, single: Floats, stretches: Floats, apart: list[tuple[int, EachDecode]]) -> None:
        """Columns of `single`: SAME and OF_SINGLE; of `stretches`: SAME and OF_STRETCH, end_s of the last iteration."""
        self._single = dict(zip(SAME + OF_SINGLE, single.T, strict=True))
        same = np.concatenate([single[:, : len(SAME)], stretches[:, : len(SAME)]])
        others = np.concatenate([np.tile([1.0, 0.0, 0.0, 0.0], (len(single), 1)), stretches[:, len(SAME) :]])
        order = np.argsort(same[:, 0])
        self._all = dict(zip(SAME + OF_STRETCH, np.hstack([same, others])[order].T, strict=True))
        self._numbers = self._all["number"].astype(np.intp)
        self._firsts = self._all["index"].astype(np.intp)
        self._apart = apart

    def column(self, name: str) -> npt.NDArray[Any]:
        """An entry for each iteration: seconds as float64, all others as int64, rounded down."""
        if name == "start_s":
            return self._start_s()
        if name == "end_s":
            return self._end_s()
        if name in OF_SINGLE:
            counts = np.zeros(int(self._numbers.sum()), np.int64)
            if self._single[name].any():  # a dense model has no experts
                counts[self._single["index"].astype(np.intp)] = self._single[name]
            return self._with_apart(name, counts)
        values: Floats = self._all[name].repeat(self._numbers)
        if name == "kv_bytes":
            values += self._ahead() * self._all["kv_growth"].repeat(self._numbers)
        return values.astype(np.int64)

    def _ahead(self) -> npt.NDArray[np.intp]:
        """How many iterations of the same entry are ahead of each."""
        ahead: npt.NDArray[np.intp] = np.arange(self._numbers.sum()) - self._firsts.repeat(self._numbers)
        return ahead

    def _end_s(self) -> Floats:
        ahead = self._ahead()
        mean_s = self._all["step_s"].repeat(self._numbers) + ahead * (self._all["growth_s"] / 2).repeat(self._numbers)
        end_s: Floats = self._all["start_s"].repeat(self._numbers) + (ahead + 1) * mean_s
        end_s[self._firsts + self._numbers - 1] = self._all["end_s"]
        return self._with_apart("end_s", end_s)

    def _start_s(self) -> Floats:
        start_s = np.empty(int(self._numbers.sum()))
        start_s[1:] = self._end_s()[:-1]
        start_s[self._firsts] = self._all["start_s"]
        return start_s

    def _with_apart(self, name: str, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if name in EachDecode._fields:
            for first, each in self._apart:
                values = getattr(each, name)
                column[first : first + len(values)] = values
        return column
