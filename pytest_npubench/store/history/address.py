"""Where a history lies: a path ending in .db or .sqlite, sqlite:///PATH, or postgresql://USER:PASSWORD@HOST/DATABASE.

PostgreSQL is spoken through psycopg 3. An address is read once, by SQLAlchemy's own parser: what it holds as secret
goes to the driver and nowhere else, and what cannot be read is refused without being repeated.

    parse_address("postgresql://ann:s3cret@db/bench?sslpassword=x").shown
        == "postgresql://ann:***@db/bench?sslpassword=***"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from pytest_npubench.core.secret import HIDDEN, Secret, masked
from pytest_npubench.errors import HistoryError

if TYPE_CHECKING:
    from sqlalchemy import URL

SUFFIXES = (".db", ".sqlite")
ALLOWED = (
    "want a path ending in .db or .sqlite, sqlite:///PATH (sqlite:////PATH from the root), "
    "or postgresql://USER:PASSWORD@HOST/DATABASE"
)
POSTGRES = ("postgres", "postgresql", "postgresql+psycopg")
# libpq's parameters that hold no secret (https://www.postgresql.org/docs/current/libpq-connect.html, 32.1.2)
PUBLIC = (
    *("host", "hostaddr", "port", "dbname", "user", "passfile", "service", "connect_timeout", "client_encoding"),
    *("application_name", "fallback_application_name", "keepalives", "keepalives_idle", "keepalives_interval"),
    *("keepalives_count", "tcp_user_timeout", "gssencmode", "sslmode", "sslnegotiation", "sslcompression"),
    *("sslcert", "sslkey", "sslcertmode", "sslrootcert", "sslcrl", "sslcrldir", "sslsni", "requirepeer"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib", "gssdelegation"),
    *("channel_binding", "require_auth", "target_session_attrs", "load_balance_hosts"),
)
HIGHEST_PORT = 65_535
_LIKE_A_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A database: the file where it is SQLite, else the server's URL without secrets, which stand apart under the names
    that the driver takes them by. `shown` is for people."""

    path: Path | None = None
    server: str | None = None
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    shown: str

    def without_secrets(self, text: str) -> str:
        """What the driver said, which may quote them, as they are or percent-encoded."""
        for secret in self.secrets.values():
            for form in (secret.reveal(), quote(secret.reveal(), safe=""), quote(secret.reveal())):
                text = text.replace(form, HIDDEN) if form else text
        return text


def parse_address(text: str | Address) -> Address:
    """Raises HistoryError, which repeats no password, where the text is no address of a kind that is known, and where
    SQLAlchemy, which reads addresses of servers, is not installed."""
    if isinstance(text, Address):
        return text
    scheme, separator, rest = text.partition("://")
    if not separator:
        if not text.endswith(SUFFIXES) or _LIKE_A_SCHEME.match(text) or masked(text) != text:
            raise HistoryError(f"history{_echo(text)}: {ALLOWED}")
        return Address(path=Path(text), shown=text)
    if scheme == "sqlite":
        if not rest.startswith("/") or rest in ("/", "/:memory:") or "?" in rest:
            raise HistoryError(f"history{_echo(text)}: a history in SQLite is a file, without ? options; {ALLOWED}")
        return Address(path=Path(rest[1:]), shown=text)
    if scheme not in POSTGRES:
        problem = f"{scheme}:// is not known" if scheme.isidentifier() else "of an unknown kind"
        raise HistoryError(f"history: {problem}; {ALLOWED}")
    return _server(f"postgresql+psycopg://{rest}")


def shown_address(text: str | Address) -> str:
    """Shows the address without its password, *** where it cannot be read."""
    try:
        return parse_address(text).shown
    except HistoryError:
        return HIDDEN


def _server(text: str) -> Address:
    try:
        from sqlalchemy.engine import URL, make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError as error:
        raise HistoryError(
            "history postgresql://: sqlalchemy is not installed: pip install pytest-npubench[history]"
        ) from error
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # its own message quotes what it could not read
        raise HistoryError(f"history: not a URL of PostgreSQL; {ALLOWED}; several hosts are ?host=A&host=B") from None
    _check(url)
    secrets = {name: Secret(str(value)) for name, value in url.query.items() if name not in PUBLIC}
    in_query = "".join(f"&{quote(name)}={HIDDEN}" for name in secrets)
    if url.password is not None:
        secrets.setdefault("password", Secret(str(url.password)))
    public = {name: value for name, value in url.query.items() if name in PUBLIC}
    server = (url.host, url.port, url.database, public)
    shown = URL.create("postgresql", url.username, url.password and HIDDEN, *server).render_as_string()
    return Address(
        server=URL.create(url.drivername, url.username, None, *server).render_as_string(),
        secrets=secrets,
        shown=shown + (in_query if public else in_query.replace("&", "?", 1)),
    )


def _check(url: URL) -> None:
    """Refuses what a password with signs that were not encoded is read as: a part of it would pass for something
    else, and be shown. The message says which part it is and not what is in it."""
    strange = {
        "the host": re.fullmatch(r"[\w.:%-]*", url.host or "") is None,
        "the database": re.search("[@;=]", url.database or "") is not None,
        "the user": re.search("[:;=]", url.username or "") is not None,
        "the port": url.port is not None and not 0 < url.port <= HIGHEST_PORT,
        "an option": any(isinstance(value, tuple) for name, value in url.query.items() if name not in PUBLIC)
        or not all(name.isidentifier() for name in url.query)
        or any(re.search(";|=", str(value)) for name, value in url.query.items() if name in PUBLIC),
    }
    if wrong := [part for part, is_strange in strange.items() if is_strange]:
        raise HistoryError(
            f"history: {wrong[0]} of the PostgreSQL URL cannot be meant; in a password write @ as %40, : as %3A, "
            f"/ as %2F and ? as %3F; {ALLOWED}"
        )


def _echo(text: str) -> str:
    """The text where it can hold no password, else nothing."""
    return f" {text!r}" if re.fullmatch(r"[^:@=?]*|sqlite:[^:@=]*", text) and masked(text) == text else ""
