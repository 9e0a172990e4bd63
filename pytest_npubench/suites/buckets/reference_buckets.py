"""The bucket suite on the reference decoders, each compiled for the plan's buckets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.campaign.protocol import Bench
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.suites.buckets.plan import ONLINE, BucketPlan
from pytest_npubench.suites.buckets.service import BucketService

if TYPE_CHECKING:
    from pytest_npubench.engines.static_buckets import StaticBuckets


class ReferenceBuckets(BucketService):
    tells_answers = True
    has_slots = True
    compares_engines = True
    shares_weights = True

    def has_fusions(self, family: str) -> bool:
        return family != "openvino"

    def bench(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Bench[Any]:
        if not plan.is_online:
            from pytest_npubench.suites.buckets.bench import VariantBench

            return VariantBench(runtime, plan, sharing_weights() if plan.is_search else static_bucket_engine, folder)
        from pytest_npubench.suites.buckets import SUITE

        online: Any = SUITE.kind(ONLINE)  # the extension that has it has all of the plan's cases
        bench: Bench[Any] = online.bench(runtime, plan, static_bucket_engine(runtime, plan))
        return bench

    def engine(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Engine:
        return static_bucket_engine(runtime, plan)


def sharing_weights() -> Callable[[Runtime, BucketPlan], StaticBuckets]:
    """What makes the reference decoders of a search, which differ in batch size and buckets. All have the weights of
    the first."""
    weights: Any = None

    def make(runtime: Runtime, plan: BucketPlan) -> StaticBuckets:
        nonlocal weights
        engine = static_bucket_engine(runtime, plan, weights)
        weights = engine.weights
        return engine

    return make


def static_bucket_engine(runtime: Runtime, plan: BucketPlan, weights: Any = None) -> StaticBuckets:
    """Returns the reference decoder of a plan's family, with these weights or, where there are none, its own."""
    settings: dict[str, Any] = {
        "buckets": plan.buckets,
        "batch_size": plan.batch_size,
        "dtype": plan.spec.dtype,
        "weights": weights,
    }
    if plan.spec.family == "openvino":
        from pytest_npubench.engines.openvino_dense.engine import OpenVinoBucketEngine

        return OpenVinoBucketEngine(plan.shape, runtime, **settings)
    from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine

    return StaticBucketEngine(plan.shape, runtime, **settings)
