"""How an engine runs the bucket suite: what a plan must know of it before anything runs, and the engine itself.

The defaults are those of an engine that is compiled for the plan's buckets, as the reference decoder is. An engine that
does something else derives from this class and says so; its descriptor names the class (engines/descriptor.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_npubench.core.measurement import Phase

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import Bench, CaseKind
    from pytest_npubench.core.buckets import BucketKeys
    from pytest_npubench.engines.protocol import Engine, Finished
    from pytest_npubench.suites.buckets.plan import BucketPlan


class BucketService:
    """See the module."""

    finished: ClassVar[Finished] = "freeze"
    """What rows of a batch that ended early do (LENS, Eq. 9)."""
    prefill_shared: ClassVar[bool] = False
    """Whether a batch has one prefill, not one a prompt (LENS, Eq. 7)."""
    pads_as_it_will: ClassVar[bool] = False
    """Whether its buckets are those that it declares while it runs, if any; the plan's are then nominal."""
    compiles_buckets: ClassVar[bool] = True
    """Whether each bucket has binaries of its own, whose compile time is on record."""
    moves_cache: ClassVar[bool] = True
    """Whether the KV cache is copied when a batch outgrows its bucket."""
    fills_memory: ClassVar[bool] = True
    """Whether weights and caches of all buckets lie on our device at once, as suites.buckets.memory counts them."""
    pads_decode: ClassVar[bool] = True
    """Whether a decode step runs at the length of a bucket of the plan."""
    pure_phases: ClassVar[Sequence[Phase]] = tuple(Phase)
    """The phases of which a profile point must stay in its bucket."""

    def buckets(self, family: str, buckets: tuple[int, ...]) -> tuple[int, ...]:
        """The buckets of a plan, ascending, from those of the hardware file."""
        return buckets

    def keys(self, buckets: tuple[int, ...]) -> BucketKeys:
        """Which of these buckets a length runs in."""
        from pytest_npubench.core.buckets import SmallestBucket

        return SmallestBucket(prefill_buckets=buckets, decode_buckets=buckets)

    def has_canaries(self, family: str) -> bool:
        """Whether canary kernels run where it does."""
        return True

    def plan(self, plan: BucketPlan) -> BucketPlan:
        """The plan as it is measured on this engine."""
        return plan

    def kind_for(self, plan: BucketPlan, kind: CaseKind[Any]) -> CaseKind[Any]:
        """The kind that stands in `kind`'s place."""
        return kind

    def engine(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Engine:
        """The engine of a plan, with what it keeps below `folder`. Raises what making it raises."""
        raise NotImplementedError

    def bench(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Bench[Any]:
        """What measures a plan's points."""
        from pytest_npubench.suites.buckets.bench import BucketBench

        return BucketBench(runtime, plan, partial(self.engine, folder=folder))
