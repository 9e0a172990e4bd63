"""One runtime for cpu, cuda and tpu: XLA binaries compiled ahead of time per shape, with their compile time on record.

Whether a binary came cold from the compiler or warm from the persistent compilation cache is read from jax's own
events (`/jax/compilation_cache/cache_hits`), and every compile of the process is counted, so that one that happens
while measuring cannot hide in a sample.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, ItemsView, Iterable, KeysView, Sequence, ValuesView
from dataclasses import fields
from importlib import metadata
from typing import Any

import jax
import jax.extend
from jax.experimental.compilation_cache import compilation_cache

from pytest_npubench.backends.protocol import Device, Stack
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.core.families import declared
from pytest_npubench.core.measurement import CacheState, CompileRecord
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError

COMPILE_SETTINGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_DEFAULT_MATMUL_PRECISION", "NEURON_CC_FLAGS")
WITHOUT_ARRAYS: frozenset[type] = frozenset((type(None), bool, int, float, complex, str, bytes))


class _CompileCounter:
    """Counts jax's compile and cache-hit events for the life of the process; jax keeps a listener for good."""

    def __init__(self) -> None:
        self.num_compiles = 0
        self.num_cache_hits = 0
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)

    def _on_duration(self, event: str, _duration_s: float, **_: Any) -> None:
        self.num_compiles += event == "/jax/core/compile/backend_compile_duration"

    def _on_event(self, event: str, **_: Any) -> None:
        self.num_cache_hits += event == "/jax/compilation_cache/cache_hits"


_counter = _CompileCounter()


def limit_platforms(families: Iterable[str]) -> None:
    """Let jax touch these families' platforms and the host only. Call it before the first runtime is opened."""
    wanted = [platform for name in families if (platform := declared(name).jax_platform)]
    jax.config.update("jax_platforms", ",".join(dict.fromkeys([*wanted, "cpu"])))


class JaxRuntime:
    """A group of jax devices. Raises DeviceUnavailableError where jax no longer has a device the probe saw, or the
    family declares no platform of jax."""

    def __init__(self, family: str, devices: Sequence[Device], cache_dir: str | None) -> None:
        self.compiles: list[CompileRecord] = []
        self._family = family
        self._there_already = WITHOUT_ARRAYS if family == "cpu" else frozenset()
        self._array_types: set[type] = set()
        self._name = devices[0].name
        _use_compilation_cache(cache_dir)
        platform = declared(family).jax_platform
        if platform is None:
            raise DeviceUnavailableError(f"devices of {family} are none of jax's: the family declares no jax_platform")
        present = jax.devices(platform)
        if missing := [device.id for device in devices if device.index >= len(present)]:
            raise DeviceUnavailableError(f"{', '.join(missing)}: jax has {len(present)} devices of {platform}")
        self._devices = [present[device.index] for device in devices]

    @property
    def devices(self) -> Sequence[Any]:
        return self._devices

    @property
    def num_process_compiles(self) -> int:
        return _counter.num_compiles

    def compile(
        self, name: str, function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = (), out: Any = None
    ) -> Callable[..., Any]:
        """Trace, lower and compile; compile_s covers all three, as a user waits for all three."""
        hits_before, started_s = _counter.num_cache_hits, perf_counter()
        compiled: Callable[..., Any] = (
            jax.jit(function, donate_argnums=donate, out_shardings=out).lower(*arguments).compile()
        )
        compile_s = perf_counter() - started_s
        cache = CacheState.WARM if _counter.num_cache_hits > hits_before else CacheState.COLD
        flops, accessed_bytes = _counted(compiled)
        record = CompileRecord(name=name, compile_s=compile_s, cache=cache, flops=flops, accessed_bytes=accessed_bytes)
        self.compiles.append(record)
        return compiled

    def synchronize(self, value: Any) -> None:
        """Wait for every array in `value`. On the host a value without arrays is there already.

        An array, and a value that can hold none, are not taken apart: that takes four times as long as the rest. Types
        of arrays are remembered: isinstance(value, jax.Array) takes 0.2 us, as long as waiting for what is there.
        """
        kind = type(value)
        if kind in self._array_types:
            value.block_until_ready()
            return
        if kind in self._there_already:
            return
        if isinstance(value, jax.Array):
            self._array_types.add(kind)
            value.block_until_ready()
            return
        leaves = _leaves(value, set())
        if self._family != "cpu" and not any(isinstance(leaf, jax.Array) for leaf in leaves):
            raise MeasurementError(
                f"the measured callable returned {type(value).__name__} without any jax array, so nothing on "
                f"{self._family} can be waited for and a time would mean nothing: return its arrays"
            )
        jax.block_until_ready(leaves)

    def stack(self) -> Stack:
        client = self._devices[0].client
        return Stack(
            device_class=self._name if len(self._devices) == 1 else f"{len(self._devices)} x {self._name}",
            driver=None,
            runtime=f"jax {jax.__version__}",
            compiler=", ".join(
                [f"jaxlib {metadata.version('jaxlib')}", client.platform_version.splitlines()[0], *_compile_settings()]
            ),
        )

    def close(self) -> None:
        """Let go of the devices, so that another process can open them; what lies on them is lost. Not on the host,
        which processes share, and where a user's own arrays lie."""
        if self._family != "cpu":
            self._devices = []
            gc.collect()  # a client lives as long as an array or a binary of it
            jax.clear_caches()
            jax.extend.backend.clear_backends()

    def peak_memory_bytes(self) -> int | None:
        """Returns the peak that the devices' allocators count from the start of the process; None on a CPU."""
        return self._most("peak_bytes_in_use")

    def used_memory_bytes(self) -> int | None:
        """Returns what the fullest device's allocator has given out; None on a CPU."""
        return self._most("bytes_in_use")

    def _most(self, name: str) -> int | None:
        counts = [device.memory_stats() or {} for device in self._devices]
        return max((count[name] for count in counts if name in count), default=None)

    def telemetry(self) -> Telemetry | None:
        """No telemetry; runtimes of families with telemetry override this."""
        return None


