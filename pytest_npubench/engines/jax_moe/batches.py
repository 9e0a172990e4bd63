"""An iteration's rows as batches of the sizes that are compiled.

A pass that is longer than the largest size runs in pieces, one after the other: a later piece's tokens look back on an
earlier one's, as in chunks. Its experts are loaded once for each piece, and counted so.

Worked example: 3 decode rows beside a prompt of 700 tokens, with sizes of 512 and 1024 prompt tokens: one piece of
1024, of which 324 are FILLING.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.engines.block_tables import BlockTables
from pytest_npubench.engines.jax_moe.forward import COUNTED, FILLING, PADDING, Batch
from pytest_npubench.engines.jax_moe.sizes import ServingSizes, Size
from pytest_npubench.engines.sequences import Sequences
from pytest_npubench.serving.iteration import PrefillRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A size, and what runs in it: rows of one token, the last num_padding of them padding, then rows of prompts."""

    size: Size
    single: tuple[PrefillRow, ...]
    num_padding: int
    prefill: tuple[PrefillRow, ...]


def pieces(
    sizes: ServingSizes, decode: Sequence[PrefillRow], padding: Sequence[PrefillRow], prefill: Sequence[PrefillRow]
) -> Iterator[Piece]:
    """The rows of a pass, in as few pieces as hold them."""
    single, most = [*decode, *padding], sizes.decode[-1].num_single
    left = list(prefill)
    while single or left:
        taken, single = single[:most], single[most:]
        prompts = [] if single else _taken(left, sizes.passes[-1])
        num_prefill = sum(row.num_tokens for row in prompts)
        fitting = sizes.passes if prompts else sizes.decode
        yield Piece(
            size=next(size for size in fitting if size.num_prefill >= num_prefill and size.num_single >= len(taken)),
            single=tuple(taken),
            num_padding=max(0, min(len(taken), len(padding) - len(single))),
            prefill=tuple(prompts),
        )


def _taken(left: list[PrefillRow], largest: Size) -> list[PrefillRow]:
    """The rows that fit the largest size, taken from the front of `left`; the last of them may be the head of a row."""
    taken: list[PrefillRow] = []
    room = largest.num_prefill
    while left and room and len(taken) < largest.num_prompts:
        request, first, count = left.pop(0)
        fits = min(count, room)
        taken.append(PrefillRow(request, first, fits))
        room -= fits
        if fits < count:
            left.insert(0, PrefillRow(request, first + fits, count - fits))
    return taken


def batch(piece: Piece, num_pages: int, blocks: BlockTables, sequences: Sequences) -> Batch:
    """The piece as arrays. FILLING tokens and rows read and write scratch; those of one token are sequences of their
    own, so that the prompts begin where the size says."""
    size, scratch = piece.size, blocks.scratch_slot
    tokens, positions, ranks = (np.full(size.num_tokens, value, np.int32) for value in (0, 0, FILLING))
    slots = np.full(size.num_tokens, scratch, np.int32)
    lengths, starts = np.zeros(size.num_sequences, np.int32), np.zeros(size.num_sequences + 1, np.int32)
    pages = np.zeros((size.num_sequences, num_pages), np.int32)
    lengths[: size.num_single], pages[: size.num_single, 0] = 1, scratch // blocks.block_size_tokens
    starts[: size.num_single + 1] = np.arange(size.num_single + 1)
    num_counted = len(piece.single) - piece.num_padding

    def put(sequence: int, start: int, row: PrefillRow) -> None:
        request, first, count = row
        here = slice(start, start + count)
        positions[here] = np.arange(first, first + count)
        ranks[here], slots[here] = COUNTED, blocks.slots(*row)
        lengths[sequence] = first + count
        table = blocks.tables((request,))[0][:num_pages]
        pages[sequence, : len(table)] = table

    for index, row in enumerate(piece.single):
        put(index, index, row)
    tokens[:num_counted] = sequences.token_ids(piece.single[:num_counted])
    padding = slice(num_counted, len(piece.single))
    tokens[padding] = sequences.padding_ids(piece.num_padding)
    ranks[padding], slots[padding] = PADDING, scratch + 1 + np.arange(piece.num_padding)
    start = size.num_single
    for sequence, row in enumerate(piece.prefill, size.num_single):
        put(sequence, start, row)
        tokens[start : start + row.num_tokens] = sequences.token_ids((row,))
        start += row.num_tokens
        starts[sequence + 1 :] = start
    return Batch(
        tokens=tokens,
        positions=positions,
        slots=slots,
        ranks=ranks,
        lengths=lengths,
        pages=pages,
        starts=starts,
        num_sequences=np.array([size.num_single + len(piece.prefill)], np.int32),
    )
