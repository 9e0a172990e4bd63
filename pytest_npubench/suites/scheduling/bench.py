"""Serves blocks of requests on one engine: weights are made once, policies take turns on them.

A block: new requests of the round at new times, the policy from its start, the KV cache empty. Nothing of one block is
left for the next, so a block says what a policy does alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import sleep

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.backends.telemetry import open_telemetry
from pytest_npubench.backends.telemetry.round_state import between
from pytest_npubench.backends.telemetry.state import DeviceState
from pytest_npubench.campaign.answer_visit import AnswerVisit
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.rounds import failure_reason
from pytest_npubench.campaign.served_block import Calibration, ServedBlock, failures_of
from pytest_npubench.campaign.served_load import block, lengths
from pytest_npubench.campaign.visits import Round, Visit, columns_of
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.core.hardware import SloSpec
from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.clock import WallClock
from pytest_npubench.serving.iteration import Executor
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.suites.scheduling import pair
from pytest_npubench.suites.scheduling.asking import asked, asked_of_server
from pytest_npubench.suites.scheduling.calibration import TBT_BATCH_SIZE, is_stated, limits, rate_per_s
from pytest_npubench.suites.scheduling.decoding import decode_steps
from pytest_npubench.suites.scheduling.held_to import calibrations_in
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import (
    AnswerPoint,
    DecodePoint,
    DecodeSteps,
    IdlePoint,
    IdleVisit,
    ProbePoint,
    ProbeVisit,
    PromptPoint,
    PromptVisit,
    ServedPoint,
    ServingPoint,
)
from pytest_npubench.suites.scheduling.policies import probe_alone, prompt_in_chunks, scheduler_of, served
from pytest_npubench.suites.scheduling.service import BlockServer, service_of
from pytest_npubench.suites.scheduling.spec import LoadSpec

IDS_PER_ROUND = 10_000
CALIBRATION_ROUND = 99  # requests that no round serves
WARM_FRACTION = 4  # a quarter of the calibration's requests run first, so that nothing is cold
NUM_DECODE_STEPS = 4
NUM_WARM_UP_REQUESTS = 2
SETTLE_S = 1.0  # clocks and power of a GPU fall within a second of its last kernel
IDLE_S = 1.0
MODELS = Path(".npubench", "models")


class ServingBench:
    """campaign.protocol.Bench of one model on one device."""

    def __init__(
        self,
        runtime: Runtime,
        plan: ServingPlan,
        folder: Path = MODELS,
        frozen: Mapping[str, Calibration] | None = None,
    ) -> None:
        """`folder` is where model directories go, for engines that read one; `frozen` are the calibrations that
        workloads are held to by what was accepted."""
        self._plan, self._folder, self._frozen = plan, folder, frozen or {}
        self._runtime = runtime
        self._own_server: BlockServer | None = None
        self._telemetry = open_telemetry(runtime)
        self._device = str(runtime.devices[0])
        self._executor: Executor | None = None
        self._answers: AnswerVisit | None = None
        self._calibrations: dict[str, Calibration] = {}  # by workload: the model is the plan's
        self._calibrated: set[str] = set()  # points whose requests a calibration has served

    def load(
        self,
        points: Sequence[ServingPoint],
        earlier: Sequence[Round],
        stage: Callable[[str], None],
    ) -> Mapping[str, str]:
        """Weights and KV cache, then what each workload's points must know of the device: as earlier rounds knew it,
        else as it was frozen, else measured. A workload that cannot be had takes its points along, the others go on."""
        service, wanted = service_of(self._plan), [point for point in points if isinstance(point, ServedPoint)]
        self._own_server = service.server(self._runtime, self._plan, self._folder, wanted, stage)
        failures = self._ask(points, earlier, stage)
        if self._own_server is None:
            stage("making weights")
            self._executor = service.executor(self._plan, self._runtime)
        self._calibrations = {**self._frozen, **calibrations_in(points, earlier)}
        for workload in dict.fromkeys(point.load.workload for point in points if isinstance(point, ServedPoint)):
            served = [point for point in points if isinstance(point, ServedPoint) and point.load.workload == workload]
            if workload in self._calibrations or all(is_stated(point.load, self._stated(point)) for point in served):
                continue
            try:
                stage(f"measuring what {workload} can be served at")
                self._calibrations[workload] = self._calibrate(served[0].load)
            except Exception as error:  # noqa: BLE001 - a workload that cannot be read, no memory: its cases say so
                failures |= {point.name: failure_reason(point.name, error) for point in served}
        return failures

    def _ask(
        self, points: Sequence[ServingPoint], earlier: Sequence[Round], stage: Callable[[str], None]
    ) -> dict[str, str]:
        """Before an executor's own weights are made, so that there are never two sets."""
        for point in points:
            if isinstance(point, AnswerPoint) and not _has(earlier, point):
                stage("asking for answers")
                try:
                    self._answers = self._asked(self._folder.parent / "answer-references")
                except Exception as error:  # noqa: BLE001 - no memory, a policy that fails: its case says so
                    return {point.name: failure_reason(point.name, error)}
        return {}

    def _asked(self, folder: Path) -> AnswerVisit:
        if self._own_server is not None:
            return asked_of_server(self._plan, self._own_server, folder)
        return asked(self._plan, service_of(self._plan).asked_executor(self._plan, self._runtime), folder)

    def visits(
        self, points: Sequence[ServingPoint], measured: Measured, durations_s: Mapping[str, float]
    ) -> Mapping[str, int]:
        """Answers repeat: one round has them."""
        return {point.name: 0 for point in points if isinstance(point, AnswerPoint) and _has(measured.rounds, point)}

    def close(self) -> None:
        """End what was started in processes of its own."""
        if self._own_server is not None:
            self._own_server.close()

    def warm_up(self, point: ServingPoint) -> tuple[float, bool]:
        """Serves a few requests under the point's policy, where no calibration has. Returns the seconds."""
        started_s = perf_counter()
        if isinstance(point, AnswerPoint) or point.name in self._calibrated:
            return 0.0, True
        if isinstance(point, ServedPoint):
            with self._server(point) as serve_them:
                serve_them(self._requests(point, CALIBRATION_ROUND)[:NUM_WARM_UP_REQUESTS])
        else:
            self.sample(point, CALIBRATION_ROUND)
        return perf_counter() - started_s, True

    def sample(self, point: ServingPoint, round_index: int) -> Visit:
        """Returns a block, a prompt, a request, decode steps or the power of the device at rest."""
        match point:
            case PromptPoint():
                return self._prompt(point)
            case ProbePoint():
                result = whole(self._serve(probe_alone(self._plan), (point.request,)))
                return ProbeVisit.of(result.records[0])
            case DecodePoint():
                return self._decode_steps(point.batch_size, point.context_tokens)
            case IdlePoint():
                return self._idle()
            case ServedPoint():
                return self._block(point, round_index)
            case AnswerPoint():
                assert self._answers is not None, "load() comes first"
                return self._answers

    def _block(self, point: ServedPoint, round_index: int) -> ServedBlock:
        requests = self._requests(point, round_index)
        with self._server(point) as serve_them:
            before = self._state()
            result = serve_them(requests)
            after = self._state()
        calibration = self._calibrations.get(point.load.workload)
        return ServedBlock.of_result(
            result,
            rate_per_s=0.0 if point.at_once else self._rate_per_s(point),
            slo=limits(self._stated(point), calibration),
            energy_j=between(before, after).energy_j,
            calibration=calibration,
        )

    def _prompt(self, point: PromptPoint) -> PromptVisit:
        request = ServingRequest(id=0, arrival_s=0.0, prompt_tokens=point.prompt_tokens, output_tokens=1)
        result = whole(self._serve(prompt_in_chunks(self._plan, point), (request,)))
        return PromptVisit(prefill_s=result.records[0].ttft_s, expert_load_bytes=sum(result.log.expert_load_bytes))

    def _idle(self) -> IdleVisit:
        """Measures the mean power; nothing, and no time, where no energy counter can be read."""
        if self._state().energy_j is None:
            return IdleVisit()
        sleep(SETTLE_S)
        before = self._state()
        sleep(IDLE_S)
        return IdleVisit(power_w=between(before, self._state()).power_w)

    def _state(self) -> DeviceState:
        return DeviceState.now() if self._telemetry is None else self._telemetry.read()

    def _rate_per_s(self, point: ServedPoint) -> float:
        return rate_per_s(point.load, self._calibrations.get(point.load.workload))

    def _stated(self, point: ServedPoint) -> SloSpec | None:
        return self._plan.spec.slo_for(self._plan.model, point.load.workload)

    def _calibrate(self, load: LoadSpec) -> Calibration:
        """Raises MeasurementError where a request fails."""
        chunked = served("chunked", self._plan, load)
        every = self._at_once(load, num_calibration_requests(self._plan))
        self._serve(chunked, every[: max(1, len(every) // WARM_FRACTION)])
        result = whole(self._serve(chunked, every))
        self._calibrated.add(chunked.name)
        mean_prompt = round(sum(request.prompt_tokens for request in every) / len(every))
        batch_size = min(TBT_BATCH_SIZE, self._plan.serving.max_batch_size)
        steps = self._decode_steps(batch_size, min(mean_prompt, self._room(batch_size)))
        return Calibration(
            full_rate_per_s=len(every) / (result.ended_s - result.started_s), decode_step_s=min(steps.step_s)
        )

    def _decode_steps(self, batch_size: int, context_tokens: int) -> DecodeSteps:
        if self._own_server is not None:
            return self._own_server.decode_steps(batch_size, context_tokens, NUM_DECODE_STEPS)
        return decode_steps(self._ready, batch_size, context_tokens, NUM_DECODE_STEPS)

    def _room(self, batch_size: int) -> int:
        """Tokens of context that the KV cache has for each request of a decode batch, in whole blocks."""
        serving = self._plan.serving
        num_blocks = serving.kv_capacity_tokens // serving.block_size_tokens // batch_size
        room = num_blocks * serving.block_size_tokens - NUM_DECODE_STEPS - 1
        if room < 1:
            raise ConfigError(
                f"a KV cache of {serving.kv_capacity_tokens} tokens in blocks of {serving.block_size_tokens} has no "
                f"room for a decode batch of {batch_size} requests; want a larger kv_capacity_tokens or a smaller "
                "max_batch_size"
            )
        return room

    def _requests(self, point: ServedPoint, round_index: int) -> tuple[ServingRequest, ...]:
        if point.at_once:
            requests = self._at_once(point.load, self._plan.size.num_requests, round_index)
        else:
            requests = block(
                point.load.workload,
                self._plan.size.num_requests,
                self._rate_per_s(point),
                round_index=round_index,
                max_total_tokens=self._plan.serving.kv_capacity_tokens,
                cv=point.cv,
            )
        first = round_index * IDS_PER_ROUND  # the prompt's tokens go by the id
        return tuple(replace(request, id=first + request.id) for request in requests)

    def _at_once(
        self, load: LoadSpec, num_requests: int, round_index: int = CALIBRATION_ROUND
    ) -> tuple[ServingRequest, ...]:
        requests = lengths(load.workload, num_requests, round_index, self._plan.serving.kv_capacity_tokens)
        return tuple(
            ServingRequest(id=index, arrival_s=0.0, prompt_tokens=prompt, output_tokens=output)
            for index, (prompt, output) in enumerate(requests)
        )

    def _server(
        self, point: ServedPoint
    ) -> AbstractContextManager[Callable[[Sequence[ServingRequest]], ServingResult]]:
        """What serves requests under the point's policy, warm: this engine, or two processes that live as long."""
        if point.policy == pair.POLICY:
            warm_up = self._at_once(point.load, NUM_WARM_UP_REQUESTS)
            return pair.server_on(pair.open_pair(self._plan, self._device), self._plan, point, warm_up)
        return nullcontext(partial(self._serve, point))

    def _serve(self, point: ServedPoint, requests: Sequence[ServingRequest]) -> ServingResult:
        if self._own_server is not None:
            return self._own_server.serve(point, requests)
        return serve(OpenLoad(requests), scheduler_of(self._plan, point), self._ready, WallClock())

    @property
    def _ready(self) -> Executor:
        assert self._executor is not None, "load() comes first"
        return self._executor


def _has(rounds: Sequence[Round], point: ServingPoint) -> bool:
    return any(columns_of(points, point.name) for points in rounds)


def whole(result: ServingResult) -> ServingResult:
    """Returns the result. Raises MeasurementError where a request failed: the rest of it measures something else."""
    if reason := failures_of(result.records):
        raise MeasurementError(reason)
    return result


def num_calibration_requests(plan: ServingPlan) -> int:
    """Counts the requests at once that fill the decode batch that the TBT limit is about, at most the engine's batch,
    and no more than a block has: a profile of short blocks is short here too. Those that the KV cache cannot hold wait,
    as under a load that is too high: what the cache holds bounds the batch by itself."""
    return min(TBT_BATCH_SIZE, plan.serving.max_batch_size, plan.size.num_requests)
