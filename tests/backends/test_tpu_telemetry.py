"""TPU's telemetry on a FAKE of libtpu's monitoring and a stand-in for `tpu-info` that prints its documented table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npubench.backends import backend, visible
from pytest_npubench.backends.protocol import Device
from pytest_npubench.backends.telemetry import tpu
from pytest_npubench.backends.telemetry.tpu import TpuTelemetry
from pytest_npubench.backends.telemetry.vendor_call import PatientTelemetry, VendorCalls
from pytest_npubench.campaign.lock import lock_name
from pytest_npubench.processes import guarded

FOUR_CHIPS = "".join(f"│ {chip} │ {chip}.00 GiB / 31.25 GiB │ {10 * chip}.00% │\n" for chip in range(4))
FIRST, SECOND = (Device(family="tpu", ordinal=ordinal, name="TPU v6 lite") for ordinal in (0, 1))
TABLE = """TPU Chips
┏━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━┓
┃ Chip         ┃ Type         ┃ Devices ┃ PID    ┃
┡━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━┩
│ /dev/vfio/0  │ TPU v6e chip │ 1       │ {pid}  │
│ /dev/vfio/1   TPU v6e chip  1        None   │
└──────────────┴──────────────┴─────────┴────────┘
TPU Runtime Utilization
┏━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┓
┃ Chip   ┃ HBM usage                ┃ Duty cycle ┃
┡━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━┩
│ 8      │ 18.50 GiB / 31.25 GiB    │    100.00% │
│ 9       10.25 GiB / 31.25 GiB         25.00% │
└────────┴──────────────────────────┴────────────┘
TensorCore Utilization
│ 0                         13.60%│
"""


def library(**metrics: list[str]) -> SimpleNamespace:
    """FAKE of libtpu.sdk: each metric's data() is a list of texts, one a chip."""
    return SimpleNamespace(
        tpumonitoring=SimpleNamespace(get_metric=lambda name: SimpleNamespace(data=lambda: metrics[name]))
    )


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A process without jax, and tpu-info on the PATH."""
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def install(script: str) -> None:
        path = tmp_path / "tpu-info"
        path.write_text(f"#!{sys.executable}\nimport time\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    return install


def test_the_library_where_jax_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())  # type: ignore[arg-type]
    fake = library(hbm_capacity_usage=["1000", "2000"], duty_cycle_pct=["45.32", "20.0"])
    monkeypatch.setattr(tpu, "import_module", lambda name: fake)
    state = TpuTelemetry([SECOND]).read()
    assert (state.memory_used_bytes, state.duty_cycle) == (2000, 0.2)
    both = TpuTelemetry([FIRST, SECOND]).read()
    assert (both.memory_used_bytes, both.duty_cycle) == (3000, 0.2)
    assert both.to_json().keys() == {"memory_used_bytes", "duty_cycle"}


@pytest.mark.parametrize(
    "fake",
    [
        pytest.param(library(hbm_capacity_usage=[], duty_cycle_pct=[]), id="no data"),
        pytest.param(library(hbm_capacity_usage=["7"]), id="a metric less"),
        pytest.param(library(hbm_capacity_usage=["x"], duty_cycle_pct=["y"]), id="no numbers"),
        pytest.param(SimpleNamespace(), id="an older library"),
    ],
)
def test_a_library_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(tpu, "import_module", lambda name: fake)
    assert TpuTelemetry([FIRST]).read().to_json() == {}


def test_the_command_elsewhere(command: Any) -> None:
    command(f"print({TABLE.format(pid=2**30)!r})")
    state = TpuTelemetry([FIRST]).read()
    assert (state.memory_used_bytes, state.duty_cycle) == (18.5 * 2**30, 1.0)
    assert (state.num_other_processes, state.other_processes) == (1, (f"pid {2**30}",))
    state = TpuTelemetry([SECOND]).read()
    assert (state.memory_used_bytes, state.duty_cycle) == (10.25 * 2**30, 0.25)
    assert state.num_other_processes == 0
    command(f"print({TABLE.format(pid=os.getpid())!r})")
    assert TpuTelemetry([FIRST, SECOND]).read().num_other_processes == 0


@pytest.mark.parametrize("script", ["print('no TPU')", "raise SystemExit(1)"])
def test_a_command_that_fails_tells_nothing(command: Any, script: str) -> None:
    command(script)
    assert TpuTelemetry([FIRST]).read().to_json() == {}


def test_a_command_that_hangs_is_given_up(command: Any) -> None:
    command("time.sleep(60)")
    telemetry = PatientTelemetry(VendorCalls("tpu-info"), lambda: TpuTelemetry([FIRST], timeout_s=0.3))
    assert telemetry.read().given_up == "tpu-info gave no answer within 10 s and is asked no more"
    command(f"print({TABLE.format(pid=2**30)!r})")
    assert telemetry.read().num_other_processes is None


def test_the_backend_watches_the_devices_it_is_given(command: Any) -> None:
    command(f"print({TABLE.format(pid=2**30)!r})")
    telemetry = backend("tpu").telemetry([FIRST])
    assert telemetry is not None
    assert telemetry.read().duty_cycle == 1.0
    assert backend("tpu").telemetry([]) is None


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> tuple[Device, Device]:
    """What a probe finds where chips 3 and 1 of four are shown, in this order."""
    monkeypatch.setenv("TPU_VISIBLE_CHIPS", "3,1")
    rows = [["tpu", "TPU v6 lite", None, None, ""]] * 2
    monkeypatch.setattr(
        guarded, "run", lambda *_, **__: subprocess.CompletedProcess("", 0, json.dumps([rows, [], ""]), "")
    )
    first, second = backend("tpu").probe(5).devices
    return first, second


def test_hidden_chips_keep_their_numbers(hidden: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = hidden
    assert (first.id, first.uuid, second.uuid) == ("tpu:0", "tpu:3", "tpu:1")
    assert visible(backend("tpu"), [first])["TPU_VISIBLE_CHIPS"] == "3"
    shown = Device(family="tpu", ordinal=3, name="TPU v6 lite")
    assert lock_name(first) == lock_name(shown)  # of a process that sees all chips
    monkeypatch.setattr(guarded, "run", lambda *_, **__: subprocess.CompletedProcess("", 0, FOUR_CHIPS, ""))
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.setattr(tpu, "which", lambda name: name)
    assert TpuTelemetry([first]).read().duty_cycle == 0.3
    assert TpuTelemetry([second]).read().duty_cycle == 0.1
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())  # type: ignore[arg-type]
    library_of_two = library(hbm_capacity_usage=["30", "10"], duty_cycle_pct=["33", "11"])
    monkeypatch.setattr(tpu, "import_module", lambda name: library_of_two)
    assert TpuTelemetry([second]).read().memory_used_bytes == 10


def test_halves_of_hidden_chips_are_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_VISIBLE_CHIPS", "3")
    rows = [["tpu", "TPU v3", None, None, ""]] * 2
    monkeypatch.setattr(
        guarded, "run", lambda *_, **__: subprocess.CompletedProcess("", 0, json.dumps([rows, [], ""]), "")
    )
    devices = backend("tpu").probe(5).devices
    assert {device.unidentified for device in devices} == {
        "TPU_VISIBLE_CHIPS does not tell which half of which chip it is"
    }
    assert backend("tpu").telemetry(devices) is None
    assert visible(backend("tpu"), devices) == {}
