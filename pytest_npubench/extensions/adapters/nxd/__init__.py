"""NxD Inference (neuronx-distributed-inference) on AWS Trainium and Inferentia, as an engine of the bucket suite.

    interface     what is used of NxD Inference, and where that was read
    buckets       the sets that a NeuronConfig declares, and which bucket a length runs in
    opening       a compiled and loaded model
    engine        engines.protocol.Engine on it

It was written against the public interface and tested on a stand-in: see docs/adapters.md for what has run. vLLM on
Neuron is extensions/vllm's: extensions/vllm/buckets.py reads the same sets out of `override_neuron_config`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pytest_npubench.engines.descriptor import EngineDescriptor

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Backend, Device, Runtime

PACKAGE = "neuronx_distributed_inference"


class Nxd(EngineDescriptor):
    name = "nxd"
    title = "NxD Inference"
    about = "NxD Inference of the AWS Neuron SDK with random weights"
    families = ("neuron",)
    parts = {"buckets": "pytest_npubench.extensions.adapters.nxd.bucket_service:NxdBuckets"}  # noqa: RUF012 - of the class

    def why_not_here(self, family: str) -> str:
        missing = next((name for name in (PACKAGE, "torch") if find_spec(name) is None), None)
        return "" if missing is None else why_missing(missing)

    def open(self, backend: Backend, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        from pytest_npubench.extensions.adapters.nxd.opening import NeuronRuntime

        return NeuronRuntime(backend, devices)


def why_missing(package: str) -> str:
    return (
        f"NxD Inference needs {package}, which is not installed; want neuronx-distributed-inference of the AWS Neuron "
        "SDK, on a machine with Neuron devices (docs/adapters.md)"
    )


ENGINE = Nxd()
