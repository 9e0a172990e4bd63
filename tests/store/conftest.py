"""Fingerprints to write down, and how to run a second process that uses the store."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_npubench.store.fingerprint import DeviceFacts, Fingerprint, FingerprintKey, HostFacts


@pytest.fixture(scope="session")
def host() -> HostFacts:
    return HostFacts(
        name="bench-1",
        cpu_model="A CPU @ 2.0 GHz",
        num_cores=8,
        system="Linux 6.1.0 x86_64",
        python="CPython 3.11.9",
        libraries=(("jax", "0.10.2"), ("numpy", "2.4.6")),
        plugin_version="0.1.0",
        git_revision="0123456789ab",
    )


@pytest.fixture(scope="session")
def fingerprint(host: HostFacts) -> Fingerprint:
    device = DeviceFacts(
        family="cuda",
        name="NVIDIA H200",
        device_class="H200 SXM 141 GB",
        driver="570.86",
        runtime="jax 0.10.2",
        compiler="jaxlib 0.10.2 / XLA",
        extra=(("uuid", "GPU-1"),),
    )
    return Fingerprint(device=device, host=host)


@pytest.fixture(scope="session")
def key(fingerprint: Fingerprint) -> FingerprintKey:
    return fingerprint.key()


@pytest.fixture(scope="session")
def other_driver(key: FingerprintKey) -> FingerprintKey:
    """The key after a driver upgrade."""
    return replace(key, driver="580.12")


@pytest.fixture(scope="session")
def start() -> Callable[..., subprocess.Popen[str]]:
    """start(script, *arguments) runs a Python script in a process of its own, with pipes to and from it."""

    def start(script: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start
