"""What vLLM makes of the policies of a campaign: the settings of its engines, what it cannot do, and both in words.

Nothing of vLLM is imported or started here, so cases that it cannot serve are skipped before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.vllm.settings import EngineSettings, PolicyMapping, UnsupportedPolicyError, map_policy
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ProbePoint, PromptPoint, ServedPoint
from pytest_npubench.suites.scheduling.policies import probe_alone, prompt_in_chunks

NO_MODEL = Path()  # of settings that no engine is started with


def settings_of(
    plan: ServingPlan, point: ServedPoint, *, model: Path = NO_MODEL, visible_devices: str | None = None
) -> EngineSettings:
    """vLLM's settings while it serves a point. Chunked has room for the KV cache's tokens in an iteration, so that
    chunks of all sizes can take turns on one engine."""
    chunk = dict(point.settings).get("chunk_size_tokens") or 0
    serving = plan.serving
    return EngineSettings(
        model=model,
        policy=point.policy,
        policy_settings=point.settings,
        dtype=serving.dtype,
        max_batch_size=serving.max_batch_size,
        kv_capacity_tokens=serving.kv_capacity_tokens,
        block_size_tokens=serving.block_size_tokens,
        tensor_parallel=plan.spec.tensor_parallel,
        room_tokens=max(serving.kv_capacity_tokens, chunk) if point.policy == "chunked" else None,
        visible_devices=visible_devices,
    )


def started_with(settings: EngineSettings) -> tuple[EngineSettings, int | None]:
    """Returns the settings that an engine starts with, and the chunk that it is told for a run; None: it has none to be
    told.

    Raises UnsupportedPolicyError and ConfigError for settings that cannot be.
    """
    map_policy(settings)
    if settings.room_tokens is None:
        return settings, None
    chosen = dict(settings.policy_settings)
    chunk = chosen["chunk_size_tokens"]
    widest = {**chosen, "chunk_size_tokens": settings.room_tokens}
    return replace(settings, policy_settings=tuple(widest.items())), chunk


def why_unsupported(plan: ServingPlan, points: Iterable[CampaignPoint]) -> str:
    """Why vLLM cannot serve one of these points; empty where it can. Other mistakes in their settings are their own."""
    for point in _served(plan, points):
        try:
            map_policy(settings_of(plan, point))
        except UnsupportedPolicyError as error:
            return f"vLLM: {error}"
        except ConfigError:
            continue
    return ""


def mapping_lines(plan: ServingPlan, points: Iterable[CampaignPoint]) -> tuple[str, ...]:
    """Returns a line for each policy that is served: vLLM's settings, and what else they are where it is served with
    several.

    Worked example: "chunked: max_num_batched_tokens=16384, max_num_scheduled_tokens=64, enable_chunked_prefill=True,
    max_num_seqs=32 (decode tokens count inside the chunk); also max_num_scheduled_tokens=128".
    """
    by_policy: dict[str, list[PolicyMapping]] = {}
    for point in _served(plan, points):
        try:
            mapping = map_policy(settings_of(plan, point))
        except ConfigError:  # its case says so
            continue
        mappings = by_policy.setdefault(mapping.policy, [])
        if mapping not in mappings:
            mappings.append(mapping)
    return tuple(_line(*mappings) for mappings in by_policy.values())


def _served(plan: ServingPlan, points: Iterable[CampaignPoint]) -> Iterable[ServedPoint]:
    for point in points:
        if isinstance(point, ServedPoint):
            yield point
        elif isinstance(point, PromptPoint):
            yield prompt_in_chunks(plan, point)
        elif isinstance(point, ProbePoint):
            yield probe_alone(plan)


def _line(first: PolicyMapping, *others: PolicyMapping) -> str:
    more = [
        ", ".join(f"{name}={value}" for name, value in other.arguments.items() if first.arguments.get(name) != value)
        for other in others
    ]
    return str(first) + (f"; also {'; '.join(more)}" if more else "")
