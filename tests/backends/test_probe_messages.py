"""Each family's reasons, word for word, since a skipped case shows nothing else.

The vendors' tools and child processes are FAKES here (a replaced `guarded.run`, `find_spec` or `which`),
except where a test says that its process is real.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npubench import backends
from pytest_npubench.backends import backend, cpu, jax_probe, neuron
from pytest_npubench.backends.protocol import Device, Probe
from pytest_npubench.plugin import campaign_child
from pytest_npubench.processes import guarded


def listed(*rows: list[Any], said: tuple[str, ...] = (), version: str = "cuda 13000") -> str:
    """What the process that asks jax prints: its devices, what jax's log said, and the version of its platform."""
    return json.dumps([rows, said, version])


TPU = ["tpu", "TPU v5 lite", 17066622976, None, ""]
TWO_TPUS = listed(TPU, TPU)
GPU = ["gpu", "NVIDIA H100 80GB HBM3", 63876956160]
TWO_GPUS = listed([*GPU, "GPU-b", ""], [*GPU, None, "the CUDA driver tells no UUID of it"])
CPU = ["cpu", "cpu", None, None, ""]
HOST_ONLY = listed(CPU)

Fake = Callable[..., None]


def reason(family: str, timeout_s: float = 5) -> str:
    probe = backend(family).probe(timeout_s)
    assert probe.devices == ()
    return probe.reason


@pytest.mark.parametrize("family", ["cuda", "tpu"])  # the host is there without it
def test_jax_is_missing(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    monkeypatch.setattr(jax_probe, "find_spec", lambda name: None)
    assert reason(family) == f"jax is not installed: pip install pytest-npubench[{family}]"


def test_tpus_found(answers: Fake) -> None:
    answers(stdout=f"a plug-in's greeting\n{TWO_TPUS}\n")
    assert backend("tpu").probe(5) == Probe(
        devices=tuple(
            Device(family="tpu", ordinal=ordinal, name="TPU v5 lite", memory_bytes=17_066_622_976) for ordinal in (0, 1)
        )
    )


@pytest.mark.parametrize(
    ("family", "stdout", "words"),
    [
        ("tpu", HOST_ONLY, "no TPU: jax found platforms cpu"),
        ("cuda", HOST_ONLY, "no NVIDIA GPU: jax found platforms cpu"),
        ("tpu", TWO_GPUS, "no TPU: jax found platforms gpu"),
        ("cuda", TWO_TPUS, "no NVIDIA GPU: jax found platforms tpu"),
        ("tpu", "", "no TPU: jax gave no list of devices: no message"),
        ("tpu", f"{HOST_ONLY}\nbye\n", "no TPU: jax gave no list of devices: bye"),
        ("tpu", "7", "no TPU: jax gave no list of devices: 7"),
        (
            "cuda",
            listed(["gpu", "AMD Instinct MI300X", 206e9, None, "no libcuda"], version="PJRT C API\nrocm 60443484"),
            "no NVIDIA GPU: AMD Instinct MI300X under ROCm is not supported",
        ),
    ],
)
def test_jax_finds_other_devices_or_says_something_else(answers: Fake, family: str, stdout: str, words: str) -> None:
    answers(stdout=stdout)
    assert reason(family) == words


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            {"error": subprocess.TimeoutExpired("python", 7.5)},
            "no TPU: jax did not answer within 7.5 s (--npubench-probe-timeout)",
        ),
        (
            {"returncode": 1, "stderr": "Traceback ...\nRuntimeError: The TPU is in use by process 4711\n\n"},
            "no TPU: jax failed: RuntimeError: The TPU is in use by process 4711",
        ),
        ({"returncode": -9}, "no TPU: jax failed: no message"),
        (
            {"error": OSError(12, "Cannot allocate memory")},
            "no TPU: jax could not be asked: [Errno 12] Cannot allocate memory",
        ),
    ],
    ids=["hangs", "crashes", "is killed without a word", "cannot be started"],
)
def test_jax_says_nothing_of_devices(answers: Fake, answer: dict[str, Any], words: str) -> None:
    answers(**answer)
    assert reason("tpu", 7.5) == words


def test_jax_really_hangs() -> None:
    """A REAL process: jax does not start in a hundredth of a second."""
    assert reason("tpu", 0.01) == "no TPU: jax did not answer within 0.01 s (--npubench-probe-timeout)"


