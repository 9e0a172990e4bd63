"""Devices while they are open: their runtimes, their fingerprints, and letting go of them for another process."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection
from pathlib import Path

from pytest_npubench import backends, engines
from pytest_npubench.backends.cpu import imported_frameworks
from pytest_npubench.backends.protocol import Device, Runtime
from pytest_npubench.core.families import declared
from pytest_npubench.errors import DeviceUnavailableError, NpubenchError
from pytest_npubench.store.fingerprint import DeviceFacts, Fingerprint, FingerprintKey, collect

Devices = tuple[Device, ...]


class OpenDevices:
    """Groups of devices, each opened on first use. `on_fingerprint` puts one on record and returns its digest.
    `runs_python`: what is measured on a processor is, or may be, Python, whose version is part of the key then."""

    def __init__(
        self,
        root: Path,
        cache: Path | None,
        on_fingerprint: Callable[[Fingerprint], str],
        *,
        runs_python: bool = False,
    ) -> None:
        self._root = root
        self._cache = str(cache) if cache else None
        self._on_fingerprint = on_fingerprint
        self._runs_python = runs_python
        self._runtimes: dict[tuple[Devices, str], Runtime] = {}
        self._fingerprints: dict[tuple[Devices, str, tuple[str, ...]], tuple[Fingerprint, str]] = {}

    def runtime(self, devices: Devices, framework: str = "jax") -> Runtime:
        """Raises DeviceUnavailableError where the device does not open."""
        if (devices, framework) not in self._runtimes:
            try:
                self._runtimes[devices, framework] = self._open(devices, framework)
            except NpubenchError:
                raise
            except Exception as error:  # whatever a vendor's runtime raises: a device that does not open is an answer
                names = ", ".join(device.id for device in devices)
                reason = next(iter(str(error).splitlines()), "no message")
                raise DeviceUnavailableError(f"{names} does not open: {type(error).__name__}: {reason}") from error
        return self._runtimes[devices, framework]

    def _open(self, devices: Devices, framework: str) -> Runtime:
        family = backends.backend(devices[0].family)
        if framework == "jax":
            opener = getattr(family, "open_callables", family.open) if self._runs_python else family.open
            runtime: Runtime = opener(devices, self._cache)
            return runtime
        if framework == "torch":
            return backends.open_torch(family, devices)
        return engines.engine(framework).open(family, devices, self._cache)

    def digest(self, devices: Devices, framework: str = "jax") -> str:
        """The digest of the devices' fingerprint, which is then on record. Each framework is a stack of its own."""
        return self._fingerprint(devices, framework)[1]

    def key(self, devices: Devices, framework: str = "jax") -> FingerprintKey:
        return self.fingerprint(devices, framework).key()

    def fingerprint(self, devices: Devices, framework: str = "jax") -> Fingerprint:
        return self._fingerprint(devices, framework)[0]

    def release(self) -> None:
        """Close every runtime, so that another process can use the devices; they open again on next use."""
        for runtime in self._runtimes.values():
            if close := getattr(runtime, "close", None):
                close()
        self._runtimes.clear()

    def _fingerprint(self, devices: Devices, framework: str) -> tuple[Fingerprint, str]:
        imported = imported_frameworks() if self._runs_python else ()  # which a test may do late
        if (devices, framework, imported) not in self._fingerprints:
            stack = self.runtime(devices, framework).stack()
            python = _python() if self._runs_python and devices[0].family == "cpu" else ""
            facts = DeviceFacts(
                family=devices[0].family,
                name=devices[0].name,
                device_class=stack.device_class,
                driver=stack.driver,
                runtime=", ".join(filter(None, (python, _software(framework), stack.runtime))) or None,
                compiler=stack.compiler,
                power_policy=stack.power_policy,
                firmware=stack.firmware,
                clock_policy=stack.clock_policy,
                # two devices of one name are not one: a resumed run must not take the one's results for the other's
                extra=(*stack.extra, ("devices", ", ".join(device.uuid or device.id for device in devices))),
            )
            fingerprint = collect(facts, self._root)
            self._fingerprints[devices, framework, imported] = fingerprint, self._on_fingerprint(fingerprint)
        return self._fingerprints[devices, framework, imported]


def _software(framework: str) -> str:
    return "" if framework in ("jax", "torch") else engines.engine(framework).software()


def _python() -> str:
    """ "CPython 3.12": a later one may be 40 % faster, a patch of it is not."""
    return f"{platform.python_implementation()} {'.'.join(platform.python_version_tuple()[:2])}"


def limit_jax(families: Collection[str]) -> None:
    """Let jax touch these families' platforms and the host only."""
    if any(declared(name).jax_platform for name in families):
        from pytest_npubench.backends.jax_runtime import limit_platforms

        limit_platforms(sorted(families))
