"""What a latency predictor is: fitted on the profile points of a campaign, it tells the seconds of any batch.

A predictor never sees what it is judged on: the drawn batches are other samples of the same rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from pytest_npubench.core.buckets import BucketKeys
from pytest_npubench.core.measurement import CompileRecord, CostRecord, Request
from pytest_npubench.predictors.profile import BucketProfile
from pytest_npubench.predictors.two_point import ProfilePoint, count_cost

if TYPE_CHECKING:
    from pytest_npubench.predictors.work import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSamples:
    """What predictors are fitted on. samples_s: end-to-end seconds of each profile point, a full batch of equal
    requests, over all rounds. transitions_s: seconds of moving the KV cache into a bucket; None where nothing moves.
    compiles: the binaries of these buckets. finished: what a request that ended adds to a padded batch. keys: the
    bucket of a length, None for the smallest that holds it. prefill_shared: a batch has one prefill, not one a prompt
    (LENS, Eq. 7). estimates: what the compiler says of these buckets without running them; None with the reason."""

    samples_s: Mapping[ProfilePoint, Sequence[float]]
    batch_size: int
    finished: Finished = "grow"
    transitions_s: Mapping[int, float] | None = None
    compiles: tuple[CompileRecord, ...] = ()
    keys: BucketKeys | None = None
    prefill_shared: bool = False
    estimates: BucketProfile | None = None
    why_no_estimates: str = "no compiler's estimates are on record here"


class FittedPredictor(Protocol):
    def predict(self, batch: Sequence[Request]) -> float:
        """Seconds from the submission of the batch to its last token. Raises NpubenchError where it cannot tell."""
        ...


class Predictor:
    """One way to predict. `name` is what options and reports call it, `about` one sentence with its source, `basis`
    what has to be said wherever its figures stand; nothing where they rest on what was measured."""

    name: ClassVar[str]
    about: ClassVar[str]
    basis: ClassVar[str] = ""

    def fit(self, samples: ProfileSamples) -> FittedPredictor:
        """Raises NpubenchError for samples that it cannot be fitted on."""
        raise NotImplementedError

    def cost(self, samples: ProfileSamples) -> CostRecord:
        """What it took to fit it: all that was compiled and measured, unless it needs less of that."""
        return count_cost(samples.compiles, samples.samples_s, sessions=1)
