"""Whether waiting lies on the critical path: chains of dependent operators (HeteroInfer, Fig. 10).

L operators run one after the other, each split over both units and begun when the one before is whole. What a chain
takes beyond its slower units is exposed:

    exposed = (chain - sum over operators of max(gpu, npu)) / L    seconds an operator

In decode the GPU has the longer part: the NPU is done before, its signal is there already, and only the submission is
left. In prefill the NPU has the longer part: the GPU's next operator waits for the signal and is submitted after it.
The same operators without dependencies (`queued`: one submission, one wait) show what the pair would take with all
waiting hidden. Worked: 10 operators of max(100, 80) us in 1,200 us: 20 us an operator are exposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from pytest_npubench.core.measurement import Phase
from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.sync.splits import row_split
from pytest_npubench.extensions.pairs.partition.unit import SplitTiming, UnitPair


class ChainPair(UnitPair, Protocol):
    """A pair that runs chains inside its own process."""

    def run_chain(
        self, matmul: Matmul, split: Split, num_times: int, *, mechanism: str
    ) -> tuple[float, tuple[SplitTiming, ...]]: ...

    def run_queued(self, matmul: Matmul, split: Split, num_times: int) -> SplitTiming: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One run of a chain: seconds of all of it, and each operator's timing."""

    total_s: float
    operators: tuple[SplitTiming, ...]

    @property
    def exposed_s(self) -> float:
        """Seconds an operator beyond its slower unit."""
        slower_s = sum(max(run.gpu_s or 0.0, run.npu_s or 0.0) for run in self.operators)
        return (self.total_s - slower_s) / len(self.operators)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Chains of one order by one mechanism. phase: DECODE where the GPU has the longer part, else PREFILL."""

    phase: Phase
    mechanism: str
    split: Split
    chains: tuple[Chain, ...]
    queued: tuple[SplitTiming, ...]

    @property
    def exposed_s(self) -> float:
        return float(np.median([chain.exposed_s for chain in self.chains]))

    @property
    def slowdown(self) -> float:
        """The chain over the same operators without dependencies."""
        chain_s = float(np.median([chain.total_s for chain in self.chains]))
        return chain_s / float(np.median([run.total_s for run in self.queued]))

    @property
    def gpu_longer_fraction(self) -> float:
        """Share of all operators whose GPU part did take longer: near 1 in decode, near 0 in prefill, if the order is
        what it is called."""
        runs = [run for chain in self.chains for run in chain.operators]
        return sum((run.gpu_s or 0.0) > (run.npu_s or 0.0) for run in runs) / len(runs)


def measure_overlap(
    pair: UnitPair,
    matmul: Matmul,
    *,
    gpu_shares: tuple[float, float] = (0.75, 0.25),
    num_operators: int = 16,
    num_rounds: int = 10,
    seed: int = 0,
) -> tuple[Overlap, ...]:
    """Both orders by every mechanism. gpu_shares: the GPU's share of the rows in decode and in prefill order. Raises
    PartitionError on a pair that runs no chains, or a share that leaves a unit without rows."""
    chains_on = runs_chains(pair)
    orders = {
        phase: row_split(matmul, share) for phase, share in zip((Phase.DECODE, Phase.PREFILL), gpu_shares, strict=True)
    }
    pair.load(matmul, tuple(orders.values()))
    arms = [(phase, mechanism) for phase in orders for mechanism in pair.mechanisms]
    chains: dict[tuple[Phase, str], list[Chain]] = {arm: [] for arm in arms}
    queued: dict[Phase, list[SplitTiming]] = {phase: [] for phase in orders}
    generator = np.random.default_rng(seed)
    for _ in range(num_rounds):
        for phase, mechanism in _shuffled(arms, generator):
            total_s, runs = chains_on.run_chain(matmul, orders[phase], num_operators, mechanism=mechanism)
            chains[phase, mechanism].append(Chain(total_s=total_s, operators=runs))
        for phase, split in orders.items():
            queued[phase].append(chains_on.run_queued(matmul, split, num_operators))
    return tuple(
        Overlap(
            phase=phase,
            mechanism=mechanism,
            split=orders[phase],
            chains=tuple(chains[phase, mechanism]),
            queued=tuple(queued[phase]),
        )
        for phase, mechanism in arms
    )


def _shuffled(arms: Sequence[tuple[Phase, str]], generator: np.random.Generator) -> list[tuple[Phase, str]]:
    return [arms[place] for place in generator.permutation(len(arms)).tolist()]


def runs_chains(pair: UnitPair) -> ChainPair:
    """Raises PartitionError on a pair that runs single operators only."""
    if not (hasattr(pair, "run_chain") and hasattr(pair, "run_queued")):
        raise PartitionError(f"{type(pair).__name__} runs single operators only; a chain runs on a pair with run_chain")
    return cast(ChainPair, pair)
