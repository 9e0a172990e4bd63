"""What a campaign is about, and the points that its cases ask for. Equal on every machine, so a digest tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pytest_npubench.campaign.plan import EnginePlan
from pytest_npubench.core.buckets import BucketKeys
from pytest_npubench.core.hardware import HardwareSpec, RunSize
from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import ConfigError
from pytest_npubench.predictors.two_point import ProfilePoint, plan_points
from pytest_npubench.suites.buckets.points import BucketPoint, move_name, profile_name
from pytest_npubench.suites.buckets.service import BucketService
from pytest_npubench.suites.protocol import Choice
from pytest_npubench.workloads import LengthSample, workload

Lengths = npt.NDArray[np.int64]
PROFILE_VISIT_S = 0.8  # every prediction of a bucket rests on its two points
DRAWN_VISIT_S = 0.7  # one batch is half of a case's error: a long one is to be seen more than once in a round


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlan(EnginePlan):
    """One device, model and batch size under one run size, with the limits its predictions are held to.

    rivals: predictors that are judged beside LENS, which no case is held to, so they are no part of its settings.
    """

    suite = "buckets"
    size: RunSize
    case_error: float
    mean_error: float
    rivals: tuple[str, ...] = ()

    @property
    def service(self) -> BucketService:
        """How the engine runs the suite."""
        return self.part(BucketService)

    @property
    def key(self) -> str:
        return f"{self.spec.name}-{self.model}-b{self.batch_size}{self.engine_suffix}"

    @property
    def limits(self) -> dict[str, float]:
        return {"case_error": self.case_error, "mean_error": self.mean_error}

    def includes(self, kind: str) -> bool:
        """Canary kernels are left out where the engine cannot run them."""
        return kind != "canary" or self.service.has_canaries(self.spec.family)

    @property
    def buckets(self) -> tuple[int, ...]:
        """Ascending; the hardware file's, as the engine takes them."""
        return self.service.buckets(self.spec.family, self.size.buckets)

    @property
    def keys(self) -> BucketKeys:
        """Which of the buckets a length runs in."""
        return self.service.keys(self.buckets)

    @property
    def settings(self) -> dict[str, object]:
        """What changes the meaning of a case, for its digest."""
        size = self.size
        return {
            **self.engine_settings,
            "buckets": self.buckets,
            "dtype": self.spec.dtype,
            "tensor_parallel": self.spec.tensor_parallel,
            "num_draws": size.num_draws,
            "profile_output_tokens": size.profile_output_tokens,
        }

    def profile_point(self, point: ProfilePoint) -> BucketPoint:
        """A LENS profile point: the whole batch with one length."""
        request = Request(input_tokens=point.input_tokens, output_tokens=point.output_tokens)
        return BucketPoint(
            name=profile_name(point.bucket, point.output_tokens),
            requests=(request,) * self.batch_size,
            pure_bucket=point.bucket,
            visit_s=PROFILE_VISIT_S,
        )

    def profile_points(self, buckets: Sequence[int]) -> tuple[ProfilePoint, ...]:
        """Two a bucket; planned over the whole set, since a bucket's width depends on its neighbour."""
        planned = plan_points(self.buckets, output_tokens=self.size.profile_output_tokens)
        return tuple(point for point in planned if point.bucket in buckets)

    def moves(self, buckets: Sequence[int]) -> tuple[BucketPoint, ...]:
        """The moves into each of these buckets from its smaller neighbour in the set; none where no cache moves."""
        if not self.service.moves_cache:
            return ()
        pairs = zip(self.buckets, self.buckets[1:], strict=False)
        return tuple(
            BucketPoint(name=move_name(small, large), move=(small, large)) for small, large in pairs if large in buckets
        )

    def draws(self, name: str) -> tuple[BucketPoint, ...]:
        """The batches drawn from a workload: each a point, the lengths of one seeded sample."""
        requests = self.sample(name).requests
        size = self.batch_size
        return tuple(
            BucketPoint(
                name=f"batch/{name}/{index}",
                requests=requests[index * size : (index + 1) * size],
                warm_up=False,
                visit_s=DRAWN_VISIT_S,
            )
            for index in range(self.size.num_draws)
        )

    def sample(self, name: str) -> LengthSample:
        """The workload's requests for this plan, filtered to the largest bucket; counts what that dropped."""
        return _sample(name, self.size.num_draws * self.batch_size, self.batch_size, self.buckets[-1])

    def touched(self, points: Iterable[BucketPoint]) -> tuple[int, ...]:
        """Every bucket from a batch's shortest prompt to its longest KV length, over all these batches."""
        found, keys = set[int](), self.keys
        for point in points:
            prompts = [item.input_tokens for item in point.requests]
            final = max(item.input_tokens + item.output_tokens - 1 for item in point.requests)
            first = keys.prefill_key(min(prompts))
            last = max(keys.prefill_key(max(prompts)), keys.decode_key(final, self.batch_size))
            found.update(bucket for bucket in self.buckets if first <= bucket <= last)
        return tuple(sorted(found))


def bucket_plans(
    spec: HardwareSpec,
    profile: str,
    engine: str = "reference",
    *,
    case_error: float | None = None,
    mean_error: float | None = None,
    rivals: tuple[str, ...] = (),
) -> Iterator[BucketPlan]:
    """One for each model and batch size of a profile; the limits are the hardware file's where none are given."""
    if not spec.models:  # a file about a server
        return
    size = spec.profile(profile)
    for model in size.models:
        for batch_size in spec.batch_sizes_of(model, size):
            yield BucketPlan(
                spec=spec,
                size=size,
                model=model,
                batch_size=batch_size,
                case_error=spec.case_error if case_error is None else case_error,
                mean_error=spec.mean_error if mean_error is None else mean_error,
                engine=engine,
                rivals=rivals,
            )


def chosen_plans(spec: HardwareSpec, choice: Choice) -> Iterator[BucketPlan]:
    """Those of a run, under limits that it may tighten, as they are measured on its engine. Raises ConfigError for a
    limit that is looser than the hardware file's."""
    plans = bucket_plans(
        spec,
        choice.profile,
        choice.engine,
        case_error=_tightened("case_error", choice.case_error, spec.case_error),
        mean_error=_tightened("mean_error", choice.mean_error, spec.mean_error),
        rivals=choice.rivals,
    )
    return (plan.service.plan(plan) for plan in plans)


def _tightened(name: str, asked: float | None, limit: float) -> float:
    if asked is None:
        return limit
    if asked > limit:
        raise ConfigError(
            f"--npubench-{name.replace('_', '-')} = {asked:g} is looser than the hardware file's {limit:g}; "
            "it can only tighten"
        )
    return asked


@lru_cache(maxsize=256)
def _sample(name: str, num_requests: int, batch_size: int, max_total_tokens: int) -> LengthSample:
    seed = crc32(f"{name}/{batch_size}".encode())  # other lengths for other batch sizes, the same on every machine
    return workload(name).sample(num_requests, seed=seed, max_total_tokens=max_total_tokens)


def many_requests(name: str, num_requests: int, max_total_tokens: int) -> tuple[Lengths, Lengths]:
    """Input and output tokens, int64 [num_requests] each, of one seeded sample of a workload."""
    requests = workload(name).sample(num_requests, seed=0, max_total_tokens=max_total_tokens).requests
    inputs = np.array([item.input_tokens for item in requests], dtype=np.int64)
    return inputs, np.array([item.output_tokens for item in requests], dtype=np.int64)
