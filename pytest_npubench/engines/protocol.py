"""What a campaign asks of an engine, and what an engine asks of a device's runtime.

An engine declares how it batches, because a predictor must know: `prefill_shared` (one prefill for the whole batch, or
one per prompt: LENS Eq. 7) and `finished` (what rows that ended early do until the longest one ends: LENS Eq. 9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pytest_npubench.core.measurement import CompileRecord, Move, Request, Run
from pytest_npubench.core.parts import Part
from pytest_npubench.errors import MeasurementError

if TYPE_CHECKING:
    from pytest_npubench.engines.answers import Answers
    from pytest_npubench.engines.probe import ProbePrompts

Finished = Literal["grow", "freeze", "drop"]


class Compiler(Protocol):
    """The part of a JAX runtime that an engine compiles with."""

    @property
    def devices(self) -> Sequence[Any]: ...

    @property
    def compiles(self) -> Sequence[CompileRecord]: ...

    def compile(
        self, name: str, function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = (), out: Any = None
    ) -> Callable[..., Any]:
        """The binary of `function` for these arguments' shapes and shardings; its compile time goes on record."""
        ...


class Canaries(Protocol):
    """Small programs that know nothing of decoders (canary_kernels.py)."""

    def load(self, kernel: str) -> None: ...

    def time(self, kernel: str) -> float: ...


class Parts(Protocol):
    """Parts of a decoder, each run alone."""

    def load(self, part: Part) -> None: ...

    def time(self, part: Part) -> float:
        """Seconds of one run of a loaded part, waited for; of kernels the sum of what the device's trace has."""
        ...


class Engine(Protocol):
    """A decoder with one compiled batch size and a set of buckets. An engine derives from this class: what it may have,
    and need not, has a default here."""

    name: str
    batch_size: int
    buckets: tuple[int, ...]
    prefill_shared: bool
    finished: Finished
    compiles: Sequence[CompileRecord]
    """One record a binary, in the order they were compiled; load() compiles ahead of time, so a run adds none."""

    def load(self, buckets: Sequence[int]) -> None:
        """Compile what runs inside `buckets` and between neighbours of them; what is there already stays."""
        ...

    def run(self, requests: Sequence[Request]) -> Run:
        """Run one batch to its last token; the tokens of every step are fetched, at most one step behind.

        Raises LengthError for a request whose prompt or KV cache no bucket holds.
        """
        ...

    def time_move(self, from_bucket: int, to_bucket: int) -> Move:
        """Move a whole batch's KV cache between two neighbouring buckets and time it. Raises ConfigError where none
        ever moves."""
        ...

    # -- what it may have

    declared: tuple[int, ...] = ()
    """What it pads prompts to whatever it was asked for; empty where it pads to `buckets`, or not at all."""
    canaries: Canaries | None = None
    """The canary kernels where the engine runs; None where nothing runs them."""
    parts: Parts | None = None
    """Its operators and kernels alone; None where it cannot run them so."""

    def module(self, name: str) -> str:
        """The text of a binary's compiled module, by the name on its record. Raises MeasurementError where the engine
        tells none."""
        raise MeasurementError(f"{self.name} does not tell what {name} was compiled to")

    def answers(self, prompts: ProbePrompts) -> Answers | None:
        """The engine's answers to the probe prompts, and their distances from each other; None where it cannot be
        asked. Afterwards it has its own weights again."""
        return None

    def close(self) -> None:
        """End what it started."""
        return
