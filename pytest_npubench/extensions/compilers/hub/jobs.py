"""Compiles and profiles graphs as jobs of Qualcomm AI Hub: submits each once, waits for it, resumes what was begun.

One graph, walked through: it is exported and uploaded (once), a compile job makes a binary of it for the phone, and for
each unit (npu, gpu, cpu) a profile job runs that binary there. Waiting is asking for the job's state every poll_s
seconds until `timeout_s` after it was submitted, also by a run that was killed in between.

A job that fails raises MeasurementError with the service's reason; one that does not end in time stays on the ledger as
submitted, so that a later run may still take its result.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pytest_npubench.errors import (
    AccessRefusedError,
    DeviceBusyError,
    DeviceUnavailableError,
    MeasurementError,
)
from pytest_npubench.extensions.compilers.hub.graph import GraphSpec
from pytest_npubench.extensions.compilers.hub.ledger import JobEntry, JobLedger
from pytest_npubench.extensions.compilers.hub.profile import GraphProfile, check_tools, read_profile
from pytest_npubench.extensions.compilers.hub.service import AiHubService, HubDevice

MAX_UNREACHABLE = 5  # the client itself has retried for half a minute each time
MAX_PAUSE_S = 300.0
TARGET_RUNTIME = "qnn_dlc"  # which all three units run
NUM_ITERATIONS = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How jobs are run, and how long anything is waited for. `qairt` is the version of the tools that jobs are pinned
    to, None: not. timeout_s counts from a job's submission and holds its time in the queue."""

    qairt: str | None = None
    qairt_full: str | None = None
    poll_s: float = 10.0
    timeout_s: float = 2 * 3600.0
    rate_limit_s: float = 1800.0

    @property
    def compile_options(self) -> str:
        return self._pinned(f"--target_runtime {TARGET_RUNTIME}")

    def profile_options(self, unit: str) -> str:
        return self._pinned(f"--compute_unit {unit} --max_profiler_iterations {NUM_ITERATIONS}")

    def _pinned(self, text: str) -> str:
        return f"{text} --qairt_version {self.qairt}" if self.qairt else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """A job that ended well, and whether an earlier run had begun it."""

    job_id: str
    resumed: bool
    waited_s: float


