"""Prompts of one's own: a text file with one a line, or JSON lines, where a line may be a whole conversation.

    {"prompt": "Why is the sky blue?", "output_tokens": 64}
    {"turns": [{"prompt": "Hello", "answer": "Hi!"}, {"prompt": "And now?", "think_s": 2.5}]}

A turn after the first is sent think_s after the answer to the one before has ended. It brings along what was said
before: the prompts, and the answers as the file has them, so every run sends the same text. Without output_tokens an
answer has the workload's length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from pytest_npubench.errors import WorkloadError
from pytest_npubench.workloads.reading import opened
from pytest_npubench.workloads.sharegpt import approximate_tokens

Tokens = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
WANT = 'want {"prompt": TEXT} or {"turns": [{"prompt": TEXT, "answer": TEXT, "think_s": SECONDS}, ...]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePrompt:
    """history: what was said before, by user and model in turn. think_s: after the answer before; None where the prompt
    follows none. output_tokens: None for the workload's."""

    text: str
    output_tokens: int | None = None
    history: tuple[str, ...] = ()
    think_s: float | None = None

    @property
    def num_tokens(self) -> int:
        """About as many as it has."""
        return max(1, sum(map(approximate_tokens, (*self.history, self.text))))


class _Turn(msgspec.Struct):
    prompt: Annotated[str, msgspec.Meta(min_length=1)]
    answer: str = ""
    output_tokens: Tokens | None = None
    think_s: Seconds = 0.0


class _Conversation(msgspec.Struct):
    turns: Annotated[list[_Turn], msgspec.Meta(min_length=1)]


def file_prompts(path: Path) -> tuple[FilePrompt, ...]:
    """All prompts in the file's order. Raises WorkloadError on a line that is none, and where there is none."""
    is_json = path.suffix in (".jsonl", ".ndjson")
    with opened(path) as stream:
        lines = [(number, line) for number, line in enumerate(stream, start=1) if line.strip()]
    prompts = [
        prompt
        for number, line in lines
        for prompt in (_said(path, number, line) if is_json else (FilePrompt(text=line.strip()),))
    ]
    if not prompts:
        raise WorkloadError(f"{path} has no prompt; want one a line")
    return tuple(prompts)


def _said(path: Path, number: int, line: str) -> Iterator[FilePrompt]:
    try:
        is_whole = "turns" in msgspec.json.decode(line, type=dict[str, object])
        turns = (
            msgspec.json.decode(line, type=_Conversation).turns if is_whole else [msgspec.json.decode(line, type=_Turn)]
        )
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WorkloadError(f"{path}, line {number}: {error}; {WANT}") from None
    history: tuple[str, ...] = ()
    for index, turn in enumerate(turns):
        yield FilePrompt(
            text=turn.prompt,
            output_tokens=turn.output_tokens,
            history=history,
            think_s=turn.think_s if index else None,
        )
        history = (*history, turn.prompt, turn.answer)
