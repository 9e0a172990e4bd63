"""vLLM as an engine: token ids in, the time of every token out, in a process of its own.

    version             which vLLM is installed, and whether this version of ours knows it; imports nothing of it
    platform            which devices the installed build serves, and the marker that goes with them
    model_directory     config.json and seeded random safetensors of a named shape: no network, no tokenizer
    settings            our policies as vLLM's settings, printable; what vLLM cannot do is refused with the reason
    engine              the in-process LLMEngine
    serving_run         open-loop arrivals on the wall clock
    expert_hooks        distinct experts of each iteration, counted behind the routers
    process, worker     an engine in a child process, in this interpreter or in one of another environment
    bucket_engine       engines.protocol.Engine for the bucket suite
    canaries            the canary kernels in torch, in the same child

vllm and torch are imported in the child alone, once it has read its settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_npubench.engines.descriptor import EngineDescriptor

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Backend, Device, Runtime


class Vllm(EngineDescriptor):
    """Engines are processes of their own, in an environment of their own if need be: that one says what it serves."""

    name = "vllm"
    title = "vLLM"
    about = "stock vLLM in a process of its own"
    families = ("cpu", "cuda", "tpu", "neuron")
    parts = {  # noqa: RUF012 - of the class, as the base says
        "buckets": "pytest_npubench.extensions.vllm.bucket_service:VllmBuckets",
        "scheduling": "pytest_npubench.extensions.vllm.serving_service:VllmServing",
    }
    is_placed_by_itself = True

    def why_not_here(self, family: str) -> str:
        from pytest_npubench.extensions.vllm.installed import why_not_served

        return why_not_served(family)

    def open(self, backend: Backend, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        from pytest_npubench.extensions.vllm.runtime import VllmRuntime

        return VllmRuntime(backend, devices)


ENGINE = Vllm()
