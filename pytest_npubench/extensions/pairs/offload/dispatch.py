"""One unit's share of a graph of subgraphs, run for real: what is ready is read from flags that both units see.

Each unit decides for itself, when it is free, with the policies of `schedules`; a subgraph's flag is set after its
results are written. A unit that fails raises a flag of its own, so that the other does not wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.offload.graph import SubgraphDag
from pytest_npubench.extensions.pairs.offload.schedules import IN_ORDER, ReadyQueue, make_policy
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.signals import fence

LIMIT_S = 20.0
"""No subgraph becoming ready for so long: the other unit is gone."""
PATIENCE_S = 0.05
"""After so long without one the other unit is asked for; before, asking would cost what is measured."""


class OtherUnitError(MeasurementError):
    """The other unit gave up or is silent; its own error says why."""


@dataclass(frozen=True, slots=True)
class Board:
    """Flags and clocks of one graph, shared by both units: done and gave_up are 0 or 1, times those of perf_counter."""

    done: NDArray[np.uint8]
    gave_up: NDArray[np.uint8]
    started_s: NDArray[np.float64]
    ended_s: NDArray[np.float64]
    stall_s: NDArray[np.float64]

    @classmethod
    def make(cls, arena: SharedArena, name: str, num_nodes: int) -> Board:
        for part in ("done", "gave_up"):
            arena.allocate(f"{name}/{part}", (num_nodes,), np.uint8)
        for part in ("started_s", "ended_s", "stall_s"):
            arena.allocate(f"{name}/{part}", (num_nodes,), np.float64)
        return cls.join(arena, name)

    @classmethod
    def join(cls, arena: SharedArena, name: str) -> Board:
        views: list[NDArray[Any]] = [
            arena.view(f"{name}/{part}") for part in ("done", "gave_up", "started_s", "ended_s", "stall_s")
        ]
        return cls(*views)

    def clear(self) -> None:
        self.done[:] = 0
        self.gave_up[:] = 0


def _unasked() -> None:
    """Does nothing, where only the board tells of the other unit."""


def run_unit(
    dag: SubgraphDag,
    unit: str,
    policy: str,
    board: Board,
    work: Mapping[int, Callable[[], None]],
    *,
    check: Callable[[], None] = _unasked,
) -> None:
    """Run all nodes of `unit`, each when it is ready and chosen; `check` may raise where the other unit is no more.
    Raises OtherUnitError where that one gave up or is silent for LIMIT_S, and whatever check and work raise."""
    try:
        _run(_DispatchLine(dag, unit, policy), board, work, check)
    except BaseException:
        board.gave_up[:] = 1
        raise


def _run(line: _DispatchLine, board: Board, work: Mapping[int, Callable[[], None]], check: Callable[[], None]) -> None:
    waits_since_s = perf_counter()
    while line.left:
        chosen = line.choose(board.done)
        if chosen is None:
            _check(board, perf_counter() - waits_since_s, check)
            continue
        if board.stall_s[chosen] > 0:
            time.sleep(board.stall_s[chosen])
        board.started_s[chosen] = perf_counter()
        work[chosen]()
        board.ended_s[chosen] = waits_since_s = perf_counter()
        fence()
        board.done[chosen] = 1


class _DispatchLine:
    """What one unit still has to do, and what of it is ready."""

    def __init__(self, dag: SubgraphDag, unit: str, policy: str) -> None:
        self.left = list(dag.of(unit))
        self._dag = dag
        self._ready: list[int] = []
        self._policy = None if policy == IN_ORDER else make_policy(policy, dag)

    def choose(self, flags: NDArray[np.uint8]) -> int | None:
        """Takes the next node out of those left; None where none may run."""
        if self._policy is None:
            head = self.left[0]
            return self.left.pop(0) if flags[list(self._dag.nodes[head].needs)].all() else None
        done = frozenset(np.flatnonzero(flags.copy()).tolist())  # a copy: the other unit sets flags meanwhile
        fence()
        self._ready += [index for index in self.left if index not in self._ready and self._is_ready(index, done)]
        if not self._ready:
            return None
        chosen = self._policy(ReadyQueue(self._dag, tuple(self._ready), done))
        self._ready.remove(chosen)
        self.left.remove(chosen)
        return chosen

    def _is_ready(self, index: int, done: frozenset[int]) -> bool:
        return done.issuperset(self._dag.nodes[index].needs)


def _check(board: Board, waited_s: float, check: Callable[[], None]) -> None:
    if board.gave_up.any():
        raise OtherUnitError("the other unit gave up on its subgraphs")
    if waited_s > PATIENCE_S:
        check()
    if waited_s > LIMIT_S:
        raise OtherUnitError(f"nothing became ready for {LIMIT_S:g} s; the other unit is silent")
