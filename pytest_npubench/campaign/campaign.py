"""One campaign from its points to its samples: compile, warm up, measure in rounds, journal each round.

Where the journal holds rounds of the same campaign on the same fingerprint they are taken over and measuring goes on
after them; where they were enough, the device is not touched again.

A round in which the device was throttled, shared or held back is journalled, does not count and is repeated. After
max(3, min_rounds) of them it is not: with min_rounds clean ones the campaign ends with these, and else with all rounds
and a reason why its cases are invalid. A resumed campaign counts its disturbed rounds from nought.

A case that fails when the budget is spent, or may fail, is measured on, up to half the budget again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytest_npubench.backends.protocol import Device, Runtime
from pytest_npubench.backends.telemetry.disturbance import DisturbanceLimits
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import Bench, CampaignPlan, CampaignPoint, Progress, campaign_digest
from pytest_npubench.campaign.rounds import failure_reason, measure_round, num_visits
from pytest_npubench.campaign.visits import columns_of
from pytest_npubench.campaign.watch import Watch, Watched
from pytest_npubench.errors import DeviceUnavailableError, JournalError
from pytest_npubench.store.journal import Journal

MIN_DISTURBED_ROUNDS = 3
OVERTIME = 1.5
"""Of the budget, while a case fails its limits or is in doubt of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignSite:
    """Where a campaign runs: the open runtime of its devices, which nobody else uses meanwhile, their fingerprint's
    digest, and how much disturbance a round may have seen."""

    devices: tuple[Device, ...]
    runtime: Runtime
    fingerprint: str
    limits: DisturbanceLimits = field(default_factory=DisturbanceLimits)


def by_name(points: Sequence[CampaignPoint]) -> tuple[CampaignPoint, ...]:
    """Each point once; a point without a definition gives way to its namesake with one."""
    points_by_name: dict[str, CampaignPoint] = {}
    for point in points:
        if point.name not in points_by_name or points_by_name[point.name].definition is None:
            points_by_name[point.name] = point
    return tuple(points_by_name.values())


class Records(Protocol):
    """Takes records; each is on the disk when `append` returns."""

    def append(self, record: Mapping[str, object]) -> None: ...