def test_jax_really_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A REAL process: jax is told to use a platform that there is not."""
    monkeypatch.setenv("JAX_PLATFORMS", "abacus")
    assert reason("tpu", 60).startswith("no TPU: jax failed: ")
    assert "abacus" in reason("tpu", 60)


def test_the_question_takes_no_gpu_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """jax reserves three quarters of a GPU when it starts, under another process's feet."""
    asked: dict[str, Any] = {}

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.update(options)
        return subprocess.CompletedProcess(command, 0, HOST_ONLY, "")

    monkeypatch.setattr(guarded, "run", run)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
    backend("cuda").probe(3.0)
    assert asked["env"]["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert asked["env"]["XLA_CLIENT_MEM_FRACTION"] == "1.0"  # the limit it tells is all of the memory
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in asked["env"]
    assert asked["limit_s"] == 3.0


@pytest.mark.parametrize(
    ("users", "share"),
    [
        ({}, "0.9"),
        ({"XLA_CLIENT_MEM_FRACTION": "0.4"}, "0.4"),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}, "0.3"),
        ({"XLA_CLIENT_MEM_FRACTION": "0.4", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}, "0.4"),
    ],
)
def test_the_share_of_memory_has_one_name(monkeypatch: pytest.MonkeyPatch, users: dict[str, str], share: str) -> None:
    """Once a campaign opens its devices: jaxlib itself reads the variables, and raises where both names are set."""
    from jaxlib.xla_client import generate_pjrt_gpu_plugin_options

    for name in (jax_probe.MEMORY_SHARE, jax_probe.DEPRECATED_MEMORY_SHARE):
        monkeypatch.setenv(name, users.get(name, ""))
    opened = SimpleNamespace(runtime=lambda *_: None, fingerprint=lambda *_: None)
    monkeypatch.setattr(campaign_child, "OpenDevices", lambda *_: opened)
    monkeypatch.setattr(campaign_child, "limit_jax", lambda families: None)
    session: Any = SimpleNamespace(
        config=SimpleNamespace(rootpath=Path()), settings=SimpleNamespace(compile_cache=None)
    )
    task: Any = SimpleNamespace(devices=(Device(family="cuda", ordinal=0, name="A GPU"),), environment={}, framework="")
    campaign_child._open(session, task)
    assert generate_pjrt_gpu_plugin_options()["memory_fraction"] == float(share)


@pytest.mark.parametrize(
    ("raised", "is_on_bus", "failed"),
    [
        ("ValueError('planted')", False, True),
        ("RuntimeError('operation cuInit(0) failed: CUDA_ERROR_NO_DEVICE')", False, False),
        ("RuntimeError('operation cuInit(0) failed: CUDA_ERROR_NO_DEVICE')", True, True),
    ],
)
def test_a_plugin_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raised: str, is_on_bus: bool, failed: bool
) -> None:
    """A REAL jax starts a FAKE plugin of CUDA. Nobody knows then whether there is a GPU, unless the driver says that
    there is none and the PCI bus, a FAKE one, shows none either."""
    plugin = tmp_path / "jax_plugins" / "xla_cuda13" / "__init__.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(f"def initialize():\n    raise {raised}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    bus = tmp_path / "bus" / "0000:01:00.0"
    bus.mkdir(parents=True)
    (bus / "vendor").write_text("0x10de\n" if is_on_bus else "0x8086\n", encoding="ascii")
    monkeypatch.setattr(jax_probe, "PCI_BUS", bus.parent)
    probe = backend("cuda").probe(60)
    assert probe.failed is failed
    assert probe.devices == ()
    assert "xla_cuda13.initialize()" in probe.reason
    assert raised.split("'")[1] in probe.reason
    assert not backend("tpu").probe(60).failed


def test_platforms_that_the_user_keeps_jax_to_are_told(monkeypatch: pytest.MonkeyPatch, answers: Fake) -> None:
    """Such as JAX_PLATFORMS=cpu, left from another run on a host of TPUs: all is skipped there, and green."""
    answers(stdout=HOST_ONLY)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert reason("tpu") == "no TPU: jax found platforms cpu, as JAX_PLATFORMS=cpu has it"
    monkeypatch.delenv("JAX_PLATFORMS")
    assert reason("tpu") == "no TPU: jax found platforms cpu"


