"""What blocks of served requests did, of that which repeats: requests of open loads arrive as the clock has it, so the
number of iterations differs from block to block; the tokens that ran and came back, over those asked for, do not.

Worked example: 60 requests of 6,000 prompt tokens and 1,260 answer tokens under layered prefill in two groups of layers
run 12,000 prompt tokens through half of the layers each, and 1,200 decode rows, for the first token of an answer comes
from its prompt: prefilled / prompt tokens 1, decoded / asked 1, answered / asked 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.campaign.served_block import ServedBlock


def block_work(blocks: Sequence[ServedBlock]) -> dict[str, float]:
    """Of blocks of one size; a share of which nothing was counted is left out."""
    if not blocks:
        return {}
    records = [record for block in blocks for record in block.records]
    asked = sum(record.output_tokens or 0 for record in records)
    counts = {
        "prefilled / prompt tokens": (
            sum(map(prefilled, blocks)),
            sum(record.prompt_tokens or 0 for record in records),
        ),
        "decoded / asked": (sum(sum(block.log.num_decode) for block in blocks), asked - len(records)),
        "answered / asked": (sum(record.num_tokens for record in records), asked),
    }
    shares = {name: done / wanted for name, (done, wanted) in counts.items() if done and wanted}
    return {"requests": float(len(blocks[0].records)), **shares}


def prefilled(block: ServedBlock) -> float:
    """Prompt tokens that ran through all layers: each pass counts by its share of them."""
    log = block.log
    in_layers = zip(log.num_prefill_tokens, log.num_prefill_layers, strict=True)
    return sum(tokens * layers for tokens, layers in in_layers) / block.num_layers
