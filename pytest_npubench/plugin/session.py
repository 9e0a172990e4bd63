"""The state of one pytest run: what is there, what was planned, what was measured."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from pytest_npubench import backends, hardware, workloads
from pytest_npubench.backends.protocol import Device, Probe, Runtime
from pytest_npubench.campaign.campaign import Campaign, Site
from pytest_npubench.campaign.plan import Plan
from pytest_npubench.campaign.points import Measured, Point
from pytest_npubench.engines import shapes
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.errors import DeviceUnavailableError, JournalError, NpubenchError, StoreError
from pytest_npubench.hardware import HardwareSpec
from pytest_npubench.plugin.expansion import ExpandedCase
from pytest_npubench.plugin.outcome import accept_results, write_report
from pytest_npubench.plugin.progress import progress_for
from pytest_npubench.plugin.selection import DEVICES, expanded_case
from pytest_npubench.plugin.settings import Settings
from pytest_npubench.result import JudgedCase
from pytest_npubench.store.fingerprint import DeviceFacts, collect
from pytest_npubench.store.host import collect_host
from pytest_npubench.store.journal import Journal, JournalWriter, read_journal

RECORD = pytest.StashKey[dict[str, Any]]()
Devices = tuple[Device, ...]
SIBLING_WAIT_S = 3600.0


class BenchSession:
    """Everything is made on first use: a run that skips all its cases opens no device and writes no journal."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self.notes: list[str] = []
        self.num_cases = 0
        self.num_done = 0
        self.progress = progress_for(config, self)
        self.specs = self._specs()
        self._probes: dict[str, Probe] = {}
        self._campaigns: dict[tuple[str, Devices], list[ExpandedCase]] = {}
        self._running: dict[tuple[str, Devices], Campaign] = {}
        self._runtimes: dict[Devices, Runtime] = {}
        self._fingerprints: dict[Devices, str] = {}
        self._earlier = self._read_earlier()
        self._journal: JournalWriter | None = None

    @classmethod
    def from_pytest_config(cls, config: pytest.Config) -> BenchSession:
        """Raises pytest.UsageError for settings, hardware files or an earlier journal that cannot be used."""
        settings = Settings.from_pytest_config(config)
        try:
            _register_hooks(config)
            return cls(config, settings)
        except NpubenchError as error:
            raise pytest.UsageError(str(error)) from None

    # -- what there is

    def _specs(self) -> Mapping[str, HardwareSpec]:
        further = self.config.hook.pytest_npubench_hardware_directories()
        directories = [hardware.default_directory(), *(path for paths in further for path in paths)]
        if self.settings.hardware:
            directories.append(self.settings.hardware)
        return hardware.load_all(directories)

    def plans(self) -> list[Plan]:
        """One for each hardware file, model and batch size of the run's profile."""
        plans = []
        for spec in self.specs.values():
            size = spec.profile(self.settings.profile)
            case_error = _tightened("case_error", self.settings.case_error, spec.case_error)
            mean_error = _tightened("mean_error", self.settings.mean_error, spec.mean_error)
            for model in size.models:
                for batch_size in size.batch_sizes:
                    plan = Plan(
                        spec=spec,
                        size=size,
                        model=model,
                        batch_size=batch_size,
                        case_error=case_error,
                        mean_error=mean_error,
                    )
                    plans.append(plan)
        return plans

    def probe(self, family: str) -> Probe:
        if family not in self._probes:
            self._probes[family] = backends.backend(family).probe(self.settings.probe_timeout)
        return self._probes[family]

    def hardware_name(self, device: Device) -> str:
        """The hardware file that describes a device, else its family."""
        fitting = (
            spec.name for spec in self.specs.values() if spec.family == device.family and spec.matches(device.name)
        )
        return next(fitting, device.family)

    def why_not(self, name: str) -> str:
        """Why no selected case runs on what --npubench-require calls `name`."""
        families = sorted({spec.family for spec in self.specs.values() if name in (*spec.markers, spec.name)})
        if not families:
            known = sorted({marker for spec in self.specs.values() for marker in (*spec.markers, spec.name)})
            return f"no such marker or hardware; known: {', '.join(known)}"
        probes = [self.probe(family) for family in families]
        if absent := [probe.reason for probe in probes if not probe.devices]:
            return "; ".join(absent)
        found = ", ".join(device.name for probe in probes for device in probe.devices)
        return f"found {found}, but no selected case runs there"

    # -- campaigns

    def plan_campaigns(self, items: Sequence[pytest.Item]) -> None:
        """Group the cases that will run by what they share."""
        for item in items:
            expanded = expanded_case(item)
            if DEVICES in item.stash:
                self.num_cases += 1
                if expanded is not None:
                    self._campaigns.setdefault((expanded.plan.key, item.stash[DEVICES]), []).append(expanded)
        if self._campaigns:
            _limit_jax({devices[0].family for _, devices in self._campaigns})
        if self.num_cases:
            self._open_journal()

    def campaign(self, plan: Plan, devices: Devices) -> Campaign:
        """The campaign of all selected cases of this plan on these devices."""
        key = (plan.key, devices)
        if key not in self._running:
            cases = self._campaigns[key]
            self._running[key] = Campaign(
                plan,
                _points(cases),
                site=Site(
                    devices=devices,
                    runtime=self.runtime(devices),
                    fingerprint=self.fingerprint(devices),
                    lock_timeout_s=self.lock_timeout_s,
                ),
                make_engine=make_engine,
                settled=lambda measured: _settled(cases, measured),
                journal=self.journal,
                earlier=self._earlier,
                progress=self.progress,
            )
        return self._running[key]

    @property
    def remaining_campaigns(self) -> list[Plan]:
        """The plans whose campaigns have not begun."""
        return [cases[0].plan for key, cases in self._campaigns.items() if key not in self._running]

    def runtime(self, devices: Devices) -> Runtime:
        if devices not in self._runtimes:
            cache = self.settings.compile_cache
            family = backends.backend(devices[0].family)
            try:
                self._runtimes[devices] = family.open(devices, str(cache) if cache else None)
            except NpubenchError:
                raise
            except Exception as error:  # whatever a vendor's runtime raises: a device that does not open is an answer
                names = ", ".join(device.id for device in devices)
                reason = next(iter(str(error).splitlines()), "no message")
                raise DeviceUnavailableError(f"{names} does not open: {type(error).__name__}: {reason}") from error
        return self._runtimes[devices]

    def fingerprint(self, devices: Devices) -> str:
        """The digest of the devices' fingerprint, which is then in the journal."""
        if devices not in self._fingerprints:
            stack = self.runtime(devices).stack()
            facts = DeviceFacts(
                family=devices[0].family,
                name=devices[0].name,
                device_class=stack.device_class,
                driver=stack.driver,
                runtime=stack.runtime,
                compiler=stack.compiler,
                power_policy=stack.power_policy,
                # two devices of one name are not one: a resumed run must not take the one's results for the other's
                extra=(*stack.extra, ("devices", ", ".join(device.uuid or device.id for device in devices))),
            )
            self._fingerprints[devices] = self.journal.device(collect(facts, self.config.rootpath))
        return self._fingerprints[devices]

    @property
    def lock_timeout_s(self) -> float:
        """An xdist worker waits longer: its siblings measure on the same device in turn."""
        asked = self.settings.lock_timeout
        return max(asked, SIBLING_WAIT_S) if _worker(self.config) and asked >= 0 else asked

    # -- the journal

    @property
    def journal(self) -> JournalWriter:
        if self._journal is None:
            self._journal = JournalWriter.open(
                self.settings.journal,
                host=collect_host(self.config.rootpath),
                settings={"profile": self.settings.profile, "arguments": list(self.config.invocation_params.args)},
                worker=_worker(self.config),
            )
        return self._journal

    def _open_journal(self) -> None:
        """Before anything is measured. Raises pytest.UsageError where it cannot be used."""
        try:
            _ = self.journal
        except StoreError as error:
            raise pytest.UsageError(str(error)) from None

    def earlier_case(self, expanded: ExpandedCase, fingerprint: str) -> Mapping[str, Any] | None:
        """What the resumed journal says of this very case on this very fingerprint, under the same limits.

        An invalid case was not measured (the device was busy, or out of memory): it gets another try.
        """
        if self._earlier is None:
            return None
        record = self._earlier.cases(fingerprint).get((expanded.case.key, expanded.digest))
        if record is None or record.get("limits") != expanded.limits or record["verdict"]["kind"] == "invalid":
            return None
        return record

    def record(self, item: pytest.Item, judged: JudgedCase) -> None:
        """Put a judged case on disk, then hand it to the reports."""
        record = judged.to_json()
        self.journal.append({"record": "case", **record})
        item.stash[RECORD] = record
        self.num_done += 1
        item.user_properties.extend(_properties(record))

    def attach(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """The record travels on the report of the call phase, across processes too."""
        if report.when == "call" and RECORD in item.stash:
            report.npubench = item.stash[RECORD]  # type: ignore[attr-defined]

    def _read_earlier(self) -> Journal | None:
        if not self.settings.resume:
            return None
        earlier = read_journal(self.settings.journal)
        self.notes.extend(earlier.torn)
        return earlier

    # -- the end

    def finish(self, exit_status: int, records: Sequence[Mapping[str, Any]]) -> int:
        """Close the journal, accept and report. Returns the exit status to set, 0 for none."""
        if self._journal is not None:
            counts: dict[str, int] = {}
            for record in records:
                kind = record["verdict"]["kind"]
                counts[kind] = counts.get(kind, 0) + 1
            try:
                self._journal.append({"record": "end", "exit_status": exit_status, "counts": counts})
            except JournalError as error:
                self.notes.append(str(error))
            self._journal.close()
        if _worker(self.config):
            return 0
        return self._publish(exit_status, records)

    def _publish(self, exit_status: int, records: Sequence[Mapping[str, Any]]) -> int:
        try:
            if self.settings.accept:
                self.notes.append(accept_results(self.settings, exit_status, records))
            if self.settings.report and records:
                self.notes.append(write_report(self.settings.report, records, self.settings.journal))
        except (StoreError, OSError) as error:
            self.notes.append(f"error: {error}")
            return exit_status or int(pytest.ExitCode.TESTS_FAILED)
        return 0


def make_engine(runtime: Runtime, plan: Plan) -> Engine:
    """The reference decoder of a plan."""
    from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine

    return StaticBucketEngine(
        shapes.decoder_shape(plan.model),
        runtime,
        buckets=plan.buckets,
        batch_size=plan.batch_size,
        dtype=plan.spec.dtype,
    )


def _points(cases: Sequence[ExpandedCase]) -> list[Point]:
    points: list[Point] = []
    for expanded in cases:
        with suppress(NpubenchError):  # a workload that cannot be read: its own case will say so, the others go on
            points.extend(expanded.kind.points(expanded.case, expanded.plan))
    return points


def _settled(cases: Sequence[ExpandedCase], measured: Measured) -> bool:
    try:
        return all(expanded.kind.settled(expanded.case, expanded.plan, measured) for expanded in cases)
    except NpubenchError:  # a failed point: its case will say so, more rounds would not mend it
        return True


def _limit_jax(families: set[str]) -> None:
    if families & {"cpu", "cuda", "tpu"}:
        from pytest_npubench.backends.jax_runtime import limit_platforms

        limit_platforms(sorted(families))


def _tightened(name: str, asked: float | None, limit: float) -> float:
    if asked is None:
        return limit
    if asked > limit:
        raise pytest.UsageError(
            f"--npubench-{name.replace('_', '-')} = {asked:g} is looser than the hardware file's {limit:g}; "
            "it can only tighten"
        )
    return asked


def _worker(config: pytest.Config) -> str | None:
    """The xdist worker this process is, None for the controller and for a run without xdist."""
    return os.environ.get("PYTEST_XDIST_WORKER") if hasattr(config, "workerinput") else None


def _properties(record: Mapping[str, Any]) -> list[tuple[str, object]]:
    """JUnit properties of a case: verdict and reason, prediction error and metrics."""
    properties: list[tuple[str, object]] = [
        ("npubench.verdict", record["verdict"]["kind"]),
        ("npubench.reason", record["verdict"]["reason"]),
    ]
    for name in ("measured_s", "predicted_s", "error"):
        if record[name] is not None:
            properties.append((f"npubench.{name}", record[name]))
    properties.extend((f"npubench.{name}", metric["value"]) for name, metric in record["metrics"].items())
    return properties


def _register_hooks(config: pytest.Config) -> None:
    """Take in what other plugins offer through our hooks, once a process."""
    for register, offered in (
        (backends.register, config.hook.pytest_npubench_backends()),
        (shapes.register, config.hook.pytest_npubench_shapes()),
        (workloads.register, config.hook.pytest_npubench_workloads()),
    ):
        for things in offered:
            for thing in things:
                register(thing)
