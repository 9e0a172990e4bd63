"""A vendor's own compiler as an engine: what it makes of the decoder for a device that is not there.

    platforms  what jax compiles for without a device: TPUs and NVIDIA's GPUs
    cubins     bytes of a GPU's machine code
    compiler   compiles one binary after the other, in a process of its own
    attention_bundles  cycles of a TPU's attention kernel by its machine code
    runtime    the stack that results are of

Nothing runs: binaries, bytes and copies are the device's own, times are the compiler's estimates. jax and its
plugins are imported in the compiler's process alone. compilers/qnn has Qualcomm's compiler, compilers/npu_compiler.py
Intel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.engines.descriptor import EngineDescriptor

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Backend, Device, Probe, Runtime
    from pytest_npubench.core.hardware import HardwareSpec

PACKAGES = {
    "tpu": (
        "libtpu",
        "libtpu is not installed: pip install pytest-npubench[tpu-compiler] (Google's binary, under the terms of your "
        "use of Google Cloud; it compiles without a TPU)",
    ),
    "cuda": (
        "jax_cuda13_plugin",
        "jax's CUDA plugin is not installed: pip install pytest-npubench[cuda-compiler] (with NVIDIA's assembler, "
        "under its EULA; it compiles without a GPU or a driver)",
    ),
    "qualcomm": (
        "onnxruntime_qnn",
        "onnxruntime-qnn is not installed: pip install pytest-npubench[qualcomm-compiler] (Qualcomm's binaries in it "
        "are under its AI Stack License; it compiles without a Snapdragon)",
    ),
}
"""By family, what its compiler is imported as, and what is said where it is missing."""
INTEL = "openvino"
IN_ONE_PACKAGE = {"qualcomm": "onnxruntime-qnn", INTEL: "openvino"}
"""By family, what its compiler comes in, with all that decides what comes out."""
INTEL_COMPILER = "*openvino_intel_npu_compiler*"


class Compiled(EngineDescriptor):
    """Its devices are those that hardware files name to the compiler ([compiler] there)."""

    name = "compiled"
    title = "compiled, not run"
    about = "the vendor's compiler, without a device: what fits, what is copied, estimated cycles"
    families = (*PACKAGES, INTEL)
    parts = {  # noqa: RUF012 - of the class
        "compiled": "pytest_npubench.extensions.compilers.suites.compiled:Compiled",
        "graphs": "pytest_npubench.extensions.compilers.suites.graphs:Graphs",
    }
    has_devices = False
    is_placed_by_itself = True

    def why_not_here(self, family: str) -> str:
        if family == INTEL:
            return _why_not_intel()
        package, missing = PACKAGES[family]
        if find_spec(package) is None:
            return missing
        from pytest_npubench.extensions.compilers.compiled.compiler import versions
        from pytest_npubench.extensions.compilers.compiled.platforms import PLATFORMS

        lacking = [name for name, version in versions(family).items() if not version] if family in PLATFORMS else []
        return f"{', '.join(lacking)}: {missing}" if lacking else ""

    def probe(self, spec: HardwareSpec) -> Probe:
        from pytest_npubench.backends.protocol import Device, Probe
        from pytest_npubench.errors import ConfigError
        from pytest_npubench.extensions.compilers.compiled.platforms import described

        compiler = spec.compiler
        topology = None if compiler is None else compiler.topologies.get(str(spec.tensor_parallel))
        if compiler is None or topology is None:
            entry = f"[compiler.topologies] with the entry {spec.tensor_parallel}"
            return Probe(reason=f"{spec.title}: the hardware file {spec.file_name} has no {entry}")
        try:
            described(spec)
        except ConfigError as error:
            return Probe(reason=str(error))
        ordinals = range(spec.tensor_parallel)
        name, uuid = compiler.device_name, f"compiler:{topology}"
        return Probe(
            devices=tuple(Device(family=spec.family, ordinal=i, name=name, uuid=f"{uuid}:{i}") for i in ordinals)
        )

    def open(self, backend: Backend, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        if (package := IN_ONE_PACKAGE.get(devices[0].family)) is not None:
            from pytest_npubench.extensions.compilers.compiled.runtime import PackageRuntime

            return PackageRuntime(backend, devices, package)
        from pytest_npubench.extensions.compilers.compiled.runtime import CompilerRuntime

        return CompilerRuntime(backend, devices)


def _why_not_intel() -> str:
    spec = find_spec("openvino")
    folders = [Path(one) / "libs" for one in (spec and spec.submodule_search_locations) or ()]
    if not folders:
        return "openvino is not installed: pip install pytest-npubench[openvino]"
    compiler = next((path.name for folder in folders for path in folder.glob(INTEL_COMPILER)), None)
    if compiler is None:
        return (
            "openvino is here without its compiler for Intel's NPUs (libopenvino_intel_npu_compiler), which its wheels "
            "for Linux do not carry (openvinotoolkit/openvino#36374); OpenVINO's archives do"
        )
    return ""


ENGINE = Compiled()
