"""What a campaign needs of each device's memory, worked out from shapes before anything is compiled.

    need  = weights + key-value caches + working memory + binaries
    room  = usable fraction x the smaller of what the hardware file and the device itself say

What a campaign needs its suite knows (MemoryModel). Working memory is an estimate and is meant to be too high rather
than too low: every activation of a layer counts as if none took another's place. Nothing here was measured on an
accelerator.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_npubench.backends.jax_probe import users_memory_share
from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.protocol import CampaignPlan, CaseKind
from pytest_npubench.core.case import Case
from pytest_npubench.errors import NpubenchError

# JAX is given XLA_CLIENT_MEM_FRACTION = 0.9, on GPUs the user's where it is set; others take what they need, beside a
# CUDA context of half a GB.
USABLE_FRACTIONS = {"jax": 0.9}
USABLE_FRACTION = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Bytes on each device of a group. working_bytes: activations and other temporaries, and binaries."""

    weight_bytes: float
    cache_bytes: float
    working_bytes: float

    @property
    def total_bytes(self) -> float:
        return self.weight_bytes + self.cache_bytes + self.working_bytes

    def __str__(self) -> str:
        return (
            f"{_gb(self.weight_bytes)} of weights, {_gb(self.cache_bytes)} of cache and {_gb(self.working_bytes)} of "
            "temporaries and binaries"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRoom:
    """What one device has, and which fraction of it the runtime may take."""

    device_bytes: float
    fraction: float

    @property
    def usable_bytes(self) -> float:
        return self.device_bytes * self.fraction

    def __str__(self) -> str:
        return f"{_gb(self.usable_bytes)} ({self.fraction:.0%} of {_gb(self.device_bytes)})"


class MemoryModel(Protocol):
    """What a suite's campaigns need. Each raises RegistryError on a model that no shape has."""

    def campaign_need(self, plan: Any) -> MemoryNeed | None:
        """Returns the bytes of a whole campaign on each device; None where they are unknown or not on this machine."""
        ...

    def too_large(self, case: Case, kind: CaseKind[Any], plan: Any, whole: MemoryNeed, room: MemoryRoom) -> str:
        """Why the case does not fit, where its campaign does not fit as a whole; empty where it does."""
        ...

    def given_up(self, plan: Any, room: MemoryRoom) -> str:
        """What of a campaign gives way that does not fit, in words."""
        ...


def memory_room(plan: CampaignPlan, devices: Sequence[Device] = ()) -> MemoryRoom | None:
    """What each of these devices lends a campaign: by the hardware file alone where none is given or none tells its
    memory. None where nobody says."""
    sizes = [plan.spec.device_memory_bytes, *(device.memory_bytes for device in devices)]
    if devices and plan.spec.family == "cpu":
        sizes.append(_host_memory_bytes())
    said = [float(value) for value in sizes if value]
    if not said:
        return None
    fraction = USABLE_FRACTIONS.get(plan.framework, USABLE_FRACTION)
    if devices and plan.framework == "jax" and plan.spec.family == "cuda":
        with suppress(ValueError):  # jax itself refuses what is no number
            fraction = float(users_memory_share(os.environ) or fraction)
    return MemoryRoom(device_bytes=min(said), fraction=fraction)


def why_not_fit(
    model: MemoryModel | None, case: Case, kind: CaseKind[Any], plan: CampaignPlan, devices: Sequence[Device] = ()
) -> str:
    """Why the case does not fit these devices, with the numbers; empty where it does, and where nobody knows.

    What is kept of a campaign that does not fit as a whole is a matter of the plan and the device, whichever cases were
    selected.
    """
    try:
        if model is None or (whole := model.campaign_need(plan)) is None:
            return ""
        room = memory_room(plan, devices)
        if room is None or whole.total_bytes <= room.usable_bytes:
            return ""
        return model.too_large(case, kind, plan, whole, room)
    except NpubenchError:  # an unknown model, a workload that cannot be read: the case itself says so
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A campaign against one device's memory. skipped: what gives way, in words; empty where everything fits."""

    plan: CampaignPlan
    need: MemoryNeed
    room: MemoryRoom
    skipped: str


def fit(model: MemoryModel | None, plan: CampaignPlan) -> Fit | None:
    """Whether a plan fits, by the hardware file alone, or None. Raises RegistryError for a model without a shape."""
    need = None if model is None else model.campaign_need(plan)
    room = None if need is None else memory_room(plan)
    if model is None or need is None or room is None:
        return None
    skipped = model.given_up(plan, room) if need.total_bytes > room.usable_bytes else ""
    return Fit(plan=plan, need=need, room=room, skipped=skipped)


def _host_memory_bytes() -> int | None:
    """Physical memory of this machine; a container's limit may be lower, and is not asked for."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # a system without the name, or without sysconf
        return None


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
