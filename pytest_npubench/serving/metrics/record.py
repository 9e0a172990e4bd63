"""The time points of one request, and the figures that are arithmetic on them.

    TTFT  = t_1 - arrival          TBT_k = t_(k+1) - t_k
    E2E   = t_n - arrival          TPOT  = (E2E - TTFT) / (n - 1), none below two tokens

TTFT counts from the scheduled arrival, so waiting anywhere is in it (no coordinated omission). Every TBT stays raw:
Layered Prefill (section 5.1) holds each of them against a limit, which a mean would hide.

Worked example: arrival 1.0 s, tokens at 1.5, 1.6 and 1.9 s: TTFT 0.5, TBT 0.1 and 0.3, TPOT 0.2, E2E 0.9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics.stored_times import StoredTimes


@dataclass(slots=True)  # as iteration.IterationPlan
class RequestRecord:
    """What happened to one request. Seconds on one clock; None where a time point does not exist.

    token_times_s: the end of each iteration that gave it a token; equal ones are tokens that came together.
    output_tokens: how many were asked for; None: those that came are all. aborted: the reason, None where it was not.
    tokens: generated ids, empty where no tensors run.

    Raises MeasurementError, naming the request, for a time that is not finite or before the one that comes ahead of it,
    a count below 1, or more tokens than asked for. Reading a figure whose time points do not exist raises it too.
    """

    arrival_s: float
    token_times_s: Sequence[float]
    id: int = 0
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    dispatched_s: float | None = None
    scheduled_s: float | None = None
    num_preemptions: int = 0
    aborted: str | None = None
    tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self._is_of_a_log():
            return
        if not math.isfinite(self.arrival_s):
            raise self._error(f"arrival_s is {self.arrival_s}; want a finite number of seconds")
        self._check_counts()
        self._check_order()
        if not (isinstance(self.token_times_s, StoredTimes) and self.token_times_s.is_ordered):
            self._check_token_times()

    def _is_of_a_log(self) -> bool:
        """Says whether the record is complete, with times that are known to be in order, as nearly all of a hundred
        thousand are. Nothing is wrong with it then."""
        times_s, scheduled_s = self.token_times_s, self.scheduled_s
        if not isinstance(times_s, StoredTimes) or not times_s.is_ordered or scheduled_s is None:
            return False
        stored = times_s.stored
        return (
            self.dispatched_s is not None
            and self.prompt_tokens is not None
            and self.prompt_tokens > 0
            and 0 < len(stored) == self.output_tokens
            and -math.inf < self.arrival_s <= self.dispatched_s <= scheduled_s <= stored[0] < math.inf
        )

    @property
    def num_tokens(self) -> int:
        return len(self.token_times_s)

    @property
    def finished(self) -> bool:
        """All tokens that were asked for came; at least one where their number is not known."""
        wanted = 1 if self.output_tokens is None else self.output_tokens
        return self.aborted is None and self.num_tokens >= wanted

    @property
    def ttft_s(self) -> float:
        if not self.token_times_s:
            raise self._error("ttft_s does not exist: it has no token")
        return self.token_times_s[0] - self.arrival_s

    @property
    def tbt_s(self) -> tuple[float, ...]:
        """Every gap between its tokens so far; empty below two tokens."""
        return tuple(np.diff(self.token_times_s).tolist())

    @property
    def tpot_s(self) -> float | None:
        """Mean gap of the tokens so far; None below two."""
        if self.num_tokens < 2:
            return None
        return (self.token_times_s[-1] - self.token_times_s[0]) / (self.num_tokens - 1)

    @property
    def e2e_latency_s(self) -> float:
        if not self.finished:
            of = "" if self.output_tokens is None else f" of {self.output_tokens}"
            why = f"aborted: {self.aborted}" if self.aborted else "unfinished"
            raise self._error(f"e2e_latency_s does not exist: it has {self.num_tokens}{of} tokens, {why}")
        return self.token_times_s[-1] - self.arrival_s

    @property
    def dispatch_lag_s(self) -> float:
        if self.dispatched_s is None:
            raise self._error("dispatch_lag_s does not exist: nothing took notice of it, or nobody said when")
        return self.dispatched_s - self.arrival_s

    def _check_counts(self) -> None:
        prompt, output = self.prompt_tokens, self.output_tokens
        if prompt is not None and prompt < 1:
            raise self._error(f"prompt_tokens is {prompt}; want at least 1, or None where it is not known")
        if output is not None and output < 1:
            raise self._error(f"output_tokens is {output}; want at least 1, or None where it is not known")
        if output is not None and len(self.token_times_s) > output:
            raise self._error(f"{self.num_tokens} token times; want at most the {output} asked for")

    def _check_order(self) -> None:
        first_token = self.token_times_s[0] if self.token_times_s else None
        before, name_before = self.arrival_s, "arrival_s"
        points = (self.dispatched_s, self.scheduled_s, first_token)
        for name, value in zip(("dispatched_s", "scheduled_s", "token_times_s[0]"), points, strict=True):
            if value is None:
                continue
            if not before <= value < math.inf:  # a NaN compares false
                raise self._error(f"{name} is {value}; want a finite number, not before {name_before} at {before}")
            before, name_before = value, name

    def _check_token_times(self) -> None:
        times = np.asarray(self.token_times_s, dtype=np.float64)
        # in order up to a finite one they all are
        if not times.size or ((times[1:] >= times[:-1]).all() and times[-1] < math.inf):
            return
        good = (times[1:] >= times[:-1]) & np.isfinite(times[1:])
        index = int(np.argmin(good))
        raise self._error(
            f"token_times_s[{index + 1}] is {times[index + 1]} after {times[index]}; want finite, increasing times"
        )

    def _error(self, text: str) -> MeasurementError:
        return MeasurementError(f"request {self.id}: {text}")
