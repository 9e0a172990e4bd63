"""Qualcomm's compiler for the Hexagon NPU (HTP) through ONNX Runtime's QNN execution provider, on an x86-64 machine.

A context binary is what a phone loads. On this machine it runs on Qualcomm's emulator of the NPU, slowly, with the
NPU's numerics. Whatever the NPU cannot take would run on the phone's CPU: here that is an error with the operator's
name. Options: onnxruntime-qnn, docs/execution_providers/QNN-ExecutionProvider.md.
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import onnxruntime_qnn

from pytest_npubench.errors import CompileRefusedError, ConfigError
from pytest_npubench.extensions.compilers.hub.weights import Array
from pytest_npubench.extensions.compilers.qnn.binary_info import GraphMemory, graph_memory

PROVIDER = "QNNExecutionProvider"  # what context binaries name as their source; under another name none is taken back
TOPOLOGY = re.compile(r"soc(\d+)-v(\d+)")
FALLBACK = "fallback to CPU EP has been explicitly disabled"
PHASES = {"Graph Optimizations": "optimize_s", "Graph Sequencing for Target": "sequence_s", "VTCM Allocation": "vtcm_s"}
"""Events of the compiler's profile, and what they are called here."""
MAX_REASON = 400  # letters of a compiler's own words


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A compiled graph: the file that ONNX Runtime loads, its binaries' bytes, how many there are, the compiler's CPU
    seconds, wall seconds of its phases by PHASES, and the memory of its graph where it has one that tells."""

    path: Path
    num_bytes: int
    num_binaries: int
    compile_cpu_s: float
    phases_s: Mapping[str, float]
    memory: GraphMemory | None


class HtpSessions:
    """Compiles and runs for one chip. Raises ConfigError for a topology that is no "soc57-v75"."""

    def __init__(self, topology: str) -> None:
        numbers = TOPOLOGY.fullmatch(topology)
        if numbers is None:
            raise ConfigError(
                f"Qualcomm's compiler does not take the topology {topology!r}; want soc<number>-v<Hexagon version>, as "
                "soc57-v75 for SM8650 or soc69-v79 for SM8750 (hardware file, compiler.topologies)"
            )
        self.topology = topology
        self._options = {
            "backend_path": onnxruntime_qnn.get_qnn_htp_path(),
            "soc_model": numbers[1],
            "htp_arch": numbers[2],
            "enable_htp_fp16_precision": "1",
        }
        self._devices = _devices()

    def compile(self, model: Path, name: str) -> Context:
        """Returns a context binary beside the model. Raises CompileRefusedError with the operators that would run on
        the CPU, or with the compiler's reason."""
        path, profile = model.parent / "context.onnx", model.parent / "profile.csv"
        started_s = time.process_time()
        try:
            self._session(model, path, {"profiling_level": "detailed", "profiling_file_path": str(profile)})
        except Exception as error:
            if FALLBACK in str(error):
                operators = ", ".join(self._left_to_the_cpu(model))
                reason = f"the NPU does not take {operators}, which would run on the CPU"
            else:
                reason = str(error).strip().splitlines()[0][:MAX_REASON]
            raise CompileRefusedError(f"{name} does not compile for {self.topology}: {reason}") from error
        compile_cpu_s = time.process_time() - started_s
        return Context(
            path=path,
            num_bytes=sum(one.stat().st_size for one in path.parent.glob("context*.bin")),
            num_binaries=len(_contexts(path)),
            compile_cpu_s=compile_cpu_s,
            phases_s=_phases(profile),
            memory=_memory(path),
        )

    def run(self, context: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name, of the emulated NPU. Raises CompileRefusedError for a context of another QAIRT version."""
        check_version(context)
        session = self._session(context)
        names = [one.name for one in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    def _session(
        self, model: Path, context: Path | None = None, options: Mapping[str, str] | None = None, fallback: bool = False
    ) -> Any:
        """Returns a session that is on the NPU as a whole, unless fallback; its context goes into that file."""
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4
        if not fallback:
            settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        if context is not None:
            for old in context.parent.glob(f"{context.stem}*"):
                old.unlink()
            settings.add_session_config_entry("ep.context_enable", "1")
            settings.add_session_config_entry("ep.context_file_path", str(context))
            settings.add_session_config_entry("ep.context_embed_mode", "0")
        settings.add_provider_for_devices(self._devices, {**self._options, **(options or {})})
        return onnxruntime.InferenceSession(str(model), settings)

    def _left_to_the_cpu(self, model: Path) -> Sequence[str]:
        """Operators, "Sinh (gate_3)", that are on the CPU where that is allowed."""
        path = model.parent / "fallback.onnx"
        try:
            self._session(model, path, fallback=True)
        except Exception as error:  # noqa: BLE001 - the operators cannot be had: that is said in their place
            return (f"some operators ({str(error).strip().splitlines()[0][:MAX_REASON]})",)
        graph = onnx.load(path, load_external_data=False).graph
        return [f"{node.op_type} ({node.name})" for node in graph.node if node.op_type != "EPContext"]


@cache
def _devices() -> list[Any]:
    """Returns the provider's; a process takes its library once."""
    onnxruntime.set_default_logger_severity(4)
    onnxruntime.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
    return [one for one in onnxruntime.get_ep_devices() if one.ep_name == PROVIDER][:1]


def check_version(context: Path) -> None:
    """Raises CompileRefusedError where another QAIRT has made the context: a phone would refuse it, or worse."""
    installed = qairt_version()
    for attributes in _contexts(context):
        made_by = attributes.get("ep_sdk_version", "").removeprefix("v")
        if made_by != installed and not made_by.startswith(f"{installed}."):
            raise CompileRefusedError(
                f"{context.name}: a context binary of QAIRT {made_by or 'unknown'}; QAIRT {installed} is installed, "
                "and takes its own alone: compile it again"
            )


def qairt_version() -> str:
    """Of the compiler, as 2.51.0."""
    return str(onnxruntime_qnn.build_and_package_info.qnn_version)


def _contexts(path: Path) -> list[dict[str, str]]:
    """Returns the texts among the attributes of each context in the file."""
    graph = onnx.load(path, load_external_data=False).graph
    return [
        {one.name: one.s.decode(errors="replace") for one in node.attribute if one.type == onnx.AttributeProto.STRING}
        for node in graph.node
        if node.op_type == "EPContext"
    ]


def _memory(path: Path) -> GraphMemory | None:
    """Of the graph in the one binary of a context."""
    binaries = list(path.parent.glob(f"{path.stem}*.bin"))
    if len(binaries) != 1:
        return None
    return graph_memory(binaries[0], Path(onnxruntime_qnn.get_library_path()).parent)


def _phases(profile: Path) -> dict[str, float]:
    """Returns seconds of the compiler's phases; none where it wrote no profile."""
    if not profile.is_file():
        return {}
    phases_s = dict.fromkeys(PHASES.values(), 0.0)
    with profile.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name = PHASES.get(str(row.get("Event Identifier")))
            if name is not None and row.get("Unit of Measurement") == "US":
                phases_s[name] += float(row["Time"]) / 1e6
    return phases_s
