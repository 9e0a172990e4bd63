"""What engines do with a batch before it runs, and give back: check it, make prompts of its lengths, tell its tokens.

Worked example: in run 2 of seed 0 requests of 3 and 5 prompt tokens get the first 3 and 5 draws of the streams
(0, 2, 0) and (0, 2, 1). Each run has prompts of its own: an engine that remembers earlier ones gains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.measurement import Request, Run
from pytest_npubench.errors import ConfigError, LengthError

Prompt = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A run and the tokens it produced: one tuple a request, in the order the requests were given."""

    run: Run
    tokens: tuple[tuple[int, ...], ...]

    @property
    def counted_run(self) -> Run:
        """Returns the run, with the number of its tokens."""
        return replace(self.run, num_tokens=sum(map(len, self.tokens)))


def as_requests(prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> list[Request]:
    """Raises LengthError where there are not as many of each."""
    if len(prompts) != len(output_tokens):
        raise LengthError(f"{len(prompts)} prompts with {len(output_tokens)} output lengths; want as many of each")
    return [
        Request(input_tokens=len(prompt), output_tokens=count)
        for prompt, count in zip(prompts, output_tokens, strict=True)
    ]


def check_batch(requests: Sequence[Request], batch_size: int, verb: str = "takes") -> None:
    """Raises LengthError for an empty batch, one above batch_size, or a request without a token of either kind."""
    if not 1 <= len(requests) <= batch_size:
        raise LengthError(f"{len(requests)} requests; the engine {verb} 1..{batch_size}")
    for row, request in enumerate(requests):
        if request.input_tokens < 1 or request.output_tokens < 1:
            raise LengthError(
                f"request {row}: {request.input_tokens} prompt and {request.output_tokens} output tokens; "
                "want at least 1 of each"
            )


def random_prompts(
    requests: Sequence[Request], vocab_size: int, *, seed: int = 0, run: int = 0, avoid: int | None = None
) -> list[Prompt]:
    """Returns a prompt a request, int32 [l_in], of tokens drawn by seed, run and row; `avoid` is a token that none
    holds (an engine's padding)."""
    num_tokens = vocab_size if avoid is None else vocab_size - 1
    if num_tokens < 1:
        raise ConfigError(f"a vocabulary of {vocab_size} tokens; want one that prompts can be drawn from")
    prompts = []
    for index, request in enumerate(requests):
        drawn = np.random.default_rng((seed, run, index)).integers(0, num_tokens, request.input_tokens, dtype=np.int32)
        prompts.append(drawn if avoid is None else drawn + (drawn >= avoid).astype(np.int32))
    return prompts
