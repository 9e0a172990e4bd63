"""One event of a streamed answer: how much text it brought, and how many tokens that makes.

Servers say it in different ways, best first: the running count in `usage` of every event (vLLM, SGLang:
continuous_usage_stats), token ids or log-probabilities beside the text, or the whole count in the last event's `usage`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_npubench.errors import MeasurementError

DONE = "[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """num_chars of text; num_tokens it brought, None where the event does not say; total_tokens so far, likewise."""

    num_chars: int
    num_tokens: int | None
    total_tokens: int | None
    finished: bool


def parse(event: str) -> Delta:
    """Raises MeasurementError where the event is no JSON object of a streamed answer, or holds the server's error."""
    try:
        document = json.loads(event)
    except ValueError as error:
        raise MeasurementError(f"malformed stream: {error}: {_start(event)}") from error
    if not isinstance(document, dict):
        raise MeasurementError(f"malformed stream: want a JSON object, not {_start(event)}")
    if document.get("error"):
        raise MeasurementError(f"the server ended its answer: {_start(json.dumps(document['error']))}")
    choices = document.get("choices")
    if not isinstance(choices, list):
        raise MeasurementError(f"malformed stream: no list of choices in {_start(event)}")
    usage = document.get("usage")
    total = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    choice = choices[0] if choices and isinstance(choices[0], Mapping) else {}
    return Delta(
        num_chars=len(_text(choice)),
        num_tokens=_num_tokens(choice),
        total_tokens=total if isinstance(total, int) else None,
        finished=bool(choice.get("finish_reason")),
    )


def _text(choice: Mapping[str, Any]) -> str:
    """Of either API; reasoning is generated text too."""
    delta = choice.get("delta")
    if not isinstance(delta, Mapping):
        return str(choice.get("text") or "")
    return "".join(str(delta.get(name) or "") for name in ("content", "reasoning_content", "reasoning"))


def _num_tokens(choice: Mapping[str, Any]) -> int | None:
    token_ids = choice.get("token_ids")
    if isinstance(token_ids, list):
        return len(token_ids)
    logprobs = choice.get("logprobs")
    found = logprobs.get("tokens", logprobs.get("content")) if isinstance(logprobs, Mapping) else None
    return len(found) if isinstance(found, list) else None


def _start(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."
