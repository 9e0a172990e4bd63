"""The server that `npubench load` is to load: where it is, how it is asked, what it serves, and whether it is ready."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_npubench.core.clock import monotonic
from pytest_npubench.core.record_reader import WrongEntryError
from pytest_npubench.errors import ConfigError, DeviceUnavailableError, MeasurementError
from pytest_npubench.plain_text import plain
from pytest_npubench.suites.server.spec import Asking

if TYPE_CHECKING:
    from pytest_npubench.backends.server_address import ServerAddress
    from pytest_npubench.backends.server_facts import ServedModel
    from pytest_npubench.serving.request import ServingRequest
    from pytest_npubench.suites.server.loader import Loader

T = TypeVar("T")
ANSWER_S = 10.0
AZURE_HEADER, AZURE_VARIABLE, AZURE_QUERY = "api-key", "AZURE_OPENAI_API_KEY", "api-version=2024-10-21"
AGAIN_S = 1.0
LOADING = re.compile(r"HTTP (429|502|503|504)\b|(no server answers|no connection)(?!.*--ca-file)|[Ll]oading")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedServer:
    """A server that says what it is, and what asks it; ready_by_s: until when it may be loading."""

    address: ServerAddress
    software: str | None
    model: ServedModel
    asking: Asking
    loader: Loader
    ready_by_s: float

    def facts(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """What a document says of any load."""
        return {
            "clock": "wall",
            "server": {"url": self.address.url, "software": self.software, **asdict(self.model)},
            "api": self.asking.api,
            "prompt": str(arguments.prompts or self.asking.prompt),
            "workload": arguments.workload,
            "num_requests": arguments.num_requests,
            "seed": arguments.seed,
        }

    def warm_up(self, arguments: argparse.Namespace, requests: Sequence[ServingRequest]) -> None:
        """Sends the first requests ahead, apart from the figures, and warns where one fails. Raises MeasurementError
        where a server that is waited for is still loading at last."""
        ahead = [replace(request, arrival_s=0.0) for request in requests[: arguments.warmup]]
        if not ahead:
            return
        try:
            run = _when_ready(lambda: self.loader.send(ahead, f"{arguments.seed}/ahead"), self.ready_by_s)
            reasons = [self.loader.reason(answer) for answer in run.answers if answer.failed is not None]
        except MeasurementError as error:
            if arguments.wait_ready and LOADING.search(str(error)):
                raise
            reasons = [str(error)]
        if reasons:
            print(f"npubench: warning: a request ahead of the load failed: {plain(reasons[0])}", file=sys.stderr)


def asked_server(arguments: argparse.Namespace) -> AskedServer:
    """Asks the server for its models; warns where the one that is named is not among them. Raises NpubenchError."""
    from pytest_npubench.backends.server_facts import ask_server
    from pytest_npubench.suites.server.loader import Loader
    from pytest_npubench.suites.server.prompt_file import file_prompts

    address, asking, ready_by_s = _address(arguments), _asking(arguments), monotonic() + arguments.wait_ready
    given = file_prompts(arguments.prompts) if arguments.prompts else ()
    if given and asking.prompt == "tokens":
        asking = replace(asking, prompt="words")
    shared = (arguments.shared_prefix or 0, arguments.shared_fraction or 1.0)
    facts = _when_ready(lambda: ask_server(address, ANSWER_S), ready_by_s)
    model = facts.model(address.model)
    if not model.is_listed:
        print(f"npubench: warning: /models does not list {plain(model.name)}; asked all the same", file=sys.stderr)
    return AskedServer(
        address=address,
        software=facts.software,
        model=model,
        asking=asking,
        loader=Loader(address, model.name, model.context_tokens, asking, given=given, shared=shared),
        ready_by_s=ready_by_s,
    )


def _when_ready(ask: Callable[[], T], ready_by_s: float) -> T:
    """Asks again while the server does not answer, or is loading. Raises NpubenchError as `ask` does, at last."""
    while True:
        try:
            return ask()
        except (DeviceUnavailableError, MeasurementError) as error:
            if monotonic() + AGAIN_S > ready_by_s or not LOADING.search(str(error)):
                raise
            sleep(AGAIN_S)


def _address(arguments: argparse.Namespace) -> ServerAddress:
    """The server's address: from the command line, else from the environment."""
    from pytest_npubench.backends.server_address import (
        CA_FILE,
        HEADERS,
        KEY_VARIABLE,
        MODEL,
        QUERY,
        URL,
        address_of,
    )

    is_azure = arguments.dialect == "azure"
    key_header = f"{AZURE_HEADER}={arguments.key_variable or AZURE_VARIABLE}"
    given = {
        URL: arguments.url,
        MODEL: arguments.model,
        KEY_VARIABLE: None if is_azure else arguments.key_variable,
        QUERY: "&".join(arguments.query) if arguments.query else AZURE_QUERY if is_azure else None,
        HEADERS: ",".join(arguments.header) if arguments.header else key_header if is_azure else None,
        CA_FILE: arguments.ca_file,
    }
    address = address_of({**os.environ, **{name: value for name, value in given.items() if value is not None}})
    if address is None:
        raise ConfigError(f"no server: want --url or {URL}, such as http://127.0.0.1:8000/v1")
    return address


def _asking(arguments: argparse.Namespace) -> Asking:
    from importlib.util import find_spec

    if not find_spec("httptools"):
        raise ConfigError("httptools is not installed: pip install pytest-npubench[http]")
    try:
        asking = Asking(
            dialect=arguments.dialect or "",
            api=arguments.api or "",
            prompt=arguments.prompt or "",
            extra_body=arguments.extra_body,
            max_total_tokens=arguments.max_total_tokens,
        )
    except WrongEntryError as error:
        raise ConfigError(f"--{error}") from None
    if arguments.timeout is None:
        return asking
    return replace(asking, idle_timeout_s=arguments.timeout, answer_timeout_s=arguments.timeout)
