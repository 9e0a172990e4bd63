"""Where requests come from: a schedule that waits for nobody (open), or clients that wait for their answers (closed).

An open load is what latency under a rate is measured with: a slow server does not slow the arrivals down. A closed load
keeps a fixed number of requests in the system and finds throughput; its arrival times are its own outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from pytest_npubench.errors import WorkloadError
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
        """Those who have arrived by now and were not taken yet, in order of arrival."""
        ...

    def ended(self, request: int, at_s: float) -> None:
        """The request has its last token, or was aborted."""
        ...


class OpenLoad:
    """Requests at times of their own. Raises WorkloadError for none, repeated ids or times out of order."""

    def __init__(self, requests: Sequence[ServingRequest]) -> None:
        check_load(requests)
        self._requests = tuple(requests)
        self._num_taken = 0
        self.next_arrival_s: float | None = self._requests[0].arrival_s

    def requests(self) -> Sequence[ServingRequest]:
        return self._requests

    def take(self, now_s: float) -> Sequence[ServingRequest]:
        if self.next_arrival_s is None or self.next_arrival_s > now_s:
            return ()
        first = stop = self._num_taken
        while stop < len(self._requests) and self._requests[stop].arrival_s <= now_s:
            stop += 1
        self._num_taken = stop
        self.next_arrival_s = self._requests[stop].arrival_s if stop < len(self._requests) else None
        return self._requests[first:stop]

    def ended(self, request: int, at_s: float) -> None:
        """Makes no difference to what comes."""


class ClosedLoad:
    """`concurrency` clients, each of whom sends the next of the (prompt, output) lengths when its request has ended.

    Ids count from 0. Raises WorkloadError for no lengths, a concurrency below 1, or lengths that cannot be served.
    """

    def __init__(self, lengths: Sequence[tuple[int, int]], concurrency: int) -> None:
        if not lengths:
            raise WorkloadError("no request arrives; want at least one")
        if concurrency < 1:
            raise WorkloadError(f"concurrency is {concurrency}; want at least 1")
        self._lengths = tuple(lengths)
        self._requests = tuple(self._request(index, 0.0) for index in range(len(lengths)))
        self._arrivals_s = deque([0.0] * min(concurrency, len(lengths)))
        self._num_taken = 0

    @property
    def next_arrival_s(self) -> float | None:
        return self._arrivals_s[0] if self._arrivals_s else None

    def requests(self) -> Sequence[ServingRequest]:
        return self._requests

    def take(self, now_s: float) -> Sequence[ServingRequest]:
        taken: list[ServingRequest] = []
        while self._arrivals_s and self._arrivals_s[0] <= now_s:
            taken.append(self._request(self._num_taken, self._arrivals_s.popleft()))
            self._num_taken += 1
        return taken

    def ended(self, request: int, at_s: float) -> None:
        if self._num_taken + len(self._arrivals_s) < len(self._lengths):
            self._arrivals_s.append(at_s)

    def _request(self, index: int, arrival_s: float) -> ServingRequest:
        prompt_tokens, output_tokens = self._lengths[index]
        return ServingRequest(id=index, arrival_s=arrival_s, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
