"""What a campaign is about, and the points that its cases ask for. Equal on every machine, so a digest tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npubench.campaign.plan import EnginePlan
from pytest_npubench.core import families
from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import ConfigError
from pytest_npubench.suites.buckets.points import (
    ANSWERS,
    NUM_PAIR_STEPS,
    BucketPoint,
    Variant,
    declared_in,
    move_name,
    pair_name,
    profile_name,
)
from pytest_npubench.suites.buckets.sampling import drawn_batches, sample, touched_buckets
from pytest_npubench.suites.buckets.traits import BucketTraits

if TYPE_CHECKING:
    from pytest_npubench.campaign.points import Measured
    from pytest_npubench.core.buckets import BucketKeys
    from pytest_npubench.core.hardware import HardwareSpec, RunSize
    from pytest_npubench.engines.shapes import DecoderShape
    from pytest_npubench.predictors.two_point import ProfilePoint
    from pytest_npubench.suites.protocol import Choice
    from pytest_npubench.workloads import LengthSample


ONLINE = "online"
COVERAGE = "band_coverage"
FUSION = "fusion"
MIN_BATCHES = 12  # that a campaign must have for how many a band holds to mean something
TRANSFERRED = "transferred"  # the rival that scales another device's profile
SEARCHES = ("batch_search", "bucket_choice", "bucket_search")
REQUESTS_PER_SLOT = 8  # and round: a 99th percentile wants hundreds in all
UTILISATION = 0.3  # of the rate that all requests at once are served at: at 0.4 one of a hundred waits for a slot
PROFILE_VISIT_S = 1.6  # every prediction of a bucket rests on its two points
SEARCH_VISIT_S = 0.3  # of a point of each engine that a search compares: there are many


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlan(EnginePlan):
    """One device, model and batch size under one run size, with the limits its predictions are held to.

    rivals: predictors that are judged beside LENS, which no case is held to, so they are no part of its settings.
    transfer: the journal whose profile a rival scales to this device.
    is_online: a campaign of its own, in which requests are served as they arrive; its profile points are served too.
    is_search: a campaign of its own, in which engines of all batch sizes of `size` and of several bucket sets run the
    same requests; batch_size is the largest of them.
    num_layers: of the engine, where they are not all of the model's.
    active_band: profile points are repeated as their bands need it, until these are within this fraction of the
    predictions (suites/buckets/active.py); None: fixed repeats, as wherever requests are served or engines compared.
    """

    suite = "buckets"
    size: RunSize
    case_error: float
    mean_error: float
    rivals: tuple[str, ...] = ()
    transfer: str | None = None
    is_online: bool = False
    is_search: bool = False
    num_layers: int | None = None
    active_band: float | None = None

    @property
    def shape(self) -> DecoderShape:
        """Returns the engine's shape. Raises RegistryError for a model that no shape has."""
        from pytest_npubench.engines.shapes import dense_shape

        shape = dense_shape(self.model)
        return shape if self.num_layers is None else replace(shape, num_layers=self.num_layers)

    @property
    def service(self) -> BucketTraits:
        """How the engine runs the suite."""
        return self.part(BucketTraits)

    @property
    def key(self) -> str:
        purpose = "-online" if self.is_online else "-search" if self.is_search else ""
        return f"{self.spec.name}-{self.model}-b{self.batch_size}{purpose}{self.engine_suffix}"

    @property
    def limits(self) -> dict[str, float]:
        return {"case_error": self.case_error, "mean_error": self.mean_error}

    def includes(self, kind: str) -> bool:
        """Canary kernels are left out where the engine cannot run them."""
        if self.is_online or kind == ONLINE:
            return self.is_online and kind == ONLINE
        if self.is_search or kind in SEARCHES:
            return self.is_search and kind in SEARCHES
        if kind == ANSWERS:
            return self.service.tells_answers
        if kind == COVERAGE:
            return self.has_many_batches and self.service.pads_decode
        if kind == FUSION:
            return self.is_first and self.has_many_batches and self.service.has_fusions(self.spec.family)
        return kind != "canary" or self.service.has_canaries(self.spec.family)

    @property
    def has_many_batches(self) -> bool:
        """Whether it measures long enough for what a quick profile has no time for."""
        return self.size.num_draws * len(self.size.workloads) >= MIN_BATCHES

    @property
    def is_first(self) -> bool:
        """Whether it is the first campaign of its hardware file and run size."""
        return (self.model, self.batch_size) == (
            self.size.models[0],
            self.spec.batch_sizes_of(self.size.models[0], self.size)[0],
        )

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
            **(
                {"profile_first_output_tokens": size.profile_first_output_tokens}
                if size.profile_first_output_tokens > 1
                else {}
            ),
            **({"num_requests": self.num_requests, "utilisation": UTILISATION} if self.is_online else {}),
            **({"searched_batch_sizes": size.batch_sizes} if self.is_search else {}),
            **({} if self.active_band is None else {"active_band": self.active_band}),
        }

    @property
    def num_requests(self) -> int:
        """Counts the requests that arrive in one round of a served workload."""
        return REQUESTS_PER_SLOT * self.batch_size

    def of(self, variant: Variant) -> BucketPlan:
        """Returns the plan of one engine of those that a search compares."""
        return replace(
            self,
            batch_size=variant.batch_size,
            size=replace(self.size, buckets=variant.buckets),
            num_layers=variant.num_layers,
            rivals=(),
            is_search=False,
            active_band=None,
        )

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Returns the engines that a search compares: every batch size in all buckets; at the largest, every set of at
        most two buckets that holds the largest one."""
        sets = [(*rest, self.buckets[-1]) for rest in ((), *((one,) for one in self.buckets[:-1]))]
        return tuple(
            dict.fromkeys(
                (
                    *(Variant(batch_size=batch, buckets=self.buckets) for batch in self.size.batch_sizes),
                    *(Variant(batch_size=self.batch_size, buckets=one) for one in sets),
                )
            )
        )

    def shallow(self, num_layers: int) -> Variant:
        """This engine with that many of its layers."""
        return Variant(batch_size=self.batch_size, buckets=self.buckets, num_layers=num_layers)

    def searched_batches(self, name: str, variant: Variant) -> tuple[BucketPoint, ...]:
        """Puts a workload's requests, which are the same on every engine, in batches of this engine's size."""
        requests = sample(name, self.batch_size, self.batch_size, self.buckets[-1]).requests
        size = variant.batch_size
        return tuple(
            BucketPoint(
                name=f"batch/{name}/{start // size}",
                requests=requests[start : start + size],
                warm_up=False,
                visit_s=SEARCH_VISIT_S,
            )
            for start in range(0, len(requests), size)
        )

    def profile_point(self, point: ProfilePoint) -> BucketPoint:
        """Returns a LENS profile point: the whole batch with one length. Where it is served, a prompt starts with each
        step and all end with the same one, so that there are as many as the first prompt has."""
        later = 1 if self.is_online else 0
        return BucketPoint(
            name=profile_name(point.bucket, point.output_tokens),
            requests=tuple(
                Request(input_tokens=point.input_tokens, output_tokens=point.output_tokens - later * row)
                for row in range(self.batch_size)
            ),
            pure_bucket=point.bucket,
            visit_s=PROFILE_VISIT_S,
        )

    def profile_points(self, buckets: Sequence[int]) -> tuple[ProfilePoint, ...]:
        """Two a bucket; planned over the whole set, since a bucket's width depends on its neighbour."""
        from pytest_npubench.predictors.two_point import plan_points

        planned = plan_points(
            self.buckets,
            output_tokens=self.size.profile_output_tokens,
            first_output_tokens=self.batch_size if self.is_online else self.size.profile_first_output_tokens,
        )
        return tuple(point for point in planned if point.bucket in buckets)

    def pair_point(self, workload: str) -> BucketPoint:
        """Makes, in the smallest bucket, a request that stays to its end, and a short one that joins it."""
        bucket = self.buckets[0]
        longest = max(point.output_tokens for point in self.profile_points((bucket,)))
        input_tokens, short = bucket - longest, min(NUM_PAIR_STEPS, longest // 2)
        return BucketPoint(
            name=pair_name(bucket),
            requests=tuple(Request(input_tokens=input_tokens, output_tokens=number) for number in (longest, short)),
            workload=workload,
        )

    def moves(self, buckets: Sequence[int]) -> tuple[BucketPoint, ...]:
        """Returns the moves into each of these buckets from its smaller neighbour in the set; none where no cache
        moves."""
        if not self.service.moves_cache:
            return ()
        pairs = zip(self.buckets, self.buckets[1:], strict=False)
        return tuple(
            BucketPoint(name=move_name(small, large), move=(small, large)) for small, large in pairs if large in buckets
        )

    def draws(self, name: str) -> tuple[BucketPoint, ...]:
        """Returns the batches drawn from a workload: each a point, the lengths of one seeded sample."""
        return drawn_batches(
            name, num_batches=self.size.num_draws, batch_size=self.batch_size, max_total_tokens=self.buckets[-1]
        )

    def sample(self, name: str) -> LengthSample:
        """Returns the workload's requests for this plan, filtered to the largest bucket; counts what that dropped."""
        return sample(name, self.size.num_draws * self.batch_size, self.batch_size, self.buckets[-1])

    def profiled(self, points: Iterable[BucketPoint]) -> tuple[int, ...]:
        """Returns the buckets that a prediction of these batches rests on: those that they touch; all of them where
        they may turn out to be lengths of a slope, which is straight between two."""
        return self.buckets if self.service.pads_as_it_will else self.touched(points)

    def touched(self, points: Iterable[BucketPoint]) -> tuple[int, ...]:
        """Every bucket from a batch's shortest prompt to its longest KV length, over all these batches."""
        return touched_buckets(points, self.keys, self.buckets, self.batch_size)


def bucket_plans(
    spec: HardwareSpec,
    profile: str,
    engine: str = "reference",
    *,
    case_error: float | None = None,
    mean_error: float | None = None,
    rivals: tuple[str, ...] = (),
    transfer: str | None = None,
    active_band: float | None = None,
) -> Iterator[BucketPlan]:
    """One for each model and batch size of a profile; the limits are the hardware file's where none are given. None for
    a server, whose file has no models, and where no program of ours runs."""
    if not spec.models or not families.declared(spec.family).runs_programs:
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
                transfer=transfer,
                active_band=active_band,
            )


