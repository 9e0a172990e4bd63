"""The state of one pytest run: what is there, what was planned, what was measured.

run_id is the run's, which its sessions in the journal share: under xdist the controller makes it, workers inherit
it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.core import entry_points, families, hardware
from pytest_npubench.errors import BrokenEntryError, JournalError, NpubenchError, StoreError
from pytest_npubench.plain_text import plain
from pytest_npubench.plugin.settings import Settings
from pytest_npubench.suites.hardware_files import known_folders, load_all
from pytest_npubench.suites.protocol import Choice, Suite

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Device, Probe
    from pytest_npubench.campaign.protocol import CampaignPlan
    from pytest_npubench.core.hardware import HardwareSpec
    from pytest_npubench.engines.descriptor import EngineDescriptor
    from pytest_npubench.plugin.campaigns import BusyDevices, Campaigns
    from pytest_npubench.plugin.items import ExpandedCase
    from pytest_npubench.plugin.open_devices import OpenDevices
    from pytest_npubench.plugin.progress import CaseProgress
    from pytest_npubench.plugin.regression import Regression
    from pytest_npubench.plugin.selection import Selection
    from pytest_npubench.store.journal import Journal, JournalWriter
    from pytest_npubench.verdict.result import JudgedCase

RECORD = pytest.StashKey[dict[str, Any]]()
FALSE_DISCOVERY_RATE = 0.05
REGISTRIES = {
    "pytest_npubench.suites": "pytest_npubench.suites",
    "pytest_npubench.engines": "pytest_npubench.engines",
    "pytest_npubench.schedulers": "pytest_npubench.serving.schedulers",
    "pytest_npubench.predictors": "pytest_npubench.predictors",
}
"""Who knows which of its names another distribution registers as well, by the group of its entry points."""
SIBLING_WAIT_S = 3600.0


class BenchSession:
    """Everything is made on first use: a run that skips all its cases opens no device and writes no journal."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self.notes: list[str] = [f"error: {fault}" for fault in _faults()]
        self.num_cases = 0
        self.num_done = 0
        self.specs = self._specs()
        self._probes: dict[str, Probe] = {}
        self.num_own_cases = 0
        self.num_in_other_shards = 0
        self._before: Journal | None = None
        """What the journal held before this process wrote to it."""
        self.earlier = self._read_earlier()
        self._journal: JournalWriter | None = None
        self._regression: Regression | None = None

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

    @cached_property
    def progress(self) -> CaseProgress:
        from pytest_npubench.plugin.progress import progress_for

        return progress_for(self.config, lambda: (self.num_done, self.num_cases), lambda: self.campaigns.remaining_s)

    @cached_property
    def devices(self) -> OpenDevices:
        """Those that tests of the user's own open in this process."""
        from pytest_npubench.plugin.open_devices import OpenDevices

        return OpenDevices(self.config.rootpath, self.settings.compile_cache, lambda found: self.journal.device(found))

    @cached_property
    def busy(self) -> BusyDevices:
        """Devices that this run waited for in vain."""
        from pytest_npubench.plugin.campaigns import BusyDevices

        return BusyDevices()

    def release(self) -> None:
        """Let go of them, for another process."""
        if "devices" in vars(self):
            self.devices.release()

    def _specs(self) -> Mapping[str, HardwareSpec]:
        further = self.config.hook.pytest_npubench_hardware_directories()
        directories = [*known_folders(), *(path for paths in further for path in paths)]
        if self.settings.hardware:
            directories.append(self.settings.hardware)
        return hardware.with_groups(load_all(directories, deferred=True))

    @property
    def choice(self) -> Choice:
        """What plans depend on of this run's settings."""
        settings = self.settings
        return Choice(
            profile=settings.profile,
            engine=settings.engine,
            case_error=settings.case_error,
            mean_error=settings.mean_error,
            rivals=settings.predictors,
        )

    def plans(self, suite: Suite) -> Sequence[CampaignPlan]:
        """One for each campaign that a suite can have under the run's profile, over all hardware files."""
        return [plan for spec in self.specs.values() for plan in suite.plans(spec, self.choice)]

    def probe(self, family: str) -> Probe:
        from pytest_npubench import backends
        from pytest_npubench.backends.protocol import Probe

        if family not in self._probes:
            try:
                self._probes[family] = backends.backend(family).probe(self.settings.probe_timeout)
            except BrokenEntryError as error:
                self._probes[family] = Probe(reason=str(error))
        return self._probes[family]

    def visible(self, devices: Sequence[Device], engine: EngineDescriptor | None) -> Mapping[str, str]:
        """The environment in which a process sees these devices alone; empty where they are all there are, where
        nothing can hide the others, and for an engine that tells its own processes."""
        from pytest_npubench import backends

        family = devices[0].family
        if (engine is not None and engine.is_placed_by_itself) or len(self.probe(family).devices) == len(devices):
            return {}
        return backends.visible(backends.backend(family), devices)

    def hardware_name(self, device: Device) -> str:
        """The hardware file that describes a device, else its family."""
        fitting = (
            spec.name for spec in self.specs.values() if spec.family == device.family and spec.matches(device.name)
        )
        return next(fitting, device.family)

    # -- what will run

    def take(self, selection: Selection) -> None:
        """Plan what was selected: the cases that will run grouped by what they share. Raises pytest.UsageError (exit
        code 4), before anything is measured, where a required name cannot run, and for a journal or baselines that
        cannot be used."""
        from pytest_npubench.plugin.items import DEVICES, NODE_ID, expanded_case, runs_again
        from pytest_npubench.plugin.selection import why_not

        self.num_in_other_shards = selection.num_in_other_shards
        for name in self.settings.require:
            if name not in selection.runnable:
                reason = why_not(name, selection, self.specs, self.probe)
                raise pytest.UsageError(plain(f"--npubench-require {name}: {reason}"))
        members: list[tuple[pytest.Item, ExpandedCase]] = []
        own_families: set[str] = set()
        for item in selection.items:
            expanded = expanded_case(item)
            if DEVICES in item.stash:
                self.num_cases += 1
                if expanded is not None:
                    members.append((item, expanded))
                else:
                    self.num_own_cases += 1
                    own_families.add(item.stash[DEVICES][0].family)
        if own_families:
            from pytest_npubench.plugin.open_devices import limit_jax

            limit_jax(own_families)
        if self.num_cases:
            if not self.settings.remeasuring:
                from pytest_npubench.plugin.fresh_process import remove_left_over

                remove_left_over()
            self._open_stores()
        for item, expanded in members:
            test = runs_again(item, item.stash[NODE_ID]).partition("[")[0]
            self.campaigns.add(expanded, test, item.stash[DEVICES])

    @cached_property
    def campaigns(self) -> Campaigns:
        """Those that were planned. It opens the journal, as the first case that runs would."""
        from pytest_npubench.plugin.campaigns import Campaigns, Workbench

        return Campaigns(
            Workbench(
                config=self.config,
                settings=self.settings,
                release=self.release,
                journal=self.journal,
                regression=self.regression,
                progress=self.progress,
                lock_timeout_s=self.lock_timeout_s,
                busy=self.busy,
                visible=self.visible,
                note=self.note,
            )
        )

    def known_durations(self) -> Mapping[str, float]:
        """Seconds that groups of cases took before, for shards of like length. Raises pytest.UsageError."""
        if self.settings.durations is None:
            return {}
        from pytest_npubench.campaign.sharding import known_durations
        from pytest_npubench.store.journal import read_journal

        try:
            journal = read_journal(self.settings.durations)
        except StoreError as error:
            raise pytest.UsageError(str(error)) from None
        self.notes.extend(journal.remarks)
        return known_durations(journal)

    @property
    def regression(self) -> Regression:
        """What the run is held against; without baselines while suspects are measured again."""
        if self._regression is None:
            from pytest_npubench.plugin.regression import Regression
            from pytest_npubench.plugin.session import run_id
            from pytest_npubench.store.baselines import Baselines

            settings = self.settings
            found = Baselines(directory=settings.baselines, files=())
            if not settings.remeasuring:
                found = Baselines.load(settings.baselines, missing_ok=settings.is_default_baselines or settings.accept)
            self._regression = Regression(
                baselines=found,
                margin=settings.margin,
                q=FALSE_DISCOVERY_RATE,
                across=settings.compare_across,
                num_again=settings.remeasure,
                max_in_doubt=settings.doubtful_sessions,
                earlier=self._before,
                run=run_id(self.config),
            )
        return self._regression

    @property
    def lock_timeout_s(self) -> float:
        """An xdist worker waits longer: its siblings measure on the same device in turn."""
        asked = self.settings.lock_timeout
        return max(asked, SIBLING_WAIT_S) if _worker(self.config) and asked >= 0 else asked

    # -- the journal

    @property
    def journal(self) -> JournalWriter:
        if self._journal is None:
            from pytest_npubench.plugin.session import run_id
            from pytest_npubench.store.fingerprint import collect_host
            from pytest_npubench.store.journal import JournalWriter, recorded

            self._read_before()
            self._journal = JournalWriter.open(
                self.settings.journal,
                host=collect_host(self.config.rootpath),
                settings={"profile": self.settings.profile, "arguments": recorded(self._arguments)},
                worker=_worker(self.config),
                run=run_id(self.config),
            )
        return self._journal

    def _read_before(self) -> Journal | None:
        """What the journal holds before this process writes; None where it begins. What is damaged in it is said at
        once: a run whose end needs the journal must not find out then. Raises StoreError."""
        if self._before is None and self.settings.journal.is_file():
            from pytest_npubench.store.journal import read_journal

            self._before = read_journal(self.settings.journal)
            self.notes.extend(self._before.remarks)
        return self._before

    @property
    def _arguments(self) -> Sequence[str]:
        return [str(argument) for argument in self.config.invocation_params.args]

    def _open_stores(self) -> None:
        try:
            _ = self.journal, self.regression
        except StoreError as error:
            raise pytest.UsageError(str(error)) from None

    def earlier_case(self, expanded: ExpandedCase, devices: tuple[Device, ...]) -> Mapping[str, Any] | None:
        """What the resumed journal says of this very case on this very fingerprint, under the same limits.

        An invalid case was not measured (the device was busy, or out of memory): it gets another try. Raises what
        opening the devices raises.
        """
        if self.earlier is None:
            return None
        fingerprint = self.campaigns.found_fingerprint(expanded, devices)
        record = self.earlier.cases(fingerprint).get((expanded.case.key, expanded.digest))
        if record is None or record.get("limits") != expanded.limits or record["verdict"]["kind"] == "invalid":
            return None
        return record

    def note(self, text: str) -> None:
        """Something about the run as a whole: into the journal, and below the table."""
        self.journal.append({"record": "note", "text": text})
        self.notes.append(text)

    def record(self, item: pytest.Item, judged: JudgedCase) -> None:
        """Put a judged case on disk, then hand it to the reports."""
        from pytest_npubench.plugin.campaign_time import CAMPAIGN_TIME

        record = {**judged.to_json(), "session": self.journal.session}
        self.journal.append({"record": "case", **record})
        item.stash[RECORD] = record
        self.num_done += 1
        item.user_properties.extend(_properties(record))
        if CAMPAIGN_TIME in item.stash:
            item.user_properties.append(("npubench.campaign_s", item.stash[CAMPAIGN_TIME].seconds))

    def attach(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """The record travels on the report of the call phase, across processes too."""
        if report.when == "call" and RECORD in item.stash:
            from pytest_npubench.plugin.campaign_time import CAMPAIGN_TIME, take_off

            report.npubench = item.stash[RECORD]  # type: ignore[attr-defined]
            if CAMPAIGN_TIME in item.stash:
                take_off(report, item.stash[CAMPAIGN_TIME])

    def _read_earlier(self) -> Journal | None:
        if not self.settings.resume:
            return None
        if not self.settings.journal.exists():  # a run that was killed before its first line
            self.notes.append(f"nothing to resume: no journal {self.settings.journal}")
            return None
        return self._read_before()

    # -- the end

    def close(self, exit_status: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Write the last record of the journal."""
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

    @property
    def has_outcome(self) -> bool:
        """Whether the run's settings ask this process to do something with the results."""
        settings = self.settings
        files = (settings.report, settings.markdown, settings.step_summary, settings.csv, settings.openmetrics)
        asked = settings.history or settings.accept or any(files) or settings.require_judged is not None
        return bool(asked) and not _worker(self.config)


def _worker(config: pytest.Config) -> str | None:
    """The xdist worker this process is, None for the controller and for a run without xdist."""
    return os.environ.get("PYTEST_XDIST_WORKER") if hasattr(config, "workerinput") else None


def _properties(record: Mapping[str, Any]) -> list[tuple[str, object]]:
    """JUnit properties of a case: key, device, verdict and reason, change and its interval, prediction error and
    metrics."""
    verdict = record["verdict"]
    properties: list[tuple[str, object]] = [
        ("npubench.key", record["case"]),
        ("npubench.device", record["device"]),
        ("npubench.verdict", verdict["kind"]),
        ("npubench.reason", verdict["reason"]),
    ]
    if record.get("campaign"):
        properties.append(("npubench.campaign", record["campaign"]))
    if record.get("is_disturbed"):
        properties.append(("npubench.disturbed", "true"))
    if verdict["ratio"] is not None:
        properties.append(("npubench.ratio", verdict["ratio"]))
    if verdict["interval"] is not None:
        low, high = verdict["interval"]
        properties += [("npubench.ratio_low", low), ("npubench.ratio_high", high)]
    for name in ("measured_s", "predicted_s", "error"):
        if record[name] is not None:
            properties.append((f"npubench.{name}", record[name]))
    properties.extend((f"npubench.{name}", metric["value"]) for name, metric in record["metrics"].items())
    return properties


def _faults() -> tuple[str, ...]:
    """What other distributions register in vain, where that is known before anything is asked for."""
    found = list(families.faults())
    for group, place in REGISTRIES.items():
        if group in entry_points.groups():
            found += import_module(place).taken()
    return tuple(found)


def _register_hooks(config: pytest.Config) -> None:
    """Take in what other plugins offer through our hooks, once a process. Registries that nothing is offered to are not
    imported."""
    hook = config.hook
    for place, offered in (
        ("backends", hook.pytest_npubench_backends()),
        ("engines.shapes", hook.pytest_npubench_shapes()),
        ("workloads", hook.pytest_npubench_workloads()),
        ("engines.shapes", hook.pytest_npubench_moe_shapes()),
        ("serving.schedulers", hook.pytest_npubench_schedulers()),
        ("partition.strategies", hook.pytest_npubench_partition_strategies()),
    ):
        for thing in chain.from_iterable(offered):
            arguments = thing if isinstance(thing, tuple) else (thing,)  # a policy comes with its name
            import_module(f"pytest_npubench.{place}").register(*arguments)


_INPUT = "npubench_run"
_ID = pytest.StashKey[str]()


def run_id(config: pytest.Config) -> str:
    """The same for all processes of a run that write the journal."""
    if hasattr(config, "workerinput"):
        given: str = config.workerinput[_INPUT]
        return given
    from pytest_npubench.store.journal_format import RUN, new_id

    if _ID not in config.stash:
        config.stash[_ID] = os.environ.pop(RUN, "") or new_id()  # a pytest started from here is another run
    return config.stash[_ID]


def hand_on(config: pytest.Config, workerinput: dict[str, Any]) -> None:
    """What a worker is told before it starts."""
    workerinput[_INPUT] = run_id(config)
