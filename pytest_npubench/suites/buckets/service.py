"""How an engine runs the bucket suite: its traits, the engine itself, and what measures on it.

The descriptor of an engine (engines/descriptor.py) names a class derived from BucketService.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.traits import BucketTraits

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import Bench
    from pytest_npubench.engines.protocol import Engine


class BucketService(BucketTraits):
    def engine(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Engine:
        """Returns the engine of a plan, with what it keeps below `folder`. Raises what making it raises."""
        raise NotImplementedError

    def bench(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Bench[Any]:
        """What measures a plan's points."""
        from pytest_npubench.suites.buckets.bench import BucketBench, VariantBench

        bench = VariantBench if self.compares_engines else BucketBench
        return bench(runtime, plan, partial(self.engine, folder=folder))
