"""One event of a streamed answer: how much text it brought, and how many tokens that makes.

Whatever a model generated is text: the answer, its reasoning under the names that servers give it, names and arguments
of tool calls, a refusal, a transcript. Text under a key that is not known is text too, and the key is named. An event
that brings nothing is passed over: null, a ping, no choices.

Servers count tokens in different ways, best first: the running count in `usage` of every event (vLLM, SGLang:
continuous_usage_stats), token ids or log-probabilities beside the text, or the whole count in the last event's `usage`.
Groq puts `usage` under `x_groq`, Moonshot into the choice; llama.cpp counts in `timings` too.

What an event may leave out may also be null. What it holds in a type of its own is an error: a count that is taken for
another is a wrong figure, and only 8.0 is surely 8. Fields that are not read (a log-probability of -Infinity) may be
anything.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from pytest_npubench.core.server_access import shown
from pytest_npubench.errors import MeasurementError

DONE = "[DONE]"
NUM_CHARS = 200
KEY_CHARS = 40
REASONING = ("reasoning_content", "reasoning", "reasoning_text", "reasoning_details", "thinking", "thinking_blocks")
"""Names of one text: a server that sends it under two of them generated it once."""
TEXTS = ("text", "content", *REASONING, "refusal", "tool_calls", "function_call", "audio")
LABELS = frozenset(
    {"id", "call_id", "index", "object", "type", "event", "role", "format", "model", "created", "status"}
    | {"code", "expires_at"}
)
"""Keys under which nothing is generated, wherever they stand."""
SEALED = ("signature", "encrypted", "redacted")
"""In the names of keys and types: what a server seals for itself, such as hidden reasoning that a client has to send
back, is no text and no token's arrival."""
DELTA_LABELS = LABELS | {"name", "annotations", "provider_specific_fields"}
CHOICE_LABELS = (
    LABELS
    | {"delta", "message", "error", "logprobs", "token_ids", "prompt_token_ids", "provider_specific_fields"}
    | {"finish_reason", "native_finish_reason", "stop_reason", "matched_stop", "usage"}
    | {"content_filter_results", "content_filter_offsets"}
)
EVENT_LABELS = (
    LABELS
    | {"choices", "usage", "error", "system_fingerprint", "service_tier", "timings", "provider", "obfuscation"}
    | {"prompt_filter_results", "prompt_annotations", "citations", "search_results", "x_groq", "nvext"}
)
SIGNS_OF_LIFE = frozenset(("", "ping", "pong", "heartbeat", "keepalive", "keep-alive"))
FAILED = frozenset(("error", "abort", "aborted", "cancelled"))
"""What a server calls the finish of an answer that it gave up."""


class Delta(NamedTuple):
    """num_chars of text; num_tokens it brought, None where the event does not say; total_tokens so far, likewise;
    finish_reason, empty where the answer goes on.

    unstreamed_tokens: how many of total_tokens the server calls reasoning, or a prediction that it rejected.
    has_reasoning: some of the text is reasoning. unknown_key: where text stood that is not known. is_empty: the event
    has no choices and no count.
    """

    num_chars: int
    num_tokens: int | None
    total_tokens: int | None
    finish_reason: str
    unstreamed_tokens: int = 0
    has_reasoning: bool = False
    unknown_key: str = ""
    is_empty: bool = False


EMPTY = Delta(0, None, None, "", is_empty=True)

# The usual event, read in a tenth of the time: only fields that are told of here, each of its own type.


class _Part(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    role: Any = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: None = None
    function_call: None = None
    tool_calls: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None


class _Choice(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    index: Any = None
    text: str | None = None
    delta: _Part | None = None
    finish_reason: str | None = None
    stop_reason: Any = None
    token_ids: None = None
    logprobs: None = None


class _Usage(msgspec.Struct, gc=False):
    completion_tokens: Any = None  # msgspec would take 2.0 for an int
    completion_tokens_details: None = None
    output_tokens: None = None


class _Event(msgspec.Struct, gc=False):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1, max_length=1)]
    usage: _Usage | None = None
    error: None = None
    type: None = None
    object: Any = None
    x_groq: None = None
    timings: None = None


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
    (choice,) = chunk.choices
    if choice.finish_reason in FAILED or chunk.object == "error":
        return _any(event)
    part, num_chars, num_reasoning = choice.delta, len(choice.text or ""), 0
    if part is not None:
        num_reasoning = max(len(part.reasoning_content or ""), len(part.reasoning or ""))
        num_chars += len(part.content or "") + num_reasoning
    return Delta(num_chars, None, total, choice.finish_reason or "", 0, num_reasoning > 0)


def _any(event: str) -> Delta:
    """Reads any event: one that holds more than usual, or is wrong and gets an error in words."""
    if event.strip('" \t').lower() in SIGNS_OF_LIFE:
        return EMPTY
    try:
        document = json.loads(event)
    except ValueError as error:
        raise MeasurementError(f"malformed stream: {error}: {_start(event)}") from error
    except RecursionError:
        raise MeasurementError(f"malformed stream: nested deeper than any answer: {_start(event)}") from None
    if not isinstance(document, dict):
        if text_in(document):
            raise MeasurementError(f"malformed stream: want a JSON object, not {_start(event)}")
        return EMPTY
    choices = document.get("choices")
    if not isinstance(choices, list | None):
        raise MeasurementError(f"malformed stream: no list of choices in {_start(event)}")
    choices = [_mapping(choice, f"choices[{index}]") for index, choice in enumerate(choices or ())]
    if why := _why_ended(document, choices):
        raise MeasurementError(f"the server ended its answer: {_words(why, event)}")
    keys = _texts(document, EVENT_LABELS) if not choices else ()
    if keys and not all(text_in(document[key]).strip().lower() in SIGNS_OF_LIFE for key in keys):
        key = shown(min(keys), KEY_CHARS)
        raise MeasurementError(f"malformed stream: no choices, and text under {key}: {_start(event)}")
    return _of_choices(choices, _usage(document, choices))


