"""Canary kernels: three small programs that tell what a stack does to compute, memory and launches by themselves.

    matmul     a square product of random matrices: 2 n^3 operations
    copy       one buffer into another, larger than the caches: 2 x its bytes of traffic
    dispatch   an addition of eight numbers, waited for each time: what it costs to launch anything

They know nothing of decoders, buckets or LENS. Where they slow down together with a suite, it was the device or its
driver; where they do not, it was what the suite runs. Sizes are fixed for each family, so that a sample takes
milliseconds; to change one is to measure something else, and needs another name.

Worked numbers: matmul of 8192 in bf16 on an H200 (989e12 operations/s) takes 1.1 ms at best; a copy of 1 GiB at
4.8e12 bytes/s takes 0.45 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.engines.fusion_kernels import fusion_call
from pytest_npubench.engines.protocol import Compiler
from pytest_npubench.errors import MeasurementError

KERNELS = ("matmul", "copy", "dispatch")
NUM_LAUNCHES = 64
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Rows of the square matrices and their dtype; bytes of the buffer that is copied."""

    matmul_rows: int
    matmul_dtype: str
    copy_bytes: int


HOST_SIZES = Sizes(matmul_rows=512, matmul_dtype="float32", copy_bytes=64 * 2**20)
ACCELERATOR_SIZES = Sizes(matmul_rows=8192, matmul_dtype="bfloat16", copy_bytes=2**30)


def sizes(platform: str) -> Sizes:
    """Returns the sizes for a jax platform: "cpu", or any accelerator."""
    return HOST_SIZES if platform == "cpu" else ACCELERATOR_SIZES


class CanaryKernels:
    """The kernels of one group of devices, each of which runs the whole of them."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._calls: dict[str, Callable[[], None]] = {}

    def load(self, kernel: str) -> None:
        """Compile a canary, or one of fusion_kernels, ahead of time and put its inputs on the devices; what is there
        already stays.

        Raises MeasurementError where the runtime is not one of jax.
        """
        if kernel not in self._calls:
            make = {"matmul": self._matmul, "copy": self._copy, "dispatch": self._dispatch}.get(kernel)
            sharding = self._sharding()
            self._calls[kernel] = make(sharding) if make else fusion_call(kernel, self._compiler, sharding)

    def time(self, kernel: str) -> float:
        """Returns seconds of one call of a loaded kernel, waited for; of `dispatch` the mean over many."""
        call, num_calls = self._calls[kernel], NUM_LAUNCHES if kernel == "dispatch" else 1
        started_s = perf_counter()
        for _ in range(num_calls):
            call()
        return (perf_counter() - started_s) / num_calls

    def _sharding(self) -> Any:
        import numpy as np

        devices = getattr(self._compiler, "devices", ())
        try:
            import jax
        except ImportError as error:
            raise MeasurementError("canary kernels need jax, which is not installed") from error
        if strange := [type(device).__name__ for device in devices if not isinstance(device, jax.Device)]:
            raise MeasurementError(f"canary kernels need a runtime of jax; its device is a {strange[0]}")
        if not devices:
            raise MeasurementError("canary kernels need a runtime of jax; this one names no devices")
        mesh = jax.sharding.Mesh(np.array(devices), ("devices",))
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def _matmul(self, sharding: Any) -> Callable[[], None]:
        import jax.numpy as jnp
        import numpy as np

        size = sizes(sharding.mesh.devices.flat[0].platform)
        # random, since a constant takes so little power that a lowered power cap would not show
        values = np.random.default_rng(0).standard_normal((size.matmul_rows,) * 2, np.float32)
        matrix = _on_devices(values.astype(jnp.dtype(size.matmul_dtype)), sharding)
        run = self._compiler.compile("canary-matmul", jnp.matmul, matrix, matrix, out=sharding)
        return lambda: _wait(run(matrix, matrix))

    def _copy(self, sharding: Any) -> Callable[[], None]:
        import jax
        import numpy as np

        size = sizes(sharding.mesh.devices.flat[0].platform)
        zeros = np.zeros(size.copy_bytes // FLOAT_BYTES, np.float32)
        source, target = _on_devices(zeros, sharding), _on_devices(zeros, sharding)

        def copy(source: Any, target: Any) -> Any:
            return jax.lax.dynamic_update_slice(target, source, (0,))

        # into a donated buffer: allocating a fresh one each time would measure the operating system's pages
        run = self._compiler.compile("canary-copy", copy, source, target, donate=(1,), out=sharding)

        def call() -> None:
            nonlocal target
            target = run(source, target)
            _wait(target)

        return call

    def _dispatch(self, sharding: Any) -> Callable[[], None]:
        import numpy as np

        few = _on_devices(np.zeros(8, np.float32), sharding)
        run = self._compiler.compile("canary-dispatch", lambda values: values + 1, few, out=sharding)
        return lambda: _wait(run(few))


def _on_devices(values: Any, sharding: Any) -> Any:
    """Puts values on devices without the compile that jax's own constructors would need."""
    import jax

    return jax.device_put(values, sharding)


def _wait(value: Any) -> None:
    value.block_until_ready()
