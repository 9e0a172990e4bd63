"""What a plan must know of the engine that runs the bucket suite, before anything runs.

The defaults are those of an engine that is compiled for the plan's buckets, as the reference decoder is. An engine that
does something else says so in its service (service.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pytest_npubench.core.measurement import Phase

if TYPE_CHECKING:
    from pytest_npubench.core.buckets import BucketKeys
    from pytest_npubench.engines.protocol import Finished


class BucketTraits:
    """How an engine batches, pads and compiles, and what it can be asked for."""

    finished: ClassVar[Finished] = "freeze"
    """What rows of a batch that ended early do (LENS, Eq. 9)."""
    prefill_shared: ClassVar[bool] = False
    """Whether a batch has one prefill, not one a prompt (LENS, Eq. 7)."""
    pads_as_it_will: ClassVar[bool] = False
    """Whether the engine chooses its buckets while it runs; the plan's buckets are then nominal."""
    compiles_buckets: ClassVar[bool] = True
    """Whether each bucket has binaries of its own, whose compile time is on record."""
    moves_cache: ClassVar[bool] = True
    """Whether the KV cache is copied when a batch outgrows its bucket."""
    fills_memory: ClassVar[bool] = True
    """Whether weights and caches of all buckets lie on our device at once, as suites.buckets.memory counts them."""
    pads_decode: ClassVar[bool] = True
    """Whether a decode step runs at the length of a bucket of the plan."""
    tells_answers: ClassVar[bool] = False
    """Whether the engine answers probe prompts (engines.protocol.Engine.answers)."""
    has_slots: ClassVar[bool] = False
    """Whether it can serve requests as they arrive (StaticBuckets.load_slots)."""
    compares_engines: ClassVar[bool] = False
    """Whether engines of several batch sizes, bucket sets and numbers of layers can stand beside each other in one
    process."""
    shares_weights: ClassVar[bool] = False
    """Whether the engines of a search hold one set of weights among them."""
    pure_phases: ClassVar[Sequence[Phase]] = tuple(Phase)
    """The phases of which a profile point must stay in its bucket."""

    def buckets(self, family: str, buckets: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the buckets of a plan, ascending, from those of the hardware file."""
        return buckets

    def keys(self, buckets: tuple[int, ...]) -> BucketKeys:
        """Which of these buckets a length runs in."""
        from pytest_npubench.core.buckets import SmallestBucket

        return SmallestBucket(prefill_buckets=buckets, decode_buckets=buckets)

    def has_canaries(self, family: str) -> bool:
        """Whether canary kernels run where it does."""
        return True

    def has_fusions(self, family: str) -> bool:
        """Whether its canaries run the kernels of engines.fusion_kernels as well."""
        return False