def chosen_plans(spec: HardwareSpec, choice: Choice) -> Iterator[BucketPlan]:
    """Chooses the plans of a run, under limits that it may tighten, as they are measured on its engine. Raises
    ConfigError for a limit that is looser than the hardware file's."""
    asked = choice.options
    scales = (TRANSFERRED,) if asked.get("transfer") else ()
    plans = bucket_plans(
        spec,
        choice.profile,
        choice.engine,
        case_error=_tightened("case_error", asked.get("case_error"), spec.case_error),
        mean_error=_tightened("mean_error", asked.get("mean_error"), spec.mean_error),
        rivals=tuple(dict.fromkeys((*asked.get("predictors", ()), *scales))),
        transfer=asked.get("transfer"),
        active_band=asked.get("active_band"),
    )
    every = tuple(plans)
    yield from _with_online(every)
    yield from _searches(every)


def _with_online(plans: Sequence[BucketPlan]) -> Iterator[BucketPlan]:
    """And those in which each model is served online, where the engine can."""
    yield from plans
    for plan in {plan.model: plan for plan in plans if plan.service.has_slots}.values():
        size = plan.size
        served = replace(
            size,
            batch_sizes=size.online_batch_sizes,
            buckets=size.online_buckets or size.buckets,
            workloads=size.workloads[:1],
        )
        for batch_size in plan.spec.batch_sizes_of(plan.model, served):
            yield replace(plan, batch_size=batch_size, size=served, is_online=True, active_band=None)


