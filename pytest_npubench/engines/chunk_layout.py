"""How many graphs a prefill in chunks needs and what their weights take, in closed form (llm.npu, section 3.2).

With C chunks, L layers, k subgraphs a layer of which d depend on the chunk (attention), and W bytes of weights:

    whole, padding   1 graph,                    W bytes
    per_chunk        C graphs (C L k subgraphs), C W bytes: every graph has its own weights
    sharing          L (k - d) + C L d graphs,   W bytes: attention has no weights, the rest is there once
    shared of a chunk's subgraphs: L (k - d) of L k;  memory saved: 1 - 1 / C

Worked number, the paper's: prompt 1024, chunk 256, 24 layers of 6 subgraphs: 24 * 5 = 120 of 144 shared, 1 - 1/4 = 75 %
saved.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.errors import ConfigError

ARMS = ("whole", "padding", "per_chunk", "sharing")
PAPER_STAGES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLayout:
    """A prompt in chunks. Raises ConfigError for counts below 1, more dynamic subgraphs than there are, and a padded
    length below the prompt."""

    prompt_tokens: int
    chunk_tokens: int
    num_layers: int
    num_stages: int = PAPER_STAGES
    num_dynamic_stages: int = 1
    padded_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "chunk_tokens", "num_layers", "num_stages"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; want at least 1")
        if not 0 <= self.num_dynamic_stages <= self.num_stages:
            raise ConfigError(f"{self.num_dynamic_stages} of {self.num_stages} subgraphs cannot depend on the chunk")
        if self.padded_tokens is not None and self.padded_tokens < self.prompt_tokens:
            raise ConfigError(f"padded to {self.padded_tokens} tokens; the prompt has {self.prompt_tokens}")

    @property
    def num_chunks(self) -> int:
        """The last one is padded."""
        return -(-self.prompt_tokens // self.chunk_tokens)

    @property
    def subgraphs_per_chunk(self) -> int:
        return self.num_layers * self.num_stages

    @property
    def shared_per_chunk(self) -> int:
        return self.num_layers * (self.num_stages - self.num_dynamic_stages)

    def num_graphs(self, arm: str) -> int:
        """Raises ConfigError for an arm that is not one of ARMS."""
        dynamic = self.num_layers * self.num_dynamic_stages * self.num_chunks
        return {"whole": 1, "padding": 1, "per_chunk": self.num_chunks, "sharing": self.shared_per_chunk + dynamic}[
            _checked_arm(arm)
        ]

    @property
    def saved_fraction(self) -> float:
        """The fraction of weight bytes that sharing saves against per_chunk."""
        return 1.0 - 1.0 / self.num_chunks

    def computed_tokens(self, arm: str) -> int:
        """Positions that are computed, padding included."""
        if _checked_arm(arm) == "whole":
            return self.prompt_tokens
        if arm == "padding":
            return self.padded_tokens or self.prompt_tokens
        return self.num_chunks * self.chunk_tokens


def _checked_arm(arm: str) -> str:
    if arm not in ARMS:
        raise ConfigError(f"no arm {arm!r}; arms: {', '.join(ARMS)}")
    return arm
