"""The runtime on the host: what it puts on record of a compile, counts, waits for and says about itself.

Whatever needs a compilation cache runs in processes of its own, since jax keeps that setting for the whole process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from pytest_npubench.backends import backend, jax_runtime
from pytest_npubench.backends.jax_runtime import JaxRuntime
from pytest_npubench.backends.protocol import Device, peak_memory_bytes
from pytest_npubench.backends.telemetry import open_telemetry
from pytest_npubench.backends.telemetry.cpu import clock_policy, microcode, share_of_machine
from pytest_npubench.core import families
from pytest_npubench.core.measurement import CacheState
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError

HOST = Device(family="cpu", ordinal=0, name="a processor")
VECTOR = jax.ShapeDtypeStruct((4,), np.float32)


@pytest.fixture
def runtime() -> JaxRuntime:
    return JaxRuntime("cpu", [HOST], None)


def test_a_compile_without_a_cache_is_cold_each_time(runtime: JaxRuntime) -> None:
    for name in ("first", "second"):
        runtime.compile(name, lambda x: x * 2, VECTOR)
    assert [(record.name, record.cache) for record in runtime.compiles] == [
        ("first", CacheState.COLD),
        ("second", CacheState.COLD),
    ]
    assert min(record.compile_s for record in runtime.compiles) > 0


def test_a_compiled_function_computes(runtime: JaxRuntime) -> None:
    double = runtime.compile("double", lambda x: x * 2, VECTOR)
    np.testing.assert_array_equal(double(np.arange(4, dtype=np.float32)), [0, 2, 4, 6])


def test_the_peak_of_memory_is_the_fullest_device_s_and_unknown_on_a_processor(runtime: JaxRuntime) -> None:
    assert peak_memory_bytes(runtime) is None
    told: tuple[dict[str, int] | None, ...] = (
        {"peak_bytes_in_use": 5, "bytes_in_use": 9},
        None,
        {"peak_bytes_in_use": 8},
    )
    runtime._devices = [SimpleNamespace(memory_stats=lambda own=own: own) for own in told]
    assert peak_memory_bytes(runtime) == 8
    assert peak_memory_bytes(SimpleNamespace()) is None  # type: ignore[arg-type]


def test_compiles_are_kept_apart_by_runtime(runtime: JaxRuntime) -> None:
    other = JaxRuntime("cpu", [HOST], None)
    other.compile("elsewhere", lambda x: x + 3, VECTOR)
    assert runtime.compiles == []
    assert runtime.num_process_compiles == other.num_process_compiles


def test_every_compile_of_the_process_is_counted(runtime: JaxRuntime) -> None:
    """Ours, and one hidden in a jit call; a second call of that finds its binary and counts as none."""
    start = runtime.num_process_compiles
    runtime.compile("ours", lambda x: x - 5, VECTOR)
    assert runtime.num_process_compiles == start + 1
    argument = np.ones(7, np.float32)
    hidden = jax.jit(lambda x: x * 3 + 11)
    hidden(argument)
    assert runtime.num_process_compiles == start + 2
    hidden(argument)
    assert runtime.num_process_compiles == start + 2
    hidden(np.ones(8, np.float32))
    assert runtime.num_process_compiles == start + 3


def test_a_donated_argument_is_gone(runtime: JaxRuntime) -> None:
    negate = runtime.compile("negate", lambda x, y: (-x, y + 1), VECTOR, VECTOR, donate=(0,))
    first, second = (jax.device_put(np.ones(4, np.float32), runtime.devices[0]) for _ in range(2))
    negate(first, second)
    assert (first.is_deleted(), second.is_deleted()) == (True, False)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> JaxRuntime:
    """A FAKE family whose device is the host's processor."""
    monkeypatch.setitem(families.OWN, "abacus", families.Family(name="abacus", about="a FAKE", jax_platform="cpu"))
    return JaxRuntime("abacus", [HOST], None)


@pytest.mark.parametrize("value", [None, 3.0, (), {"loss": 1.5}, np.ones(3)], ids=str)
def test_an_accelerator_cannot_wait_for_what_holds_no_array(accelerator: JaxRuntime, value: Any) -> None:
    words = f"returned {type(value).__name__} without any jax array, so nothing on abacus can be waited for"
    with pytest.raises(MeasurementError, match=words):
        accelerator.synchronize(value)


@dataclass
class Outputs:
    """Not registered with jax, and a part of itself."""

    logits: Any
    whole: Outputs | None = None

    def __post_init__(self) -> None:
        self.whole = self


