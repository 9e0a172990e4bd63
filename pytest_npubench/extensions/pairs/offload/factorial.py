"""llm.npu's three techniques on and off, all eight ways, on one prefill: a full 2^3 factorial, no cumulative chain.

    sharing       one graph for all chunks against one for each
    shadow        outliers clipped and multiplied apart against a per-tensor scale that holds them
    out_of_order  a ready queue with C against in-order overlap

Every cell runs the same prompt on the same pair in the same process; so its rows are comparable. Graphs do not depend
on the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import product

from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.pairs.offload.decoder import DecoderSize
from pytest_npubench.extensions.pairs.offload.pipeline import Pipeline, Variant
from pytest_npubench.extensions.pairs.offload.schedules import IN_ORDER
from pytest_npubench.extensions.pairs.offload.units import Figures, GraphFacts, OffloadPoint, Units, point_of

EXPERIMENT = "factorial"
OUT_OF_ORDER = "contribution"
FACTORS = ("sharing", "shadow", "out_of_order")
Cell = tuple[bool, bool, bool]
CELLS: tuple[Cell, ...] = tuple((bool(a), bool(b), bool(c)) for a, b, c in product((0, 1), repeat=3))


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorialSettings:
    """Raises ConfigError for counts below 1."""

    size: DecoderSize = field(default_factory=DecoderSize)
    chunk_tokens: int = 64
    num_chunks: int = 4

    def __post_init__(self) -> None:
        for name in ("chunk_tokens", "num_chunks"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; want at least 1")

    @staticmethod
    def points() -> tuple[OffloadPoint, ...]:
        """Eight, in standard order: all off first, out_of_order changing fastest."""
        return tuple(OffloadPoint(experiment=EXPERIMENT, arm=cell_name(cell), setting="prefill") for cell in CELLS)


def cell_name(cell: Sequence[bool], factors: Sequence[str] = FACTORS) -> str:
    """ "sharing+out_of_order", "none" where all are off."""
    return "+".join(name for name, on in zip(factors, cell, strict=True) if on) or "none"


def cell_of(arm: str) -> Cell:
    """Raises ConfigError for what is no cell's name."""
    for cell in CELLS:
        if cell_name(cell) == arm:
            return cell
    raise ConfigError(f"no cell {arm!r}; cells: {', '.join(map(cell_name, CELLS))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorialVisit(GraphFacts, Figures):
    """bubble_fraction: the share of total_s in which the static unit ran nothing."""

    total_s: float
    bubble_fraction: float
    relative_error: float


class FactorialBench:
    """See the module."""

    KERNELS = Pipeline.KERNELS

    def __init__(self, settings: FactorialSettings, units: Units) -> None:
        self.points = settings.points()
        self._pipeline = Pipeline(
            settings.size, units, chunk_tokens=settings.chunk_tokens, num_chunks=settings.num_chunks
        )

    def load(self) -> None:
        variants = [Variant(sharing=bool(a), shadow=bool(b)) for a, b in product((0, 1), repeat=2)]
        self._pipeline.load(variants, (IN_ORDER, OUT_OF_ORDER))

    def measure(self, name: str) -> FactorialVisit:
        sharing, shadow, out_of_order = cell_of(point_of(self.points, name).arm)
        variant = Variant(sharing=sharing, shadow=shadow)
        run = self._pipeline.run(variant, OUT_OF_ORDER if out_of_order else IN_ORDER)
        return FactorialVisit(
            **asdict(self._pipeline.facts(variant)),
            total_s=run.total_s,
            bubble_fraction=run.bubble_fraction,
            relative_error=run.relative_error,
        )
