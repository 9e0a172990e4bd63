"""Measures graph points by jobs: everything is compiled and submitted at once, then each result is waited for.

The ledger of job ids and the full reports lie in `folder`, beside the journal; a run that was killed finds its jobs
there, whether it is resumed or started anew. A result is settled once all of a round are in, right before the round is
journalled: a kill in between costs a second job, but never counts one result twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.campaign.rounds import failure_reason
from pytest_npubench.campaign.visits import Round
from pytest_npubench.core.measurement import CacheState, CompileRecord
from pytest_npubench.core.regular_file import replace_text
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError, NpubenchError
from pytest_npubench.extensions.compilers.hub.backend import AiHubRuntime
from pytest_npubench.extensions.compilers.hub.graph import GraphSpec
from pytest_npubench.extensions.compilers.hub.jobs import GraphJobs, JobOptions
from pytest_npubench.extensions.compilers.hub.ledger import JobLedger
from pytest_npubench.extensions.compilers.hub.profile import UNITS, GraphProfile
from pytest_npubench.extensions.compilers.suites.graphs.phone_plan import GraphPoint, GraphVisit, PhonePlan


class GraphBench:
    """The jobs of one campaign on one phone. Raises DeviceUnavailableError on a runtime of another family, StoreError
    where the ledger cannot be read."""

    def __init__(self, runtime: Runtime, plan: PhonePlan, folder: Path, options: JobOptions | None = None) -> None:
        if not isinstance(runtime, AiHubRuntime):
            raise DeviceUnavailableError(f"{plan.key}: graphs are profiled on Qualcomm AI Hub alone")
        self._runtime = runtime
        self._plan = plan
        self._folder = folder
        self._waiting: set[str] = set()
        self._done: list[str] = []
        self._had: set[str] = set()
        device = runtime.device
        key = f"{device.name}/{device.os}"
        api, full = runtime.qairt or (None, None)
        self._jobs = GraphJobs(
            runtime.service,
            device,
            key,
            JobLedger(folder / f"{plan.key}@{_slug(key)}.json"),
            options or JobOptions(qairt=api, qairt_full=full),
            export=_export,
        )

    def load(
        self,
        points: Sequence[GraphPoint],
        earlier: Sequence[Round],
        stage: Callable[[str], None],
    ) -> Mapping[str, str]:
        """Compile every graph and submit every profile job. Returns why by name for the points that cannot be had.

        What earlier rounds of a resumed campaign hold is not asked for again: only what failed gets another job.
        """
        self._jobs.stage = stage
        self._had = {point.name for point in points if any(row.get(point.name) for row in earlier)}
        points = [point for point in points if point.name not in self._had]
        failures: dict[str, str] = {}
        graphs = self._graphs(points, failures)
        for step in (self._jobs.submit_compile, self._compiled):
            for graph, members in graphs.items():
                wanted = [point for point in members if point.name not in failures]
                if wanted and (reason := _reason(wanted[0].name, step, graph)):
                    failures |= {point.name: reason for point in wanted}
        self._submit(points, failures)
        self._waiting = {point.name for point in points} - failures.keys()
        return failures

    def warm_up(self, point: GraphPoint) -> tuple[float, bool]:
        """A phone warms up inside its job."""
        return 0.0, True

    def sample(self, point: GraphPoint, round_index: int) -> GraphVisit:
        """What the job's report says; nothing, the first time, of a point that an earlier round holds. Raises
        MeasurementError with the job's reason."""
        if point.name in self._had:
            self._had.discard(point.name)
            return GraphVisit(times_s=())
        graph = self._plan.graph(point)
        if point.name not in self._waiting:  # a further round wants jobs of its own
            self._jobs.submit_profile(graph, point.unit)
        try:
            profile = self._jobs.profile(graph, point.unit)
            self._keep(point, profile)
            self._done.append(self._jobs.profile_key(graph, point.unit))
        finally:
            self._waiting.discard(point.name)
            if not self._waiting:
                self._jobs.settle(self._done)
                self._done.clear()
        return visit(profile, stand_in=self._runtime.service.stand_in)

    def _graphs(self, points: Sequence[GraphPoint], failures: dict[str, str]) -> dict[GraphSpec, list[GraphPoint]]:
        graphs: dict[GraphSpec, list[GraphPoint]] = {}
        for point in points:
            try:
                graphs.setdefault(self._plan.graph(point), []).append(point)
            except NpubenchError as error:
                failures[point.name] = failure_reason(point.name, error)
        return graphs

    def _compiled(self, graph: GraphSpec) -> None:
        waited = self._jobs.wait_compile(graph)
        cache = CacheState.WARM if waited.resumed else CacheState.COLD
        self._runtime.compiles.append(CompileRecord(name=graph.name, compile_s=waited.waited_s, cache=cache))

    def _submit(self, points: Sequence[GraphPoint], failures: dict[str, str]) -> None:
        for point in points:
            if point.name not in failures:
                reason = _reason(point.name, self._jobs.submit_profile, self._plan.graph(point), point.unit)
                if reason:
                    failures[point.name] = reason

    def _keep(self, point: GraphPoint, profile: GraphProfile) -> None:
        """The placement of every layer, for people; the journal holds the sums."""
        entry = self._jobs.ledger.job(self._jobs.profile_key(self._plan.graph(point), point.unit))
        assert entry is not None
        path = self._folder / "reports" / f"{entry.job_id}.json"
        document = {
            "job": entry.job_id,
            "point": point.name,
            "stand_in": self._runtime.service.stand_in,
            "tool_versions": dict(profile.tool_versions),
            "times_s": profile.times_s,
            "layers": [[layer.name, layer.kind, layer.unit, layer.time_s] for layer in profile.layers],
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(path, json.dumps(document, indent=1) + "\n")
        except OSError as error:
            raise MeasurementError(f"{path}: cannot be written: {error.strerror}") from error


def visit(profile: GraphProfile, *, stand_in: bool) -> GraphVisit:
    """What a round keeps of a report: only what is known."""
    units = UNITS if profile.layers else ()
    layer_s = {unit: profile.layer_s(unit) for unit in units}
    return GraphVisit(
        times_s=profile.times_s,
        first_load=profile.first_load_s,
        warm_load=profile.warm_load_s,
        peak_bytes=profile.peak_memory_bytes,
        layers={unit: profile.num_layers(unit) for unit in units},
        layer_s={unit: seconds for unit, seconds in layer_s.items() if seconds is not None},
        stand_in=stand_in,
    )


def _reason(name: str, step: Callable[..., None], *arguments: object) -> str | None:
    """Why a step failed; None where it did not. What one graph's job raises leaves the others alone."""
    try:
        step(*arguments)
    except Exception as error:  # noqa: BLE001 - as in a round: this point ends, the others go on
        return failure_reason(name, error)
    return None


def _export(graph: GraphSpec, folder: Path) -> Path:
    try:
        from pytest_npubench.extensions.compilers.hub.decoder import export_graph
    except ImportError as error:
        raise DeviceUnavailableError(f"{error.name} is not installed: pip install pytest-npubench[qaihub]") from None
    return export_graph(graph, folder)


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower())