def _counted(compiled: Any) -> tuple[float | None, float | None]:
    """FLOP and bytes of a run, as XLA's cost analysis has them, which leaves out what is 0; None where it has none, and
    where it says so by a number below 0."""
    try:
        costs = compiled.cost_analysis()
    except Exception:  # noqa: BLE001 - a plugin's compiler may not offer it: nothing is counted then
        costs = None
    counts = (costs.get(name, 0.0) if costs else -1.0 for name in ("flops", "bytes accessed"))
    flops, accessed_bytes = (float(count) if count >= 0 else None for count in counts)
    return flops, accessed_bytes


def _use_compilation_cache(cache_dir: str | None) -> None:
    """With a directory every binary is kept and looked up, however small; without one each compile is cold."""
    compilation_cache.reset_cache()  # jax decides at its first compile whether and where it caches, and keeps to that
    jax.config.update("jax_compilation_cache_dir", cache_dir)
    jax.config.update("jax_enable_compilation_cache", cache_dir is not None)
    if cache_dir is not None:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _leaves(value: Any, seen: set[int]) -> list[Any]:
    """Returns the leaves of jax.tree, and those in fields of dataclasses and in views of mappings, which it
    overlooks."""
    leaves: list[Any] = jax.tree.leaves([*value] if isinstance(value, (KeysView, ValuesView, ItemsView)) else value)
    for leaf in [leaf for leaf in leaves if hasattr(type(leaf), "__dataclass_fields__")]:
        if id(leaf) not in seen:
            seen.add(id(leaf))
            leaves += _leaves([getattr(leaf, field.name, None) for field in fields(leaf)], seen)
    return leaves


def _compile_settings() -> list[str]:
    """Returns the settings that change compilation, as "NAME=value": the environment in the order of COMPILE_SETTINGS,
    then numbers of 64 bits, however they were switched on."""
    values = {name: " ".join(os.environ.get(name, "").split()) for name in COMPILE_SETTINGS}
    wide = ["JAX_ENABLE_X64=1"] if jax.config.jax_enable_x64 else []
    return [*(f"{name}={value}" for name, value in values.items() if value), *wide]