def _why_ended(document: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> object:
    """The server's own words, where it gave the answer up; None where it did not."""
    if error := document.get("error"):
        return error
    if "error" in (document.get("type"), document.get("object")):
        return document
    return next((each for each in choices if each.get("error") or _finish_reason(each) in FAILED), None)


def _finish_reason(choice: Mapping[str, Any]) -> str:
    """Empty where the answer goes on. SGLang's own form is an object with a type."""
    value = choice.get("finish_reason")
    return _text(value, "type") if isinstance(value, Mapping) and "type" in value else _text(choice, "finish_reason")


def _usage(document: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The server's counts, wherever it puts them; empty where it sends none."""
    for holder in (document, document.get("x_groq"), *(choices if len(choices) == 1 else ())):
        if isinstance(holder, Mapping) and (usage := _mapping(holder.get("usage"), "usage")):
            return usage
    timings = document.get("timings")
    return {"completion_tokens": timings.get("predicted_n")} if isinstance(timings, Mapping) else {}


def _of_choices(choices: Sequence[Mapping[str, Any]], usage: Mapping[str, Any]) -> Delta:
    texts: Counter[str] = Counter()
    for choice in choices:
        part = choice["delta"] if "delta" in choice else choice.get("message")
        texts += _texts(choice, CHOICE_LABELS) + _texts(_mapping(part, "delta"), DELTA_LABELS)
    num_reasoning = max(texts[name] for name in REASONING)
    num_chars = num_reasoning + sum(number for name, number in texts.items() if name not in REASONING)
    num_tokens = _num_tokens(choices[0]) if len(choices) == 1 else None
    total = _count(usage, "completion_tokens" if usage.get("completion_tokens") is not None else "output_tokens")
    return Delta(
        num_chars=num_chars,
        num_tokens=None if num_chars and not num_tokens else num_tokens,
        total_tokens=total,
        finish_reason=next(filter(None, map(_finish_reason, choices)), ""),
        unstreamed_tokens=_num_unstreamed(usage),
        has_reasoning=num_reasoning > 0,
        unknown_key=shown(min((name for name in texts if name not in TEXTS), default=""), KEY_CHARS),
        is_empty=not choices and total is None,
    )


def _texts(holder: Mapping[str, Any], labels: frozenset[str]) -> Counter[str]:
    """The number of characters that were generated under each key. Raises MeasurementError for a number that stands
    where text should."""
    for name in TEXTS:
        if isinstance(holder.get(name), bool | int | float):
            _text(holder, name)
    return Counter({name: len(text) for name, text in _texts_in(holder, labels).items()})


def _texts_in(holder: Mapping[str, Any], labels: frozenset[str]) -> dict[str, str]:
    texts = {name: text_in(value) for name, value in holder.items() if not (name in labels or _is_sealed(name))}
    return {name: text for name, text in texts.items() if text}


def texts_of(event: str) -> dict[str, str]:
    """What an event that `parse` has read brought under each key; nothing where it has several choices, or what json
    does not read."""
    try:
        choices = json.loads(event)["choices"]
    except (ValueError, RecursionError):
        return {}
    if len(choices) != 1:
        return {}
    part = choices[0].get("delta") if "delta" in choices[0] else choices[0].get("message")
    return {**_texts_in(choices[0], CHOICE_LABELS), **_texts_in(part or {}, DELTA_LABELS)}


def text_in(value: object) -> str:
    """All text in a value of JSON, in order: a text, a list of parts, an object without its labels and seals."""
    texts, rest = [], [value]
    while rest:
        part = rest.pop()
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, list):
            rest += reversed(part)
        elif isinstance(part, Mapping) and not _is_sealed(part.get("type")):
            rest += reversed([inner for name, inner in part.items() if not (name in LABELS or _is_sealed(name))])
    return "".join(texts)


def _is_sealed(name: object) -> bool:
    return isinstance(name, str) and any(sign in name.lower() for sign in SEALED)


def _num_tokens(choice: Mapping[str, Any]) -> int | None:
    token_ids = choice.get("token_ids")
    if isinstance(token_ids, list):
        return len(token_ids)
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, Mapping):
        return None
    lists = [logprobs.get(name) for name in ("tokens", "content", "refusal")]
    counts = [len(tokens) for tokens in lists if isinstance(tokens, list)]
    return sum(counts) if counts else None


def _num_unstreamed(usage: Mapping[str, Any]) -> int:
    details = usage.get("completion_tokens_details")
    if not isinstance(details, Mapping):
        return 0
    return sum(_count(details, name) or 0 for name in ("reasoning_tokens", "rejected_prediction_tokens"))


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    total = usage.get(name)
    if total is None:
        return None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if type(total) is not int or total < 0:  # a bool is an int, and JSON of Python's has Infinity and NaN
        raise MeasurementError(f"malformed stream: {name} is {_words(total)}; want a whole number of at least 0")
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
