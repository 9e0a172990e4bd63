"""The scheduling suite on vLLM: its own schedulers, under settings that mean our policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.extensions.vllm.policies import mapping_lines, settings_of, why_unsupported
from pytest_npubench.extensions.vllm.settings import map_policy
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.service import BlockServer, ServingService


class VllmServing(ServingService):
    min_block_tokens = 32  # its faster attention on x86 processors wants multiples of it
    decode_counts = True
    tells_answers = True

    def why_unsupported(self, plan: ServingPlan, points: Iterable[CampaignPoint]) -> str:
        return why_unsupported(plan, points)

    def remarks(self, plan: ServingPlan, points: Iterable[CampaignPoint]) -> Sequence[str]:
        return [f"vLLM, {plan.model}, {line}" for line in mapping_lines(plan, points)]

    def own_settings(self, plan: ServingPlan, point: ServedPoint) -> str:
        return str(map_policy(settings_of(plan, point)))

    def server(
        self,
        runtime: Runtime,
        plan: ServingPlan,
        folder: Path,
        points: Sequence[ServedPoint],
        stage: Callable[[str], None],
    ) -> BlockServer:
        from pytest_npubench.extensions.vllm.block_server import VllmServer
        from pytest_npubench.extensions.vllm.runtime import VllmRuntime

        assert isinstance(runtime, VllmRuntime)  # the descriptor opened it
        made = VllmServer(plan, folder, runtime.visible_devices)
        stage("starting vLLM")
        made.start(points)
        return made
