"""One event of a streamed answer: how much text it brought, and how many tokens that makes.

Servers say it in different ways, best first: the running count in `usage` of every event (vLLM, SGLang:
continuous_usage_stats), token ids or log-probabilities beside the text, or the whole count in the last event's `usage`.

What an event may leave out may also be null. What it holds in a type of its own is an error: a count that is taken for
another is a wrong figure. Fields that are not read (a log-probability of -Infinity) may be anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from pytest_npubench.core.server_access import shown
from pytest_npubench.errors import MeasurementError

DONE = "[DONE]"
NUM_CHARS = 200
TEXTS = ("content", "reasoning_content", "reasoning")


class Delta(NamedTuple):
    """num_chars of text; num_tokens it brought, None where the event does not say; total_tokens so far, likewise."""

    num_chars: int
    num_tokens: int | None
    total_tokens: int | None
    finished: bool


# The usual event, read in a tenth of the time: only fields that are told of here, each of its own type.


class _Part(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct, gc=False):
    text: str | None = None
    delta: _Part | None = None
    finish_reason: str | None = None
    token_ids: None = None
    logprobs: None = None


class _Usage(msgspec.Struct, gc=False):
    completion_tokens: Any = None  # msgspec would take 2.0 for an int


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice]
    usage: _Usage | None = None
    error: None = None


_decode = msgspec.json.Decoder(_Event).decode


def parse(event: str) -> Delta:
    """Raises MeasurementError where the event is no JSON object of a streamed answer, or holds the server's error."""
    try:
        chunk = _decode(event)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _any(event)
    total = chunk.usage.completion_tokens if chunk.usage else None
    if total is not None and (type(total) is not int or total < 0):
        return _any(event)
    if not chunk.choices:
        return Delta(0, None, total, False)
    choice = chunk.choices[0]
    part = choice.delta
    if part is None:
        num_chars = len(choice.text or "")
    else:
        num_chars = len(part.content or "") + len(part.reasoning_content or "") + len(part.reasoning or "")
    return Delta(num_chars, None, total, bool(choice.finish_reason))


def _any(event: str) -> Delta:
    """Reads any event: one that holds more than usual, or is wrong and gets an error in words."""
    try:
        document = json.loads(event)
    except ValueError as error:
        raise MeasurementError(f"malformed stream: {error}: {_start(event)}") from error
    except RecursionError:
        raise MeasurementError(f"malformed stream: nested deeper than any answer: {_start(event)}") from None
    if not isinstance(document, dict):
        raise MeasurementError(f"malformed stream: want a JSON object, not {_start(event)}")
    if document.get("error"):
        raise MeasurementError(f"the server ended its answer: {_words(document['error'], event)}")
    choices = document.get("choices")
    if not isinstance(choices, list):
        raise MeasurementError(f"malformed stream: no list of choices in {_start(event)}")
    choice = _mapping(choices[0], "choices[0]") if choices else {}
    return Delta(
        num_chars=_num_chars(choice),
        num_tokens=_num_tokens(choice),
        total_tokens=_total_tokens(_mapping(document.get("usage"), "usage")),
        finished=bool(_text(choice, "finish_reason")),
    )


def _num_chars(choice: Mapping[str, Any]) -> int:
    """The number of characters in a choice of either API; reasoning is generated text too."""
    if choice.get("delta") is None:
        return len(_text(choice, "text"))
    delta = _mapping(choice["delta"], "delta")
    return sum(len(_text(delta, name)) for name in TEXTS)


def _num_tokens(choice: Mapping[str, Any]) -> int | None:
    token_ids = choice.get("token_ids")
    if isinstance(token_ids, list):
        return len(token_ids)
    logprobs = choice.get("logprobs")
    tokens = logprobs.get("tokens", logprobs.get("content")) if isinstance(logprobs, Mapping) else None
    return len(tokens) if isinstance(tokens, list) else None


def _total_tokens(usage: Mapping[str, Any]) -> int | None:
    total = usage.get("completion_tokens")
    if total is None:
        return None
    if type(total) is not int or total < 0:  # a bool is an int, and JSON of Python's has Infinity and NaN
        raise MeasurementError(
            f"malformed stream: completion_tokens is {_words(total)}; want a whole number of at least 0"
        )
    return total


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise MeasurementError(f"malformed stream: {name} is {_words(value)}; want an object")
    return value


def _text(holder: Mapping[str, Any], name: str) -> str:
    value = holder.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MeasurementError(f"malformed stream: {name} is {_words(value)}; want text")
    return value


def _words(value: object, instead: str = "nested deeper than any answer") -> str:
    """A value as JSON; `instead` for one that nests so deep that it can be read but not written."""
    try:
        return _start(json.dumps(value))
    except RecursionError:
        return _start(instead)


def _start(text: str) -> str:
    return shown(text, NUM_CHARS) + ("..." if len(text) > NUM_CHARS else "")
