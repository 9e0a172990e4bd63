"""The engines of our own: jax_dense and openvino_dense run the bucket suite, torch_moe the scheduling suite."""

from __future__ import annotations

from pytest_npubench.engines.descriptor import EngineDescriptor

UNSERVED = ("neuron", "qualcomm")


class Reference(EngineDescriptor):
    """Families of other distributions are served where their runtimes compile functions of jax."""

    name = "reference"
    title = "reference"
    is_reference = True
    about = "our own decoders: jax_dense, openvino_dense by family, torch_moe for serving"
    families = ("cpu", "cuda", "tpu", "openvino")
    parts = {  # noqa: RUF012 - of the class, as the base says
        "buckets": "pytest_npubench.suites.buckets.reference_buckets:ReferenceBuckets",
        "scheduling": "pytest_npubench.suites.scheduling.torch_serving:TorchServing",
    }

    def why_not_served(self, suite: str, family: str) -> str:
        return super().why_not_served(suite, family) if family in UNSERVED else ""

    def framework(self, suite: str) -> str:
        return "torch" if suite == "scheduling" else "jax"


ENGINE = Reference()
