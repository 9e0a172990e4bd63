"""Where the server is and who asks it, as the environment says: six variables, of which one is needed.

    NPUBENCH_SERVER_URL           the base that clients of OpenAI are given, http://127.0.0.1:8000/v1
    NPUBENCH_SERVER_MODEL         the model's name; not needed where one is served
    NPUBENCH_SERVER_KEY_VARIABLE  the variable that holds the API key (default OPENAI_API_KEY)
    NPUBENCH_SERVER_QUERY         what follows the ? of every address, api-version=2024-10-21
    NPUBENCH_SERVER_HEADERS       more headers, each with the variable that holds its value, api-key=AZURE_KEY,x-org=ORG
    NPUBENCH_SERVER_CA_FILE       a file of certificates to trust

The key itself is read when it is sent: it is in no record, no message and no repr.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pytest_npubench.core.secret import masked
from pytest_npubench.core.server_access import check_key_variable, secret_headers, tls_context
from pytest_npubench.errors import ConfigError

URL, MODEL = "NPUBENCH_SERVER_URL", "NPUBENCH_SERVER_MODEL"
KEY_VARIABLE, CA_FILE = "NPUBENCH_SERVER_KEY_VARIABLE", "NPUBENCH_SERVER_CA_FILE"
QUERY, HEADERS = "NPUBENCH_SERVER_QUERY", "NPUBENCH_SERVER_HEADERS"
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
OUR_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect"}
    | {"keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that say how a message is written, which its writer alone knows."""
DIGITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """key_variable: None where no key is sent. query: encoded. headers: of each its name and the variable with its
    value. Raises ConfigError on an address that cannot be used."""

    url: str
    model: str | None = None
    key_variable: str | None = None
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port or an IPv6 address that is none
            usable = False
        if not usable or not self.url.isprintable() or " " in self.url:
            raise ConfigError("a server's address: want http:// or https:// with a host, as http://HOST:PORT/v1")
        if parts.username or parts.password or parts.query or parts.fragment or masked(self.url) != self.url:
            raise ConfigError(
                "a server's address carries no password and no query; name a variable that holds the API key, and "
                f"give the query by {QUERY}"
            )

    @property
    def host(self) -> str:
        return (urlsplit(self.url).hostname or "").lower()

    @property
    def is_local(self) -> bool:
        """Whether the address is one of this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def host_digest(self) -> str:
        """Tells hosts apart without naming them: baselines are read by more people than run servers."""
        return _digest(self.host)

    @property
    def digest(self) -> str:
        return _digest(self.url.rstrip("/"))

    def secret_headers(self) -> dict[str, str]:
        """Raises ConfigError as core.server_access.secret_headers does."""
        return secret_headers(self.key_variable, self.headers)

    def tls(self) -> ssl.SSLContext:
        """Raises ConfigError as tls_context does."""
        return tls_context(self.ca_file)


def address_of(environment: Mapping[str, str]) -> ServerAddress | None:
    """Reads the address; None where none is set. Raises ConfigError naming the variable that cannot be used."""
    url = environment.get(URL, "").strip()
    if not url:
        return None
    named = environment.get(KEY_VARIABLE, "").strip()
    if named:
        check_key_variable(named, environment, KEY_VARIABLE)
    headers = _headers(environment)
    # a server that takes its key in a header of its own is not sent OpenAI's
    default = DEFAULT_KEY_VARIABLE if environment.get(DEFAULT_KEY_VARIABLE) and not headers else None
    query = environment.get(QUERY, "").strip().removeprefix("?")
    if not re.fullmatch(r"[!-~]*", query) or "#" in query:
        raise ConfigError(f"{QUERY}: want NAME=VALUE, joined by & and encoded, such as api-version=2024-10-21")
    ca_file = environment.get(CA_FILE, "").strip()
    try:
        return ServerAddress(
            url=url,
            model=environment.get(MODEL, "").strip() or None,
            key_variable=named or default,
            query=query,
            headers=headers,
            ca_file=Path(ca_file) if ca_file else None,
        )
    except ConfigError as error:
        raise ConfigError(f"{URL} (--url of load): {error}") from None


def _headers(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Raises ConfigError on a name that no header has, one of ours, and on a variable that is not set."""
    pairs = [entry.strip().partition("=") for entry in environment.get(HEADERS, "").split(",") if entry.strip()]
    for name, _, variable in pairs:
        if not re.fullmatch(r"[A-Za-z0-9-]+", name):
            raise ConfigError(f"{HEADERS}: want NAME=VARIABLE, the name of a header and of the variable with its value")
        if name.lower() in OUR_HEADERS:
            raise ConfigError(f"{HEADERS}: {name} is not for it to say; our own are {', '.join(sorted(OUR_HEADERS))}")
        check_key_variable(variable, environment, HEADERS)
    return tuple((name, variable) for name, _, variable in pairs)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
