"""What a server says of itself: the models it serves, their context lengths, its software and version.

    GET url/models      data[].id, max_model_len (vLLM, SGLang) or meta.n_ctx (llama.cpp), owned_by
    GET root/version    {"version": "0.32.0"} of vLLM; SGLang and llama.cpp have other places

Nothing here follows a redirect or a proxy of the environment: the API key goes to the address that was given. One
deadline holds for the connection, the headers and the body, however slowly they come.

Worked example: owned_by "vllm" and version 0.32.0 make the software "vllm 0.32.0"; a server that names neither is known
by its `Server` header, or not at all.
"""

from __future__ import annotations

import io
import json
import socket
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from pytest_npubench.backends.server_address import MODEL, ServerAddress
from pytest_npubench.core.clock import monotonic
from pytest_npubench.core.secret import without_kept
from pytest_npubench.core.server_access import certificate_hint, readable, redirected_to, shown
from pytest_npubench.errors import AccessRefusedError, DeviceUnavailableError
from pytest_npubench.processes.file_limit import ran_out

LOADING = (502, 503, 504)
MAX_BYTES = 2**22
MAX_NAMED = 10
NAME_CHARS = 256
LONGEST_CONTEXT = 10**9
SOFTWARE = ("vllm", "sglang", "llamacpp", "tensorrt_llm")
"""owned_by of servers that name themselves there; others have their users' names in it."""
VERSIONS = {"sglang": ("/get_server_info", "version"), "llamacpp": ("/props", "build_info")}
VERSION = ("/version", "version")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """context_tokens: the longest prompt and answer together, None where the server does not say. is_listed: the server
    itself says that it serves it."""

    name: str
    context_tokens: int | None
    is_listed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """models in the server's order; software with its version, None for unknown."""

    models: tuple[ServedModel, ...]
    software: str | None

    def model(self, wanted: str | None) -> ServedModel:
        """Returns the model of that name, listed or not: a proxy lists no aliases, and some servers list none at all.
        Without a name the only one; raises DeviceUnavailableError naming those that are served."""
        names = [model.name for model in self.models]
        if wanted is None and len(names) == 1:
            return self.models[0]
        for model in self.models:
            if model.name == wanted:
                return model
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        served = ", ".join(map(shown, names[:MAX_NAMED])) + more
        if wanted is None:
            which = (
                f"serves {len(names)} models; set {MODEL} to one of {served}" if names else f"lists none; set {MODEL}"
            )
            raise DeviceUnavailableError(f"the server {which}")
        return ServedModel(name=wanted, context_tokens=None, is_listed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer to a GET. location: where a redirect points. coding: of the body, empty for none. retry_after: when to
    ask again, likewise."""

    status: int
    software: str
    location: str
    coding: str
    body: bytes
    retry_after: str = ""

    @property
    def document(self) -> Any:
        """Returns the body as JSON; None where it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):  # nested deeper than any answer
            return None


def ask_server(address: ServerAddress, timeout_s: float) -> ServerFacts:
    """Raises DeviceUnavailableError where the server does not list its models in timeout_s and none is named,
    AccessRefusedError where it wants another key for that, ConfigError on a key or certificates that cannot be used."""
    deadline_s = monotonic() + timeout_s
    listed = reply_of(address, f"{address.url.rstrip('/')}/models", deadline_s)
    if listed.status in (401, 403) and address.model is None:  # a key may be for answers alone
        whose = f"the key in {address.key_variable}" if address.key_variable else "a client without a key"
        raise AccessRefusedError(f"the server at {address.url} does not take {whose} (HTTP {listed.status})")
    document = listed.document
    if why := _why_no_list(address, listed, document):
        if address.model is None or listed.status in LOADING or listed.location:
            raise DeviceUnavailableError(f"the server at {address.url} lists no models: {why}")
        document = {"data": []}
    entries = [entry for entry in document["data"] if isinstance(entry, dict) and _is_name(entry.get("id"))]
    return ServerFacts(
        models=tuple(ServedModel(name=entry["id"], context_tokens=_context(entry)) for entry in entries),
        software=_software(address, entries, listed.software, deadline_s),
    )


