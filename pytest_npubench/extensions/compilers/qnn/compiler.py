"""The compiler's own process: it writes one graph after the other, compiles it, and tells what came of it."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.compilers.qnn.facts import GraphFacts, GraphRequest, Part
from pytest_npubench.processes.child import Child, hosted

if TYPE_CHECKING:
    from pytest_npubench.extensions.compilers.qnn.sessions import Context

ENVIRONMENT = {"JAX_PLATFORMS": "cpu"}  # the reference decoder's
PACKAGE = "onnxruntime-qnn"
LIMIT_S = 1800.0
"""For one graph: a whole decoder takes minutes of one core."""
BYTES_A_WEIGHT_BYTE = 6.0
"""What the compiler takes of this machine for a byte of weights: 4.3 for four layers, 5.2 to 7.5 with a head of
128,256 tokens."""


def htp_process(topology: str, memory_bytes: int) -> Child:
    """Returns a process with an HtpCompiler. memory_bytes: what it may take of this machine. Raises OSError."""
    return hosted(
        f"{__name__}:HtpCompiler",
        {"topology": topology, "memory_bytes": memory_bytes},
        name=f"Qualcomm's compiler for {topology}",
        timeout_s=LIMIT_S,
        environment=ENVIRONMENT,
    )


class HtpCompiler:
    """Raises ConfigError for a topology that there is none of."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._memory_bytes = int(arguments["memory_bytes"])
        resource.setrlimit(resource.RLIMIT_DATA, (self._memory_bytes, self._memory_bytes))
        from pytest_npubench.extensions.compilers.qnn.sessions import HtpSessions

        self._sessions = HtpSessions(str(arguments["topology"]))

    def facts(self, request: GraphRequest, num_devices: int) -> tuple[str, GraphFacts]:
        """What the compiler makes of the graph; nothing is kept, so the key is empty. Raises CompileRefusedError with
        the compiler's reason, ConfigError for more devices than one or a graph that is too large for this machine."""
        from pytest_npubench.extensions.compilers.qnn import graphs

        if num_devices != 1:
            raise ConfigError(f"{num_devices} devices together: a Snapdragon has one NPU (hardware file, probe)")
        with TemporaryDirectory(prefix="npubench-htp-") as folder:
            if request.part is Part.ANSWERS:
                return "", self._answers(request, Path(folder))
            if request.part is Part.PRODUCT:
                return "", self._product(request, Path(folder))
            weight_bytes = graphs.weight_bytes(request)
            self._check_room(weight_bytes)
            spec = graphs.graph_spec(request)
            model = graphs.export_part(request, Path(folder))
            context = self._sessions.compile(model, f"{request.part.value} of {spec.name}")
            return "", GraphFacts(
                context_bytes=context.num_bytes,
                num_contexts=context.num_binaries,
                weight_bytes=weight_bytes,
                compile_cpu_s=context.compile_cpu_s,
                **context.phases_s,
                **_memory(context),
            )

    def _answers(self, request: GraphRequest, folder: Path) -> GraphFacts:
        from pytest_npubench.extensions.compilers.qnn import answers, graphs

        started_s = time.process_time()
        contexts: dict[Path, Context] = {}

        def run(model: Path, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
            if model not in contexts:
                contexts[model] = self._sessions.compile(model, f"the small decoder of bucket {request.bucket}")
            return self._sessions.run(contexts[model].path, inputs)

        error = answers.answer_error(request.shape, request.bucket, request.dtype, folder, run)
        return GraphFacts(
            context_bytes=sum(one.num_bytes for one in contexts.values()),
            num_contexts=sum(one.num_binaries for one in contexts.values()),
            weight_bytes=graphs.weight_bytes(
                GraphRequest(
                    shape=answers.small(request.shape),
                    dtype=request.dtype,
                    batch_size=1,
                    phase=request.phase,
                    bucket=request.bucket,
                    part=Part.WHOLE,
                )
            ),
            compile_cpu_s=time.process_time() - started_s,
            answer_error=error,
        )

    def _product(self, request: GraphRequest, folder: Path) -> GraphFacts:
        from pytest_npubench.extensions.compilers.qnn.product import product_case, product_errors

        shape = request.shape
        case = product_case(request.bucket, shape.hidden, shape.num_heads * shape.head_dim)
        contexts: dict[str, Context] = {}

        def compiled(name: str, model: Path) -> Callable[[Any], Any]:
            contexts[name] = self._sessions.compile(model, f"the product in {name}")
            return lambda x: self._sessions.run(contexts[name].path, {"x": x})["y"]

        errors = product_errors(case, folder, compiled)
        return GraphFacts(
            context_bytes=contexts["clip"].num_bytes,
            num_contexts=max(one.num_binaries for one in contexts.values()),
            weight_bytes=case.num_channels * case.num_rows,
            compile_cpu_s=sum(one.compile_cpu_s for one in contexts.values()),
            fp16_context_bytes=contexts["fp16"].num_bytes,
            fp16_error=errors.fp16,
            max_min_error=errors.max_min,
            clip_error=errors.clip,
            shadow_error=errors.shadow,
            levels_off=errors.levels_off,
        )

    def _check_room(self, weight_bytes: int) -> None:
        need = BYTES_A_WEIGHT_BYTE * weight_bytes
        if need > self._memory_bytes:
            raise ConfigError(
                f"needs about {need / 1e9:.0f} GB of this machine, and may take {self._memory_bytes / 1e9:.0f}"
            )


def _memory(context: Context) -> dict[str, float]:
    memory = context.memory
    if memory is None:
        return {}
    return {
        "vtcm_bytes": memory.vtcm_bytes,
        "spill_bytes": memory.spill_bytes,
        "dram_tensor_bytes": memory.dram_tensor_bytes,
    }
