"""What a partition campaign is about: the operators of one model on one pair of units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from pytest_npubench.campaign.plan import DevicePlan
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.families import declared
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.extensions.pairs.partition.matmul import Matmul
from pytest_npubench.extensions.pairs.partition.model_shapes import OperatorShape, distinct, operators
from pytest_npubench.extensions.pairs.partition.number_formats import FP32
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.suites.partition.spec import PartitionSize, PartitionSpec

TWO_DEVICES = "cuda-devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan(DevicePlan):
    """One hardware file, model, pair of units and run size."""

    partition: PartitionSpec
    size: PartitionSize
    pair: str

    @property
    def key(self) -> str:
        return f"{self.spec.name}-{self.model}-partition{'' if self.is_first_pair else f'-{self.pair}'}"

    @property
    def is_first_pair(self) -> bool:
        return self.pair == self.partition.pair

    def case(self, suite: str, kind: str, axes: Axes) -> Case:
        pair: Axes = () if self.is_first_pair else (("pair", self.pair),)
        return DevicePlan.case(self, suite, kind, (*axes, *pair))

    @property
    def framework(self) -> str:
        """torch where it runs one of the units; elsewhere the family's own runtime, which is what "jax" opens."""
        return "torch" if declared(self.spec.family).has_torch else "jax"

    @property
    def settings(self) -> Mapping[str, object]:
        partition = self.partition
        return {
            "pair": self.pair,
            "standard_sizes": partition.standard_sizes,
            "tile": partition.tile,
            "decode_shares": partition.decode_shares,
            "prefill_shares": partition.prefill_shares,
            "lengths": self.size.lengths,
            **({} if partition.dtype == FP32 else {"dtype": partition.dtype}),
        }

    @property
    def limits(self) -> Mapping[str, float]:
        """None of its own: what an experiment must show is part of its kind."""
        return {}

    def includes(self, kind: str) -> bool:
        return kind in self.size.experiments

    @property
    def operator_names(self) -> tuple[str, ...]:
        """Operators of different shape, each under the first one's name. Raises RegistryError on an unknown model."""
        return tuple(shape.name for shape in distinct(self.operators))

    @property
    def operators(self) -> tuple[OperatorShape, ...]:
        """Raises RegistryError on an unknown model."""
        return tuple(replace(shape, dtype=self.partition.dtype) for shape in operators(self.model))

    def matmul(self, operator: str, tokens: int) -> Matmul:
        return next(shape for shape in self.operators if shape.name == operator).matmul(tokens)

    @property
    def options(self) -> SplitOptions:
        """Which splits are considered."""
        return SplitOptions(
            standard_sizes=self.partition.standard_sizes,
            tile=self.partition.tile,
            decode_shares=self.partition.decode_shares,
            prefill_shares=self.partition.prefill_shares,
        )


def partition_plans(spec: HardwareSpec, profile: str, asked_pair: str | None = None) -> Iterator[PartitionPlan]:
    """One for each pair and model that the hardware file splits in this profile. A pair of two devices wants a group of
    two, or its cases are skipped."""
    partition = spec.section(PartitionSpec)
    size = partition.size(profile) if partition else None
    if partition and size:
        for pair, model in product(partition.pairs(asked_pair), size.models):
            of_pair = replace(spec, tensor_parallel=2) if pair == TWO_DEVICES else spec
            yield PartitionPlan(spec=of_pair, partition=partition, size=size, model=model, pair=pair)
