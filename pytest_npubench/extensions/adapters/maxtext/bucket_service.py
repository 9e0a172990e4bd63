"""The bucket suite on MaxText: a MaxEngine with random weights of a plan's shape, prompts padded to its buckets.

Every decode step works on the whole state, so a step takes the same at any length: each bucket's TBT is a measurement
of that one time, and what rows do that have ended ("grow" in MaxText) changes nothing; LENS takes them as frozen, so
that no length leaves the plan's set.

A slot holds as many generated tokens as the longest answer of the plan's workloads has, beside the longest prompt.
Worked example: buckets up to 1024 and answers of at most 300 tokens: max_prefill_predict_length 1024,
max_target_length 1324.
"""

from __future__ import annotations

from pathlib import Path

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines import shapes
from pytest_npubench.engines.canary_kernels import CanaryKernels
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.extensions.adapters.maxtext.engine import MaxTextEngine
from pytest_npubench.extensions.adapters.maxtext.opening import model_arguments, open_maxengine
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.service import BucketService


class MaxTextBuckets(BucketService):
    compiles_buckets = False  # prefill alone has one a bucket
    moves_cache = False
    fills_memory = False  # MaxText lays out its own
    pads_decode = False
    pure_phases = (Phase.PREFILL,)

    def engine(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Engine:
        """Raises what open_maxengine raises."""
        made = MaxTextEngine(open_maxengine(maxtext_arguments(plan)), compiles=runtime.compiles)
        made.canaries = CanaryKernels(runtime)
        return made


def maxtext_arguments(plan: BucketPlan) -> list[str]:
    longest = plan.buckets[-1]
    settings = {
        "max_prefill_predict_length": longest,
        "max_target_length": longest + longest_answer(plan),
        "inference_microbenchmark_prefill_lengths": ",".join(map(str, plan.buckets)),
        "per_device_batch_size": plan.batch_size / plan.spec.tensor_parallel,
        "ici_tensor_parallelism": plan.spec.tensor_parallel,
    }
    shape = shapes.dense_shape(plan.model)
    return [*model_arguments(shape, plan.spec.dtype), *(f"{key}={value}" for key, value in settings.items())]


def longest_answer(plan: BucketPlan) -> int:
    """Returns the most output tokens of any request that a case of the plan may ask for."""
    drawn = (item.output_tokens for name in plan.size.workloads for item in plan.sample(name).requests)
    return max((plan.size.profile_output_tokens, *drawn))
