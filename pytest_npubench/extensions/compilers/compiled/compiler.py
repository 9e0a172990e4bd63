"""The compiler's own process: it compiles one binary after the other for chips that are not there.

jax compiles for a topology (jax.experimental.topologies, platforms.py); no chip is looked for. What was compiled is
kept in a folder by the hash of its module, until its campaign is through, so that a run that was killed goes on where
it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_npubench.core.documents import json_value
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.measurement import Phase
from pytest_npubench.core.regular_file import replace_text
from pytest_npubench.engines.binary_facts import BinaryFacts, BinaryRequest, ServingBinaryRequest
from pytest_npubench.engines.hlo import Instruction, Module, parse
from pytest_npubench.errors import CompileRefusedError, NpubenchError
from pytest_npubench.extensions.compilers.compiled.platforms import (
    ENVIRONMENT,
    PLATFORMS,
    described,
    short,
    stand_in_for,
)
from pytest_npubench.processes.child import Child, hosted

if TYPE_CHECKING:
    from pytest_npubench.engines.jax_dense.binaries import Binary

Request: TypeAlias = "BinaryRequest | ServingBinaryRequest"
VARIABLES = ("LIBTPU_INIT_ARGS", "XLA_FLAGS")
"""What of the environment changes a binary."""
LIMIT_S = 1800.0
"""For one binary: a prefill of 8192 tokens takes minutes of one core."""


def compiler_process(spec: HardwareSpec, topology: str, folder: Path, memory_bytes: int) -> Child:
    """Returns a process with a TopologyCompiler for the spec's family. memory_bytes: what it may take of this machine.
    Raises OSError, and ConfigError for a hardware file that does not describe its device."""
    arguments = {"family": spec.family, "topology": topology, "target": described(spec)}
    return hosted(
        f"{__name__}:TopologyCompiler",
        {**arguments, "folder": str(folder), "memory_bytes": memory_bytes},
        name=f"the compiler for {topology}",
        timeout_s=LIMIT_S,
        environment=ENVIRONMENT,
    )


@cache
def versions(family: str) -> dict[str, str]:
    """Of what compiles for it, by package; "" for what is not installed."""
    installed, packages = {}, PLATFORMS[family].packages
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return {name: installed.get(name, "") for name in packages}


class TopologyCompiler:
    """Raises ConfigError for a topology that the family's compiler does not take."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        memory_bytes = int(arguments["memory_bytes"])
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
        self._family, self._topology = str(arguments["family"]), str(arguments["topology"])
        self._target, self._folder = str(arguments["target"]), Path(str(arguments["folder"]))
        self._platform = PLATFORMS[self._family]
        self._devices = self._platform.devices(self._topology, self._target)

    def facts(self, request: Request, num_devices: int) -> tuple[str, BinaryFacts]:
        """What the compiler makes of it on so many of the devices, and the hash that it is kept by. Raises
        CompileRefusedError with the compiler's reason."""
        import jax

        started_s = time.process_time()
        binary, lowered = self._lowered(request, num_devices)
        _check_dtypes(binary, request.dtype)
        lowering_cpu_s = time.process_time() - started_s
        key = self._key(lowered.as_text())
        if (kept := self._kept(key)) is not None:
            return key, kept
        again = self._key(self._lowered(request, num_devices)[1].as_text())  # as for another request
        reference_cpu_s = self._reference_cpu_s()
        started_s = time.process_time()
        try:
            compiled = lowered.compile()
        except Exception as error:
            raise CompileRefusedError(f"{binary.name} does not compile for {self._topology}: {short(error)}") from error
        compile_cpu_s = lowering_cpu_s + time.process_time() - started_s
        memory, module = compiled.memory_analysis(), parse(compiled.as_text())
        donated = [leaf for index in binary.donate for leaf in jax.tree.leaves(binary.arguments[index])]
        copies, expert_copies = self._copies(module, request, num_devices)
        total = module.total
        counted = BinaryFacts(
            cycles=total.cycles if self._platform.tells_cycles else None,
            flops=max(0.0, float((compiled.cost_analysis() or {}).get("flops", 0.0))),  # below 0: not known
            argument_bytes=memory.argument_size_in_bytes,
            output_bytes=memory.output_size_in_bytes,
            temporary_bytes=memory.temp_size_in_bytes,
            code_bytes=self._platform.code_bytes(compiled),
            donated_bytes=sum(map(_bytes_a_device, donated)),
            aliased_bytes=memory.alias_size_in_bytes,
            cache_copies=len(copies),
            copy_cycles=sum(one.cycles for one in copies),
            kernels=total.kernels,
            collectives=total.collectives,
            collective_bytes=total.collective_bytes,
            unknown_loops=total.unknown_loops,
            compile_cpu_s=compile_cpu_s,
            reference_cpu_s=reference_cpu_s,
            modules=len({key, again}),
            module=float(int(key[:12], 16)),
            vector_cycles=total.vector_cycles,
            vector_bytes=total.vector_bytes,
            kernel_cycles=self._kernel_cycles(request, num_devices) if total.kernels else None,
            expert_copies=len(expert_copies),
        )
        self._keep(key, counted)
        return key, counted

    def _copies(self, module: Module, request: Request, num_devices: int) -> tuple[Sequence[Instruction], ...]:
        """What copies a layer's keys and values, and what does its experts."""
        shape = request.shape
        if isinstance(request, ServingBinaryRequest):
            experts = shape.num_experts // num_devices * shape.hidden * shape.intermediate
            return _pool_copies(module, request, num_devices), () if shape.is_dense else module.made(experts)
        length = request.larger or request.bucket
        layer_elements = length * request.batch_size * shape.num_kv_heads * shape.head_dim
        # at batch 1 a prompt's own keys and values are as large as the cache: those may be laid out anew, it may not
        is_whole_row = request.larger is None and request.phase is Phase.PREFILL and request.batch_size == 1
        copies = module.copies(
            layer_elements // num_devices, length=length, of_arguments=is_whole_row, written=self._platform.fuses_reads
        )
        return copies, ()

    def _lowered(self, request: Request, num_devices: int) -> tuple[Binary, Any]:
        """Returns the binary, and its module."""
        import jax

        devices = self._devices[:num_devices]
        if isinstance(request, ServingBinaryRequest):
            from pytest_npubench.engines.jax_moe.programs import ServingPrograms

            stand_in_for(devices[0])
            serving = ServingPrograms(request.shape, devices, dtype=request.dtype, sizes=request.sizes)
            binary = serving.layers(request.size)
        else:
            binary = self._of_bucket(request, devices)
        jitted = jax.jit(binary.function, donate_argnums=binary.donate, out_shardings=binary.out)
        return binary, jitted.lower(*binary.arguments)

    def _of_bucket(self, request: BinaryRequest, devices: Sequence[Any]) -> Binary:
        from pytest_npubench.engines.jax_dense.binaries import DecoderBinaries

        made = DecoderBinaries(request.shape, devices, batch_size=request.batch_size, dtype=request.dtype)
        if request.larger is not None:
            return made.move(request.bucket, request.larger)
        return (made.prefill if request.phase is Phase.PREFILL else made.decode)(request.bucket)

    def _kernel_cycles(self, request: Request, num_devices: int) -> float | None:
        """None where the kernels' machine code is not as it is known: they are priced by their arithmetic then."""
        if isinstance(request, ServingBinaryRequest) or request.phase is not Phase.PREFILL or self._family != "tpu":
            return None
        from pytest_npubench.extensions.compilers.compiled.attention_bundles import attention_cycles

        with suppress(ValueError, OSError, NpubenchError):
            return attention_cycles(self._topology, request.shape, request.dtype, request.bucket, num_devices)
        return None

    def _reference_cpu_s(self) -> float:
        """CPU seconds of compiling a program that never changes: what a machine that is slower or busier makes longer,
        it makes longer too."""
        import jax

        first_device = jax.sharding.SingleDeviceSharding(self._devices[0])
        x, weights = (
            jax.ShapeDtypeStruct(dims, "bfloat16", sharding=first_device) for dims in ((512, 512), (4, 512, 512))
        )

        def layers(x: Any, weights: Any) -> Any:
            for _ in range(4):
                q, k, v = x @ weights[0], x @ weights[1], x @ weights[2]
                x = x + jax.nn.silu(jax.nn.softmax(q @ k.T) @ v) @ weights[3]
            return x

        started_s = time.process_time()
        jax.jit(layers).lower(x, weights).compile()
        return time.process_time() - started_s

    def _key(self, module: str) -> str:
        settings = [os.environ.get(name, "") for name in VARIABLES]
        body = [
            module,
            self._topology,
            self._target,
            len(self._devices),
            versions(self._family),
            settings,
            [one.name for one in fields(BinaryFacts)],
        ]
        return hashlib.sha256(json.dumps(body).encode()).hexdigest()

    def _kept(self, key: str) -> BinaryFacts | None:
        """None where there is none, or half of one."""
        try:
            entries = json_value((self._folder / f"{key}.json").read_text(encoding="utf-8"))
            kept: dict[str, Any] = {name: value and float(value) for name, value in entries.items()}
            return BinaryFacts(**kept)
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def _keep(self, key: str, facts: BinaryFacts) -> None:
        """What cannot be kept is compiled again by the next run."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_text(self._folder / f"{key}.json", json.dumps(asdict(facts)))


def forget(folder: Path, key: str) -> None:
    """A binary that its journal holds need not be kept."""
    with suppress(OSError):
        (folder / f"{key}.json").unlink()
    with suppress(OSError):
        folder.rmdir()


def _check_dtypes(binary: Binary, dtype: str) -> None:
    """Raises CompileRefusedError naming a weight, or a cache, that the binary does not take in its dtype."""
    import jax

    from pytest_npubench.engines.jax_dense.binaries import jax_dtype

    leaves = jax.tree_util.tree_leaves_with_path(binary.arguments[0])
    others = [(jax.tree_util.keystr(path), leaf.dtype) for path, leaf in leaves if leaf.dtype != jax_dtype(dtype)]
    if others:
        (name, other), wanted = others[0], jax_dtype(dtype).__name__
        more = f" and {len(others) - 1} more" if others[1:] else ""
        raise CompileRefusedError(f"{binary.name} is not compiled: {name}{more} is {other}; want {wanted}")


def _bytes_a_device(leaf: Any) -> int:
    shard = leaf.sharding.shard_shape(leaf.shape)
    size = leaf.dtype.itemsize
    for length in shard:
        size *= length
    return int(size)


def _pool_copies(module: Module, request: ServingBinaryRequest, num_devices: int) -> tuple[Instruction, ...]:
    """What makes an array of a layer's pages, or copies the pool of all layers."""
    shape, sizes = request.shape, request.sizes
    heads = 2 * max(1, shape.num_kv_heads // num_devices)
    layer_elements = sizes.num_layer_pages * sizes.block_size_tokens * heads * shape.head_dim
    return (*module.made(layer_elements), *module.copies(layer_elements * shape.num_layers))
