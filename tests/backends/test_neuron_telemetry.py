"""Neuron's telemetry on stand-ins for neuron-ls and neuron-monitor: small programs on the PATH that print the JSON that
the AWS Neuron documentation shows. FAKES: no Neuron device is near."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.backends import backend
from pytest_npubench.backends.protocol import Device
from pytest_npubench.backends.telemetry.neuron import NeuronTelemetry, list_devices, monitor_report
from pytest_npubench.backends.telemetry.vendor_call import PatientTelemetry, VendorCalls
from pytest_npubench.errors import DeviceUnavailableError

DEVICES = [
    {
        "neuron_device": number,
        "bdf": f"00:1{number}.0",
        "connected_to": None,
        "nc_count": 2,
        "memory_size": 34359738368,
        "neuroncore_ids": [2 * number, 2 * number + 1],
        "neuron_processes": [],
    }
    for number in (0, 1)
]
REPORT = {
    "neuron_runtime_data": [
        {
            "pid": 268911,
            "neuron_runtime_tag": "my_app_1",
            "error": "",
            "report": {
                "neuroncore_counters": {
                    "period": 1.000113182,
                    "neuroncores_in_use": {
                        "0": {"neuroncore_utilization": 42.0, "flops": 1234567891011},
                        "1": {"neuroncore_utilization": 84.0, "flops": 1234567891021},
                    },
                    "error": "",
                },
                "memory_used": {
                    "period": 1.00001,
                    "neuron_runtime_used_bytes": {"host": 609480704, "neuron_device": 10240000, "usage_breakdown": {}},
                    "error": "",
                },
            },
        }
    ],
    "system_data": {"neuron_hw_counters": {"period": 1.0, "neuron_devices": [], "error": ""}},
    "instance_info": {"instance_type": "trn1.2xlarge", "error": ""},
    "neuron_hardware_info": {"neuron_device_count": 2, "neuroncore_per_device_count": 2, "error": ""},
}
FIRST = Device(family="neuron", ordinal=0, name="trn1")
Tool = Callable[[str, str], None]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """tool(name, script) puts a program of that name on the PATH, ahead of everything else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def install(name: str, script: str) -> None:
        path = folder / name
        path.write_text(f"#!{sys.executable}\nimport json, sys, time\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    return install


def listing(devices: Any, flag: str = "--json-output") -> str:
    return f"assert sys.argv[1] == {flag!r}, 'unknown option'\nprint({json.dumps(devices)!r})"


STREAM = f"""
config = json.load(open(sys.argv[sys.argv.index("-c") + 1]))
assert {{metric["type"] for metric in config["neuron_runtimes"][0]["metrics"]}} >= {{"neuroncore_counters"}}
while True:
    print({json.dumps(REPORT)!r}, flush=True)
    time.sleep(0.2)
"""


def used_by(number: int, pid: int, command: str = "/usr/bin/python serve.py") -> list[dict[str, Any]]:
    process = {"pid": pid, "command": command, "neuron_runtime_version": "2.0.0"}
    return [entry | {"neuron_processes": [process]} if entry["neuron_device"] == number else entry for entry in DEVICES]


def test_use_and_other_processes(tool: Tool) -> None:
    tool("neuron-ls", listing(used_by(0, 2**30)))
    tool("neuron-monitor", STREAM)
    state = NeuronTelemetry([FIRST]).read()
    assert state.duty_cycle == pytest.approx(0.63)
    assert state.memory_used_bytes == 10240000
    assert (state.num_other_processes, state.other_processes) == (1, (f"pid {2**30} python",))
    assert state.clock_hz is None


def test_our_own_process_and_those_on_other_devices_do_not_count(tool: Tool) -> None:
    tool("neuron-ls", listing(used_by(0, os.getpid())))
    assert NeuronTelemetry([FIRST]).read().num_other_processes == 0
    tool("neuron-ls", listing(used_by(1, 2**30)))
    assert NeuronTelemetry([FIRST]).read().num_other_processes == 0
    assert NeuronTelemetry([]).read().num_other_processes == 1  # all devices of the host


@pytest.mark.parametrize("key", ["neuron_devices", "devices"])
def test_the_json_of_neuron_2_34(tool: Tool, key: str) -> None:
    """`--output-format json`, in an object beside what applies to the whole instance; the older flag is an error."""
    newer = {"instance_type": "trn2.48xlarge", key: DEVICES}
    script = listing(newer, "--output-format")
    tool("neuron-ls", f"if sys.argv[1] == '--json-output':\n    sys.exit('unknown flag')\n{script}")
    assert list_devices(10) == DEVICES


def test_a_device_that_is_no_longer_listed_is_lost(tool: Tool) -> None:
    tool("neuron-ls", listing(DEVICES[1:]))
    with pytest.raises(DeviceUnavailableError, match=r"^neuron:0: neuron-ls lists 1 devices and not this one$"):
        NeuronTelemetry([FIRST]).read()


@pytest.mark.parametrize("script", ["print('not json')", "print('7')", "sys.exit(3)"])
def test_tools_that_fail_tell_nothing(tool: Tool, script: str) -> None:
    tool("neuron-ls", script)
    tool("neuron-monitor", script)
    state = NeuronTelemetry([FIRST], timeout_s=20).read()
    assert state.to_json() == {}
    assert monitor_report(20) is None


def test_tools_that_hang_are_given_up(tool: Tool) -> None:
    tool("neuron-monitor", "time.sleep(60)")
    assert monitor_report(0.3) is None
    tool("neuron-ls", "time.sleep(60)")
    telemetry = PatientTelemetry(VendorCalls("neuron-ls", 20), lambda: NeuronTelemetry([FIRST], timeout_s=0.3))
    assert telemetry.read().given_up == "neuron-ls gave no answer within 20 s and is asked no more"
    tool("neuron-ls", listing(DEVICES))
    assert telemetry.read().num_other_processes is None


def test_what_neuron_ls_complains_of_is_the_reason(tool: Tool) -> None:
    tool("neuron-ls", "sys.exit('error: driver not found')")
    reason = backend("neuron").probe(10).reason
    assert reason == "no Neuron device: neuron-ls failed: error: driver not found"


def test_a_report_in_two_pieces(tool: Tool) -> None:
    text = json.dumps(REPORT)
    tool(
        "neuron-monitor",
        f"sys.stdout.write({text[:50]!r}); sys.stdout.flush(); time.sleep(0.2)\nprint({text[50:]!r}, flush=True)\n"
        "time.sleep(60)",
    )
    assert monitor_report(30) == REPORT


def test_the_monitor_does_not_outlive_its_report(tool: Tool, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    tool("neuron-monitor", f"import os; open({str(note)!r}, 'w').write(str(os.getpid()))\n{STREAM}")
    assert monitor_report(30) == REPORT
    assert not Path(f"/proc/{note.read_text()}").exists()


def test_without_the_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert backend("neuron").telemetry([]) is None
    assert NeuronTelemetry([FIRST]).read().to_json() == {}


def test_the_backend_finds_and_watches(tool: Tool) -> None:
    tool("neuron-ls", listing(used_by(1, 2**30)))
    tool("neuron-monitor", STREAM)
    assert [one.id for one in backend("neuron").probe(10).devices] == [f"neuron:{core}" for core in range(4)]
    telemetry = backend("neuron").telemetry([])
    assert telemetry is not None
    assert telemetry.read().num_other_processes == 1
