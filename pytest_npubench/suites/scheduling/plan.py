"""What a serving campaign is about: one model on one device, with everything that its policies have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pytest_npubench import engines
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.descriptor import EngineDescriptor
from pytest_npubench.engines.shapes import DecoderShape, decoder_shape
from pytest_npubench.suites.scheduling.service import ServingService
from pytest_npubench.suites.scheduling.spec import LoadSpec, ServingSize, ServingSpec

SUITE = "scheduling"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """One hardware file, model and run size; the engine is the name of one that is registered."""

    spec: HardwareSpec
    serving: ServingSpec
    size: ServingSize
    model: str
    engine: str = "reference"

    @property
    def runner(self) -> EngineDescriptor:
        """The engine, as it stands for the plan's family."""
        return engines.engine(self.engine, self.spec.family)

    @property
    def service(self) -> ServingService:
        """How the engine runs the suite; the defaults where it does not, and cases are skipped."""
        return _service(self.runner)

    @property
    def is_reference(self) -> bool:
        return self.runner.is_reference(self.spec.family)

    @property
    def key(self) -> str:
        return f"{self.spec.name}-{self.model}-serving" + ("" if self.is_reference else f"-{self.engine}")

    @property
    def framework(self) -> str:
        return self.runner.framework(SUITE)

    @property
    def shape(self) -> DecoderShape:
        """Raises RegistryError on a model that no shape has."""
        return decoder_shape(self.model)

    @property
    def loads(self) -> tuple[LoadSpec, ...]:
        return tuple(load for load in self.serving.loads if load.model == self.model)

    @property
    def settings(self) -> Mapping[str, object]:
        serving = self.serving
        engine = {"engine": self.engine} if not self.is_reference else {}  # what was measured before it was named
        return {
            **engine,
            "dtype": serving.dtype,
            "max_batch_size": serving.max_batch_size,
            "kv_capacity_tokens": serving.kv_capacity_tokens,
            "block_size_tokens": serving.block_size_tokens,
            "tokens_per_iteration": serving.tokens_per_iteration,
            "num_requests": self.size.num_requests,
        }

    @property
    def limits(self) -> Mapping[str, float]:
        """None of its own: what an experiment must show is part of its kind."""
        return {}

    def includes(self, kind: str) -> bool:
        return kind in self.size.experiments

    def tokens_per_iteration(self, load: LoadSpec) -> int:
        """The prefill work of an iteration under this load: its own figure, else that of all loads."""
        return load.tokens_per_iteration or self.serving.tokens_per_iteration

    def load(self, case: Case) -> LoadSpec:
        """The load that a case's workload and rate axes name."""
        wanted = case.axis("workload"), case.axis("rate")
        return next(load for load in self.loads if (load.workload, load.rate_name) == wanted)

    def case(self, suite: str, kind: str, axes: Axes) -> Case:
        return Case(
            suite=suite,
            kind=kind,
            hardware=self.spec.name,
            family=self.spec.family,
            model=self.model,
            batch_size=self.serving.max_batch_size,
            axes=axes,
        )


def serving_plans(spec: HardwareSpec, profile: str, engine: str = "reference") -> Iterator[ServingPlan]:
    """One for each model that the hardware file serves in this profile, with blocks that the engine takes."""
    serving = spec.section(ServingSpec)
    size = serving.size(profile) if serving else None
    if serving and size:
        smallest = _service(engines.engine(engine, spec.family)).min_block_tokens
        serving = replace(serving, block_size_tokens=max(serving.block_size_tokens, smallest))
        for model in size.models:
            yield ServingPlan(spec=spec, serving=serving.for_model(model), size=size, model=model, engine=engine)


def _service(engine: EngineDescriptor) -> ServingService:
    found: ServingService = engine.part(SUITE) if SUITE in engine.parts else ServingService()
    return found
