"""Times the points of the bucket suite: batches end to end, moves of the KV cache, canary kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.backends.protocol import Runtime, peak_memory_bytes
from pytest_npubench.backends.telemetry import open_telemetry
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.rounds import failure_reason
from pytest_npubench.campaign.visits import Round, Visit, columns_of
from pytest_npubench.campaign.warmup import warm_up
from pytest_npubench.engines.protocol import Canaries, Engine, Parts
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors.compiler import PREDICTOR as COMPILER
from pytest_npubench.predictors.two_point import check_pure
from pytest_npubench.suites.buckets.estimated_binaries import estimated
from pytest_npubench.suites.buckets.plan import BucketPlan, mismatch
from pytest_npubench.suites.buckets.points import BucketPoint, BucketVisit, Variant
from pytest_npubench.suites.buckets.shared_visits import round_visits

if TYPE_CHECKING:
    from pytest_npubench.campaign.answer_visit import AnswerVisit

# XLA's status, and what allocators say
OUT_OF_MEMORY = ("resource_exhausted", "out of memory", "allocate memory")


class BucketBench:
    """One engine with its buckets, and its canaries."""

    def __init__(
        self,
        runtime: Runtime,
        plan: BucketPlan,
        make_engine: Callable[[Runtime, BucketPlan], Engine],
        folder: Path | None = None,
    ) -> None:
        """folder: where references of answers are kept, None: nowhere."""
        self._runtime, self._plan, self._folder = runtime, plan, folder
        self._answers: AnswerVisit | None = None
        self._engine = make_engine(runtime, plan)
        self._telemetry: Telemetry | None = None
        self._has_energy = True
        self._ran: dict[str, Mapping[str, int]] = {}  # by point, in its latest visit

    def load(
        self,
        points: Sequence[BucketPoint],
        earlier: Sequence[Round],
        stage: Callable[[str], None],
    ) -> Mapping[str, str]:
        """Compile every bucket that a point touches, small to large, every move, every canary. A bucket that cannot be
        had takes its points along, and the larger ones where memory ran out; the smaller ones go on."""
        lost = self._load_buckets(points, stage)
        failures = {point.name: reason for point in points if (reason := self._first(lost, point)) is not None}
        failures.update(self._load_moves(points, failures))
        failures.update(self._check_answers(points, earlier, failures, stage))
        if COMPILER.name in self._plan.rivals:
            stage("reading the compiler's estimates")
            self._runtime.compiles[:] = estimated(self._runtime.compiles, self._engine, self._plan)
        return {
            **failures,
            **self._load_alone(points),
            **self._mismatched(points),
        }

    def _load_buckets(self, points: Sequence[BucketPoint], stage: Callable[[str], None]) -> dict[int, str]:
        """Returns the reason of each bucket that cannot be had. Raises what loading raised where not one can."""
        lost: dict[int, str] = {}
        error: Exception | None = None
        touched = self._plan.touched(point for point in points if point.requests)
        if any(point.answers for point in points):
            touched = self._plan.buckets
        for index, bucket in enumerate(touched):
            stage(f"compiling bucket {bucket}")
            try:
                self._engine.load((bucket,))
            except Exception as raised:  # noqa: BLE001 - out of memory, a failed compile: its points say so
                error, lost[bucket] = raised, failure_reason(f"bucket {bucket}", raised)
                if is_out_of_memory(raised):  # then larger ones, minutes of compiling each, would not fit either
                    lost.update(dict.fromkeys(touched[index + 1 :], f"not tried: {lost[bucket]}"))
                    break
        if error is not None and len(lost) == len(touched):
            raise error
        return lost

    def _load_moves(self, points: Sequence[BucketPoint], failures: Mapping[str, str]) -> dict[str, str]:
        failed: dict[str, str] = {}
        for point in points:
            try:
                if point.move and point.name not in failures:
                    self._engine.load(point.move)
            except Exception as error:  # noqa: BLE001 - as for a bucket
                failed[point.name] = failure_reason(point.name, error)
        return failed

    def _check_answers(
        self,
        points: Sequence[BucketPoint],
        earlier: Sequence[Round],
        failures: Mapping[str, str],
        stage: Callable[[str], None],
    ) -> dict[str, str]:
        """Before anything is timed, and not again where an earlier round has them. Nothing of it is timed."""
        failed: dict[str, str] = {}
        for point in points:
            if point.answers and point.name not in failures and not _is_in(earlier, point):
                stage("checking answers")
                try:
                    self._answers = self._checked_answers()
                except Exception as error:  # noqa: BLE001 - as for a bucket
                    failed[point.name] = failure_reason(point.name, error)
        return failed

    def _checked_answers(self) -> AnswerVisit:
        """Raises MeasurementError where the engine has none."""
        from pytest_npubench.campaign.answer_visit import answer_visit
        from pytest_npubench.engines.answer_reference import answer_reference
        from pytest_npubench.engines.probe import probe_prompts

        shape = dense_shape(self._plan.model)
        answers = self._engine.answers(probe_prompts(shape.vocab_size, self._plan.buckets))
        if answers is None:
            raise MeasurementError(f"unavailable: {self._engine.name} does not answer probe prompts")
        kept = None if self._folder is None else self._folder / "answer-references"
        return answer_visit(
            answers, answer_reference(shape, self._plan.spec.dtype, answers.prompts, kept, answers.weights)
        )

    def _first(self, lost: Mapping[int, str], point: BucketPoint) -> str | None:
        """Why the smallest of a point's buckets that were lost was lost."""
        buckets = point.move or (self._plan.touched((point,)) if point.requests else ())
        if point.answers:
            buckets = self._plan.buckets
        return next((lost[bucket] for bucket in buckets if bucket in lost), None)

    def _load_alone(self, points: Sequence[BucketPoint]) -> dict[str, str]:
        """A canary or a part that cannot be had fails alone: what rests on it says so."""
        failures: dict[str, str] = {}
        for point in points:
            try:
                if point.kernel:
                    self._canaries.load(point.kernel)
                if point.part:
                    self._parts.load(point.part)
            except Exception as error:  # noqa: BLE001 - as in a round: this point ends, the others go on
                failures[point.name] = failure_reason(point.name, error)
        return failures

    def _mismatched(self, points: Sequence[BucketPoint]) -> dict[str, str]:
        """Profile points and drawn batches, where the engine pads to other lengths than the plan has. Steps are looked
        for all the same."""
        reason = mismatch(self._plan, self._engine.declared)
        if reason is None:
            return {}
        return {point.name: reason for point in points if point.pure_bucket is not None or not point.warm_up}

    def warm_up(self, point: BucketPoint) -> tuple[float, bool]:
        """Profile points warm a drawn batch: that one is run once. Answers are there already."""
        if point.answers:
            return 0.0, True
        if point.warm_up:
            return warm_up(lambda: self._time(point)[0])
        return self._time(point)[0], True

    def visits(
        self, points: Sequence[BucketPoint], measured: Measured, durations_s: Mapping[str, float]
    ) -> Mapping[str, int]:
        """Plans the visits of what predictions rest on and are judged by."""
        return planned_visits(self._plan, points, measured, durations_s)

    def sample(self, point: BucketPoint, round_index: int) -> Visit:
        """One timing, and of a batch what the engine declares of its buckets; of a profile point the joules that it
        took, by a counter that is read before and behind what is timed, and the peak of the device's memory."""
        if point.answers and self._answers is not None:
            return self._answers
        counts = point.pure_bucket is not None
        before_j = self._energy_j() if counts else None
        seconds, ran = self._time(point)
        after_j = self._energy_j() if before_j is not None else None
        return BucketVisit(
            seconds=seconds,
            declared=tuple(self._engine.declared) if point.requests else (),
            energy_j=None if before_j is None or after_j is None or after_j < before_j else after_j - before_j,
            peak_bytes=peak_memory_bytes(self._runtime) if counts else None,
            ran=self._unwritten(point, ran),
        )

    def _unwritten(self, point: BucketPoint, ran: Mapping[str, int]) -> Mapping[str, int]:
        """What a visit ran where it differs from the visit before, so that rounds do not repeat it."""
        before = self._ran.get(point.name, {})
        self._ran[point.name] = ran
        return {} if ran == before else {**dict.fromkeys(before, 0), **ran}

    def _energy_j(self) -> float | None:
        """Reads the device's energy since some start; None from the first time on that it does not tell. A counter at
        0, as virtual machines have it, was never one."""
        if not self._has_energy:
            return None
        self._telemetry = self._telemetry or open_telemetry(self._runtime)
        energy_j = (self._telemetry.read().energy_j if self._telemetry else None) or None
        self._has_energy = energy_j is not None
        return energy_j

    def close(self) -> None:
        """End what the engine started."""
        if self._telemetry is not None:
            self._telemetry.close()
        self._engine.close()

    def _time(self, point: BucketPoint) -> tuple[float, Mapping[str, int]]:
        """Seconds, and what ran how often. Raises ImpureProfileError where a profile point left its bucket."""
        if point.kernel:
            return self._canaries.time(point.kernel), {}
        if point.part:
            return self._parts.time(point.part), {}
        if point.move:
            move = self._engine.time_move(*point.move)
            return move.duration_s, {move.name: 1}
        run = self._engine.run(point.requests)
        if point.pure_bucket is not None:
            check_pure(point.pure_bucket, run, self._plan.service.pure_phases)
        return run.e2e_s, run.counts

    @property
    def _canaries(self) -> Canaries:
        """Raises MeasurementError where the engine has none."""
        if self._engine.canaries is None:
            raise MeasurementError(f"no canary kernels where {self._engine.name} runs")
        return self._engine.canaries

    @property
    def _parts(self) -> Parts:
        """Raises MeasurementError where the engine has none."""
        if self._engine.parts is None:
            raise MeasurementError(f"unavailable: {self._engine.name} does not run its parts alone")
        return self._engine.parts


