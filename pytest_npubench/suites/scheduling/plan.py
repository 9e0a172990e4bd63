"""What a serving campaign is about: one model on one device, with everything that its policies have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from pytest_npubench import engines
from pytest_npubench.campaign.plan import EnginePlan
from pytest_npubench.core.case import Case
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.shapes import DecoderShape, decoder_shape
from pytest_npubench.suites.scheduling.spec import LoadSpec, ServingSize, ServingSpec


class ServingTraits:
    """What a plan must know of the engine that serves it. The defaults are those under our own schedulers."""

    min_block_tokens: ClassVar[int] = 1
    """The smallest block of the KV cache that the engine takes."""
    tells_answers: ClassVar[bool] = False
    """Whether the engine can be asked what it answers: its cases of answers are there, or they are not."""
    decode_counts: ClassVar[bool] = False
    """Whether decode tokens use up the chunk of chunked prefill."""

    def has_graphs(self, family: str) -> bool:
        """Whether decode batches can be launched as graphs on devices of the family."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan(EnginePlan):
    """One hardware file, model and run size; the batch size of its cases is the largest batch. graphs: whether decode
    batches may be launched as CUDA graphs."""

    suite = "scheduling"
    serving: ServingSpec
    size: ServingSize
    graphs: bool = True

    @property
    def traits(self) -> ServingTraits:
        """What must be known of the engine (service.service_of says how it runs the suite)."""
        return self.part(ServingTraits)

    @property
    def key(self) -> str:
        return f"{self.spec.name}-{self.model}-serving{self.engine_suffix}"

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
        return {
            **self.engine_settings,
            "dtype": serving.dtype,
            "max_batch_size": serving.max_batch_size,
            "kv_capacity_tokens": serving.kv_capacity_tokens,
            "block_size_tokens": serving.block_size_tokens,
            "tokens_per_iteration": serving.tokens_per_iteration,
            "num_requests": self.size.num_requests,
            **({} if self.graphs or not self.traits.has_graphs(self.spec.family) else {"graphs": False}),
        }

    @property
    def limits(self) -> Mapping[str, float]:
        """Has none: what an experiment must show is part of its kind."""
        return {}

    def includes(self, kind: str) -> bool:
        return kind in self.size.experiments

    def tokens_per_iteration(self, load: LoadSpec) -> int:
        """Returns the prefill work of an iteration under this load: its own figure, else that of all loads."""
        return load.tokens_per_iteration or self.serving.tokens_per_iteration

    @property
    def most_tokens_per_iteration(self) -> int:
        """Over all loads of the model."""
        return max(map(self.tokens_per_iteration, self.loads), default=self.serving.tokens_per_iteration)

    def load(self, case: Case) -> LoadSpec:
        """Returns the load that a case's workload and rate axes name."""
        wanted = case.axis("workload"), case.axis("rate")
        return next(load for load in self.loads if (load.workload, load.rate_name) == wanted)


def serving_plans(
    spec: HardwareSpec, profile: str, engine: str = engines.REFERENCE, *, graphs: bool = True
) -> Iterator[ServingPlan]:
    """One for each model that the hardware file serves in this profile, with blocks that the engine takes."""
    serving = spec.section(ServingSpec)
    size = serving.size(profile) if serving else None
    if serving and size:
        for model in size.models:
            plan = ServingPlan(
                spec=spec,
                model=model,
                batch_size=serving.max_batch_size,
                engine=engine,
                serving=serving.for_model(model),
                size=size,
                graphs=graphs,
            )
            block = max(serving.block_size_tokens, plan.traits.min_block_tokens)
            yield replace(plan, serving=replace(plan.serving, block_size_tokens=block))
