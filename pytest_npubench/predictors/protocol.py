"""What a latency predictor is: fitted on the profile points of a campaign, it tells the seconds of any batch.

A predictor never sees what it is judged on: the drawn batches are other samples of the same rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Protocol

from pytest_npubench.core.buckets import BucketKeys
from pytest_npubench.core.measurement import CompileRecord, CostRecord, Request
from pytest_npubench.core.parts import Part
from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors.profile import BucketProfile
from pytest_npubench.predictors.transfer import ProfileTransfer
from pytest_npubench.predictors.two_point import ProfilePoint, count_cost

if TYPE_CHECKING:
    from pytest_npubench.predictors.work import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSamples:
    """Of a decoder of num_layers: shallow_s, the profile points of engines with fewer layers, by their number; parts_s,
    seconds of parts that ran alone; the binaries of both. why_not: why there is nothing else."""

    num_layers: int = 0
    shallow_s: Mapping[int, Mapping[ProfilePoint, Sequence[float]]] = field(default_factory=dict)
    shallow_compiles: tuple[CompileRecord, ...] = ()
    parts_s: Mapping[Part, Sequence[float]] = field(default_factory=dict)
    operator_compiles: tuple[CompileRecord, ...] = ()
    why_not: str = "no parts of the decoder, measured alone, are on record here"

    def of(self, part: Part) -> Sequence[float]:
        """Returns seconds of each run. Raises MeasurementError with the reason where it was not timed."""
        if part not in self.parts_s:
            raise MeasurementError(self.why_not)
        return self.parts_s[part]


NO_PARTS = PartSamples()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """What ran where, for predictors that measure nothing of it. config: a model's Hugging Face config.json; system:
    what NVIDIA's aiconfigurator calls the device, of which num_devices run together, tensor-parallel."""

    config: Mapping[str, object]
    dtype: str
    system: str
    num_devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSamples:
    """What predictors are fitted on. samples_s: end-to-end seconds of each profile point, a full batch of equal
    requests, over all rounds. moves_s: seconds of moving the KV cache into a bucket, where it moves. compiles: the
    binaries of these buckets, move_compiles those of the moves. finished: what a request that ended adds to a padded
    batch. keys: the bucket of a length, None for the smallest that holds it. prefill_shared: a batch has one prefill,
    not one a prompt (LENS, Eq. 7). pads: whether lengths run padded to their buckets; else these are only where a slope
    was measured. estimates: what the compiler says of these buckets without running them; None with
    the reason. parts: what rivals that add up parts are fitted on. run: what ran where; None with the reason.
    canaries_s: seconds of each canary kernel in the same rounds. transfer: another device's profile, and what both do
    alike; None with the reason."""

    samples_s: Mapping[ProfilePoint, Sequence[float]]
    batch_size: int
    finished: Finished = "grow"
    moves_s: Mapping[int, Sequence[float]] = field(default_factory=dict)
    compiles: tuple[CompileRecord, ...] = ()
    move_compiles: tuple[CompileRecord, ...] = ()
    keys: BucketKeys | None = None
    prefill_shared: bool = False
    pads: bool = True
    estimates: BucketProfile | None = None
    why_no_estimates: str = "no compiler's estimates are on record here"
    parts: PartSamples = NO_PARTS
    run: ModelRun | None = None
    why_no_run: str = "a journal does not say what model and device its rounds are of"
    canaries_s: Mapping[str, Sequence[float]] = field(default_factory=dict)
    transfer: ProfileTransfer | None = None
    why_no_transfer: str = "a journal is one device's; want a run with --npubench-transfer"

    @property
    def transitions_s(self) -> dict[int, float] | None:
        """Mean seconds of a move into each bucket, None where nothing moves."""
        return {bucket: fmean(values) for bucket, values in self.moves_s.items()} or None

    @property
    def buckets(self) -> tuple[int, ...]:
        """Lists the buckets of the points, ascending."""
        return tuple(sorted({point.bucket for point in self.samples_s}))


class FittedPredictor(Protocol):
    def predict(self, batch: Sequence[Request]) -> float:
        """Returns seconds from the submission of the batch to its last token. Raises NpubenchError where it cannot
        tell."""
        ...


class Predictor:
    """One way to predict. `name` is what options and reports call it, `about` one sentence with its source, `basis`
    what has to be said wherever its figures stand; nothing where they rest on what was measured. `depths`, `parts` and
    canary kernels are measured beside LENS's points where it is asked for."""

    name: ClassVar[str]
    about: ClassVar[str]
    basis: ClassVar[str] = ""
    depths: ClassVar[tuple[int, ...]] = ()
    """The numbers of layers of the shallow engines whose profile points it wants."""
    needs_canaries: ClassVar[bool] = False

    def parts(self, buckets: Sequence[int]) -> tuple[Part, ...]:
        """Returns the parts of the decoder that it wants timed alone, for these buckets."""
        return ()

    def fit(self, samples: ProfileSamples) -> FittedPredictor:
        """Raises NpubenchError for samples that it cannot be fitted on."""
        raise NotImplementedError

    def cost(self, samples: ProfileSamples) -> CostRecord:
        """What it took to fit it: all that was compiled and measured, unless it needs less of that."""
        return count_cost(samples.compiles, samples.samples_s, sessions=1)
