"""A stand-in: two executors that tell how long an iteration takes, each on its own virtual clock, and a link between
them. What simulated pools with one worker of each kind are held against.

Event by event: whatever starts, its end is known at once, and waiting jumps to the next end. Deterministic. The link
moves one request at a time, in `transfer_s(bytes)` seconds. Worked number: 9,194 tokens of 98,304 bytes each (48
layers, 4 KV heads of 128, keys and values, 2 bytes) at 50 GB/s take 18.1 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.two_devices import DeviceRun, HandedOver, HandoverExecutor, ServingSide


class VirtualPair:
    """The prefill and the decode executor. Raises ConfigError for one that cannot hand KV over."""

    clock = "virtual"

    def __init__(
        self, prefill: HandoverExecutor, decode: HandoverExecutor, *, transfer_s: Callable[[int], float]
    ) -> None:
        for executor in (prefill, decode):
            if not hasattr(executor, "export_kv") or not hasattr(executor, "import_kv"):
                raise ConfigError(f"{type(executor).__name__} cannot hand KV over; want export_kv and import_kv")
        self._executors = {ServingSide.PREFILL: prefill, ServingSide.DECODE: decode}
        self._transfer_s = transfer_s
        self._now_s = 0.0
        self._pending: list[DeviceRun | HandedOver] = []
        self._kv: object = None

    def shapes(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        prefill, decode = (
            (executor.num_layers, executor.kv_capacity_tokens, executor.block_size_tokens)
            for executor in self._executors.values()
        )
        return prefill, decode

    def start(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def begin(self, request: ServingRequest) -> None:
        self._executors[ServingSide.PREFILL].begin(request.id, request.prompt_tokens, request.output_tokens)

    def run(self, side: ServingSide, plan: IterationPlan) -> None:
        """Raises MeasurementError where the executor does not tell a time."""
        outcome = self._executors[side].run(plan)
        end_s = self._after(f"an iteration of the {side.value} device", outcome.duration_s)
        self._pending.append(DeviceRun(side=side, plan=plan, outcome=outcome, start_s=self._now_s, end_s=end_s))

    def hand_over(self, request: ServingRequest) -> None:
        num_bytes, self._kv = self._executors[ServingSide.PREFILL].export_kv(request.id)
        end_s = self._after(f"handing over request {request.id}", self._transfer_s(num_bytes))
        self._pending.append(HandedOver(request=request, num_bytes=num_bytes, start_s=self._now_s, end_s=end_s))

    def wait(self, until_s: float | None) -> Sequence[DeviceRun | HandedOver]:
        times_s = [event.end_s for event in self._pending]
        self._now_s = max(self._now_s, min(times_s if until_s is None else (*times_s, until_s)))
        done = sorted((event for event in self._pending if event.end_s <= self._now_s), key=lambda event: event.end_s)
        self._pending = [event for event in self._pending if event.end_s > self._now_s]
        for event in done:
            if isinstance(event, HandedOver):
                self._arrive(event.request)
        return done

    def end(self, side: ServingSide, request: int) -> None:
        self._executors[side].end(request)

    def _arrive(self, request: ServingRequest) -> None:
        decode = self._executors[ServingSide.DECODE]
        decode.begin(request.id, request.prompt_tokens, request.output_tokens)
        decode.import_kv(request.id, self._kv)
        self._kv = None
        self._executors[ServingSide.PREFILL].end(request.id)

    def _after(self, what: str, duration_s: float | None) -> float:
        if duration_s is None or not 0 <= duration_s < float("inf"):
            raise MeasurementError(f"{what} took {duration_s} s; want a finite number of at least 0")
        return self._now_s + duration_s
