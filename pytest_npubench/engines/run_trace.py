"""The stopwatch of one run: what ran in which bucket and how long, with neighbouring steps of a kind added up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.core.measurement import Move, Phase, Run, Segment


class RunTrace:
    """Starts with its creation; finish() ends it. The parts leave out only the loop's own Python between them."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._moves: list[Move] = []
        self._key: tuple[Phase, int] | None = None
        self._num_steps = 0
        self._duration_s = 0.0
        self._started_s = perf_counter()

    @contextmanager
    def segment(self, phase: Phase, bucket: int, num_steps: int = 1) -> Iterator[None]:
        """Time one prompt's prefill, or so many decode steps."""
        started_s = perf_counter()
        yield
        duration_s = perf_counter() - started_s
        if self._key != (phase, bucket):
            self._close()
            self._key = (phase, bucket)
        self._num_steps += num_steps
        self._duration_s += duration_s

    @contextmanager
    def move(self, from_bucket: int, to_bucket: int) -> Iterator[None]:
        """Time one move of the KV cache."""
        started_s = perf_counter()
        yield
        self._moves.append(Move(from_bucket=from_bucket, to_bucket=to_bucket, duration_s=perf_counter() - started_s))

    def finish(self) -> Run:
        """Returns the end-to-end time and its parts."""
        e2e_s = perf_counter() - self._started_s
        self._close()
        return Run(e2e_s=e2e_s, segments=tuple(self._segments), moves=tuple(self._moves))

    def _close(self) -> None:
        if self._key is not None:
            phase, bucket = self._key
            self._segments.append(
                Segment(phase=phase, bucket=bucket, num_steps=self._num_steps, duration_s=self._duration_s)
            )
        self._num_steps, self._duration_s = 0, 0.0