class GraphJobs:
    """The jobs of one device, on graphs that `export` writes into a folder. `stage` is told what is waited for."""

    def __init__(
        self,
        service: AiHubService,
        device: HubDevice,
        device_key: str,
        ledger: JobLedger,
        options: JobOptions,
        *,
        export: Callable[[GraphSpec, Path], Path],
        stage: Callable[[str], None] = lambda text: None,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.options = options
        self.ledger = ledger
        self.stage = stage
        self._service = service
        self._device = device
        self._device_key = device_key
        self._export = export
        self._sleep = sleep
        self._now_s = now_s
        self._resumed: set[str] = set()

    # -- compiling

    def submit_compile(self, graph: GraphSpec) -> None:
        """Upload the graph and submit its compile job, unless an earlier run did."""
        key = self._compile_key(graph)
        if self._taken_up(key):
            return
        model_id = self._uploaded(graph)
        options = self.options.compile_options
        try:
            self._submit(
                key,
                "compile",
                graph.name,
                lambda name: self._service.submit_compile(model_id, self._device, name=name, options=options),
            )
        except MeasurementError:
            self.ledger.forget_model(graph.digest)  # the model may be what is wrong: it expired, or is not whole
            raise

    def wait_compile(self, graph: GraphSpec) -> Waited:
        """Wait for a submitted compile job. Raises MeasurementError with the reason where it failed or is too slow."""
        return self._wait(self._compile_key(graph), f"compiling {graph.name}")

    # -- profiling

    def submit_profile(self, graph: GraphSpec, unit: str) -> None:
        """Submit the profile job of a compiled graph, unless an earlier run did and its result was never used."""
        key, compiled = self.profile_key(graph, unit), self.ledger.job(self._compile_key(graph))
        assert compiled is not None
        assert compiled.job_id is not None
        job_id, options = compiled.job_id, self.options.profile_options(unit)
        if not self._taken_up(key):
            self._submit(
                key,
                "profile",
                f"{graph.name}-{unit}",
                lambda name: self._service.submit_profile(job_id, self._device, name=name, options=options),
            )

    def profile(self, graph: GraphSpec, unit: str) -> GraphProfile:
        """Wait for a submitted profile job and read its report. Raises MeasurementError with the reason."""
        key = self.profile_key(graph, unit)
        waited = self._wait(key, f"profiling {graph.name} on {unit}")
        try:
            report = self._patiently(lambda: self._service.report(waited.job_id))
            profile = read_profile(waited.job_id, report)
            check_tools(waited.job_id, profile, self.options.qairt_full)
        except MeasurementError as error:
            self.ledger.change(key, state="failed", reason=str(error))
            raise
        return profile

    def settle(self, keys: Sequence[str]) -> None:
        """The results of these profile jobs are part of a measurement now: no later one may use them again."""
        self.ledger.settle(keys)

    def profile_key(self, graph: GraphSpec, unit: str) -> str:
        return self._key("profile", graph, self.options.compile_options, self.options.profile_options(unit))

    def _compile_key(self, graph: GraphSpec) -> str:
        return self._key("compile", graph, self.options.compile_options)

    def _key(self, kind: str, graph: GraphSpec, *options: str) -> str:
        body = json.dumps([graph.digest, self._device_key, *options])
        return f"{kind}/{graph.name}/{hashlib.sha256(body.encode()).hexdigest()[:12]}"

    # -- submitting

    def _taken_up(self, key: str) -> bool:
        """Whether a job of that key is there to be waited for; what was only intended is looked for by its name."""
        entry = self.ledger.job(key)
        if entry is None or entry.state in ("failed", "settled"):
            return False
        if entry.state == "intended":
            job_id = self._patiently(lambda: self._service.find_job(entry.name, entry.kind))
            if job_id is None:
                return False
            self.ledger.change(key, state="submitted", job_id=job_id)
        self._resumed.add(key)
        return True

    def _submit(self, key: str, kind: str, label: str, submit: Callable[[str], str]) -> None:
        name = f"npubench-{label}-{uuid.uuid4().hex[:8]}"
        self.ledger.put(key, JobEntry(kind=kind, name=name, state="intended", submitted_at_s=self._now_s()))

        def once() -> str:
            """After an error nobody knows whether the job is there: its name tells."""
            try:
                return submit(name)
            except AccessRefusedError:
                raise
            except DeviceUnavailableError:
                job_id = self._service.find_job(name, kind)
                if job_id is None:
                    raise
                return job_id

        self.stage(f"submitting {kind} job {label}")
        try:
            job_id = self._patiently(once)
        except MeasurementError as error:
            self.ledger.change(key, state="failed", reason=str(error))
            raise
        self.ledger.change(key, state="submitted", job_id=job_id)

    def _uploaded(self, graph: GraphSpec) -> str:
        earlier_id = self.ledger.model(graph.digest)
        if earlier_id is not None:
            return earlier_id
        self.stage(f"exporting {graph.name}")
        folder = Path(tempfile.mkdtemp(prefix="npubench-aihub-"))
        try:
            path = self._export(graph, folder / graph.name)
            self.stage(f"uploading {graph.name}, {graph.weight_bytes / 1e6:.0f} MB")
            model_id = self._patiently(lambda: self._service.upload(path, graph.name))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.ledger.put_model(graph.digest, model_id)
        return model_id

    # -- waiting

    def _wait(self, key: str, doing: str) -> Waited:
        entry = self.ledger.job(key)
        assert entry is not None
        assert entry.job_id is not None
        job_id = entry.job_id
        while True:
            try:
                state, message = self._patiently(lambda: self._service.state(job_id))
            except MeasurementError as error:
                self.ledger.change(key, state="failed", reason=str(error))  # the service no longer knows the job
                raise
            waited_s = self._now_s() - entry.submitted_at_s
            if state == "SUCCESS":
                return Waited(job_id=job_id, resumed=key in self._resumed, waited_s=waited_s)
            if state == "FAILED":
                reason = f"{doing}: job {job_id} failed: {message or 'the service gives no reason'}"
                self.ledger.change(key, state="failed", reason=reason)
                raise MeasurementError(reason)
            if waited_s >= self.options.timeout_s:
                raise MeasurementError(
                    f"{doing}: job {job_id} is {state.lower()} {waited_s:.0f} s after it was submitted; "
                    f"waited for {self.options.timeout_s:.0f} s (a later run takes it up again)"
                )
            self.stage(f"{doing}: job {job_id} {state.lower()}, {waited_s:.0f} s")
            self._sleep(self.options.poll_s)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while the service limits the rate, for rate_limit_s, or cannot be reached, a few times."""
        pause_s, paused_s, num_unreachable = self.options.poll_s, 0.0, 0
        while True:
            try:
                return ask()
            except DeviceBusyError as error:
                if paused_s >= self.options.rate_limit_s:
                    raise MeasurementError(f"{error}, for {paused_s:.0f} s") from None
            except AccessRefusedError:
                raise
            except DeviceUnavailableError:
                num_unreachable += 1
                if num_unreachable >= MAX_UNREACHABLE:
                    raise
            self._sleep(pause_s)
            paused_s += pause_s
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
