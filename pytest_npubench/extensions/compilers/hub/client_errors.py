"""What Qualcomm AI Hub's client raises, as our own errors: one line, in words a person can act on, without the token.

DeviceBusyError         rate limited: too many requests or jobs, later is fine
AccessRefusedError      the token is wrong or has expired
DeviceUnavailableError  no connection, the service is down
MeasurementError        everything about one model or job: the others may go on
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_npubench.errors import (
    AccessRefusedError,
    DeviceBusyError,
    DeviceUnavailableError,
    MeasurementError,
    NpubenchError,
)

SERVICE = "Qualcomm AI Hub"
CONFIGURE = "qai-hub configure --api_token TOKEN"
UNAUTHORIZED = (401, 403)
_FRAME = re.compile(r"[┌┐└┘─|]+")
_LIMIT = 300


@contextmanager
def in_words(token: str, doing: str) -> Iterator[None]:
    """Turn whatever the client raises inside into one of our errors. `doing` says what was asked of the service."""
    try:
        yield
    except NpubenchError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the client or what lies below it raises
        raise translated(error, token, doing) from None  # a traceback of the client may quote request headers


def translated(error: Exception, token: str, doing: str) -> NpubenchError:
    """Our error for the client's, by the HTTP status it hides, else by its type's name."""
    status, kinds = _status(error), {kind.__name__ for item in _chain(error) for kind in type(item).__mro__}
    text = one_line(str(error), token)
    if status in UNAUTHORIZED or "failed to authenticate" in text.lower():
        return AccessRefusedError(f"{SERVICE} refused the token: it is wrong or has expired (run: {CONFIGURE})")
    if status == 429 or "RateLimitedError" in kinds or "too many 429" in _whole(error):
        return DeviceBusyError(f"{SERVICE} limits the rate of requests: {doing} was refused")
    if kinds & {"ConnectionError", "Timeout", "RetryError", "ChunkedEncodingError", "ContentDecodingError"}:
        return DeviceUnavailableError(f"{SERVICE} cannot be reached: {doing}: {text}")
    if status is not None and status >= 500:
        return DeviceUnavailableError(f"{SERVICE} is out of order (status {status}): {doing}")
    return MeasurementError(f"{SERVICE}: {doing}: {text}")


def one_line(text: str, token: str) -> str:
    """Returns the text without frames and line ends, cut, with the token blacked out wherever it stands."""
    plain = " ".join(_FRAME.sub(" ", text).split())
    if token:
        plain = plain.replace(token, "(token)")
    return plain if len(plain) <= _LIMIT else f"{plain[:_LIMIT]} ..."


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, and what it was raised for, also where the client hid that with `from None`."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _status(error: Exception) -> int | None:
    codes = (getattr(item, "status_code", None) for item in _chain(error))
    return next((code for code in codes if isinstance(code, int)), None)


def _whole(error: Exception) -> str:
    return " ".join(str(item) for item in _chain(error))
