"""The iterations of a journal's served blocks, of one model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.errors import ConfigError

if TYPE_CHECKING:
    from pytest_npubench.engines.shapes import DecoderShape
    from pytest_npubench.serving.log import IterationLog


def is_journal(path: Path) -> bool:
    """Whether its first line is a journal's; False for what cannot be read."""
    try:
        with path.open("rb") as stream:
            return b'"record":"session"' in stream.readline(4096)
    except OSError:
        return False


def iterations_of(path: Path, shape: DecoderShape) -> Sequence[IterationLog]:
    """A log for each block that was served on the wall clock by a model of these layers, with experts or without, in
    order. Raises JournalError for a journal that cannot be read, ConfigError where there is none."""
    from pytest_npubench.campaign.served_block import RUN, ServedBlock
    from pytest_npubench.campaign.visits import columns_of
    from pytest_npubench.errors import MeasurementError
    from pytest_npubench.store.journal_reader import read_journal

    found: list[IterationLog] = []
    others: set[str] = set()
    behind = f"/{RUN}"
    for record in read_journal(path).records:
        points = record.get("points", {}) if record["record"] == "round" else {}
        for name in (column.removesuffix(behind) for column in points if column.endswith(behind)):
            try:
                (block,) = ServedBlock.of_columns(columns_of(points, name))
            except MeasurementError:
                continue
            is_dense = not any(block.log.expert_activations)
            if not len(block.log):
                continue
            if (block.num_layers, is_dense) == (shape.num_layers, shape.is_dense):
                found.append(block.log)
            else:
                others.add(f"{block.num_layers} layers {'without' if is_dense else 'with'} experts")
    if not found:
        there = f"; it has some of {', '.join(sorted(others))}" if others else ""
        kind = "without" if shape.is_dense else "with"
        raise ConfigError(f"{path} has no iterations of a model of {shape.num_layers} layers {kind} experts{there}")
    return found
