"""Iterations as they were appended, until somebody reads a column of them: an entry for each that stood alone, and one
for each stretch of iterations that only decode.

An entry begins with `place`, the number of iterations ahead of it, and what both kinds have (SAME). Worked example: a
stretch of three iterations at place 1 that starts at 2.0 s, with steps of 0.1 s and no growth, ends them at 2.1, 2.2
and 2.3 s; they are iterations 1, 2 and 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_npubench.serving.iteration import EachDecode

Floats = npt.NDArray[np.float64]

SAME = ("place", "start_s", "end_s", "num_decode", "num_running", "num_waiting", "kv_bytes", "hidden_bytes")
OF_SINGLE = (
    "num_prefill_tokens",
    "num_prefill_layers",
    "num_prefill_pairs",
    "expert_activations",
    "padded_expert_activations",
    "expert_load_bytes",
)
OF_STRETCH = ("number", "step_s", "growth_s", "kv_growth")


class Entries:
    """single: SAME and OF_SINGLE of each; stretches: SAME and OF_STRETCH (iteration.DecodeStretch), end_s that of the
    last iteration. energies: joules by place, where they are known. apart: what a stretch says of each of its
    iterations, by place."""

    def __init__(
        self,
        single: Sequence[tuple[float, ...]],
        stretches: Sequence[tuple[float, ...]],
        energies: Sequence[tuple[int, float]],
        apart: Sequence[tuple[int, EachDecode]],
    ) -> None:
        alone, decode = _table(single, SAME + OF_SINGLE), _table(stretches, SAME + OF_STRETCH)
        self._alone = dict(zip(SAME + OF_SINGLE, alone.T, strict=True))
        same = np.concatenate([alone[:, : len(SAME)], decode[:, : len(SAME)]])
        others = np.concatenate([np.tile([1.0, 0.0, 0.0, 0.0], (len(alone), 1)), decode[:, len(SAME) :]])
        order = np.argsort(same[:, 0])
        self._all = dict(zip(SAME + OF_STRETCH, np.hstack([same, others])[order].T, strict=True))
        self._numbers = self._all["number"].astype(np.intp)
        self._places = self._all["place"].astype(np.intp)
        self._energies, self._apart = energies, apart
        self.number = int(self._numbers.sum())
        """Of iterations."""

    def energy_j(self) -> list[float | None]:
        joules: list[float | None] = [None] * self.number
        for place, value in self._energies:
            joules[place] = value
        return joules

    def column(self, name: str) -> npt.NDArray[Any]:
        """Of each iteration: seconds as float64, all others as int64, rounded down."""
        if name == "start_s":
            return self._start_s()
        if name == "end_s":
            return self._end_s()
        if name in OF_SINGLE:
            found = np.zeros(self.number, np.int64)
            if self._alone[name].any():  # a dense model has no experts
                found[self._alone["place"].astype(np.intp)] = self._alone[name]
            return self._with_apart(name, found)
        values: Floats = self._all[name].repeat(self._numbers)
        if name == "kv_bytes":
            values += self._ahead() * self._all["kv_growth"].repeat(self._numbers)
        return values.astype(np.int64)

    def _ahead(self) -> npt.NDArray[np.intp]:
        """Of the same entry's iterations, how many are ahead of each."""
        ahead: npt.NDArray[np.intp] = np.arange(self.number) - self._places.repeat(self._numbers)
        return ahead

    def _end_s(self) -> Floats:
        ahead = self._ahead()
        mean_s = self._all["step_s"].repeat(self._numbers) + ahead * (self._all["growth_s"] / 2).repeat(self._numbers)
        end_s: Floats = self._all["start_s"].repeat(self._numbers) + (ahead + 1) * mean_s
        end_s[self._places + self._numbers - 1] = self._all["end_s"]
        return self._with_apart("end_s", end_s)

    def _start_s(self) -> Floats:
        start_s = np.empty(self.number)
        start_s[1:] = self._end_s()[:-1]
        start_s[self._places] = self._all["start_s"]
        return start_s

    def _with_apart(self, name: str, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if name in EachDecode._fields:
            for place, each in self._apart:
                values = getattr(each, name)
                column[place : place + len(values)] = values
        return column


def _table(rows: Sequence[tuple[float, ...]], names: Sequence[str]) -> Floats:
    """Whole numbers are exact up to 2^53, which bytes and pairs of tokens stay far below."""
    table: Floats = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * len(names))
    return table.reshape(len(rows), len(names))