class VariantBench:
    """campaign.protocol.Bench of several engines in one process, of batch sizes, bucket sets or numbers of layers: each
    point is measured on the engine that it names, else on the plan's own."""

    def __init__(
        self,
        runtime: Runtime,
        plan: BucketPlan,
        make_engine: Callable[[Runtime, BucketPlan], Engine],
        folder: Path | None = None,
    ) -> None:
        self._folder = folder
        self._runtime, self._plan, self._make_engine = runtime, plan, make_engine
        self._benches: dict[Variant | None, BucketBench] = {}

    def load(
        self, points: Sequence[BucketPoint], earlier: Sequence[Round], stage: Callable[[str], None]
    ) -> Mapping[str, str]:
        failures: dict[str, str] = {}
        variants = dict.fromkeys(point.variant for point in points)
        for variant in sorted(variants, key=lambda each: each is not None):  # the plan's own before those beside it
            members = [point for point in points if point.variant == variant]
            failures |= self._load(variant, members, earlier, stage)
        return failures

    def _load(
        self,
        variant: Variant | None,
        points: Sequence[BucketPoint],
        earlier: Sequence[Round],
        stage: Callable[[str], None],
    ) -> Mapping[str, str]:
        """Loads an engine, whose binaries' records have names of their own, as its points have."""
        if variant is None:
            self._benches[None] = BucketBench(self._runtime, self._plan, self._make_engine, self._folder)
            return self._benches[None].load(points, earlier, stage)
        before = len(self._runtime.compiles)
        try:
            self._benches[variant] = BucketBench(self._runtime, self._plan.of(variant), self._make_engine)
            return self._benches[variant].load(points, (), lambda text: stage(f"{variant.name}: {text}"))
        except Exception as error:
            if not all(point.beside for point in points):
                raise
            return dict.fromkeys((point.name for point in points), failure_reason(variant.name, error))
        finally:
            made = self._runtime.compiles[before:]
            self._runtime.compiles[before:] = [replace(one, name=variant.prefix + one.name) for one in made]

    def warm_up(self, point: BucketPoint) -> tuple[float, bool]:
        return self._benches[point.variant].warm_up(point)

    def visits(
        self, points: Sequence[BucketPoint], measured: Measured, durations_s: Mapping[str, float]
    ) -> Mapping[str, int]:
        return planned_visits(self._plan, points, measured, durations_s)

    def sample(self, point: BucketPoint, round_index: int) -> Visit:
        return self._benches[point.variant].sample(point, round_index)

    def close(self) -> None:
        for bench in self._benches.values():
            bench.close()


def planned_visits(
    plan: BucketPlan, points: Sequence[BucketPoint], measured: Measured, durations_s: Mapping[str, float]
) -> dict[str, int]:
    """How often the next round visits what predictions rest on, and answers, which one round tells."""
    answered = {point.name: 0 for point in points if point.answers and _is_in(measured.rounds, point)}
    return {**round_visits(plan, points, measured, durations_s), **answered}


def _is_in(rounds: Iterable[Round], point: BucketPoint) -> bool:
    return any(columns_of(row, point.name) for row in rounds)


def is_out_of_memory(error: Exception) -> bool:
    """Whether a compiler or an allocator gave up for want of memory. XLA and OpenVINO say so in words alone."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    return any(words in text.lower() for words in OUT_OF_MEMORY)
