"""What a client of somebody else's server is let in with, its API key and the certificates that it trusts; and how what
such a server writes is shown."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pytest_npubench.core.secret import keep_out, without_kept
from pytest_npubench.errors import ConfigError
from pytest_npubench.plain_text import plain

READABLE_CHARS = 200
UNKNOWN_ISSUERS = (18, 19, 20, 21)  # X509_V_ERR of OpenSSL: self-signed, at the end of a chain, and no issuer at hand
WIDEST_SIGN = 12  # signs that encode one sign: a key that is cut off further on is cut off in what is shown too
_USUAL_NAME = re.compile(r"(?=.{1,40}$)[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")  # OPENAI_API_KEY, but not AKIA4XB9 or sk_4xb9


def check_key_variable(variable: str, environment: Mapping[str, str], named_by: str) -> None:
    """Raises ConfigError where this is no variable that is set. What was given may be the key itself, so it is repeated
    only where it is written as names of variables are and keys are not; `named_by` is what it came by."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise ConfigError(
            f"{named_by}: no name of an environment variable (letters, digits and _); want the name of the one that "
            "holds the API key, not the key"
        )
    if not environment.get(variable):
        shown = variable if _USUAL_NAME.fullmatch(variable) else "the variable that it names"
        raise ConfigError(f"{named_by}: {shown} is not set; it holds the API key")


def api_key(variable: str | None) -> str:
    """Returns the key in an environment variable, empty where none is named; nothing that others wrote shows it from
    here on.

    Raises ConfigError where the variable is not set or no header can carry what it holds; the message names a variable
    that is set, never the key.
    """
    if variable is None:
        return ""
    check_key_variable(variable, os.environ, "the API key's variable")
    key = os.environ[variable]
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"the API key in {variable} has a space or a sign that no header can carry")
    keep_out(key)
    return key


def secret_headers(key_variable: str | None, headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Returns the lines that let a client in: the API key, and each header with what its variable holds. Raises
    ConfigError as api_key does."""
    key = api_key(key_variable)
    authorization = {"Authorization": f"Bearer {key}"} if key else {}
    return authorization | {name: api_key(variable) for name, variable in headers}


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Always verifies certificates: the system's, and those of ca_file. Raises ConfigError on a file without any."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(str(ca_file))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{ca_file}: no certificates to trust: {error}") from error
    return context


def certificate_hint(error: Exception) -> str:
    """Returns the option that lets a server in whose certificate nobody here vouches for; empty for other errors."""
    is_unknown = getattr(error, "verify_code", None) in UNKNOWN_ISSUERS
    return "; --ca-file PATH (NPUBENCH_SERVER_CA_FILE) trusts the certificates of a file" if is_unknown else ""


def shown(text: str, num_chars: int = 100) -> str:
    """Returns a text that others wrote, fit for one line of a report, without a key that this process has sent."""
    return plain(" ".join(without_kept(text[: WIDEST_SIGN * num_chars])[:num_chars].split()))


def readable(text: bytes | bytearray, retry_after: str = "") -> str:
    """Returns the first words of what a server wrote, without the tags, scripts and styles of a page, and what its
    header says of another try."""
    words = re.sub(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>", " ", text.decode(errors="replace"))
    said = shown(" ".join(words.split()), READABLE_CHARS) or "no message"
    return f"{said} (Retry-After: {shown(retry_after)})" if retry_after else said


def redirected_to(location: str) -> str:
    """Shows where a redirect points, without user, password, query and fragment, which may hold secrets."""
    try:
        parts = urlsplit(location)
        where = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return "an address that is none"
    path = "" if "@" in parts.path else parts.path
    return shown(f"{parts.scheme}://{where}{path}" if where else path, 200) or "nowhere"
