"""TPU's telemetry on a FAKE of libtpu's monitoring and a stand-in for `tpu-info` that prints its documented table."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npubench.backends import backend
from pytest_npubench.backends.protocol import Device
from pytest_npubench.backends.telemetry import tpu
from pytest_npubench.backends.telemetry.tpu import TpuTelemetry

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
    assert both.known().keys() == {"memory_used_bytes", "duty_cycle"}


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
    assert TpuTelemetry([FIRST]).read().known() == {}


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


@pytest.mark.parametrize("script", ["print('no TPU')", "raise SystemExit(1)", "time.sleep(60)"])
def test_a_command_that_fails_or_hangs_tells_nothing(command: Any, script: str) -> None:
    command(script)
    assert TpuTelemetry([FIRST], timeout_s=0.5).read().known() == {}


def test_the_backend_watches_the_devices_it_is_given() -> None:
    assert isinstance(backend("tpu").telemetry([FIRST]), TpuTelemetry)
    assert backend("tpu").telemetry([]) is None