def _searches(plans: Sequence[BucketPlan]) -> Iterator[BucketPlan]:
    """Chooses the plans in which engines of each model are compared, where the engine can."""
    for plan in {plan.model: plan for plan in plans if plan.service.compares_engines}.values():
        size = plan.size
        searched = replace(
            size,
            batch_sizes=size.search_batch_sizes,
            buckets=size.search_buckets or size.buckets,
            workloads=size.workloads[:1],
        )
        batch_sizes = plan.spec.batch_sizes_of(plan.model, searched)
        if batch_sizes and plan.model in size.search_models:
            searched = replace(searched, batch_sizes=batch_sizes)
            yield replace(plan, batch_size=max(batch_sizes), size=searched, is_search=True, active_band=None)


def _tightened(name: str, asked: float | None, limit: float) -> float:
    if asked is None:
        return limit
    if asked > limit:
        raise ConfigError(
            f"--npubench-{name.replace('_', '-')} = {asked:g} is looser than the hardware file's {limit:g}; "
            "it can only tighten"
        )
    return asked


def continuous_words(plan: BucketPlan) -> str:
    return f"{plan.runner.title} has no buckets here: latency is continuous"


def nominal_words(plan: BucketPlan) -> str:
    return f"{continuous_words(plan)}, so LENS takes what it measured for a slope"


def is_continuous(plan: BucketPlan, measured: Measured) -> bool:
    """Whether the plan's buckets are nominal: no compiler and no engine has them."""
    return plan.service.pads_as_it_will and not declared_in(measured.rounds)


def boundaries(plan: BucketPlan, measured: Measured) -> tuple[int, ...]:
    """Lengths of prompts behind which a step is declared."""
    from pytest_npubench.core.buckets import Spans

    if plan.service.pads_as_it_will:
        return declared_in(measured.rounds)
    return Spans.of(plan.keys.prefill_key, plan.keys.max_input_tokens).edges


def mismatch(plan: BucketPlan, declared: Sequence[int]) -> str | None:
    """Why LENS cannot be profiled: the engine declares another set than the plan has. None where it can."""
    if not declared or tuple(declared) == plan.buckets:
        return None
    return (
        f"{plan.runner.title} declares the buckets {_listed(declared)}, the plan has {_listed(plan.buckets)}; want one "
        f"set: name {plan.runner.title}'s in [buckets] of a hardware file (--npubench-hardware)"
    )


def _listed(buckets: Sequence[int]) -> str:
    return ", ".join(map(str, buckets))
