"""What the plans of suites have in common: the cases of one hardware file, and the engine that runs them.

A suite's plan derives from DevicePlan, or from EnginePlan where runs choose an engine; the protocol that the machinery
asks for is campaign.protocol.CampaignPlan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar, cast

from pytest_npubench import engines
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.descriptor import EngineDescriptor

PartT = TypeVar("PartT")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    """One hardware file, model and batch size: what every case of the campaign says of itself."""

    spec: HardwareSpec
    model: str
    batch_size: int = 1

    def case(self, suite: str, kind: str, axes: Axes) -> Case:
        return Case(
            suite=suite,
            kind=kind,
            hardware=self.spec.name,
            family=self.spec.family,
            model=self.model,
            batch_size=self.batch_size,
            axes=axes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan(DevicePlan):
    """A plan for one engine, by the name under which it is registered. What was measured on the reference engine of a
    family does not name it: keys and digests stay as they were before there were others."""

    suite: ClassVar[str]
    engine: str = engines.REFERENCE

    @property
    def runner(self) -> EngineDescriptor:
        return engines.engine(self.engine)

    @property
    def is_reference(self) -> bool:
        return self.runner.is_reference

    @property
    def framework(self) -> str:
        return self.runner.framework(self.suite, self.spec.family)

    @property
    def engine_suffix(self) -> str:
        """What a campaign's key ends in."""
        return "" if self.is_reference else f"-{self.engine}"

    @property
    def engine_settings(self) -> dict[str, object]:
        """What a case's digest has of the engine."""
        return {} if self.is_reference else {"engine": self.engine}

    def part(self, default: type[PartT]) -> PartT:
        """What runs the suite on the engine; the default where it does not, and cases are skipped."""
        return cast(PartT, self.runner.part(self.suite)) if self.suite in self.runner.parts else default()
