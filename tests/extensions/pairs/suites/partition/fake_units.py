"""A pair with made-up times that also runs chains and layers, and can lose a unit. Tests only: nothing is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extensions.pairs.partition.fake_pair import FakePair
from pytest_npubench.errors import MeasurementError, UnitLostError
from pytest_npubench.extensions.pairs.partition.layer import LayerTiming
from pytest_npubench.extensions.pairs.partition.matmul import GPU, Matmul, Split, alone
from pytest_npubench.extensions.pairs.partition.unit import SplitTiming

WORDS = "static unit on core 1 (process 7) was lost: killed by signal 9; its last words: the unit is on fire"


class FakeUnits(FakePair):
    """dies_after: so many runs, then the unit is lost with WORDS, and closed from then on. largest: weights of more
    elements have no memory."""

    def __init__(
        self,
        *,
        dies_after: int | None = None,
        largest: int | None = None,
        **known: Any,
    ) -> None:
        super().__init__(**known)
        self.dies_after, self.largest = dies_after, largest
        self.loads: list[tuple[Matmul, tuple[Split, ...]]] = []
        self.num_closed = 0
        self._layer: dict[Matmul, Split] = {}

    def load(self, matmul: Matmul, splits: Sequence[Split]) -> Any:
        self._check_alive()
        if self.largest is not None and matmul.weight_elements > self.largest:
            raise MeasurementError(f"shared array weight.{matmul.name} takes 9 MiB; 1 MiB of memory are free")
        self.loads.append((matmul, tuple(splits)))
        return super().load(matmul, splits)

    def run(self, matmul: Matmul, split: Split, *, mechanism: str | None = None) -> SplitTiming:
        self._check_alive()
        return super().run(matmul, split, mechanism=mechanism)

    def run_chain(
        self, matmul: Matmul, split: Split, num_times: int, *, mechanism: str
    ) -> tuple[float, tuple[SplitTiming, ...]]:
        runs = tuple(self.run(matmul, split, mechanism=mechanism) for _ in range(num_times))
        return sum(run.total_s for run in runs), runs

    def run_queued(self, matmul: Matmul, split: Split, num_times: int) -> SplitTiming:
        run = self.run(matmul, split)
        total_s = (run.total_s - run.sync_s) * num_times
        return SplitTiming(total_s=total_s, gpu_s=run.gpu_s, npu_s=run.npu_s, sync_s=0.0)

    def call(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """The three messages of a decoder layer, whose operators run one after the other as any others do."""
        if method == "open_layer":
            shape, num_tokens, _, splits = arguments
            self._layer = {shape.matmul(name, num_tokens): split for name, split in splits.items()}
            return {}
        is_alone = method == "run_layer_alone"
        ran = {matmul: alone(matmul, GPU) for matmul in self._layer} if is_alone else self._layer
        self._last |= ran
        stages = tuple(self.timing(matmul, split, *arguments) for matmul, split in ran.items())
        return LayerTiming(total_s=sum(stage.total_s for stage in stages), stages=stages)

    def view(self, name: str) -> Any:
        """A pair that has arrays may have layers."""
        raise AssertionError(f"nothing looks at {name}")

    def close(self) -> None:
        super().close()
        self.num_closed += 1

    def _check_alive(self) -> None:
        """As a real pair: who sees it first hears the last words, who comes later that it was closed."""
        if self.closed or (self.dies_after is not None and self.num_runs > self.dies_after):
            raise UnitLostError("pair host was closed")
        if self.dies_after is not None and self.num_runs == self.dies_after:
            self.num_runs += 1
            raise UnitLostError(WORDS)
