"""Where the server is and who asks it, as the environment says: four variables, of which one is needed.

    NPUBENCH_SERVER_URL           the base that clients of OpenAI are given, http://127.0.0.1:8000/v1
    NPUBENCH_SERVER_MODEL         the model's name; not needed where one is served
    NPUBENCH_SERVER_KEY_VARIABLE  the variable that holds the API key (default OPENAI_API_KEY)
    NPUBENCH_SERVER_CA_FILE       a file of certificates to trust

The key itself is read when it is sent: it is in no record, no message and no repr.
"""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pytest_npubench.core.server_access import api_key, check_key_variable, tls_context
from pytest_npubench.errors import ConfigError

URL, MODEL = "NPUBENCH_SERVER_URL", "NPUBENCH_SERVER_MODEL"
KEY_VARIABLE, CA_FILE = "NPUBENCH_SERVER_KEY_VARIABLE", "NPUBENCH_SERVER_CA_FILE"
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
DIGITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """key_variable: None where no key is sent. Raises ConfigError on an address that cannot be used."""

    url: str
    model: str | None = None
    key_variable: str | None = None
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port or an IPv6 address that is none
            usable = False
        if not usable or not self.url.isprintable() or " " in self.url:
            raise ConfigError("a server's address: want http:// or https:// with a host, as http://HOST:PORT/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigError(
                "a server's address carries no password and no query; name a variable that holds the API key"
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

    def key(self) -> str:
        """The API key, empty for none. Raises ConfigError as api_key does."""
        return api_key(self.key_variable)

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
    variable = named or (DEFAULT_KEY_VARIABLE if environment.get(DEFAULT_KEY_VARIABLE) else None)
    ca_file = environment.get(CA_FILE, "").strip()
    try:
        return ServerAddress(
            url=url,
            model=environment.get(MODEL, "").strip() or None,
            key_variable=variable,
            ca_file=Path(ca_file) if ca_file else None,
        )
    except ConfigError as error:
        raise ConfigError(f"{URL}: {error}") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
