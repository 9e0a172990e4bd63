"""How an engine runs the scheduling suite: what a plan must know of it, and what serves.

An engine serves in one of two ways. An executor runs what our schedulers plan, on our loop (iteration.Executor); a
server schedules by itself, under settings that mean the same policies (BlockServer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_npubench.serving.iteration import Executor
from pytest_npubench.suites.scheduling.plan import ServingPlan, ServingTraits

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import CampaignPoint
    from pytest_npubench.engines.answers import Logits
    from pytest_npubench.engines.probe import Asked, HostWeights
    from pytest_npubench.serving.request import ServingRequest
    from pytest_npubench.serving.result import ServingResult
    from pytest_npubench.suites.scheduling.points import DecodeSteps, ServedPoint


class BlockServer(Protocol):
    """An engine with a scheduler of its own. `weights` are those that it reads, as the host makes them."""

    weights: HostWeights

    def serve(self, point: ServedPoint, requests: Sequence[ServingRequest]) -> ServingResult:
        """Returns a block of requests under the point's policy."""
        ...

    def decode_steps(self, batch_size: int, context_tokens: int, num_steps: int) -> DecodeSteps:
        """Steps in which nothing but a whole batch decodes."""
        ...

    def answers(self, point: ServedPoint, requests: Sequence[Asked]) -> Logits:
        """Under the point's policy, to requests that all have one number of forced tokens, all of one kind: [requests,
        positions, NUM_FIXED]. Asked only where the engine tells answers."""
        ...

    def close(self) -> None:
        """End what it started."""
        ...


class AskedExecutor(Executor, Protocol):
    """An executor with probe weights, whose requests are those that it was asked."""

    def ask(self, requests: Sequence[Asked]) -> None:
        """Request i is the i-th of these; nothing is known of its answers."""
        ...

    def answers(self) -> Sequence[Logits]:
        """Returns of each request [positions, NUM_FIXED]: the logits that its prompt ends in, then those behind each
        forced token; not a number where none were made."""
        ...

    def weights_bits(self) -> tuple[int, int]:
        """Returns a checksum of the weights as the device has them, and of what the host made."""
        ...

    def fill_cache_with_junk(self) -> None:
        """What stands in slots that no request has must not change an answer."""
        ...

    def on_one_thread(self) -> AbstractContextManager[None]:
        """Within it the processor computes a small model's answers on one thread."""
        ...


class ServingService(ServingTraits):
    """The defaults are those of an engine under our own schedulers."""

    def pads_context(self, plan: ServingPlan) -> bool:
        """Whether decode rows read as many keys and values as the longest of them."""
        return False

    def why_unsupported(self, plan: ServingPlan, points: Iterable[CampaignPoint]) -> str:
        """Why it cannot serve one of these points; empty where it can."""
        return ""

    def remarks(self, plan: ServingPlan, points: Iterable[CampaignPoint]) -> Sequence[str]:
        """What a run says of the policies that were served, a line each."""
        return ()

    def own_settings(self, plan: ServingPlan, point: ServedPoint) -> str | None:
        """Words the settings of an engine that schedules by itself, for the record of a policy; None of others."""
        return None

    def executor(self, plan: ServingPlan, runtime: Runtime) -> Executor:
        """What runs our schedulers' plans. Asked only where there is no server."""
        raise NotImplementedError

    def asked_executor(self, plan: ServingPlan, runtime: Runtime) -> AskedExecutor:
        """What `executor` makes, with probe weights in the place of its own. Asked only where it tells answers, and
        where there is no server."""
        raise NotImplementedError

    def server(
        self,
        runtime: Runtime,
        plan: ServingPlan,
        folder: Path,
        points: Sequence[ServedPoint],
        stage: Callable[[str], None],
    ) -> BlockServer | None:
        """What schedules by itself, started for these points, its models below `folder`; None where nothing does."""
        return None


def service_of(plan: ServingPlan) -> ServingService:
    """How the plan's engine runs the suite; the defaults where it does not, and cases are skipped."""
    return plan.part(ServingService)
