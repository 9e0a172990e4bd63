"""How much of a case's variance is between nights, between processes of a night, and inside a process?

The model is nested, y = case + session + process in session + within, with variances a, b, e. Expected sums of squares
with unequal numbers (Searle, Casella & McCulloch 1992, Variance Components, appendix F; N values, n_ij in process j of
session i, n_i in session i, S sessions, P processes):

    E[within]   = (N - P) e
    E[process]  = (P - S) e + (N - k12) b                    k12 = sum_i sum_j n_ij^2 / n_i
    E[session]  = (S - 1) e + (k12 - k3) b + (N - k1) a    k3 = sum_ij n_ij^2 / N,  k1 = sum_i n_i^2 / N

The moments are solved from the top. A part can come out below 0 by chance: it is cut at 0 and `cut` says so.

Worked number: two sessions of two processes of two values, (0, 2), (4, 6) and (10, 12), (14, 16): sums of squares 8,
32, 200; e = 8 / 4 = 2, b = (32 - 2 * 2) / 4 = 7, a = (200 - 2 - 2 * 7) / 4 = 46; of a + b the night has 46/53.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import FloatArray, row


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceParts:
    """Variances of log latency by level; None where the data cannot tell it from the level above, which then holds it.

    `cut` names the parts whose estimate was below 0 and now reads 0.
    """

    session: float | None
    process: float | None
    within: float | None
    cut: tuple[str, ...] = ()

    @property
    def night_share(self) -> float | None:
        """session / (session + process); None where either is unknown or both are 0."""
        if self.session is None or self.process is None or self.session + self.process == 0:
            return None
        return self.session / (self.session + self.process)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nested:
    """The same data flat: every process's length, mean, inner sum of squares and session index, each of shape (P,)."""

    lengths: FloatArray
    means: FloatArray
    inner_squares: FloatArray
    session: npt.NDArray[np.intp]


def variance_parts(sessions: Sequence[Sequence[Sequence[float]]]) -> VarianceParts:
    """Parts of sessions of processes of values (log latencies, any numbers of each).

    One value a process: its within part is inside `process`. Given process medians, the night share is the rho of
    `margin_test.predictive_variance`. One process a session: `session` holds the process's part. One session: None.
    Raises MeasurementError: no sessions, a session or process without values, a value that is not finite.
    """
    data = _nested(sessions)
    total, num_processes, num_sessions = float(data.lengths.sum()), data.lengths.size, len(sessions)
    in_session = np.bincount(data.session, data.lengths)
    session_means = np.bincount(data.session, data.lengths * data.means) / in_session
    mean = np.average(session_means, weights=in_session)
    k12 = float(np.sum(data.lengths**2 / in_session[data.session]))
    k3 = float(np.sum(data.lengths**2)) / total
    k1 = float(np.sum(in_session**2)) / total

    within_squares = float(data.inner_squares.sum())
    process_squares = float(np.sum(data.lengths * (data.means - session_means[data.session]) ** 2))
    session_squares = float(np.sum(in_session * (session_means - mean) ** 2))

    within = _solved(within_squares, total - num_processes)
    e = within or 0.0
    process = _solved(process_squares - (num_processes - num_sessions) * e, total - k12)
    b = process or 0.0
    session = _solved(session_squares - (num_sessions - 1) * e - (k12 - k3) * b, total - k1)
    return _cut_at_zero(session=session, process=process, within=within)


def _solved(squares: float, coefficient: float) -> float | None:
    return squares / coefficient if coefficient > 0 else None


def _cut_at_zero(**parts: float | None) -> VarianceParts:
    below = tuple(name for name, part in parts.items() if part is not None and part < 0)
    return VarianceParts(**{name: 0.0 if name in below else part for name, part in parts.items()}, cut=below)


def _nested(sessions: Sequence[Sequence[Sequence[float]]]) -> _Nested:
    if not sessions:
        raise MeasurementError("sessions: none; want at least one")
    processes, session = [], []
    for index, one in enumerate(sessions):
        if not one:
            raise MeasurementError(f"session {index} of {len(sessions)}: no processes; want at least one")
        processes += [row(f"session {index}, process {number}", values) for number, values in enumerate(one)]
        session += [index] * len(one)
    centre = processes[0][0]  # squares of small differences between large values keep their digits
    means = [float(np.mean(values - centre)) for values in processes]
    return _Nested(
        lengths=np.array([values.size for values in processes], dtype=np.float64),
        means=np.array(means),
        inner_squares=np.array(
            [np.sum((values - centre - mean) ** 2) for values, mean in zip(processes, means, strict=True)]
        ),
        session=np.array(session, dtype=np.intp),
    )
