"""A partition profile from a phone of Qualcomm AI Hub: each unit alone on single matmul graphs, one job a point.

Nothing runs at once there and nothing is handed from unit to unit, so the profile has no slowdown and no copy, its
signal is assumed, and it says measured_alone: whatever is planned by it is a prediction. 400 us is what HeteroInfer
names for a synchronisation of GPU and NPU by the vendor's own means (section 1; baselines/published/heteroinfer.toml).

A point costs a profile job, and a compile job where no point before it has its graph: max_jobs bounds both together. It
cuts the list of points and not the run: one that was killed wants the same jobs again and finds them on the ledger.

Worked number: llama-8b's 5 weights at 1 and 256 tokens with graphs for both, whole: 20 points, 10 graphs, 30 jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_npubench.backends.qualcomm import AiHubRuntime
from pytest_npubench.engines.aihub.jobs import GraphJobs
from pytest_npubench.engines.aihub.ledger import JobLedger
from pytest_npubench.engines.aihub.matmul import MatmulGraph, export_matmul
from pytest_npubench.engines.aihub.options import JobOptions
from pytest_npubench.engines.aihub.profile import GraphProfile
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError, PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, ROLES
from pytest_npubench.extensions.pairs.partition.model_shapes import OperatorShape, distinct
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.profile import REMOTE, PartitionProfile, SyncLatency
from pytest_npubench.extensions.pairs.partition.profile_points import PartPoint, part_points
from pytest_npubench.extensions.pairs.partition.profile_records import ProfileRecords

ASSUMED = "assumed"
MIN_JOBS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneProfile:
    """What came of it. failures: why by graph and unit; num_left_out: points that max_jobs left no job for.

    used: the ledger's keys of the jobs in it, to be settled once the profile is written.
    """

    profile: PartitionProfile
    failures: Mapping[str, str]
    num_left_out: int
    used: tuple[str, ...]


class PhoneProfiler:
    """The jobs of one profile on one phone. Raises StoreError where the ledger cannot be read."""

    def __init__(
        self,
        runtime: AiHubRuntime,
        ledger: Path,
        *,
        stage: Callable[[str], None] = lambda text: None,
        job_options: JobOptions | None = None,
        dtype: str = "fp16",
    ) -> None:
        api, full = runtime.qairt or (None, None)
        device = runtime.device
        self._runtime = runtime
        self._dtype = dtype
        self._jobs = GraphJobs(
            runtime.service,
            device,
            f"{device.name}/{device.os}",
            JobLedger(ledger),
            job_options or JobOptions(units=ROLES, qairt=api, qairt_full=full),
            export=_export,
            stage=stage,
        )

    @property
    def facts(self) -> dict[str, str]:
        """Where it is measured: a phone behind a service, whatever machine asks."""
        stack = self._runtime.stack()
        return {
            REMOTE: self._runtime.service.host,
            "device": stack.device_class,
            "system": stack.driver or "unknown",
            "runtime": stack.runtime or "unknown",
            "options": self._jobs.options.compile_options,
            "dtype": self._dtype,
        }

    def measure(
        self,
        operators: Sequence[OperatorShape],
        lengths: Sequence[int],
        options: SplitOptions,
        *,
        max_jobs: int,
        sync_s: float,
        unfinished: PartitionProfile | None = None,
    ) -> PhoneProfile:
        """The profile of these operators at these token counts, is_finished where every point has its times.

        unfinished: a profile to go on with, whose points cost no job. A job that fails leaves its points out.
        Raises PartitionError for fewer than MIN_JOBS jobs and for an unfinished profile of other options or measured
        elsewhere, MeasurementError with the first reason where every job failed, DeviceUnavailableError where the
        service is out of reach or takes the token no more: the jobs are on the ledger, and a later run takes them up.
        """
        if max_jobs < MIN_JOBS:
            raise PartitionError(f"{max_jobs} jobs; want {MIN_JOBS} or more: one compiles a graph, one profiles it")
        self._check_unfinished(unfinished, options)
        records = ProfileRecords(unfinished)
        records.syncs = {ASSUMED: SyncLatency(mechanism=ASSUMED, p50_s=sync_s, p99_s=sync_s)}
        missing = [point for point in wanted_points(operators, lengths, options) if point.key not in records.latencies]
        chosen = affordable(missing, max_jobs)
        found, failures = self._profiled(chosen)
        records.latencies |= {point.key: list(profile.times_s) for point, profile in found.items()}
        if not records.latencies:
            raise MeasurementError(f"no point was measured: {next(iter(failures.values()), 'there is none')}")
        profile = records.profile(self.facts, options, is_finished=len(found) == len(missing))
        return PhoneProfile(
            profile=replace(profile, measured_alone=True),
            failures={f"{self._graph(point).name} on {point.unit}": reason for point, reason in failures.items()},
            num_left_out=len(missing) - len(chosen),
            used=tuple(self._jobs.profile_key(self._graph(point), point.unit) for point in found),
        )

    def settle(self, found: PhoneProfile) -> None:
        """The profile is written: no later one may take these results for its own."""
        self._jobs.settle(found.used)

    def _check_unfinished(self, profile: PartitionProfile | None, options: SplitOptions) -> None:
        if profile is None:
            return
        profile.check_fingerprint(self.facts)
        if profile.options != options:
            raise PartitionError(f"the unfinished profile is of {profile.options}; want {options}")

    def _profiled(self, points: Sequence[PartPoint]) -> tuple[dict[PartPoint, GraphProfile], dict[PartPoint, str]]:
        """Everything is submitted before anything is waited for. Returns what each point's job found, or why not."""
        failures: dict[PartPoint, str] = {}
        found: dict[PartPoint, GraphProfile] = {}
        broken: dict[MatmulGraph, str] = {}
        for step in (self._jobs.submit_compile, self._jobs.wait_compile):
            for graph in dict.fromkeys(map(self._graph, points)):
                if graph not in broken and (reason := _reason(step, graph)):
                    broken[graph] = reason
        for point in points:
            graph = self._graph(point)
            if reason := broken.get(graph) or _reason(self._jobs.submit_profile, graph, point.unit):
                failures[point] = reason
        for point in points:
            if point not in failures:
                try:
                    found[point] = self._result(point)
                except MeasurementError as error:
                    failures[point] = str(error)
        return found, failures

    def _result(self, point: PartPoint) -> GraphProfile:
        """Raises MeasurementError where most of the graph ran on another unit: the service falls back without a word.
        Such a job is asked for once; a later run reads the same answer."""
        found = self._jobs.profile(self._graph(point), point.unit)
        if not _mostly_on(found, point.unit):
            entry = self._jobs.ledger.job(self._jobs.profile_key(self._graph(point), point.unit))
            assert entry is not None
            others = ", ".join(sorted({layer.unit for layer in found.layers} - {point.unit}))
            raise MeasurementError(f"job {entry.job_id}: most of it ran on {others}, not on {point.unit}")
        return found

    def _graph(self, point: PartPoint) -> MatmulGraph:
        return MatmulGraph(rows=point.rows, cols=point.cols, tokens=point.tokens, dtype=self._dtype)


