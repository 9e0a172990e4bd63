"""Blocks served by vLLM in place of our executor: the same requests and prompts, vLLM's scheduler under its settings.

An engine has one policy from start to end, so each policy has its own and all of them stay, as many as there may be.
Chunks of every size take turns on one engine, which has room for the largest and schedules fewer tokens. The prompt of
a request is that of engines/torch_moe: uniform ids of seed 0 and the request's id. What vLLM does not tell (bytes of
hidden states) is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.engines.answers import Logits
from pytest_npubench.engines.model_directory import write_model_directory
from pytest_npubench.engines.probe import Asked, HostWeights
from pytest_npubench.errors import ConfigError, MeasurementError, NpubenchError
from pytest_npubench.extensions.vllm.answer import Iteration, VllmAnswer, VllmRequest, VllmRun
from pytest_npubench.extensions.vllm.asking import answered
from pytest_npubench.extensions.vllm.policies import settings_of, started_with
from pytest_npubench.extensions.vllm.process import VllmProcess, VllmProcesses
from pytest_npubench.extensions.vllm.settings import DTYPE_BYTES, EngineSettings
from pytest_npubench.extensions.vllm.written_weights import WrittenWeights
from pytest_npubench.serving.iteration import IterationOutcome
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.suites.scheduling.decoding import FIRST_ID
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import DecodeSteps, ServedPoint
from pytest_npubench.suites.scheduling.policies import all_at_once

MOST_ENGINES = 4  # on a CPU: chunked, continuous, layered and hybrid
MOST_STARTING = 2  # an engine's start is mostly the import of its packages, by one thread


class VllmServer:
    """One model directory, made where there is none, and an engine for each policy that a point asks for.

    On a GPU there is one engine at a time: a second one finds its memory taken. visible_devices is the
    CUDA_VISIBLE_DEVICES of the engines, None where they see what this process sees.
    """

    def __init__(self, plan: ServingPlan, folder: Path, visible_devices: str | None = None) -> None:
        self._plan, self._visible_devices = plan, visible_devices
        dtype = plan.serving.dtype
        self._model = write_model_directory(folder / f"{plan.model}-{dtype}", plan.shape, dtype=dtype, is_ours=True)
        self.weights: HostWeights = WrittenWeights(plan.shape, dtype)
        self._is_cpu = plan.spec.family == "cpu"
        self._engines = VllmProcesses(most=MOST_ENGINES if self._is_cpu else 1)
        self._failed: dict[EngineSettings, NpubenchError] = {}

    def start(self, points: Iterable[ServedPoint]) -> None:
        """The engines of these points, two of them starting at a time, as far as they fit. One that does not start says
        so when it is asked to serve."""
        if not self._is_cpu:
            return
        wanted: dict[EngineSettings, None] = {}
        for point in (all_at_once(self._plan), *points):
            with suppress(ConfigError):  # its case says so
                wanted[self._started_with(point)[0]] = None
        with ThreadPoolExecutor(MOST_STARTING) as pool:
            for settings in list(wanted)[:MOST_ENGINES]:
                pool.submit(self._engine, settings)

    def serve(self, point: ServedPoint, requests: Sequence[ServingRequest]) -> ServingResult:
        """Raises UnsupportedPolicyError for a policy or setting that vLLM does not have, and what an engine raises that
        does not start. One that dies leaves a run whose requests failed."""
        run, seconds = self._run(point, [self._asked(request) for request in requests])
        return ServingResult(
            records=tuple(map(_record, run.answers)),
            log=self._log(run),
            clock="wall",
            policy=point.policy,
            settings=dict(point.settings),
            started_s=0.0,
            ended_s=seconds if run.lost else run.ended_s,
            num_layers=self._plan.shape.num_layers,
        )

    def decode_steps(self, batch_size: int, context_tokens: int, num_steps: int) -> DecodeSteps:
        """Prompts that are all there at once, whole; then steps in which nothing but all of them decode."""
        requests = [
            ServingRequest(id=FIRST_ID + row, arrival_s=0.0, prompt_tokens=context_tokens, output_tokens=num_steps + 1)
            for row in range(batch_size)
        ]
        run, _ = self._run(all_at_once(self._plan), [self._asked(request) for request in requests])
        pure = [item for item in run.iterations if item.num_decode == batch_size and not item.num_prefill_tokens]
        if run.lost or len(pure) != num_steps:
            raise MeasurementError(
                f"{len(pure)} decode steps of {batch_size} requests at {context_tokens} tokens; want {num_steps}"
                + (f": {run.lost}" if run.lost else "")
            )
        return DecodeSteps(
            step_s=tuple(item.end_s - item.start_s for item in pure),
            expert_activations=tuple(item.expert_activations or 0 for item in pure),
        )

    def answers(self, point: ServedPoint, requests: Sequence[Asked]) -> Logits:
        """Raises as `serve`, and MeasurementError where a request fails."""
        return answered(lambda asked: self._run(point, asked)[0].answers, requests, self._plan.shape.vocab_size)

    def close(self) -> None:
        self._engines.close()

    def _started_with(self, point: ServedPoint) -> tuple[EngineSettings, int | None]:
        settings = settings_of(self._plan, point, model=self._model, visible_devices=self._visible_devices)
        return started_with(settings)

    def _run(self, point: ServedPoint, requests: Sequence[VllmRequest]) -> tuple[VllmRun, float]:
        """What came back, and the seconds that it took."""
        settings, chunk = self._started_with(point)
        engine = self._engine(settings)
        started_s = perf_counter()
        run = engine.serve(
            requests,
            count_experts=not self._plan.shape.is_dense,
            chunk_size_tokens=chunk,
        )
        return run, perf_counter() - started_s

    def _engine(self, settings: EngineSettings) -> VllmProcess:
        """One that did not start is not tried again for every point: each try takes as long as a start."""
        if settings in self._failed:
            raise self._failed[settings]
        try:
            return self._engines.get(settings)
        except NpubenchError as error:
            self._failed[settings] = error
            raise

    def _asked(self, request: ServingRequest) -> VllmRequest:
        random = np.random.default_rng((0, request.id))
        prompt = random.integers(0, self._plan.shape.vocab_size, request.prompt_tokens).tolist()
        return VllmRequest(
            id=request.id, arrival_s=request.arrival_s, prompt=tuple(prompt), output_tokens=request.output_tokens
        )

    def _log(self, run: VllmRun) -> IterationLog:
        shape, serving = self._plan.shape, self._plan.serving
        dtype_bytes = DTYPE_BYTES[serving.dtype]
        capacity_bytes = serving.kv_capacity_tokens * shape.kv_bytes_per_token(dtype_bytes)
        log = IterationLog()
        for item in run.iterations:
            activations = item.expert_activations or 0
            log.add(
                IterationOutcome(
                    expert_activations=activations,
                    padded_expert_activations=activations,
                    expert_load_bytes=activations * shape.expert_bytes(dtype_bytes),
                    kv_bytes=round(item.kv_fraction * capacity_bytes),
                ),
                start_s=item.start_s,
                end_s=item.end_s,
                num_decode=item.num_decode,
                num_prefill_tokens=item.num_prefill_tokens,
                num_prefill_layers=_prefill_layers(item, shape.num_layers),
                num_prefill_pairs=item.num_prefill_pairs,
                num_running=item.num_running,
                num_waiting=item.num_waiting,
            )
        return log


def _prefill_layers(item: Iteration, num_layers: int) -> int:
    if not item.num_prefill_tokens:
        return 0
    return num_layers if item.num_prefill_layers is None else item.num_prefill_layers


def _record(answer: VllmAnswer) -> RequestRecord:
    request = answer.request
    return RequestRecord(
        arrival_s=request.arrival_s,
        token_times_s=answer.token_times_s,
        id=request.id,
        prompt_tokens=len(request.prompt),
        output_tokens=request.output_tokens,
        dispatched_s=answer.dispatched_s,
        scheduled_s=answer.scheduled_s,
        num_preemptions=answer.num_preemptions,
        aborted=answer.failed,
        tokens=answer.tokens,
    )