def test_arrays_anywhere_in_a_value_are_waited_for(accelerator: JaxRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(jax, "block_until_ready", waited.append)
    array = jax.device_put(np.ones(2))
    for value in ({"text": "x", "nested": [1, (array,)]}, {"logits": array}.values(), Outputs(logits={"last": array})):
        accelerator.synchronize(value)
        assert any(leaf is array for leaf in waited.pop())


def test_an_array_that_comes_only_sometimes_is_waited_for(
    accelerator: JaxRuntime, runtime: JaxRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = jax.device_put(np.ones(2))
    waited: list[Any] = []
    monkeypatch.setattr(type(array), "block_until_ready", lambda self: waited.append(self))
    for value in (None, 3, array, "text", array):
        runtime.synchronize(value)
    accelerator.synchronize(array)
    assert [id(value) for value in waited] == [id(array)] * 3


def test_the_host_waits_for_anything(runtime: JaxRuntime) -> None:
    for value in (None, 3.0, {"loss": 1.5}, jax.device_put(np.ones(2))):
        runtime.synchronize(value)


def test_a_device_that_is_no_longer_there() -> None:
    gone = Device(family="cpu", ordinal=4000, name="a processor")
    with pytest.raises(DeviceUnavailableError, match=r"^cpu:4000: jax has \d+ devices of cpu$"):
        JaxRuntime("cpu", [HOST, gone], None)


def test_the_stack_names_the_software_and_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in jax_runtime.COMPILE_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    cpu = backend("cpu")
    found = cpu.probe(timeout_s=60).devices
    runtime = cpu.open(found, None)
    stack = runtime.stack()
    assert stack.device_class == f"{found[0].name}, {share_of_machine()}"
    version, *pinned = stack.runtime.split(", ")
    assert version == f"jax {jax.__version__}"
    assert all(one.endswith(" worker threads pinned") for one in pinned)  # where there is more than one core
    assert stack.compiler is not None
    assert stack.compiler.startswith("jaxlib ")
    monkeypatch.setenv("NEURON_CC_FLAGS", " --model-type  transformer ")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--some=flag")
    monkeypatch.setenv("XLA_FLAGS", "")
    settings = "LIBTPU_INIT_ARGS=--some=flag, NEURON_CC_FLAGS=--model-type transformer"
    assert runtime.stack().compiler == f"{stack.compiler}, {settings}"
    monkeypatch.setattr(type(jax.config), "jax_enable_x64", True)
    assert runtime.stack().compiler == f"{stack.compiler}, {settings}, JAX_ENABLE_X64=1"
    assert (stack.firmware is None) == (microcode() is None)
    assert stack.clock_policy == clock_policy()


def test_a_runtime_watches_its_devices(runtime: JaxRuntime) -> None:
    """The host's is read; a runtime whose family has none, or a third party's without the method, has none."""
    cpu = backend("cpu")
    telemetry = open_telemetry(cpu.open(cpu.probe(timeout_s=60).devices, None))
    assert telemetry is not None
    assert telemetry.read().num_cores
    telemetry.close()
    assert open_telemetry(runtime) is None
    assert open_telemetry(SimpleNamespace()) is None  # type: ignore[arg-type]


def test_the_stack_counts_devices(runtime: JaxRuntime) -> None:
    assert JaxRuntime("cpu", [HOST, HOST], None).stack().device_class == "2 x a processor"


# Opens a runtime for each cache directory in turn ("-": none) and compiles one function in it.
OPEN_IN_TURN = """
import json, sys
import jax, numpy as np
from pytest_npubench.backends.jax_runtime import JaxRuntime
from pytest_npubench.backends.protocol import Device

host = Device(family="cpu", ordinal=0, name="a processor")
found = []
for directory in sys.argv[1:]:
    runtime = JaxRuntime("cpu", [host], None if directory == "-" else directory)
    before = runtime.num_process_compiles
    runtime.compile("sine", lambda x: jax.numpy.sin(x) @ x, jax.ShapeDtypeStruct((8, 8), np.float32))
    found.append([runtime.compiles[0].cache.value, runtime.num_process_compiles - before])
print(json.dumps(found))
"""


def open_in_turn(*directories: Path | str) -> list[list[Any]]:
    command = [sys.executable, "-W", "error", "-c", OPEN_IN_TURN, *map(str, directories)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr
    found: list[list[Any]] = json.loads(child.stdout)
    return found


def test_a_cache_outlives_the_process(tmp_path: Path) -> None:
    """Small and quick binaries too, which jax by itself would not keep."""
    assert open_in_turn(tmp_path) == [["cold", 1]]
    assert open_in_turn(tmp_path) == [["warm", 1]]


def test_each_runtime_has_the_cache_it_asked_for(tmp_path: Path) -> None:
    """jax looks at its cache's setting once a process: unless told to look again, all would have the first one's."""
    one, other = tmp_path / "one", tmp_path / "other"
    states = [state for state, _ in open_in_turn("-", one, one, other, "-", one)]
    assert states == ["cold", "cold", "warm", "cold", "cold", "warm"]


LIMIT = """
import jax
from pytest_npubench.backends.jax_runtime import limit_platforms
for families in (["cpu"], ["tpu", "neuron", "cpu"], ["cuda", "cuda"], []):
    limit_platforms(families)
    print(jax.config.jax_platforms)
"""


def test_jax_is_kept_from_platforms_nobody_selected() -> None:
    child = subprocess.run([sys.executable, "-c", LIMIT], capture_output=True, text=True, timeout=120, check=False)
    assert child.stdout.split() == ["cpu", "tpu,cpu", "cuda,cpu", "cpu"], child.stderr