def wanted_points(
    operators: Sequence[OperatorShape], lengths: Sequence[int], options: SplitOptions
) -> tuple[PartPoint, ...]:
    """The parts of all operators, the most valuable first: whole operators at the lengths themselves, then shares of
    their rows, last the GPU's lengths in between; of each kind the operators take turns."""
    ranked: dict[PartPoint, tuple[bool, bool, int, int]] = {}
    for place, shape in enumerate(distinct(tuple(operators))):
        for index, point in enumerate(part_points(shape, lengths, options)):
            is_between = point.unit == GPU and point.tokens not in lengths
            rank = (is_between, point.rows != shape.rows, index, place)
            ranked[point] = min(rank, ranked.get(point, rank))  # one operator's share may be another one as a whole
    return tuple(sorted(ranked, key=lambda point: ranked[point]))


def affordable(points: Sequence[PartPoint], max_jobs: int) -> tuple[PartPoint, ...]:
    """The first points whose jobs, compiling and profiling, are max_jobs together at most."""
    graphs: set[tuple[int, int, int]] = set()
    for index, point in enumerate(points):
        graphs.add((point.rows, point.cols, point.tokens))
        if len(graphs) + index + 1 > max_jobs:
            return tuple(points[:index])
    return tuple(points)


def _mostly_on(found: GraphProfile, unit: str) -> bool:
    """By the time of its layers, by their number where no times are told; true where no layers are."""
    own_s, whole_s = found.layer_s(unit) or 0.0, sum(layer.time_s or 0.0 for layer in found.layers)
    if whole_s > 0:
        return 2 * own_s > whole_s
    return 2 * found.num_layers(unit) > len(found.layers) or not found.layers


def _reason(step: Callable[..., object], *arguments: object) -> str | None:
    """Why a graph's or job's step failed; None where it did not."""
    try:
        step(*arguments)
    except MeasurementError as error:
        return str(error)
    return None


def _export(graph: MatmulGraph, folder: Path) -> Path:
    try:
        return export_matmul(graph, folder)
    except ImportError as error:
        raise DeviceUnavailableError(f"{error.name} is not installed: pip install pytest-npubench[qaihub]") from None
    except (OSError, MemoryError) as error:
        raise MeasurementError(f"{graph.name}: cannot be exported: {type(error).__name__}: {error}") from error
