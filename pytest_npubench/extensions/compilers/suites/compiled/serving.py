"""What a campaign of the serving decoder compiles: its layers for each size, which all policies share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_npubench.campaign.plan import EnginePlan
from pytest_npubench.campaign.points import VisitedOnce
from pytest_npubench.core.hardware import HardwareSpec, RunLength
from pytest_npubench.engines.binary_facts import ServingBinaryRequest
from pytest_npubench.engines.jax_moe import why_not_served
from pytest_npubench.engines.jax_moe.sizes import ServingSizes, Size
from pytest_npubench.engines.kv_capacity import dtype_bytes
from pytest_npubench.extensions.compilers.suites.programs import NUM_ROUNDS
from pytest_npubench.suites.scheduling.jax_serving import serving_sizes
from pytest_npubench.suites.scheduling.plan import ServingPlan, serving_plans


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBinaryPoint(VisitedOnce):
    """The layers for one size."""

    size: Size

    @property
    def name(self) -> str:
        return f"binary/layers/{self.size.num_single}/{self.size.num_prefill}"

    @property
    def step(self) -> object:
        """Binaries of one step grow with `length`: where one does not fit the memory, no longer one does."""
        return "layers"

    @property
    def length(self) -> int:
        return self.size.num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBinariesPlan(EnginePlan):
    """The binaries of a serving plan, measured in one round: a compiler says the same each time."""

    suite = "compiled"
    engine: str = "compiled"
    served: ServingPlan
    size: RunLength

    @property
    def key(self) -> str:
        return f"{self.spec.name}-{self.model}-serving{self.engine_suffix}"

    @property
    def limits(self) -> Mapping[str, float]:
        return {}

    @property
    def settings(self) -> Mapping[str, object]:
        serving = self.served.serving
        return {
            **self.engine_settings,
            "dtype": serving.dtype,
            "max_batch_size": serving.max_batch_size,
            "kv_capacity_tokens": serving.kv_capacity_tokens,
            "block_size_tokens": serving.block_size_tokens,
            "tokens_per_iteration": self.served.most_tokens_per_iteration,
            "tensor_parallel": self.spec.tensor_parallel,
        }

    def includes(self, kind: str) -> bool:
        return kind == "serving"

    @property
    def sizes(self) -> ServingSizes:
        return serving_sizes(self.served)

    @property
    def state_bytes(self) -> float:
        """Returns what the layers of any size have to write in place on each device: every layer's pages of keys and
        values, and a hidden state for each of their slots."""
        shape, sizes = self.served.shape, self.sizes
        heads = max(1, shape.num_kv_heads // self.spec.tensor_parallel)
        slots = sizes.num_layer_pages * sizes.block_size_tokens
        numbers = slots * (shape.num_layers * 2 * heads * shape.head_dim + shape.hidden)
        return numbers * dtype_bytes(self.served.serving.dtype)

    @property
    def points(self) -> tuple[ServingBinaryPoint, ...]:
        """Small before large."""
        return tuple(ServingBinaryPoint(size=size) for size in (*self.sizes.decode, *self.sizes.passes))

    def request(self, point: ServingBinaryPoint) -> ServingBinaryRequest:
        dtype = self.served.serving.dtype
        return ServingBinaryRequest(shape=self.served.shape, dtype=dtype, sizes=self.sizes, size=point.size)


def serving_binaries_plans(spec: HardwareSpec, profile: str) -> Iterator[ServingBinariesPlan]:
    """One for each model of the file's [serving] that jax_moe serves on a TPU."""
    for plan in serving_plans(spec, profile) if spec.family == "tpu" else ():
        if not why_not_served(plan.shape, spec.family, spec.tensor_parallel):
            size = RunLength(name=profile, min_rounds=NUM_ROUNDS, max_rounds=NUM_ROUNDS, budget_s=plan.size.budget_s)
            yield ServingBinariesPlan(spec=spec, model=plan.model, batch_size=plan.batch_size, served=plan, size=size)
