"""The subgraphs of a prefill in chunks, and which needs which (llm.npu, arXiv 2407.05858, section 3.4).

A prompt is cut into chunks of one size; every layer of every chunk is a row of subgraphs, each on the unit that suits
it. A subgraph needs the one before it in its own chunk; attention also needs the keys and values of all earlier chunks:

    needs(chunk i, layer l, stage k) = (i, l, k - 1);  for attention (j, l, k - 1) for every j <= i

Worked number: two chunks, one layer of qkv, attention, ffn: six subgraphs; attention of chunk 1 needs qkv of chunk 0
and of chunk 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_npubench.errors import ConfigError, PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, ROLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One subgraph of a layer: its unit, and its seconds in chunk i, base_s + i * per_earlier_chunk_s.

    reads_earlier: it needs the stages it `follows` of all earlier chunks too, as attention does. follows: the names of
    the stages of the same layer it needs; none given: the stage before it (of the layer before, for a layer's first).
    """

    name: str
    unit: str
    base_s: float
    per_earlier_chunk_s: float = 0.0
    reads_earlier: bool = False
    follows: tuple[str, ...] = ()

    def duration_s(self, chunk: int) -> float:
        return self.base_s + chunk * self.per_earlier_chunk_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """One node. needs: indices of the nodes that must have ended before it begins."""

    stage: str
    chunk: int
    layer: int
    unit: str
    duration_s: float
    needs: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.stage}[chunk {self.chunk}, layer {self.layer}]"


class SubgraphDag:
    """Nodes in program order: chunk by chunk, layer by layer, each after all that it needs.

    Raises PartitionError for none, a unit other than gpu and npu, a duration that is not finite or below 0, and a need
    that does not lie before its node.
    """

    def __init__(self, nodes: Sequence[Subgraph]) -> None:
        self.nodes = tuple(nodes)
        _check(self.nodes)
        feeds: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for need in node.needs:
                feeds[need].append(index)
        self.feeds: tuple[tuple[int, ...], ...] = tuple(map(tuple, feeds))

    def __len__(self) -> int:
        return len(self.nodes)

    def of(self, unit: str) -> tuple[int, ...]:
        return tuple(index for index, node in enumerate(self.nodes) if node.unit == unit)

    def busy_s(self, unit: str) -> float:
        """The seconds of work the unit has."""
        return math.fsum(self.nodes[index].duration_s for index in self.of(unit))

    def heads_s(self) -> tuple[float, ...]:
        """Returns the earliest second at which each node could begin with unlimited units."""
        heads: list[float] = []
        for node in self.nodes:
            heads.append(max((heads[need] + self.nodes[need].duration_s for need in node.needs), default=0.0))
        return tuple(heads)

    def tails_s(self) -> tuple[float, ...]:
        """Returns the longest way from each node's start to the end of all, its own duration included."""
        tails = [0.0] * len(self.nodes)
        for index in reversed(range(len(self.nodes))):
            after = max((tails[fed] for fed in self.feeds[index]), default=0.0)
            tails[index] = self.nodes[index].duration_s + after
        return tuple(tails)

    def with_durations(self, durations_s: Sequence[float]) -> SubgraphDag:
        """Returns the same nodes with these measured seconds, one a node."""
        if len(durations_s) != len(self.nodes):
            raise PartitionError(f"{len(durations_s)} durations for {len(self.nodes)} subgraphs; want one each")
        return SubgraphDag(
            [
                Subgraph(
                    stage=node.stage,
                    chunk=node.chunk,
                    layer=node.layer,
                    unit=node.unit,
                    duration_s=float(seconds),
                    needs=node.needs,
                )
                for node, seconds in zip(self.nodes, durations_s, strict=True)
            ]
        )


def prefill_dag(stages: Sequence[Stage], *, num_chunks: int, num_layers: int) -> SubgraphDag:
    """Returns the graph of a whole prefill. Raises ConfigError for a count below 1, no stages, an unknown `follows`."""
    for name, count in (("num_chunks", num_chunks), ("num_layers", num_layers), ("number of stages", len(stages))):
        if count < 1:
            raise ConfigError(f"{name} is {count}; want at least 1")
    _check_stages(stages)
    indices = {stage.name: index for index, stage in enumerate(stages)}
    return SubgraphDag(
        [
            Subgraph(
                stage=stage.name,
                chunk=chunk,
                layer=layer,
                unit=stage.unit,
                duration_s=stage.duration_s(chunk),
                needs=_needs(stages, indices, chunk, layer, index, num_layers),
            )
            for chunk in range(num_chunks)
            for layer in range(num_layers)
            for index, stage in enumerate(stages)
        ]
    )


def _needs(
    stages: Sequence[Stage], indices: dict[str, int], chunk: int, layer: int, index: int, num_layers: int
) -> tuple[int, ...]:
    stage, width = stages[index], len(stages)
    if index == 0 and not stage.follows:
        return () if layer == 0 else ((chunk * num_layers + layer) * width - 1,)
    before = [indices[name] for name in stage.follows] or [index - 1]
    chunks = range(chunk + 1) if stage.reads_earlier else (chunk,)
    return tuple((each * num_layers + layer) * width + one for each in chunks for one in before)


def _check_stages(stages: Sequence[Stage]) -> None:
    seen: list[str] = []
    for stage in stages:
        unknown = [name for name in stage.follows if name not in seen]
        if unknown or stage.name in seen:
            raise ConfigError(f"stage {stage.name!r} follows {unknown or 'itself'}; want earlier stages of {seen}")
        seen.append(stage.name)
    if stages[0].reads_earlier or stages[0].follows:
        raise ConfigError(f"stage {stages[0].name!r} is a layer's first; it reads the layer before it alone")


def _check(nodes: Sequence[Subgraph]) -> None:
    if not nodes:
        raise PartitionError("no subgraphs; want at least one")
    for index, node in enumerate(nodes):
        if node.unit not in ROLES:
            raise PartitionError(f"{node.name} is on unit {node.unit!r}; units: {', '.join(ROLES)}")
        if not (math.isfinite(node.duration_s) and node.duration_s >= 0):
            raise PartitionError(f"{node.name} takes {node.duration_s!r} s; want a finite number of seconds >= 0")
        if any(not 0 <= need < index for need in node.needs):
            raise PartitionError(f"{node.name} (node {index}) needs {node.needs}; want nodes before it")


MS = 1e-3

LAYER: tuple[Stage, ...] = (
    Stage(name="norm", unit=GPU, base_s=0.7 * MS),
    Stage(name="qkv", unit=NPU, base_s=3.6 * MS),
    Stage(name="attention", unit=GPU, base_s=2.2 * MS, per_earlier_chunk_s=0.9 * MS, reads_earlier=True),
    Stage(name="out", unit=NPU, base_s=1.4 * MS),
    Stage(name="ffn_norm", unit=GPU, base_s=0.7 * MS),
    Stage(name="ffn", unit=NPU, base_s=6.1 * MS),
)
"""Six subgraphs a layer, floats on the CPU or GPU and matrix products on the NPU, as llm.npu cuts it
(144 in 24 layers). The seconds are a model, not measured ones; what it implies stands in out_of_order."""
