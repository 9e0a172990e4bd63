"""Measures one offload experiment on a pair of units of its own, which `close` ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.campaign.visits import Round
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.extensions.pairs.offload.pair import OffloadPair
from pytest_npubench.extensions.pairs.offload.units import Figures, OffloadPoint
from pytest_npubench.extensions.pairs.partition.unit import LastWords
from pytest_npubench.extensions.pairs.suites.offload.plan import OffloadPlan

PAIR = "host"  # the one pair that runs kernels of other kinds than a matrix multiplication


class OffloadBench:
    """campaign.protocol.Bench of one experiment. Raises DeviceUnavailableError on a pair that cannot run it."""

    def __init__(self, runtime: Runtime, plan: OffloadPlan) -> None:
        if plan.offload.pair != PAIR:
            raise DeviceUnavailableError(f"the offload suite runs on the pair {PAIR!r}, not on {plan.offload.pair!r}")
        self._pair = OffloadPair(plan.experiment)
        self._words = LastWords()

    def load(
        self, points: Sequence[OffloadPoint], earlier: Sequence[Round], stage: Callable[[str], None]
    ) -> Mapping[str, str]:
        """Arrays and graphs of the whole experiment."""
        stage("compiling graphs")
        self._pair.load()
        return {}

    def warm_up(self, point: OffloadPoint) -> tuple[float, bool]:
        """Runs once for the caches, once for the time."""
        self.sample(point, 0)
        started_s = perf_counter()
        self.sample(point, 0)
        return perf_counter() - started_s, True

    def sample(self, point: OffloadPoint, round_index: int) -> Figures:
        with self._words.kept():
            return self._pair.measure(point.name)

    def close(self) -> None:
        self._pair.close()
