"""An OpenAI-compatible server as a device: found by the address in NPUBENCH_SERVER_URL, loaded from outside.

What a baseline's key says of it: accelerator is the model's name; device_class is where it is served, as a hash of the
host's name, or this machine's processor for a server on it; runtime is the server's software with its version, so an
upgraded server is the same key across `runtime`. Driver, compiler and the hardware behind it are unknown.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from pytest_npubench.backends.cpu import processor_name
from pytest_npubench.backends.protocol import Device, Probe, Runtime, Stack
from pytest_npubench.backends.remote_runtime import RemoteRuntime
from pytest_npubench.backends.server_address import URL, ServerAddress, address_of
from pytest_npubench.backends.server_facts import ServedModel, ServerFacts, ask_server
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.core.server_access import shown
from pytest_npubench.errors import ConfigError, DeviceUnavailableError

FAMILY = "server"
ANSWER_S = 10.0
NO_MODEL = "a server of no single model"


class ServerBackend:
    family = FAMILY

    def probe(self, timeout_s: float) -> Probe:
        """Asks the server for its models, for timeout_s or 10 s at most. A model that is not served is found all the
        same: opening it says which are."""
        try:
            address = address_of(os.environ)
            if address is None:
                return Probe(reason=f"no server: set {URL}, as in {URL}=http://127.0.0.1:8000/v1")
            if not find_spec("httptools"):
                return Probe(reason="httptools is not installed: pip install pytest-npubench[http]")
            facts = ask_server(address, min(timeout_s, ANSWER_S))
        except (ConfigError, DeviceUnavailableError) as error:
            return Probe(reason=str(error))
        return Probe(devices=(_device(address, facts),))

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        """Opens the server. Raises DeviceUnavailableError where it is gone or lacks the model, naming the models that
        it serves."""
        address = address_of(os.environ)
        if address is None:
            raise DeviceUnavailableError(f"{URL} is not set any more")
        facts = ask_server(address, ANSWER_S)
        return ServerRuntime(address, facts.model(address.model), facts.software)

    def telemetry(self, devices: Sequence[Device]) -> Telemetry | None:
        """Returns None: nothing tells what is behind a server."""
        return None


class ServerRuntime(RemoteRuntime):
    """One model of one server. Requests reach it over HTTP, not as functions."""

    takes = "a server takes requests"
    elsewhere = "a Python callable does not run on a server; the suite `server` loads one"

    def __init__(self, address: ServerAddress, model: ServedModel, software: str | None) -> None:
        super().__init__()
        self.address = address
        self.model = model
        self.software = software

    @property
    def devices(self) -> Sequence[Any]:
        return (self.model,)

    def stack(self) -> Stack:
        where = f"this machine, {processor_name()}" if self.address.is_local else f"host {self.address.host_digest}"
        context = self.model.context_tokens
        return Stack(
            device_class=f"server on {where}",
            driver=None,
            runtime=self.software,
            compiler=None,
            extra=(("context_tokens", "unknown" if context is None else str(context)),),
        )

    def telemetry(self) -> Telemetry | None:
        """Returns None: clocks alone watch rounds. What else this machine does shows in the client's stalls."""
        return None


def _device(address: ServerAddress, facts: ServerFacts) -> Device:
    try:
        name = facts.model(address.model).name
    except DeviceUnavailableError:
        name = address.model or NO_MODEL
    return Device(family=FAMILY, ordinal=0, name=shown(name), uuid=f"server-{address.digest}")


BACKEND = ServerBackend()
