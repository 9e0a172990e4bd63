"""The engines of our own: jax_dense and openvino_dense run the bucket suite, torch_moe the scheduling suite.

jax_moe runs the scheduling suite where a family has jax and no torch.
"""

from __future__ import annotations

from pytest_npubench.core.families import declared
from pytest_npubench.engines.descriptor import EngineDescriptor

UNSERVED = ("neuron", "qualcomm")


class Reference(EngineDescriptor):
    """Families of other distributions are served where their runtimes compile functions of jax."""

    name = "reference"
    title = "reference"
    is_reference = True
    about = "our own decoders by family: jax_dense, openvino_dense, for serving torch_moe, jax_moe"
    families = ("cpu", "cuda", "tpu", "openvino")
    parts = {  # noqa: RUF012 - of the class, as the base says
        "buckets": "pytest_npubench.suites.buckets.reference_buckets:ReferenceBuckets",
        "scheduling": "pytest_npubench.suites.scheduling.reference_serving:ReferenceServing",
    }

    def why_not_served(self, suite: str, family: str) -> str:
        return super().why_not_served(suite, family) if family in UNSERVED else ""

    def framework(self, suite: str, family: str) -> str:
        declares = declared(family)
        has_jax_alone = declares.jax_platform is not None and not declares.has_torch
        return "torch" if suite == "scheduling" and not has_jax_alone else "jax"


ENGINE = Reference()
