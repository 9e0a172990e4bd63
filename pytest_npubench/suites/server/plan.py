"""What a server campaign is about: the loads of one hardware file on whatever model the server serves.

The model is no part of a case, as ids are equal everywhere: it is the name of the device, and so part of every key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_npubench.campaign.plan import DevicePlan
from pytest_npubench.core.case import Case
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.suites.server.spec import ServerLoad, ServerSize, ServerSpec

MODEL = "served"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan(DevicePlan):
    """One hardware file and run size."""

    model: str = MODEL
    server: ServerSpec
    size: ServerSize

    @property
    def key(self) -> str:
        return f"{self.spec.name}-{MODEL}-b1"

    @property
    def framework(self) -> str:
        """The family's own runtime opens it, as it does for jax."""
        return "jax"

    @property
    def loads(self) -> tuple[ServerLoad, ...]:
        return tuple(load for load in self.server.loads if load.workload in self.size.workloads)

    @property
    def settings(self) -> Mapping[str, object]:
        """Time-outs are left out: they change which requests fail, not what a case is."""
        asking = self.server.asking
        return {
            "api": asking.api,
            "prompt": asking.prompt,
            "token_ids": asking.token_ids if asking.prompt == "tokens" else None,
            "extra_body": dict(asking.fields),
            "max_total_tokens": asking.max_total_tokens,
            "num_requests": self.size.num_requests,
        }

    @property
    def limits(self) -> Mapping[str, float]:
        """Returns the share that must attain, and the limits on latency of every model and workload."""
        slos = {
            f"{slo.model}/{slo.workload}/{name}": value
            for slo in self.spec.slos
            for name, value in (("ttft_s", slo.ttft_s), ("tbt_s", slo.tbt_s))
        }
        return {"attainment": self.server.attainment, **slos}

    def includes(self, kind: str) -> bool:
        """A quick run has no time for sweeps."""
        return kind != "capacity" or self.size.name != "quick"

    def load(self, case: Case) -> ServerLoad:
        """Returns the load that a case's axes name."""
        wanted = case.axis("workload"), case.axis("rate")
        return next(load for load in self.loads if (load.workload, load.rate_name) == wanted)


def server_plans(spec: HardwareSpec, profile: str) -> Iterator[ServerPlan]:
    """One, where the hardware file is about a server."""
    server = spec.section(ServerSpec)
    if server is not None:
        yield ServerPlan(spec=spec, server=server, size=server.size(profile))
