"""Two units on one board, here two threads: nothing begins before what it needs, a unit that gives up is noticed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import MeasurementError, UnitLostError
from pytest_npubench.extensions.pairs.offload import dispatch
from pytest_npubench.extensions.pairs.offload.decoder import DecoderSize
from pytest_npubench.extensions.pairs.offload.dispatch import Board, run_unit
from pytest_npubench.extensions.pairs.offload.graph import Subgraph, SubgraphDag
from pytest_npubench.extensions.pairs.offload.pipeline import Pipeline, Variant
from pytest_npubench.extensions.pairs.offload.schedules import policy_names
from pytest_npubench.extensions.pairs.offload.units import Units
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena

from .in_process import InProcessUnit
from .oracles import dags


def run_both(dag: SubgraphDag, policy: str, board: Board, work: Callable[[int], None]) -> None:
    runs = {index: (lambda index=index: work(index)) for index in range(len(dag))}
    other = threading.Thread(target=run_unit, args=(dag, "npu", policy, board, runs))
    other.start()
    run_unit(dag, "gpu", policy, board, runs)
    other.join()


@settings(deadline=None, max_examples=15)
@given(dags(max_nodes=8), st.sampled_from(policy_names()))
def test_nothing_begins_before_what_it_needs(dag: SubgraphDag, policy: str) -> None:
    arena = SharedArena()
    board = Board.make(arena, "board", len(dag))
    ran: list[int] = []
    run_both(dag, policy, board, ran.append)
    assert sorted(ran) == list(range(len(dag)))
    assert all(ran.index(need) < ran.index(index) for index in ran for need in dag.nodes[index].needs)
    for index, node in enumerate(dag.nodes):
        assert all(board.ended_s[need] <= board.started_s[index] for need in node.needs)
        assert board.started_s[index] <= board.ended_s[index]
    if policy == "in_order":
        for unit in ("gpu", "npu"):
            assert [index for index in ran if dag.nodes[index].unit == unit] == list(dag.of(unit))
    arena.close()


def two_in_a_row() -> SubgraphDag:
    first = Subgraph(stage="a", chunk=0, layer=0, unit="npu", duration_s=1)
    return SubgraphDag([first, Subgraph(stage="b", chunk=0, layer=0, unit="gpu", duration_s=1, needs=(0,))])


@pytest.fixture
def board() -> Board:
    return Board.make(SharedArena(), "board", 2)


def test_a_unit_that_fails_is_noticed_by_the_other(board: Board) -> None:
    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run_unit(two_in_a_row(), "npu", "fifo", board, {0: fail})
    with pytest.raises(MeasurementError, match="the other unit gave up"):
        run_unit(two_in_a_row(), "gpu", "fifo", board, {1: fail})
    board.clear()
    assert not board.gave_up.any()


def test_a_unit_that_is_silent_is_noticed(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "LIMIT_S", 0.05)
    with pytest.raises(MeasurementError, match=r"nothing became ready for 0\.05 s"):
        run_unit(two_in_a_row(), "gpu", "contribution", board, {})


def test_the_other_unit_is_asked_for_while_nothing_is_ready(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PATIENCE_S", 0.01)

    def lost() -> None:
        raise UnitLostError("static unit was lost: killed by signal 9")

    began_s = time.perf_counter()
    with pytest.raises(UnitLostError, match="killed by signal 9"):
        run_unit(two_in_a_row(), "gpu", "fifo", board, {}, check=lost)
    assert 0.01 < time.perf_counter() - began_s < dispatch.LIMIT_S, "not at once, and not by the limit"
    assert board.gave_up.all()
    board.clear()
    run_unit(two_in_a_row(), "npu", "fifo", board, {0: lambda: None}, check=lost)  # who need not wait does not ask


def test_a_stall_comes_before_its_subgraph(board: Board) -> None:
    board.stall_s[0] = 0.02
    began_s = time.perf_counter()
    run_unit(two_in_a_row(), "npu", "fifo", board, {0: lambda: None})
    assert board.started_s[0] - began_s >= 0.02


class DyingUnit(InProcessUnit):
    """Compiles, and is gone once it is given work."""

    def submit(self, keys: Sequence[str], *, mechanism: str = "flag") -> None:
        self._arena.view("sharing=1,shadow=0/gave_up")[:] = 1

    def wait(self) -> tuple[float, ...]:
        raise UnitLostError("static unit was lost: killed by signal 9")


def test_the_unit_that_died_says_why() -> None:
    arena = SharedArena()
    units = Units(arena, DyingUnit(arena, Pipeline.KERNELS))
    size = DecoderSize(num_layers=1, width=8, num_heads=1, ffn_width=8, num_outliers=1)
    pipeline = Pipeline(size, units, chunk_tokens=4, num_chunks=1)
    with pytest.raises(UnitLostError, match="killed by signal 9"):
        pipeline.load([Variant(sharing=True, shadow=False)], ("fifo",))
    arena.close()
