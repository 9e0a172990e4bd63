"""The greedy answer to one prompt, streamed as measured ones are, with its text and what it tells of probabilities.

The client of load_run.py keeps counts and times alone. This one times nothing and keeps the rest. Like that one it
follows no redirect and no proxy of the environment: the API key goes to the address that was given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from pytest_npubench.core.server_access import shown
from pytest_npubench.engines.http.arrived import EventStream
from pytest_npubench.engines.http.delta import DONE, TEXTS, parse, text_in
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.errors import MeasurementError

NUM_TOP = 5
MOST_BYTES = 2**22
PIECE_BYTES = 2**14
ALMOST_CERTAIN = 1e-3  # above 0 by so much, a log-probability is still one that was rounded
TELLING: Mapping[str, Mapping[str, object]] = {
    "completions": {"logprobs": NUM_TOP},
    "chat": {"logprobs": True, "top_logprobs": NUM_TOP},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyAnswer:
    """logprobs: of each token that was generated; none where the server tells none."""

    text: str
    logprobs: tuple[float, ...] = ()


def greedy_answer(endpoint: Endpoint, prompt: str | tuple[int, ...], num_tokens: int) -> GreedyAnswer:
    """The answer at temperature 0, at most num_tokens long; without log-probabilities where the server refuses them.

    Raises MeasurementError with the server's words where it does not answer, and where it tells what no probability is.
    """
    body = {**endpoint.body(prompt, num_tokens), "temperature": 0.0}
    try:
        return _asked(endpoint, {**body, **TELLING[endpoint.api]})
    except _RefusedError:
        return _asked(endpoint, body)


class _RefusedError(MeasurementError):
    """The request itself (HTTP 400 or 422) is what the server does not take."""


def _asked(endpoint: Endpoint, body: Mapping[str, object]) -> GreedyAnswer:
    parts = urlsplit(endpoint.address)
    timeout_s, tls = endpoint.idle_timeout_s, endpoint.tls()
    host, port = parts.hostname or "", parts.port
    connection = (
        HTTPConnection(host, port, timeout=timeout_s)
        if tls is None
        else HTTPSConnection(host, port, timeout=timeout_s, context=tls)
    )
    with closing(connection):
        try:
            connection.request("POST", endpoint.target, json.dumps(body), endpoint.all_headers())
            response = connection.getresponse()
            if response.status != 200:
                kind = _RefusedError if response.status in (400, 422) else MeasurementError
                raise kind(f"HTTP {response.status}: {shown(response.read(PIECE_BYTES).decode(errors='replace'))}")
            return _read(response)
        except (OSError, HTTPException) as error:
            raise MeasurementError(f"no answer: {type(error).__name__}: {shown(str(error))}") from error


def _read(response: HTTPResponse) -> GreedyAnswer:
    texts: list[str] = []
    logprobs: list[float] = []
    for document in _documents(response):
        for choice in document.get("choices") or ():
            part = choice.get("delta") or {}
            texts += [text_in(holder.get(name)) for holder in (choice, part) for name in TEXTS]
            logprobs += _logprobs(choice.get("logprobs") or {})
    return GreedyAnswer(text="".join(texts), logprobs=tuple(logprobs))


def _documents(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    """Raises MeasurementError as delta.parse does, for an error that the server streams too."""
    events, num_bytes = EventStream(MOST_BYTES), 0
    for piece in chain(iter(lambda: response.read1(PIECE_BYTES), b""), (b"",)):
        num_bytes += len(piece)
        if num_bytes > MOST_BYTES:
            raise MeasurementError(f"an answer of more than {MOST_BYTES} bytes")
        for event in events.feed(piece) if piece else events.end():
            if event.strip() == DONE:
                return
            if not parse(event).is_empty:
                yield json.loads(event)


def _logprobs(logprobs: Mapping[str, Any]) -> list[float]:
    """The log-probabilities in an answer of either API. Raises MeasurementError where one is no log-probability."""
    values = logprobs.get("token_logprobs") or [entry.get("logprob") for entry in logprobs.get("content") or ()]
    for value in values:
        if not isinstance(value, int | float) or not math.isfinite(value) or value > ALMOST_CERTAIN:
            raise MeasurementError(f"a log-probability is {value!r}; want a finite number of at most 0")
    return [float(value) for value in values]
