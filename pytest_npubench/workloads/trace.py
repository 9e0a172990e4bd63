"""Workloads that are traces: real rows, input and output lengths kept together, arrivals where the file has them.

`rows` gives the trace as it is; `sample` draws rows with replacement, each equally likely: row floor(u·n) for the first
uniform u of a draw. Worked example: with 4 rows, u = 0.62 draws row 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import WorkloadError
from pytest_npubench.serving.request import PromptContent
from pytest_npubench.workloads.sampling import LengthSample, Workload, as_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWorkload(Workload):
    """A trace's usable rows in order of arrival; num_unusable more had no prompt or no answer.

    content: what each prompt holds, where the trace says so; rows that are drawn, in another order, have none.
    """

    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    arrival_s: tuple[float, ...] | None
    num_unusable: int
    content: tuple[PromptContent, ...] | None = None

    def draw(self, uniforms: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        rows = np.floor(uniforms[:, 0] * len(self.input_tokens)).astype(np.int64).tolist()
        inputs = np.array([self.input_tokens[row] for row in rows], dtype=np.int64)
        return inputs, np.array([self.output_tokens[row] for row in rows], dtype=np.int64)

    def rows(self, *, max_total_tokens: int | None = None, max_input_tokens: int | None = None) -> LengthSample:
        """Returns the whole trace without the requests over a limit; arrivals stay as they were (seconds from the first
        row).

        Raises WorkloadError when no request is within the limits.
        """
        limits = self.limits(max_total_tokens, max_input_tokens)
        inputs, outputs = np.array(self.input_tokens, dtype=np.int64), np.array(self.output_tokens, dtype=np.int64)
        kept = np.flatnonzero(limits.keep(inputs, outputs))
        if not len(kept):
            raise WorkloadError(f"workload {self.name!r}: none of its {len(inputs)} requests is within {limits}")
        chosen = kept.tolist()
        return LengthSample(
            requests=tuple(as_requests(inputs[kept], outputs[kept])),
            num_drawn=len(inputs),
            num_dropped=len(inputs) - len(kept),
            arrival_s=None if self.arrival_s is None else tuple(self.arrival_s[row] for row in chosen),
            content=None if self.content is None else tuple(self.content[row] for row in chosen),
        )


def replayed_rows(trace: Workload, num_requests: int | None, *, most_tokens: int) -> LengthSample:
    """The first rows of a trace that fit, or all of them, with their arrivals. Raises WorkloadError for a trace
    without any."""
    if not isinstance(trace, TraceWorkload) or trace.arrival_s is None:
        raise WorkloadError(
            f"workload {trace.name!r} has no arrival times to replay; want a trace with them, or a rate"
        )
    rows = trace.rows(max_total_tokens=most_tokens)
    if num_requests is not None and len(rows.requests) < num_requests:
        raise WorkloadError(f"workload {trace.name!r} has {len(rows.requests)} requests that fit; want {num_requests}")
    assert rows.arrival_s is not None
    return replace(
        rows,
        requests=rows.requests[:num_requests],
        arrival_s=rows.arrival_s[:num_requests],
        content=rows.content and rows.content[:num_requests],
    )
