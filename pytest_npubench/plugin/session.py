"""The state of one pytest run: what is there, what was planned, what was measured.

run_id is the run's, which its sessions in the journal share: under xdist the controller makes it, workers inherit
it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.core import entry_points, families, hardware_reader
from pytest_npubench.errors import BrokenEntryError, ConfigError, NpubenchError
from pytest_npubench.plain_text import plain
from pytest_npubench.plugin.run_process import worker
from pytest_npubench.plugin.run_stores import RunStores
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
    from pytest_npubench.plugin.measuring_tests import MeasuringTests
    from pytest_npubench.plugin.open_devices import OpenDevices
    from pytest_npubench.plugin.progress import CaseProgress
    from pytest_npubench.plugin.selection import Selection
    from pytest_npubench.verdict.result import JudgedCase

RECORD = pytest.StashKey[Mapping[str, Any]]()
SIBLING_WAIT_S = 3600.0
REGISTRIES = {
    "pytest_npubench.suites": "pytest_npubench.suites",
    "pytest_npubench.engines": "pytest_npubench.engines",
    "pytest_npubench.schedulers": "pytest_npubench.serving.schedulers",
    "pytest_npubench.predictors": "pytest_npubench.predictors",
}
"""Who knows which of its names another distribution registers as well, by the group of its entry points."""


class BenchSession:
    """Everything is made on first use: a run that skips all its cases opens no device and writes no journal."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self.notes: list[str] = [f"error: {fault}" for fault in faults()]
        self.num_cases = 0
        self.num_done = 0
        self.specs = self._specs()
        self._probes: dict[str, Probe] = {}
        self.num_in_other_shards = 0
        self.stores = RunStores(config, settings, self.notes)

    @classmethod
    def from_pytest_config(cls, config: pytest.Config) -> BenchSession:
        """Raises pytest.UsageError for settings, hardware files or an earlier journal that cannot be used."""
        if not worker(config):
            from pytest_npubench.plugin.guessed_root import check_root

            check_root(config)
        settings = Settings.from_pytest_config(config)
        try:
            register_hooks(config)
            return cls(config, settings)
        except NpubenchError as error:
            raise pytest.UsageError(str(error)) from None

    # -- what there is

    @cached_property
    def progress(self) -> CaseProgress:
        from pytest_npubench.plugin.progress import progress_for

        return progress_for(self.config, lambda: (self.num_done, self.num_cases), lambda: self.campaigns.remaining_s)

    @cached_property
    def tests(self) -> MeasuringTests:
        from pytest_npubench.plugin.measuring_tests import MeasuringTests

        return MeasuringTests(lambda record: self.stores.journal.append(record), self.notes.append)

    @cached_property
    def devices(self) -> OpenDevices:
        """The devices that the user's own tests open in this process."""
        from pytest_npubench.plugin.open_devices import OpenDevices

        return OpenDevices(
            self.config.rootpath,
            self.settings.compile_cache,
            lambda fingerprint: self.stores.journal.device(fingerprint),
            runs_python=True,
        )

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
        return hardware_reader.with_groups(load_all(directories, deferred=True))

    @property
    def choice(self) -> Choice:
        """What plans depend on of this run's settings."""
        settings = self.settings
        return Choice(profile=settings.profile, engine=settings.engine, options=settings.of_suites)

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
        collected: dict[tuple[str, str], None] = {}
        for item in selection.items:
            expanded = expanded_case(item)
            if DEVICES in item.stash:
                self.num_cases += 1
                if expanded is not None:
                    members.append((item, expanded))
                    collected[expanded.case.key, expanded.digest] = None
                else:
                    collected |= dict.fromkeys(_own_cases(item, self))
                    own_families.add(item.stash[DEVICES][0].family)
        if own_families - {"cpu"} or (own_families and sys.modules.get("jax")):  # tests of the host may do without jax
            from pytest_npubench.plugin.open_devices import limit_jax

            limit_jax(own_families)
        if self.num_cases:
            if not self.settings.remeasuring:
                from pytest_npubench.plugin.fresh_process import remove_left_over

                remove_left_over()
            self.stores.collected = tuple(collected)
            self.stores.open()
        for item, expanded in members:
            test = runs_again(item, item.stash[NODE_ID]).partition("[")[0]
            self.campaigns.add(expanded, test, item.stash[DEVICES])
        if self.num_cases and self.settings.profile != "quick":
            self.campaigns.own_cases = {key for key, _ in collected} - {expanded.case.key for _, expanded in members}

    @cached_property
    def campaigns(self) -> Campaigns:
        """The planned campaigns. They open the journal, as the first case that runs would."""
        from pytest_npubench.plugin.campaigns import Campaigns, Workbench

        return Campaigns(
            Workbench(
                config=self.config,
                settings=self.settings,
                release=self.release,
                journal=self.stores.journal,
                resume=self.stores.earlier is not None,
                known_s=self.stores.campaign_durations(),
                regression=self.stores.regression,
                progress=self.progress,
                lock_timeout_s=self.lock_timeout_s,
                busy=self.busy,
                visible=self.visible,
                note=self.note,
            )
        )

    @property
    def lock_timeout_s(self) -> float:
        """An xdist worker waits longer: its siblings measure on the same device in turn."""
        asked = self.settings.lock_timeout
        return max(asked, SIBLING_WAIT_S) if worker(self.config) and asked >= 0 else asked

    def earlier_case(self, expanded: ExpandedCase, devices: tuple[Device, ...]) -> Mapping[str, Any] | None:
        """What the resumed journal says of this very case on this very fingerprint, under the same limits.

        An invalid case was not measured (the device was busy, or out of memory): it gets another try. Raises what
        opening the devices raises.
        """
        if self.stores.earlier is None:
            return None
        fingerprint = self.campaigns.found_fingerprint(expanded, devices)
        record = self.stores.earlier.cases(fingerprint).get((expanded.case.key, expanded.digest))
        if record is None or record.get("limits") != expanded.limits or record["verdict"]["kind"] == "invalid":
            return None
        return record

    def note(self, text: str) -> None:
        """Something about the run as a whole: into the journal, and below the table."""
        self.stores.journal.append({"record": "note", "text": text})
        self.notes.append(text)

    def record(self, item: pytest.Item, judged: JudgedCase) -> None:
        """Put a judged case on disk, then hand it to the reports; of a test that is tried again, the worst try."""
        from pytest_npubench.plugin.campaign_time import CAMPAIGN_TIME
        from pytest_npubench.store.journal_runs import worse

        record = {**judged.to_json(), "session": self.stores.journal.session}
        self.stores.journal.append({"record": "case", **record})
        self.tests.measured(item.nodeid, record)
        item.stash[RECORD] = counted = worse(item.stash.get(RECORD, None), record)
        self.num_done += 1
        others = [pair for pair in item.user_properties if not pair[0].startswith("npubench.")]
        item.user_properties[:] = [*others, *properties(counted)]
        if CAMPAIGN_TIME in item.stash:
            item.user_properties.append(("npubench.campaign_s", item.stash[CAMPAIGN_TIME].seconds))

    def attach(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """The record travels on the report of the call phase, what is wrong with the test on each, across processes
        too."""
        self.tests.see(report)
        report.npubench_fault = self.tests.words(item.nodeid)  # type: ignore[attr-defined]
        self.tests.share(item, report)
        if report.when == "call" and RECORD in item.stash:
            from pytest_npubench.plugin.campaign_time import CAMPAIGN_TIME, take_off

            report.npubench = item.stash[RECORD]  # type: ignore[attr-defined]
            if CAMPAIGN_TIME in item.stash:
                take_off(report, item.stash[CAMPAIGN_TIME])

    # -- the end

    @property
    def has_outcome(self) -> bool:
        """Whether the run's settings ask this process to do something with the results."""
        settings = self.settings
        files = (settings.report, settings.markdown, settings.step_summary, settings.csv, settings.openmetrics)
        asked = settings.history or settings.accept or any(files) or settings.require_judged is not None
        return bool(asked) and not worker(self.config)


def _own_cases(item: pytest.Item, session: BenchSession) -> list[tuple[str, str]]:
    """The case of a test of the user's own, with its digest; none where its marker is wrong, as the test will say."""
    from pytest_npubench.plugin.items import DEVICES
    from pytest_npubench.plugin.own_definition import CallableLimits, own_case

    try:
        hardware = session.hardware_name(item.stash[DEVICES][0])
        case, digest = own_case(item, hardware, CallableLimits.from_pytest_item(item))
    except ConfigError:
        return []
    return [(case.key, digest)]


def properties(record: Mapping[str, Any]) -> list[tuple[str, object]]:
    """The JUnit properties of a case record: key, device, verdict and reason, change and its interval, prediction error
    and metrics."""
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


def faults() -> tuple[str, ...]:
    """What other distributions register in vain, where that is known before anything is asked for."""
    sentences = list(families.faults())
    for group, module in REGISTRIES.items():
        if group in entry_points.groups():
            sentences += import_module(module).taken()
    return tuple(sentences)


def register_hooks(config: pytest.Config) -> None:
    """Take in what other plugins offer through our hooks, once a process. Registries that nothing is offered to are not
    imported."""
    hook = config.hook
    for module, offered in (
        ("backends", hook.pytest_npubench_backends()),
        ("engines.shapes", hook.pytest_npubench_shapes()),
        ("workloads", hook.pytest_npubench_workloads()),
    ):
        for thing in chain.from_iterable(offered):
            import_module(f"pytest_npubench.{module}").register(thing)