def _why_no_list(address: ServerAddress, listed: Reply, document: Any) -> str | None:
    if listed.location:
        return f"/models redirects to {redirected_to(listed.location)} (HTTP {listed.status}); give that address"
    if listed.status != 200:
        hint = "" if address.url.rstrip("/").endswith("/v1") else " (most addresses end in /v1)"
        return f"HTTP {listed.status} of /models{hint}: {readable(listed.body, listed.retry_after)}"
    if listed.coding:
        return f"/models is in the content coding {listed.coding}, which was not asked for"
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        return "/models holds no list of them"
    if entries and not any(isinstance(entry, dict) and _is_name(entry.get("id")) for entry in entries):
        return f"no entry of /models has an id of 1 to {NAME_CHARS} plain signs"
    return None


def _is_name(value: Any) -> bool:
    """Whether a request can carry the name and a report can show it."""
    is_short = isinstance(value, str) and 0 < len(value) <= NAME_CHARS
    return is_short and value.isprintable() and without_kept(value) == value


def _context(entry: dict[str, Any]) -> int | None:
    meta = entry.get("meta")
    values = (entry.get("max_model_len"), meta.get("n_ctx") if isinstance(meta, dict) else None)
    return next((value for value in values if type(value) is int and 0 < value <= LONGEST_CONTEXT), None)


def _software(address: ServerAddress, models: list[dict[str, Any]], header: str, deadline_s: float) -> str | None:
    owner = next((str(model["owned_by"]) for model in models if model.get("owned_by") in SOFTWARE), "")
    path, field = VERSIONS.get(owner, VERSION)
    root = address.url.rstrip("/").removesuffix("/v1")
    try:
        reply = reply_of(address, root + path, deadline_s)
    except DeviceUnavailableError:
        return owner or header or None
    document = reply.document if reply.status == 200 else None
    version = document.get(field) if isinstance(document, dict) else None
    if not isinstance(version, str) or not version:
        return owner or header or None
    return f"{owner or header or 'server'} {shown(version)}"


def reply_of(address: ServerAddress, url: str, deadline_s: float) -> Reply:
    """What the server answers a GET with, whatever its status. Raises DeviceUnavailableError, ConfigError."""
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"}
    headers |= address.secret_headers()
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = HTTPConnection(address.host, port)
    try:
        connection.sock = _connected(address, port, deadline_s)
        connection.request("GET", f"{parts.path}?{address.query}" if address.query else parts.path, headers=headers)
        response = HTTPResponse(_Timed(connection.sock, deadline_s), method="GET")  # type: ignore[arg-type]
        response.begin()
        is_redirect = 300 <= response.status < 400
        coding = shown(response.headers.get("Content-Encoding", ""))
        return Reply(
            status=response.status,
            software=shown(response.headers.get("Server", "")),
            location=response.headers.get("Location", "") if is_redirect else "",
            coding="" if coding.lower() == "identity" else coding,
            body=_body(response),
            retry_after=response.headers.get("Retry-After", ""),
        )
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, OSError) and ran_out(error):
            raise DeviceUnavailableError(
                "no server is asked: this process may open no more files (ulimit -n)"
            ) from None
        words = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
        hint = certificate_hint(error)
        raise DeviceUnavailableError(f"no server answers at {address.url}: {shown(words)}{hint}") from None
    finally:
        connection.close()


def _connected(address: ServerAddress, port: int, deadline_s: float) -> socket.socket:
    """Returns a connection to the first of the host's addresses that accepts one. Raises OSError, ConfigError."""
    tls = address.tls() if urlsplit(address.url).scheme == "https" else None
    refused: OSError = TimeoutError("timed out")
    for family, kind, protocol, _, where in socket.getaddrinfo(address.host, port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left_s(deadline_s))
            connection.connect(where)
            return connection if tls is None else tls.wrap_socket(connection, server_hostname=address.host)
        except OSError as error:
            connection.close()
            refused = error
    raise refused


class _Timed(io.RawIOBase):
    """A socket as HTTPResponse reads it; each read may take what is left of the whole time, not that time anew."""

    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_left_s(self._deadline_s))
        return self._connection.recv_into(buffer)


def _left_s(deadline_s: float) -> float:
    """Raises TimeoutError where nothing is."""
    left_s = deadline_s - monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def _body(response: HTTPResponse) -> bytes:
    """Raises TimeoutError for a body that drips, ValueError for one too long to be an answer."""
    pieces, total = [], 0
    while piece := response.read1(65_536):
        pieces.append(piece)
        total += len(piece)
        if total > MAX_BYTES:
            raise ValueError(f"an answer of more than {MAX_BYTES} bytes")
    return b"".join(pieces)
