"""What a serving plan must know of the engine that serves it."""

from __future__ import annotations

from typing import ClassVar


class ServingTraits:
    """The defaults are those of an engine under our own schedulers."""

    min_block_tokens: ClassVar[int] = 1
    """The smallest block of the KV cache that the engine takes."""
    tells_answers: ClassVar[bool] = False
    """Whether the engine can be asked what it answers: its cases of answers are there, or they are not."""
    decode_counts: ClassVar[bool] = False
    """Whether decode tokens use up the chunk of chunked prefill."""