def test_a_gpu_without_a_plugin_of_jax_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: Fake
) -> None:
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0" / "vendor").write_text("0x10de\n", encoding="ascii")
    monkeypatch.setattr(jax_probe, "PCI_BUS", tmp_path)
    answers(stdout=HOST_ONLY)
    assert reason("tpu") == "no TPU: jax found platforms cpu"
    (tmp_path / "0000:01:00.0" / "device").write_text("0x0063\n", encoding="ascii")
    assert reason("cuda").endswith("; the host has one, and jax no plugin: pip install pytest-npubench[cuda]")
    (tmp_path / "0000:01:00.0" / "vendor").write_text("0x1ae0\n", encoding="ascii")
    assert reason("tpu").endswith("pip install pytest-npubench[tpu]")


@pytest.mark.parametrize("word", ["cuda", "tpu"])
def test_a_probe_without_an_answer_failed_where_the_plugin_is_installed(
    monkeypatch: pytest.MonkeyPatch, answers: Fake, word: str
) -> None:
    answers(error=subprocess.TimeoutExpired("python", 5))
    assert not backend(word).probe(5).failed
    monkeypatch.setattr(jax_probe, "_plugins", lambda: iter([f"the-{word}-plugin"]))
    for wrong in (
        {"error": OSError(12, "no memory")},
        {"returncode": 1},
        {"stdout": "7"},
        {"error": subprocess.TimeoutExpired("python", 5)},
    ):
        answers(**wrong)
        assert backend(word).probe(5).failed
    answers(stdout=HOST_ONLY)
    assert not backend(word).probe(5).failed


def test_which_gpus_they_are_or_why_nobody_knows(answers: Fake) -> None:
    answers(stdout=TWO_GPUS)
    first, second = backend("cuda").probe(5).devices
    assert (first.id, first.uuid, first.unidentified) == ("cuda:0", "GPU-b", "")
    assert (second.id, second.uuid, second.unidentified) == ("cuda:1", None, "the CUDA driver tells no UUID of it")


def test_neuron(monkeypatch: pytest.MonkeyPatch, answers: Fake) -> None:
    monkeypatch.setattr(neuron, "which", lambda name: None)
    assert reason("neuron") == "no Neuron device: neuron-ls is not on the PATH (install aws-neuronx-tools)"
    monkeypatch.setattr(neuron, "which", lambda name: f"/opt/aws/neuron/bin/{name}")
    answers(stdout="[]")
    assert reason("neuron") == "no Neuron device: neuron-ls lists none (is the aws-neuronx-dkms driver loaded?)"
    answers(stdout="not json")
    assert reason("neuron").startswith("no Neuron device: neuron-ls failed: ")
    assert backend("neuron").probe(5).failed
    answers(error=subprocess.TimeoutExpired("neuron-ls", 5))
    assert reason("neuron").startswith("no Neuron device: neuron-ls failed: ")


def test_neuron_cores(monkeypatch: pytest.MonkeyPatch, answers: Fake, tmp_path: Path) -> None:
    """A device is a core; chip and instance are called what the driver calls them, where it does."""
    monkeypatch.setattr(neuron, "which", lambda name: f"/opt/aws/neuron/bin/{name}")
    monkeypatch.setattr(neuron, "SYSFS", tmp_path)
    architecture = tmp_path / "neuron0" / "info" / "architecture"
    architecture.mkdir(parents=True)
    (architecture / "device_name").write_text("Inferentia2\n", encoding="utf-8")
    (architecture / "instance_type").write_text("inf2.8xlarge\n", encoding="utf-8")
    answers(stdout='[{"neuron_device": 0, "nc_count": 2, "memory_size": 34}, {"neuron_device": 1, "nc_count": 2}]')
    devices = backend("neuron").probe(5).devices
    assert [(one.id, one.name, one.memory_bytes) for one in devices] == [
        ("neuron:0", "Inferentia2, inf2.8xlarge", 17),
        ("neuron:1", "Inferentia2, inf2.8xlarge", 17),
        ("neuron:2", "AWS Neuron device", None),
        ("neuron:3", "AWS Neuron device", None),
    ]
    assert backends.visible(backend("neuron"), devices[1:3]) == {"NEURON_RT_VISIBLE_CORES": "1,2"}


def test_the_name_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAKE /proc/cpuinfo; on Arm it names no model, and elsewhere it does not exist."""
    monkeypatch.setattr(
        cpu, "_read", lambda path: "processor\t: 0\nmodel name\t: AMD EPYC 9R14: a part\nflags\t: fpu\n"
    )
    assert cpu.processor_name() == "AMD EPYC 9R14: a part"
    for text in ("", "processor\t: 0\nBogoMIPS\t: 50.00\n"):
        monkeypatch.setattr(cpu, "_read", lambda path, text=text: text)
        assert cpu.processor_name()
