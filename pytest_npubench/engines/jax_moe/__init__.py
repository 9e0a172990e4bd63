"""The engine of the scheduling suite in jax: a mixture of experts as a few static binaries, for TPUs and the host.

    forward    run_layers(first, stop, ...) over a batch of a fixed size: the one program of all policies
    sizes      the sizes that are compiled ahead of time; programs, what of
    batches    an iteration's rows as arrays of these sizes
    executor   iteration.Executor on these binaries, on the wall clock; probed, as it is asked for its answers
    plain_kernels, tpu_kernels   attention and grouped products: of jax.numpy, and of jax's own Pallas kernels

jax is imported when the engine opens, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npubench.engines.descriptor import EngineDescriptor

if TYPE_CHECKING:
    from pytest_npubench.engines.shapes import DecoderShape

TPU_HEAD_WIDTH = 128
"""What the TPU's attention kernel wants a head's width to be a multiple of."""


class JaxMoe(EngineDescriptor):
    name = "jax_moe"
    title = "jax_moe"
    about = "our own serving decoder as static XLA binaries: the scheduling suite on TPUs, and on the host"
    families = ("cpu", "tpu")
    parts = {  # noqa: RUF012 - of the class, as the base says
        "scheduling": "pytest_npubench.suites.scheduling.jax_serving:JaxServing",
    }

    def framework(self, suite: str, family: str) -> str:
        return "jax"


def why_not_served(shape: DecoderShape, family: str, num_devices: int) -> str:
    """Why the shape does not run on so many devices of a family; empty where it does."""
    if shape.bias_parameters_per_layer or shape.architecture != "llama":
        return f"jax_moe computes no biases, sinks and windows, which {shape.name} has"
    shared_out = {"num_heads": shape.num_heads, "num_kv_heads": shape.num_kv_heads}
    shared_out |= {"intermediate": shape.intermediate} if shape.is_dense else {"num_experts": shape.num_experts}
    for name, number in shared_out.items():
        # a key-value head may have copies
        if number % num_devices and (name != "num_kv_heads" or num_devices % number):
            return f"{shape.name}: {name} = {number} does not split over {num_devices} devices"
    if family == "tpu" and shape.head_dim % TPU_HEAD_WIDTH:
        want = f"the TPU's attention kernel wants a multiple of {TPU_HEAD_WIDTH}"
        return f"{shape.name} has heads of {shape.head_dim}; {want}"
    return ""


ENGINE = JaxMoe()