class Campaign:
    """Measures once, on the first demand.

    `settled` says whether more rounds would tell its cases nothing new, `failing` whether one fails its limits so far
    or may.
    """

    def __init__(
        self,
        plan: CampaignPlan,
        points: Sequence[CampaignPoint],
        *,
        site: CampaignSite,
        make_bench: Callable[[Runtime], Bench[Any]],
        settled: Callable[[Measured], bool],
        failing: Callable[[Measured], bool] = lambda _: False,
        journal: Records,
        earlier: Journal | None,
        progress: Progress,
    ) -> None:
        self.plan = plan
        self.points = by_name(points)
        self.digest = campaign_digest(plan, self.points)
        self._site = site
        self._make_bench = make_bench
        self._settled = settled
        self._failing = failing
        self._journal = journal
        self._earlier = earlier
        self._progress = progress
        self._measured: Measured | None = None
        self._next_round = 0

    def measured(self) -> Measured:
        """Returns the samples of all points; what a point or the bench raises fails its points."""
        if self._measured is None:
            measured, complete = self._resumed()
            self._measured = measured if complete else self._measure(measured)
        return self._measured

    def _resumed(self) -> tuple[Measured, bool]:
        measured = Measured()
        if self._earlier is None:
            return measured, False
        rounds = self._earlier.rounds(self.plan.key, self.digest, self._site.fingerprint)
        given_up = False
        for record in rounds:
            samples = {name: tuple(values) for name, values in record["points"].items()}
            measured.add(samples, Watched.from_json(record))
            given_up = bool(record.get("complete")) and self._too_few(measured)
            if given_up:  # what was too disturbed gets another try, with all its repeats
                measured.disturbed_rounds.clear()
                measured.disturbances.clear()
            self._next_round = record["round"] + 1
            measured.measure_s += record.get("duration_s", 0.0)
            measured.num_late_compiles = max(measured.num_late_compiles, record.get("num_late_compiles", 0))
        measured.num_resumed_rounds = len(rounds)
        if self._earlier is not None:
            measured.compiles = self._earlier.compiles(self.digest, self._site.fingerprint)
        last = rounds[-1] if rounds else {}
        # what failed gets another try, and so does what is asked for now and was not then
        seen = all(any(columns_of(row, point.name) for row in measured.rounds) for point in self.points)
        return measured, bool(last.get("complete")) and not last.get("failures") and not given_up and seen

    def _measure(self, measured: Measured) -> Measured:
        with ExitStack() as ends:
            try:
                bench = self._load(measured, ends)
            except JournalError:
                raise
            except Exception as error:  # noqa: BLE001 - out of memory, a failed compile, a lost device: cases say so
                reason = failure_reason(self.plan.key, error)
                measured.failures.update(dict.fromkeys((point.name for point in self.points), reason))
                return measured
            durations_s = self._warm_up(bench, measured)
            self._run_rounds(bench, measured, durations_s)
        return measured

    def _load(self, measured: Measured, ends: ExitStack) -> Bench[Any]:
        """Everything that comes before warm-up. A point that cannot be had fails alone: its case says so."""
        self._progress.stage(self.plan.key, "loading")
        runtime = self._site.runtime
        before = len(runtime.compiles)
        bench = self._make_bench(runtime)
        if close := getattr(bench, "close", None):
            ends.callback(close)
        stage = lambda text: self._progress.stage(self.plan.key, text)  # noqa: E731 - one argument of the two stays
        measured.failures.update(bench.load(self.points, measured.rounds, stage))
        measured.compiles = tuple(runtime.compiles[before:])
        for record in measured.compiles:
            self._journal.append(
                {
                    "record": "compile",
                    "fingerprint": self._site.fingerprint,
                    "campaign": self.plan.key,
                    "campaign_digest": self.digest,
                    "name": record.name,
                    "compile_s": record.compile_s,
                    "cache": record.cache.value,
                    **record.from_compiler,
                }
            )
        return bench

    def _warm_up(self, bench: Bench[Any], measured: Measured) -> dict[str, float]:
        """Returns seconds of each point once warm. A point that fails here is left out of the rounds."""
        durations_s: dict[str, float] = {}
        unsteady = []
        for index, point in enumerate(self.points):
            self._progress.stage(self.plan.key, f"warming up {index + 1}/{len(self.points)}")
            if point.name in measured.failures:
                continue
            try:
                durations_s[point.name], steady = bench.warm_up(point)
            except Exception as error:  # noqa: BLE001 - as in a round: this point ends, the others go on
                measured.failures[point.name] = failure_reason(point.name, error)
                continue
            if not steady:
                unsteady.append(point.name)
        measured.unsteady = tuple(unsteady)
        return durations_s

    def _run_rounds(self, bench: Bench[Any], measured: Measured, durations_s: dict[str, float]) -> None:
        runtime = self._site.runtime
        compiles_before = runtime.num_process_compiles - measured.num_late_compiles
        with Watch(runtime, self._site.limits) as watch:
            while points := [point for point in self.points if point.name not in measured.failures]:
                try:
                    samples, failures, duration_s, watched = self._watched_round(
                        bench, measured, points, durations_s, watch
                    )
                except DeviceUnavailableError as error:
                    measured.failures.update(dict.fromkeys((point.name for point in points), str(error)))
                    return
                measured.add(samples, watched)
                measured.failures.update(failures)
                measured.measure_s += duration_s
                measured.num_late_compiles = runtime.num_process_compiles - compiles_before
                complete = self._complete(measured)
                self._append_round(measured, samples, duration_s, watched, complete)
                if complete:
                    break
        if self._too_few(measured):
            measured.keep_disturbed()

    def _watched_round(
        self,
        bench: Bench[Any],
        measured: Measured,
        points: Sequence[CampaignPoint],
        durations_s: Mapping[str, float],
        watch: Watch,
    ) -> tuple[dict[str, tuple[float, ...]], dict[str, str], float, Watched]:
        """Returns a round between two looks at the device. Raises DeviceUnavailableError where the device is lost."""
        choose = getattr(bench, "visits", None)
        visits = choose(points, measured, durations_s) if choose else {}
        num_samples = sum(num_visits(point, durations_s, visits) for point in points)
        self._progress.begin_round(self.plan, self._next_round, num_samples, measured.measure_s)
        watch.begin()
        samples, failures, duration_s = measure_round(
            points, durations_s, bench.sample, self._next_round, self._progress.sample, visits
        )
        return samples, failures, duration_s, watch.end()

    def _complete(self, measured: Measured) -> bool:
        """Rounds that do not count cost budget all the same, but budget never ends it before min_rounds that do."""
        size, number = self.plan.size, len(measured.rounds)
        if len(measured.disturbed_rounds) >= max(MIN_DISTURBED_ROUNDS, size.min_rounds):
            return True
        if number < size.min_rounds:
            return False
        if number >= size.max_rounds or measured.measure_s >= OVERTIME * size.budget_s or self._settled(measured):
            return True
        return measured.measure_s >= size.budget_s and not self._failing(measured)

    def _too_few(self, measured: Measured) -> bool:
        """Whether disturbed rounds are why fewer than min_rounds count."""
        return bool(measured.disturbed_rounds) and len(measured.rounds) < self.plan.size.min_rounds

    def _append_round(
        self,
        measured: Measured,
        samples: Mapping[str, tuple[float, ...]],
        duration_s: float,
        watched: Watched,
        complete: bool,
    ) -> None:
        self._journal.append(
            {
                "record": "round",
                "fingerprint": self._site.fingerprint,
                "campaign": self.plan.key,
                "campaign_digest": self.digest,
                "round": self._next_round,
                "points": samples,
                "failures": dict(measured.failures),  # with those of warming up, for a run that is resumed
                "duration_s": duration_s,
                "num_late_compiles": measured.num_late_compiles,
                "unsteady": measured.unsteady,  # points whose warm-up never settled
                "complete": complete,
                **watched.to_json(),
            }
        )
        self._next_round += 1
