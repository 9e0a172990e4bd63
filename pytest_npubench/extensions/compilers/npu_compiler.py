"""OpenVINO's compiler for Intel's NPUs in a process of its own: it compiles the decoder's graphs for an NPU that is
not there, and tells what came of it.

The compiler in OpenVINO's own package compiles for the platform that it is told (NPU_COMPILER_TYPE = PLUGIN,
NPU_PLATFORM = 4000, say); the one in a driver wants the device.
Source: https://docs.openvino.ai/2026/openvino-workflow/running-inference/inference-devices-and-modes/npu-device.html
"""

from __future__ import annotations

import hashlib
import json
import resource
import time
from collections.abc import Mapping
from io import BytesIO
from math import prod
from typing import Any

from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.binary_facts import BinaryFacts, BinaryRequest
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import CompileRefusedError, ConfigError
from pytest_npubench.processes.child import Child, hosted

PACKAGE = "openvino"
ENVIRONMENT = {"JAX_PLATFORMS": "cpu"}  # the weights' maker
LIMIT_S = 1800.0
"""For one graph: a whole decoder takes minutes."""
REFERENCE_DIMS = 512, 4  # rows and columns, products


def npu_process(topology: str, memory_bytes: int) -> Child:
    """Returns a process with an NpuCompiler. topology: NPU_PLATFORM. memory_bytes: what it may take of this machine.
    Raises OSError."""
    return hosted(
        f"{__name__}:NpuCompiler",
        {"topology": topology, "memory_bytes": memory_bytes},
        name=f"Intel's compiler for the NPU {topology}",
        timeout_s=LIMIT_S,
        environment=ENVIRONMENT,
    )


class NpuCompiler:
    device = "NPU"

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        memory_bytes = int(arguments["memory_bytes"])
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
        import openvino as ov

        self._topology, self._core = str(arguments["topology"]), ov.Core()
        self._weights: tuple[object, Any] = (None, None)

    def settings(self) -> dict[str, str]:
        """Of every compilation."""
        return {"NPU_COMPILER_TYPE": "PLUGIN", "NPU_PLATFORM": self._topology, "PERFORMANCE_HINT": "LATENCY"}

    def facts(self, request: BinaryRequest, num_devices: int) -> tuple[str, BinaryFacts]:
        """What the compiler makes of the graph; nothing is kept, so the key is empty. Raises CompileRefusedError with
        the compiler's reason, ConfigError for more devices than one."""
        if num_devices != 1:
            raise ConfigError(f"{num_devices} devices together: OpenVINO compiles a model for one NPU")
        reference_cpu_s = self._compiled(_reference(), "the reference program")[1]
        name = f"{request.phase.value} of {request.shape.name}, bucket {request.bucket}"
        started_s = time.process_time()
        model, again = self._model(request), _digest(self._model(request))
        module, building_cpu_s = _digest(model), (time.process_time() - started_s) / 2
        blob_bytes, compile_cpu_s = self._compiled(model, name)
        inputs, outputs = (sum(map(_num_bytes, ports)) for ports in (model.inputs, model.outputs))
        caches = sum(map(_num_bytes, model.inputs[2:]))  # behind tokens and lengths (graphs.py)
        return (
            "",
            BinaryFacts(
                cycles=None,
                flops=0.0,
                argument_bytes=inputs,
                output_bytes=outputs,
                temporary_bytes=None,
                code_bytes=blob_bytes,
                donated_bytes=caches,
                aliased_bytes=caches,  # the host writes a step's keys and values into the request's own tensors
                cache_copies=0,
                copy_cycles=0,
                kernels=0,
                collectives=0,
                collective_bytes=0,
                unknown_loops=0,
                compile_cpu_s=building_cpu_s + compile_cpu_s,
                reference_cpu_s=reference_cpu_s,
                modules=len({module, again}),
                module=float(int(module[:12], 16)),
            ),
        )

    def _model(self, request: BinaryRequest) -> Any:
        from pytest_npubench.engines.openvino_dense import graphs

        weights = self._seeded(request.shape, request.dtype)
        if request.phase is Phase.PREFILL:
            return graphs.prefill(request.shape, weights, request.bucket).model()
        return graphs.decode(request.shape, weights, request.batch_size, request.bucket).model()

    def _seeded(self, shape: DecoderShape, dtype: str) -> Any:
        from pytest_npubench.engines.openvino_dense.graphs import graph_weights

        if self._weights[0] != (shape, dtype):
            self._weights = (shape, dtype), graph_weights(shape, dtype)
        return self._weights[1]

    def _compiled(self, model: Any, name: str) -> tuple[int, float]:
        """Bytes of the blob that the device would load, and CPU seconds of compiling it."""
        from pytest_npubench.backends.openvino_runtime import reason

        started_s = time.process_time()
        try:
            compiled = self._core.compile_model(model, self.device, self.settings())
            compile_cpu_s = time.process_time() - started_s
            blob = _Counted()
            compiled.export_model(blob)
        except RuntimeError as error:
            raise CompileRefusedError(f"{name} does not compile for {self._topology}: {reason(error)[:400]}") from error
        return blob.num_bytes, compile_cpu_s


class _Counted(BytesIO):
    """Keeps nothing of what is written, as a blob may be many gigabytes."""

    num_bytes = 0

    def write(self, data: Any) -> int:
        self.num_bytes += len(data)
        return len(data)


def _digest(model: Any) -> str:
    """Of the graph without its weights."""
    nodes = [
        (
            node.get_type_name(),
            [(str(port.get_element_type()), list(port.get_shape())) for port in node.outputs()],
            [(port.get_source_output().get_node().get_type_name()) for port in node.inputs()],
        )
        for node in model.get_ordered_ops()
    ]
    return hashlib.sha256(json.dumps(nodes).encode()).hexdigest()


def _num_bytes(port: Any) -> int:
    return int(prod(port.get_shape()) * port.get_element_type().size)


def _reference() -> Any:
    """Returns a program that never changes: its time grows on a machine that is slower or busier, like any other."""
    import numpy as np
    import openvino as ov
    from openvino import opset13 as op

    size, num_products = REFERENCE_DIMS
    start = x = op.parameter([size, size], np.float16)
    for number in range(num_products):
        weights = np.random.default_rng(number).standard_normal((size, size)).astype(np.float16)
        x = op.softmax(op.matmul(x, op.constant(weights), False, False), 1)
    return ov.Model([x], [start], "reference")
