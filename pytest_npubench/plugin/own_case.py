"""The `npubench` fixture: users' own callables, measured and judged like a suite's case.

@pytest.mark.cpu
@pytest.mark.npubench(max_median_s=0.5, rounds=20)
def test_matmul(npubench):
    samples = npubench(jax.jit(jnp.matmul), a, b)
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.backends.protocol import Device, Runtime, peak_memory_bytes, used_memory_bytes
from pytest_npubench.backends.telemetry.disturbance import DisturbanceLimits
from pytest_npubench.campaign.callable_timing import CallTiming, time_callable
from pytest_npubench.campaign.repeated_call import RepeatedCall
from pytest_npubench.campaign.watch import Watch
from pytest_npubench.comparison.observation import Key, of_record
from pytest_npubench.core.case import Case
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.core.families import declared
from pytest_npubench.core.measurement import Samples
from pytest_npubench.errors import ConfigError, DeviceError, MeasurementError, NpubenchError, StoreError
from pytest_npubench.plain_text import plain_lines
from pytest_npubench.plugin import fresh_process
from pytest_npubench.plugin.benchmark_bridge import both_measure
from pytest_npubench.plugin.fresh_process import again_folder, fresh_command, fresh_environment
from pytest_npubench.plugin.items import DEVICES, NODE_ID, fail_unprobed, runs_again
from pytest_npubench.plugin.own_definition import CallableLimits, own_case
from pytest_npubench.plugin.own_families import wrong_families
from pytest_npubench.plugin.regression import MeasuredCase
from pytest_npubench.plugin.settings import REMEASURING, Settings
from pytest_npubench.plugin.suite_case import ending_with_the_journal, finish_case
from pytest_npubench.plugin.timeout_bridge import timeout_as_error
from pytest_npubench.processes import guarded
from pytest_npubench.stats.error import repeat_error
from pytest_npubench.store.journal import read_journal
from pytest_npubench.store.journal_reader import Record
from pytest_npubench.verdict import Gate, Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import CallDetail, JudgedCase, Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.plugin.session import BenchSession

TIMEOUT_S = 7200.0
PEAK_MARGIN = 0.02  # a process lays out sets and dicts in its order of hashes: 0.2 % between processes
UNUSABLE = frozenset({"invalid", "failed"})


class Measure:
    """The fixture's value. One call a test."""

    def __init__(self, request: pytest.FixtureRequest, session: BenchSession, limits: CallableLimits) -> None:
        self._request = request
        self._session = session
        self._limits = limits
        self._devices = request.node.stash[DEVICES]
        self.is_used = False
        self.result: Any = None
        """What the first call of the measured callable returned."""

    @classmethod
    def of(cls, request: pytest.FixtureRequest, session: BenchSession) -> Measure:
        """Fails the test at its setup, before any device is opened, where its markers are wrong."""
        fail_unprobed(request.node)
        wrong = wrong_families(request.node) if DEVICES not in request.node.stash else ""
        try:
            limits = CallableLimits.from_pytest_item(request.node)
        except ConfigError as error:
            wrong = wrong or str(error)
        if wrong := wrong or both_measure(request.node, "npubench"):
            pytest.fail(plain_lines(wrong), pytrace=False)
        if request.node.stash[DEVICES][0].family == "cpu" and not sys.modules.get("jax"):
            jax_finds = pytest.MonkeyPatch()  # should the test import it
            jax_finds.setenv("JAX_PLATFORMS", "cpu")
            request.addfinalizer(jax_finds.undo)
        return cls(request, session, limits)

    def __call__(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Samples:
        """Time function(*arguments, **keywords), waiting for the device after each call.

        Returns the raw samples in seconds; fails the test where a limit of the marker is passed, something compiled
        while samples were taken, the device is busy or lost, or the callable returned nothing that can be waited for.
        An awaitable is awaited first. Raises ConfigError where it is called twice; what the callable raises passes
        through, without the frames between the test and the callable.
        """
        __tracebackhide__ = True
        try:
            return self._measured(function, arguments, keywords)
        except BaseException as error:
            error.__traceback__ = _behind_ours(error)
            raise error  # with this frame alone before it

    def _measured(self, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Samples:
        if self.is_used:
            self._session.tests.fault(self._request.node.nodeid, "failed", "called npubench twice")
            raise ConfigError(f"{self._request.node.nodeid}: npubench was called twice; measure one thing a test")
        self.is_used = True
        started_s = perf_counter()
        fingerprint, samples = None, None
        try:
            with ending_with_the_journal():
                fingerprint = self._session.devices.digest(self._devices)
            timing = self._time(function, arguments, keywords)
            with ending_with_the_journal():  # the call may have imported a framework
                fingerprint = self._session.devices.digest(self._devices)
            self.result = timing.result
            samples = Samples(name=self._request.node.name, samples_s=timing.samples_s)
            judgement = self._compared(_judge(samples, self._limits, timing))
        except (DeviceError, MeasurementError) as error:
            judgement = Judgement(verdict=Verdict(kind=VerdictKind.INVALID, reason=str(error)), what="one call")
        case, digest = self._own_case()
        judged = JudgedCase(
            case=case,
            digest=digest,
            node_id=self._request.node.nodeid,
            device=", ".join(device.id for device in self._devices),
            fingerprint=fingerprint,
            duration_s=perf_counter() - started_s,
            judgement=judgement,
        )
        finish_case(self._request, self._session, judged)
        assert samples is not None  # without samples the verdict is invalid, and the line above failed the test
        return samples

    def measure(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> tuple[Any, Samples]:
        """The same; returns what the callable returned at its first call, and the samples."""
        __tracebackhide__ = True
        samples = self(function, *arguments, **keywords)
        return self.result, samples

    def _time(self, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> CallTiming:
        runtime = self._session.devices.runtime(self._devices)
        limits_of_load = DisturbanceLimits(other_load=self._session.settings.other_load)
        with timeout_as_error(), self._lock(), Watch(runtime, limits_of_load) as watch:
            return time_callable(
                function,
                arguments,
                keywords,
                runtime.synchronize,
                rounds=self._limits.rounds,
                max_warmup=self._limits.warmup,
                count_compiles=lambda: runtime.num_process_compiles,
                iterations=self._limits.iterations,
                watch=watch,
                setup=self._limits.setup,
                memory=partial(_device_memory, runtime) if self._limits.memory else None,
            )

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Holds the devices; the terminal says that it waits for them as long as it does."""
        session = self._session
        on_wait = partial(session.progress.waits, self._request.node.name)
        with ExitStack() as locks:
            try:
                locks.enter_context(session.busy.lock(self._devices, session.lock_timeout_s, on_wait))
            finally:
                session.progress.done()
            yield

    def _compared(self, judgement: Judgement) -> Judgement:
        """Held against the baselines. Cases of a user's own are judged one by one."""
        session, (case, digest) = self._session, self._own_case()
        measured = MeasuredCase(case=case.key, digest=digest, judgement=judgement)
        stack = session.devices.fingerprint(self._devices)
        compared = session.stores.regression.judge([measured], stack.key(), self._again, stack=stack)
        for note in compared.notes:
            session.note(note)
        return compared.judgements[case.key]

    def _own_case(self) -> tuple[Case, str]:
        return own_case(self._request.node, self._session.hardware_name(self._devices[0]), self._limits)

    def _again(self, _cases: Sequence[str], _index: int) -> Mapping[Key, tuple[float, ...]]:
        """The device stays open, since arrays of the test may lie on it."""
        session, node = self._session, self._request.node
        if declared(self._devices[0].family).one_process:
            raise MeasurementError(
                f"this process keeps the {self._devices[0].family} until it exits, so no fresh one can measure on it: "
                f"run the test once more by itself (pytest '{node.stash[NODE_ID]}'), or without a second look "
                "(--npubench-remeasure 0)"
            )
        test = runs_again(node, node.stash[NODE_ID])
        return measure_again(session.config, session.settings, [test], self._devices).samples


def _device_memory(runtime: Runtime) -> tuple[int | None, int | None]:
    return used_memory_bytes(runtime), peak_memory_bytes(runtime)


def _behind_ours(error: BaseException) -> TracebackType | None:
    """The frames of an error behind our first ones: those of the callable. An error that is a fault of ours keeps all,
    what a test did wrong has none, nor has a call itself that failed: of what cannot be called, or by other arguments.
    """
    frame, module = error.__traceback__, ""
    while frame is not None and (name := str(frame.tb_frame.f_globals.get("__name__"))).startswith("pytest_npubench."):
        frame, module = frame.tb_next, name
    is_theirs = isinstance(error, NpubenchError) or module == RepeatedCall.__module__
    return frame if frame is not None or is_theirs else error.__traceback__


def _judge(samples: Samples, limits: CallableLimits, timing: CallTiming) -> Judgement:
    gates = tuple(
        Gate(metric=metric, value=value, limit=limit, unit="s")
        for metric, value, limit in limits.limited(samples.samples_s)
        if limit is not None
    )
    return Judgement(
        verdict=_verdict(gates, timing),
        what="one call"
        + (f", mean of {timing.iterations}" if timing.iterations > 1 else "")
        + (f"; device_peak_bytes unavailable: {timing.no_device_peak}" if timing.no_device_peak else ""),
        metrics=(
            Metric(name="call_s", unit="s", value=samples.median_s, samples=samples.samples_s),
            *(
                Metric(name=f"{name}_per_s", unit=unit, value=done / samples.median_s, better="higher", gate="none")
                for name, unit, done in (("items", "items/s", limits.items), ("bytes", "B/s", limits.bytes))
                if done is not None and samples.median_s > 0
            ),
            *(
                Metric(name=name, unit="B", value=peak_bytes, gate="exact", margin=PEAK_MARGIN)
                for name in ("python_peak_bytes", "device_peak_bytes")
                if (peak_bytes := getattr(timing, name)) is not None
            ),
        ),
        measured_s=samples.median_s,
        is_disturbed=timing.disturbed is not None and not timing.num_late_compiles,
        is_partly_disturbed=timing.is_partly_disturbed,
        repeat_error=repeat_error(samples.samples_s) if samples.mean_s > 0 else None,
        work={} if limits.iterations is None else {"calls in a sample": float(timing.iterations)},
        detail=CallDetail(steady=timing.steady, iterations=timing.iterations, overhead_s=timing.overhead_s),
    )


def _verdict(gates: tuple[Gate, ...], timing: CallTiming) -> Verdict:
    if timing.num_late_compiles:
        reason = f"{timing.num_late_compiles} compiles while samples were taken: compile before, or keep shapes fixed"
        return Verdict(kind=VerdictKind.INVALID, reason=reason)
    if timing.disturbed is not None:
        return Verdict(kind=VerdictKind.INVALID, reason=timing.disturbed)
    return judge_gates(gates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasured:
    """Samples by (case, metric) of one fresh process."""

    samples: Mapping[Key, tuple[float, ...]]


def measure_again(
    config: pytest.Config, settings: Settings, tests: Sequence[str], devices: Sequence[Device]
) -> Remeasured:
    """Measures tests of the user's own once more, in another pytest with the same settings: a fresh process has its own
    memory layout and binaries, and sometimes clocks. It ends with this one, and after two hours. `tests` have absolute
    paths.

    Raises MeasurementError with the reason, or its last words, where it measured nothing.
    """
    time.sleep(fresh_process.COOLDOWN_S)
    with again_folder() as folder:
        journal = folder / "journal.jsonl"
        ordinals = ",".join(str(device.ordinal) for device in devices)
        options = {"--npubench-journal": journal, "--npubench-devices": ordinals}
        try:
            done = guarded.run(
                fresh_command(config, tests, options),
                limit_s=TIMEOUT_S,
                env=fresh_environment(**{REMEASURING: "1"}),
                folder=config.invocation_params.dir,
            )
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"the fresh process did not end within {TIMEOUT_S:g} s") from None
        records = _case_records(journal)
    samples = _samples(records)
    if not samples:
        raise MeasurementError(f"the fresh process measured nothing: {_why(records, done)}")
    return Remeasured(samples=samples)


def _case_records(path: Path) -> list[Record]:
    """Raises MeasurementError where they are damaged."""
    try:
        journal = read_journal(path)
    except StoreError:  # not even a journal: the process says why
        return []
    if journal.damage:
        raise MeasurementError(f"what the fresh process wrote cannot be used: {journal.left_out}")
    return [record for record in journal.records if record["record"] == "case"]


def _samples(records: Sequence[Record]) -> dict[Key, tuple[float, ...]]:
    usable = [record for record in records if record["verdict"]["kind"] not in UNUSABLE]
    return {found.key: found.processes[0] for record in usable for found in of_record(record)}


def _why(records: Sequence[Record], done: subprocess.CompletedProcess[str]) -> str:
    if records:
        return str(records[0]["verdict"]["reason"])
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return f"exit status {done.returncode}: {lines[-1] if lines else 'no output'}"
