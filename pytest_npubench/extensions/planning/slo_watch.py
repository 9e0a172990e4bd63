"""Whether a load can still attain its SLO while it is served: what nobody can win back ends a simulation early.

A request is lost once its first token came late, once it still waits at the limit on its TTFT, or once it decoded in an
iteration longer than the limit on TBTs. With n requests, of which a fraction is wanted, the run is lost as soon as the
requests that are not lost are too few. Worked example: of 1,000 requests, 90 % wanted: the 101st ends it.

That is less than all misses (the gap of a preempted request is not looked at), never more: `meets` of
serving/metrics/slo.py says of every request here that it does not attain.
"""

from __future__ import annotations

from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.metrics.slo import SLACK_S, Slo

LOOKS = 20  # at those that wait, in the time of a TTFT limit: each goes through the queue


class SloWatch:
    """Of one run of num_requests, on one device or on replicas, of which `attainment` (0 to 1) is wanted."""

    def __init__(self, slo: Slo, *, attainment: float, num_requests: int) -> None:
        self._ttft_s, self._tbt_s = slo.ttft_s + SLACK_S, slo.tbt_s + SLACK_S
        self._attainment, self._num_requests = attainment, num_requests
        self._lost: set[int] = set()
        self._look_again_s: dict[Batch, float] = {}

    @property
    def attainment_at_most(self) -> float:
        """If all others attain."""
        return (self._num_requests - len(self._lost)) / self._num_requests

    @property
    def is_lost(self) -> bool:
        return self.attainment_at_most < self._attainment

    def ran(self, batch: Batch, plan: IterationPlan, start_s: float, end_s: float) -> None:
        """An iteration has run, of which the batch has not been told yet."""
        self.decoded(plan, start_s, end_s)
        for request in plan.finishing:
            member = batch.members[request]
            if not member.segments and end_s - member.request.arrival_s > self._ttft_s:
                self._lost.add(request)
        if batch.waiting and end_s >= self._look_again_s.get(batch, 0.0):
            self._look_again_s[batch] = end_s + self._ttft_s / LOOKS
            self._look_at_waiting(batch, end_s)

    def decoded(self, plan: IterationPlan, start_s: float, end_s: float) -> None:
        """An iteration has run where first tokens do not come from."""
        if end_s - start_s > self._tbt_s:
            self._lost.update(plan.decode)

    def _look_at_waiting(self, batch: Batch, now_s: float) -> None:
        for member in batch.waiting:  # those that were preempted, then the others, each in order of arrival
            if now_s - member.request.arrival_s <= self._ttft_s:
                break
            if not member.segments:
                self._lost.add(member.id)
