"""The bucket suite on NxD Inference: one model compiled for all buckets of a plan, on a directory of random weights.

Prompts are encoded one by one (ctx_batch_size is 1), as the reference decoder does it, and rows that ended stay at
their length, so that a batch never outgrows the plan's largest bucket. NxD's rule for prompts is its own: one that
fills its bucket runs in the next larger one (extensions/adapters/nxd/buckets.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.core.buckets import BucketKeys
from pytest_npubench.engines.hf_config import TORCH_DTYPE
from pytest_npubench.engines.model_directory import write_model_directory
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.extensions.adapters.nxd.buckets import FirstFit
from pytest_npubench.extensions.adapters.nxd.engine import NxdEngine
from pytest_npubench.extensions.adapters.nxd.opening import class_path, open_model
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import Variant
from pytest_npubench.suites.buckets.service import BucketService


class NxdBuckets(BucketService):
    compiles_buckets = False  # all at once, when the model is opened
    moves_cache = False
    fills_memory = False  # NxD Inference lays out its own
    compares_engines = True  # several loaded models share the cores, each with weights of its own

    def keys(self, buckets: tuple[int, ...]) -> BucketKeys:
        return FirstFit(prefill_buckets=buckets, decode_buckets=buckets)

    def has_canaries(self, family: str) -> bool:
        return False

    def engine(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Engine:
        """Raises what write_model_directory and open_model raise."""
        shape, dtype = plan.shape, plan.spec.dtype
        model = f"{plan.model}-{dtype}" if plan.num_layers is None else f"{plan.model}-{dtype}-layers{plan.num_layers}"
        variant = Variant(batch_size=plan.batch_size, buckets=plan.buckets, num_layers=plan.num_layers)
        opened = open_model(
            class_path(shape),
            write_model_directory(folder / "models" / model, shape, dtype=dtype, is_ours=True),
            compiled=folder / "neuron" / plan.key / variant.name,
            **neuron_config(plan),
        )
        runtime.compiles.extend(opened.compiles)
        return NxdEngine(opened.model, compiles=opened.compiles, finished="freeze")


def neuron_config(plan: BucketPlan) -> dict[str, Any]:
    """Returns the arguments of NeuronConfig for a plan."""
    longest = plan.buckets[-1]
    return {
        "batch_size": plan.batch_size,
        "ctx_batch_size": 1,
        "tkg_batch_size": plan.batch_size,
        "is_continuous_batching": plan.batch_size > 1,  # or a prompt could not be encoded into a line of its own
        "seq_len": longest,
        "max_context_length": longest,
        "enable_bucketing": True,
        "context_encoding_buckets": list(plan.buckets),
        "token_generation_buckets": list(plan.buckets),
        "tp_degree": plan.spec.tensor_parallel,
        "torch_dtype": TORCH_DTYPE.get(plan.spec.dtype, plan.spec.dtype),
    }
