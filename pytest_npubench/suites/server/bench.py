"""Sends blocks of requests to a server: a round sends one block of every load, each after all answers to the last, and
sweeps over rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.backends.server import ServerRuntime
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.rounds import failure_reason
from pytest_npubench.campaign.visits import Round, columns_of
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import ConfigError, WorkloadError
from pytest_npubench.serving.metrics import Slo
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.server.asking import ServerAnswers, asked, fixed_prompts
from pytest_npubench.suites.server.blocks import WatchedBlock, load_block
from pytest_npubench.suites.server.loader import Loader
from pytest_npubench.suites.server.own_figures import Watch
from pytest_npubench.suites.server.plan import ServerPlan
from pytest_npubench.suites.server.points import AnswerPoint, LoadPoint, ServerPoint, SweepPoint
from pytest_npubench.suites.server.spec import ServerLoad
from pytest_npubench.suites.server.sweep import Sweep, sweep

WARM_UP_ROUND = 99  # requests that no round sends
NUM_WARM_UP_REQUESTS = 2


class ServerBench:
    """campaign.protocol.Bench of one server. Raises ConfigError on a runtime that is none, and where the server cannot
    be asked as the hardware file says."""

    def __init__(self, runtime: Runtime, plan: ServerPlan) -> None:
        if not isinstance(runtime, ServerRuntime):
            raise ConfigError(f"the server suite loads servers, not {type(runtime).__name__}")
        self._plan = plan
        self._model, self._address = runtime.model.name, runtime.address
        self._loader = Loader(runtime.address, self._model, runtime.model.context_tokens, plan.server.asking)

    def load(
        self,
        points: Sequence[ServerPoint],
        earlier: Sequence[Round],
        stage: Callable[[str], None],
    ) -> Mapping[str, str]:
        """Nothing is sent. A workload that cannot be had, or not in the server's context, takes its points along."""
        stage("drawing requests")
        failures: dict[str, str] = {}
        for point in points:
            if isinstance(point, AnswerPoint):
                continue
            try:
                self._requests(point, WARM_UP_ROUND)
                if isinstance(point, SweepPoint) and self._slo(point.workload) is None:
                    raise WorkloadError(
                        f"no [[slo]] for {self._model} under {point.workload}: want the limits to sweep for"
                    )
            except WorkloadError as error:
                failures[point.name] = failure_reason(point.name, error)
        return failures

    def warm_up(self, point: ServerPoint) -> tuple[float, bool]:
        """Two requests at once, none for answers. Raises MeasurementError where neither is answered: a block would fare
        no better."""
        if isinstance(point, AnswerPoint):
            return 0.0, True
        requests = [
            replace(request, arrival_s=0.0) for request in self._requests(point, WARM_UP_ROUND)[:NUM_WARM_UP_REQUESTS]
        ]
        started_s = perf_counter()
        self._loader.send(requests, f"{point.name}/{WARM_UP_ROUND}")
        return perf_counter() - started_s, True

    def visits(
        self, points: Sequence[ServerPoint], measured: Measured, durations_s: Mapping[str, float]
    ) -> Mapping[str, int]:
        """Answers that a round has are not asked for again."""
        return {
            point.name: 0
            for point in points
            if isinstance(point, AnswerPoint) and any(columns_of(row, point.name) for row in measured.rounds)
        }

    def sample(self, point: ServerPoint, round_index: int) -> WatchedBlock | Sweep | ServerAnswers:
        """Returns a block, a sweep, or answers. Raises MeasurementError where none of a block's requests, or not each
        of the fixed prompts, was answered."""
        if isinstance(point, AnswerPoint):
            asking = self._plan.server.asking
            return asked(self._loader.endpoint, fixed_prompts(asking.prompt, asking.token_ids))
        if isinstance(point, SweepPoint):
            slo, num_requests = self._slo(point.workload), self._plan.size.num_requests
            assert slo is not None  # load() has looked
            target = self._plan.server.attainment
            return sweep(self._loader, point.workload, num_requests, slo=slo, target=target, seed=round_index)[0]
        requests = self._requests(point, round_index)
        with Watch(self._address) as watch:
            run = self._loader.send(requests, f"{point.name}/{round_index}")
        slo = self._slo(point.load.workload)
        block = load_block(run, requests, rate_per_s=point.load.rate_per_s, slo=slo)
        return WatchedBlock(block=block, server=watch.figures)

    def _slo(self, workload: str) -> Slo | None:
        limits = self._plan.spec.slo_for(self._model, workload)
        return Slo(ttft_s=limits.ttft_s, tbt_s=limits.tbt_s) if limits else None

    def _requests(self, point: LoadPoint | SweepPoint, round_index: int) -> tuple[ServingRequest, ...]:
        load = point.load if isinstance(point, LoadPoint) else ServerLoad(workload=point.workload, rate_per_s=1.0)
        return self._loader.requests(load.workload, self._plan.size.num_requests, load.rate_per_s, round_index)
