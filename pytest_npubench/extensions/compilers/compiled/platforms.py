"""The platforms that jax compiles for without a device, one a family: how their devices are had, and what is told.

tpu    libtpu, which knows its topologies by name
cuda   XLA:GPU as jax's CUDA plugin carries it, which knows no GPU by name: the hardware file describes one
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.compilers.compiled.cubins import cubin_bytes

ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no lock between processes: there is no chip to share
    "TPU_SKIP_MDS_QUERY": "1",  # nor a metadata server
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
}
"""Of a compiler's process."""
MAX_REASON = 400  # letters of a compiler's own words
ONE_CHIP = re.compile(r":1x1(x1)?\Z")
KNOWN_TPUS = (
    "v3:2x2",
    "v4:2x2x1",
    "v5e:1x1",
    "v5e:2x2",
    "v5e:2x4",
    "v5p:2x2x1",
    "v6e:1x1",
    "v6e:2x2",
    "v6e:2x4",
    "tpu7x:2x2x1",
)
EVERY_GPU = {
    "threads_per_warp": 32,
    "threads_per_block_limit": 1024,
    "shared_memory_per_block": 48 * 1024,
    "registers_per_block_limit": 65536,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
}
"""Of compute capability 5.0 and later (CUDA C++ Programming Guide, technical specifications by compute capability)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """packages: those whose versions decide what comes out. devices: jax's, of a topology and a target (described()).
    tells_cycles: whether the module's text has estimates. fuses_reads: whether a fusion lays out anew what it reads
    without writing it. code_bytes: of a compiled program's machine code; None where it cannot be told."""

    packages: tuple[str, ...]
    devices: Callable[[str, str], list[Any]]
    tells_cycles: bool
    fuses_reads: bool
    code_bytes: Callable[[Any], float | None]


def described(spec: HardwareSpec) -> str:
    """What the compiler is told of a device beside its topology: of a GPU a GpuTargetConfigProto as text (XLA,
    device_description.proto), nothing of others. Raises ConfigError for a file without it."""
    if spec.family != "cuda":
        return ""
    gpu, memory = spec.compiler.gpu if spec.compiler else None, spec.peak.memory_bytes
    bandwidth = spec.peak.memory_bandwidth_bytes_per_s
    if gpu is None or memory is None or bandwidth is None:
        missing = "[compiler.gpu]" if gpu is None else "[peak] with memory_bytes and memory_bandwidth_bytes_per_s"
        raise ConfigError(f"{spec.title}: the hardware file {spec.file_name} has no {missing}")
    major, minor = gpu.compute_capability.split(".")
    peaks = {"memory_bandwidth": bandwidth.value, "device_memory_size": memory.value}
    numbers = {**EVERY_GPU, **gpu.limits, **peaks}
    lines = [f"  {name}: {int(value) if value == int(value) else value}" for name, value in numbers.items()]
    capability = f"  cuda_compute_capability {{ major: {major} minor: {minor} }}"
    return "\n".join(['platform_name: "CUDA"', "gpu_device_info {", capability, *lines, "}"])


def _tpus(topology: str, target: str) -> list[Any]:
    """Raises ConfigError for a topology that libtpu does not know."""
    from jax.experimental import topologies

    settings: dict[str, Any] = {"chips_per_host_bounds": (1, 1, 1)} if ONE_CHIP.search(topology) else {}
    if topology.startswith("v4:"):  # whose two cores are one device to a host, and two to libtpu unless it is asked
        settings["chip_config_name"] = "megacore"
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=topology, **settings).devices)
    except Exception as error:
        raise ConfigError(
            f"libtpu does not take the topology {topology!r} ({short(error)}); it knows {', '.join(KNOWN_TPUS)} "
            "(hardware file, compiler.topologies)"
        ) from error


def stand_in_for(device: Any) -> None:
    """jax's Pallas kernels ask this process for its TPU, which it has not: they are told the topology's."""
    from jax._src.pallas.mosaic import tpu_info
    from jax.experimental.pallas.ops.tpu.megablox import common

    chip, grouped_products = cast(Any, tpu_info), cast(Any, common)
    chip.get_device_kind = grouped_products.tpu_kind = lambda: device.device_kind
    chip.get_num_device_cores = lambda: device.num_cores


def _gpus(topology: str, target: str) -> list[Any]:
    """Raises ConfigError for a topology or target that XLA does not take, and where its assembler is missing."""
    import jax
    from jax.experimental import topologies

    jax.devices("cpu")  # jax loads its plugins here
    try:
        described = topologies.get_topology_desc(
            platform="cuda", topology_name="gpu", topology=topology, target_config=target
        )
        first_device = jax.sharding.SingleDeviceSharding(described.devices[0])
        jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((8,), "float32", sharding=first_device)).compile()
    except Exception as error:
        raise ConfigError(
            f"XLA compiles nothing for {topology!r}, slices x hosts x GPUs of a host ({short(error)}): hardware file, "
            "[compiler]; pip install pytest-npubench[cuda-compiler]"
        ) from error
    return list(described.devices)


def _told_code_bytes(compiled: Any) -> float:
    return float(compiled.memory_analysis().generated_code_size_in_bytes)


def _cubin_bytes(compiled: Any) -> float | None:
    """XLA:GPU tells 0 bytes of code without a device, so they are counted in what it writes down."""
    return cubin_bytes(compiled.runtime_executable().serialize())


def short(error: Exception) -> str:
    """Returns the first line of a compiler's words, at most MAX_REASON letters of it."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:MAX_REASON]


PLATFORMS = {
    "tpu": Platform(
        packages=("libtpu", "jax", "jaxlib"),
        devices=_tpus,
        tells_cycles=True,
        fuses_reads=False,
        code_bytes=_told_code_bytes,
    ),
    "cuda": Platform(
        packages=("jax-cuda13-plugin", "nvidia-cuda-nvcc", "nvidia-nvvm", "jax", "jaxlib"),
        devices=_gpus,
        tells_cycles=False,
        fuses_reads=True,
        code_bytes=_cubin_bytes,
    ),
}
"""By family."""
