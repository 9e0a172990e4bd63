"""Where requests come from: a schedule that waits for nobody (open), or clients that wait for their answers (closed).

An open load is what latency under a rate is measured with: a slow server does not slow the arrivals down. A closed load
keeps a fixed number of requests in the system and finds throughput; its arrival times are its own outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from pytest_npubench.serving.request import ServingRequest, check_load


class Load(Protocol):
    """Serves one run."""

    @property
    def next_arrival_s(self) -> float | None:
        """When the next request comes; None: none will unless one that is being served ends."""
        ...

    def requests(self) -> Sequence[ServingRequest]:
        """All that may come, to be checked before the run; a closed load's arrival times are not known yet and 0."""
        ...

    def take(self, now_s: float) -> Sequence[ServingRequest]:
        """Takes those who have arrived by now and were not taken yet, in order of arrival."""
        ...

    def ended(self, request: int, at_s: float) -> None:
        """The request has its last token, or was aborted."""
        ...


class OpenLoad:
    """Requests at times of their own. Raises WorkloadError for none, repeated ids or times out of order."""

    def __init__(self, requests: Sequence[ServingRequest]) -> None:
        check_load(requests)
        self._requests = tuple(requests)
        self._left = deque(self._requests)
        self.next_arrival_s: float | None = self._requests[0].arrival_s

    def requests(self) -> Sequence[ServingRequest]:
        return self._requests

    def take(self, now_s: float) -> Sequence[ServingRequest]:
        if self.next_arrival_s is None or self.next_arrival_s > now_s:
            return ()
        taken, self.next_arrival_s = [], None
        while self._left:
            request = self._left[0]
            if request.arrival_s > now_s:
                self.next_arrival_s = request.arrival_s
                break
            taken.append(self._left.popleft())
        return taken

    def ended(self, request: int, at_s: float) -> None:
        """Makes no difference to what comes."""
