"""What a server says of itself: the models it serves, their context lengths, its software and version.

    GET url/models      data[].id, max_model_len (vLLM, SGLang) or meta.n_ctx (llama.cpp), owned_by
    GET root/version    {"version": "0.32.0"} of vLLM; SGLang and llama.cpp have other places

Nothing here follows a redirect or a proxy of the environment: the API key goes to the address that was given.

Worked example: owned_by "vllm" and version 0.32.0 make the software "vllm 0.32.0"; a server that names neither is known
by its `Server` header, or not at all.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from pytest_npubench.backends.server_address import MODEL, ServerAddress
from pytest_npubench.errors import AccessRefusedError, DeviceUnavailableError

MAX_BYTES = 2**22
MAX_NAMED = 10
SOFTWARE = ("vllm", "sglang", "llamacpp", "tensorrt_llm")
"""owned_by of servers that name themselves there; others have their users' names in it."""
VERSIONS = {"sglang": ("/get_server_info", "version"), "llamacpp": ("/props", "build_info")}
VERSION = ("/version", "version")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """context_tokens: the longest prompt and answer together, None where the server does not say."""

    name: str
    context_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """models in the server's order; software with its version, None for unknown."""

    models: tuple[ServedModel, ...]
    software: str | None

    def model(self, wanted: str | None) -> ServedModel:
        """The model of that name, or the only one. Raises DeviceUnavailableError naming those that are served."""
        names = [model.name for model in self.models]
        if wanted is None and len(names) == 1:
            return self.models[0]
        for model in self.models:
            if model.name == wanted:
                return model
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        served = ", ".join(map(shown, names[:MAX_NAMED])) + more
        if wanted is None:
            raise DeviceUnavailableError(f"the server serves {len(names)} models; set {MODEL} to one of {served}")
        raise DeviceUnavailableError(f"the server serves no model {wanted!r}; it serves {served or 'none'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    status: int
    software: str
    body: bytes

    @property
    def document(self) -> Any:
        """None where it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):  # nested deeper than any answer
            return None


def ask_server(address: ServerAddress, timeout_s: float) -> ServerFacts:
    """Raises DeviceUnavailableError where nobody answers in timeout_s or the answer is no list of models,
    AccessRefusedError where the server wants another key, ConfigError on a key or certificates that cannot be used."""
    deadline_s = time.monotonic() + timeout_s
    listed = _get(address, f"{address.url.rstrip('/')}/models", deadline_s)
    if listed.status in (401, 403):
        whose = f"the key in {address.key_variable}" if address.key_variable else "a client without a key"
        raise AccessRefusedError(f"the server at {address.url} does not take {whose} (HTTP {listed.status})")
    if listed.status != 200:
        hint = "" if address.url.rstrip("/").endswith("/v1") else " (most addresses end in /v1)"
        raise DeviceUnavailableError(
            f"the server at {address.url} lists no models: HTTP {listed.status} of /models{hint}"
        )
    document = listed.document
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise DeviceUnavailableError(f"the server at {address.url} lists no models: /models holds no list of them")
    found = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    return ServerFacts(
        models=tuple(ServedModel(name=entry["id"], context_tokens=_context(entry)) for entry in found),
        software=_software(address, found, listed.software, deadline_s),
    )


def _context(entry: dict[str, Any]) -> int | None:
    meta = entry.get("meta")
    values = (entry.get("max_model_len"), meta.get("n_ctx") if isinstance(meta, dict) else None)
    return next((value for value in values if type(value) is int and value > 0), None)


def _software(address: ServerAddress, models: list[dict[str, Any]], header: str, deadline_s: float) -> str | None:
    owner = next((str(model["owned_by"]) for model in models if model.get("owned_by") in SOFTWARE), "")
    path, field = VERSIONS.get(owner, VERSION)
    root = address.url.rstrip("/").removesuffix("/v1")
    try:
        reply = _get(address, root + path, deadline_s)
    except DeviceUnavailableError:
        return owner or header or None
    document = reply.document if reply.status == 200 else None
    version = document.get(field) if isinstance(document, dict) else None
    if not isinstance(version, str) or not version:
        return owner or header or None
    return f"{owner or header or 'server'} {shown(version)}"


def _get(address: ServerAddress, url: str, deadline_s: float) -> _Reply:
    """Raises DeviceUnavailableError, ConfigError."""
    key = address.key()
    headers = {"Accept": "application/json", "Connection": "close"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection = _connection(address, deadline_s)
    try:
        connection.request("GET", urlsplit(url).path, headers=headers)
        response = connection.getresponse()
        return _Reply(
            status=response.status,
            software=shown(response.headers.get("Server", "")),
            body=_body(response, deadline_s),
        )
    except (OSError, HTTPException, ValueError) as error:
        words = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
        raise DeviceUnavailableError(f"no server answers at {address.url}: {words}") from None
    finally:
        connection.close()


def _connection(address: ServerAddress, deadline_s: float) -> HTTPConnection:
    parts = urlsplit(address.url)
    timeout_s = max(deadline_s - time.monotonic(), 0.001)
    if parts.scheme == "https":
        return HTTPSConnection(address.host, parts.port, timeout=timeout_s, context=address.tls())
    return HTTPConnection(address.host, parts.port, timeout=timeout_s)


def _body(response: HTTPResponse, deadline_s: float) -> bytes:
    """Raises TimeoutError for a body that drips, ValueError for one too long to be an answer."""
    pieces, total = [], 0
    while piece := response.read1(65_536):
        pieces.append(piece)
        total += len(piece)
        if time.monotonic() > deadline_s:
            raise TimeoutError("timed out")
        if total > MAX_BYTES:
            raise ValueError(f"an answer of more than {MAX_BYTES} bytes")
    return b"".join(pieces)


def shown(text: str) -> str:
    """What others wrote, fit for one line of a report."""
    return "".join(sign if sign.isprintable() else " " for sign in text).strip()[:100]
