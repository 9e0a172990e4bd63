"""The pytest plugin: hooks only, each handing on to a module of this folder that is imported when it is needed.

Every pytest run that has the distribution installed imports this file, so it imports nothing but pytest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.core import clock  # noqa: F401 - before a test can put another clock in its place
from pytest_npubench.plugin.options import add_options, register_markers
from pytest_npubench.processes import CHILD

if TYPE_CHECKING:
    from pytest_npubench.plugin.own_case import Measure
    from pytest_npubench.plugin.session import BenchSession
    from pytest_npubench.plugin.suite_case import SuiteCase

_SESSION = pytest.StashKey["BenchSession"]()
Record = Mapping[str, Any]
_RECORDS: pytest.StashKey[list[Record]] = pytest.StashKey()
_USAGE_ERROR = pytest.StashKey[pytest.UsageError]()
_WORKERS_USAGE_ERROR = "npubench_usage_error"
_WORKERS_NOTES = "npubench_notes"
_NOTES: pytest.StashKey[list[str]] = pytest.StashKey()


def _session(config: pytest.Config) -> BenchSession:
    from pytest_npubench.plugin.session import BenchSession

    if _SESSION not in config.stash:
        config.stash[_SESSION] = BenchSession.from_pytest_config(config)
    return config.stash[_SESSION]


class _Collector:
    """Gathers the record of every judged case from the test reports, which under xdist come from the workers.

    So do notes about the run as a whole, and errors of usage: one that a worker raised would end as an internal error
    of xdist.
    """

    def __init__(self, config: pytest.Config, records: list[Record], notes: list[str]) -> None:
        self._config, self._records, self._notes = config, records, notes
        self._rows: dict[tuple[str, object], int] = {}
        self.usage_error = ""
        self.has_other_failures = False
        """A test failed that is no case, or a case that is not invalid."""
        self.has_failed_try = False
        """A case was over a limit or worse, and its test was tried again."""
        self.ended_early = False
        self._faults: dict[str, str] = {}
        self._failed: dict[str, None] = {}

    @property
    def failed_tests(self) -> list[str]:
        """Node ids of failures that measured no case: tests, and files that could not be collected."""
        measuring = {node for node, _ in self._rows}
        return [node for node in self._failed if node not in measuring]

    def records_as_tests_left(self) -> list[Record]:
        if not self._faults:
            return self._records

        from pytest_npubench.store.journal_runs import as_test_left, measured_by

        faults = {row: self._faults[node] for (node, _), row in self._rows.items() if node in self._faults}
        return [
            as_test_left(record, measured_by(faults[row]) if row in faults else "")
            for row, record in enumerate(self._records)
        ]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        record = getattr(report, "npubench", None)
        if record:
            from pytest_npubench.plugin.campaign_time import show
            from pytest_npubench.store.journal_runs import RED

            self._add(report.nodeid, record)
            show(self._config.pluginmanager.getplugin("terminalreporter"), report)
            self.has_failed_try |= str(report.outcome) == "rerun" and record["verdict"]["kind"] in RED
        if _SESSION in self._config.stash:
            self._config.stash[_SESSION].tests.see(report)
            self._config.stash[_SESSION].tests.end(report)
        if fault := getattr(report, "npubench_fault", None):
            self._faults[report.nodeid] = fault
        if report.failed:
            self._failed[report.nodeid] = None
            self.has_other_failures |= not record or record["verdict"]["kind"] != "invalid"

    def _add(self, node: str, record: Record) -> None:
        """Adds one row a case and stack, from the case's worst try."""
        from pytest_npubench.store.journal_runs import worse

        row = self._rows.setdefault((node, record["fingerprint"]), len(self._records))
        self._records[row:] = [worse(next(iter(self._records[row:]), None), record), *self._records[row + 1 :]]

    def pytest_keyboard_interrupt(self) -> None:
        """Is called for pytest.exit too, whatever its status."""
        self.ended_early = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None
            self.has_other_failures = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if any(_is_own(item) for item in items):
            from pytest_npubench.plugin.own_families import keep_to_families

            keep_to_families(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        said = getattr(node, "workeroutput", {})  # a worker that died says nothing
        self.usage_error = said.get(_WORKERS_USAGE_ERROR, self.usage_error)
        self._notes += (note for note in said.get(_WORKERS_NOTES, ()) if note not in self._notes)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.usage_error:
            sys.stderr.write(f"ERROR: {self.usage_error}\n")
            session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_npubench.plugin import newhooks

    pluginmanager.add_hookspecs(newhooks)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    given = [*config.invocation_params.args, *os.environ.get("PYTEST_ADDOPTS", "").split()]
    if hasattr(config, "workerinput"):
        return None
    if any(word.startswith("--npubench-") and "=" not in word for word in given):
        from pytest_npubench.plugin.guessed_root import begin_anew

        if (status := begin_anew(config)) is not None:
            return status
    if config.getoption("npubench_accept") < 2:
        return None
    from pytest_npubench.plugin.repeated_run import repeat

    return repeat(config)


def pytest_configure(config: pytest.Config) -> None:
    register_markers(config)
    config.stash[_RECORDS], config.stash[_NOTES] = [], []
    config.pluginmanager.register(
        _Collector(config, config.stash[_RECORDS], config.stash[_NOTES]), "npubench-collector"
    )
    if config.pluginmanager.hasplugin("benchmark"):
        from pytest_npubench.plugin.benchmark_bridge import BenchmarkBridge

        config.pluginmanager.register(BenchmarkBridge(), "npubench-benchmark-bridge")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("npubench_cases"):
        from pytest_npubench.plugin.items import expand

        try:
            expand(metafunc, _session(metafunc.config).plans)
        except pytest.UsageError as error:  # from here it would be a traceback in every test: see modifyitems
            metafunc.config.stash.setdefault(_USAGE_ERROR, error)
    elif "npubench" in metafunc.fixturenames:
        from pytest_npubench.plugin.own_families import expand_families

        expand_families(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """A process that measures a campaign for another one runs no test."""
    if CHILD not in os.environ:
        return None
    from pytest_npubench.plugin.campaign_child import measure_for_owner

    measure_for_owner(_session(session.config), session.items)
    return True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if CHILD in os.environ:
        return
    try:
        _select(config, items)
    except pytest.UsageError as error:
        if not hasattr(config, "workeroutput"):
            raise
        config.workeroutput[_WORKERS_USAGE_ERROR] = str(error)
        items.clear()


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """How long the night will be; a quick run is soon over."""
    campaigns = vars(_session(config)).get("campaigns") if _SESSION in config.stash else None
    if campaigns is None or _session(config).settings.profile == "quick":
        return []
    return list(filter(None, [campaigns.estimate]))


def _select(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _USAGE_ERROR in config.stash:
        raise config.stash[_USAGE_ERROR]
    _deselect_unnamed(config, items)
    required = bool(config.getoption("npubench_require") or config.getini("npubench_require"))
    if not config.option.collectonly and (required or any(map(_is_ours, items))):
        from pytest_npubench.plugin.selection import select

        session = _session(config)
        selection = select(items, session.settings, session.probe, session.stores.known_durations)
        if selection.deselected:
            config.hook.pytest_deselected(items=selection.deselected)
        items[:] = selection.items
        session.take(selection)


def _deselect_unnamed(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of suites that run only by name, where the run does not name them."""
    if not any("npubench_case" in getattr(item, "fixturenames", ()) for item in items):
        return
    from pytest_npubench.plugin.items import is_unnamed

    if unnamed := [item for item in items if is_unnamed(item)]:
        config.hook.pytest_deselected(items=unnamed)
        items[:] = [item for item in items if not is_unnamed(item)]


def _is_ours(item: pytest.Item) -> bool:
    return "npubench_case" in getattr(item, "fixturenames", ()) or _is_own(item)


def _is_own(item: pytest.Item) -> bool:
    return "npubench" in getattr(item, "fixturenames", ())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`-n N` gives all cases of a device to one worker; any other --dist stays as it was asked for."""
    if config.getvalue("dist") not in ("load", "loadgroup"):
        return None
    from pytest_npubench.plugin.worker_devices import DeviceScheduling

    return DeviceScheduling(config, log, lambda: {name: spec.family for name, spec in _session(config).specs.items()})


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    from pytest_npubench.plugin.run_process import hand_on

    hand_on(node.config, node.workerinput)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Warns of a test that passed without having measured: an error where the user's filters make warnings errors."""
    result = yield
    for name, verb in (("npubench", "call"), ("npubench_case", "run")):
        measure: Any = pyfuncitem.funcargs.get(name)
        if measure is not None and not measure.is_used:
            pyfuncitem.warn(pytest.PytestWarning(f"takes {name} and does not {verb} it: nothing was measured"))
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _SESSION in item.config.stash:
        item.config.stash[_SESSION].attach(item, report)
    return report


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Runs behind the hooks of the user's conftest files, which may still fail the run."""
    yield
    config, exitstatus = session.config, session.exitstatus
    records = config.stash[_RECORDS]
    is_asked = any(config.getoption(f"npubench_{name}") for name in ("report", "markdown", "csv", "openmetrics"))
    used = _SESSION in config.stash or records or is_asked
    if used and (failure := _finish(_session(config), int(exitstatus), records)):
        session.exitstatus = failure
        _explain(config, failure)
    elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and used and _session(config).num_in_other_shards:
        session.exitstatus = pytest.ExitCode.OK  # more shards than groups of cases: this one has nothing to do
    _hand_on_notes(config)


def _explain(config: pytest.Config, status: int) -> None:
    """An exit status of ours in words, among the last lines of a run: `make` prints nothing but its number."""
    from pytest_npubench.plugin.outcome import SAID

    if (words := SAID.get(status)) and not hasattr(config, "workeroutput"):
        _session(config).notes.append(f"exit status {status}: {words}")


def _finish(session: BenchSession, exit_status: int, records: list[Record]) -> int:
    """Close the journal, accept and report. Returns the exit status to set, 0 for none.

    A run that pytest.exit ended early is an interrupted one to the journal, also where it asked for another status.
    """
    collector: Any = session.config.pluginmanager.getplugin("npubench-collector")
    passing = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    as_ended = int(pytest.ExitCode.INTERRUPTED) if collector.ended_early and exit_status in passing else exit_status
    measured = [*records]
    records[:] = collector.records_as_tests_left()
    session.stores.close(as_ended, records, collector.failed_tests)
    failure = 0
    if session.has_outcome:
        from pytest_npubench.plugin.outcome import publish

        failure = publish(session, as_ended, records)
    if failure in (pytest.ExitCode.OK, exit_status) and records:
        from pytest_npubench.plugin.outcome import exit_status as told_apart

        status = exit_status or int(collector.has_failed_try)
        has_other_failures = collector.has_other_failures or collector.has_failed_try
        combined = told_apart(status, measured, has_other_failures=has_other_failures)
        return failure if combined == exit_status else combined
    return failure


def _hand_on_notes(config: pytest.Config) -> None:
    """A worker's notes to the controller, which puts them in front of its own: what both found out is said once."""
    if hasattr(config, "workeroutput") and _SESSION in config.stash:
        config.workeroutput[_WORKERS_NOTES] = _session(config).notes
    elif workers_notes := config.stash[_NOTES]:
        notes = _session(config).notes
        notes[:0] = [note for note in workers_notes if note not in notes]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Generator[None, None, None]:
    """Writes behind everything that pytest says: the last lines are what to type next."""
    yield
    records = config.stash[_RECORDS]
    skipped = [report for report in terminalreporter.getreports("skipped") if _is_case(report)]
    if _SESSION in config.stash and (records or _session(config).notes):
        from pytest_npubench.plugin.outcome import write_summary

        write_summary(terminalreporter, _session(config), records, skipped)
    elif skipped and not records:
        from pytest_npubench.plugin.outcome import write_skips

        write_skips(terminalreporter, skipped)


def _is_case(report: Any) -> bool:
    """Whether it is one of a suite's, or a test that an extra of ours would let run."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    return "npubench_cases" in getattr(report, "keywords", ()) or "pip install pytest-npubench[" in said


@pytest.fixture
def npubench_case(request: pytest.FixtureRequest) -> SuiteCase:
    """One case of a suite on its device; `run()` measures, judges and fails the test where the verdict says so."""
    from pytest_npubench.plugin.suite_case import SuiteCase

    return SuiteCase.of(request, _session(request.config))


@pytest.fixture
def npubench(request: pytest.FixtureRequest) -> Measure:
    """Measure a callable on the device of the test's marker: `samples = npubench(function, *arguments)`."""
    from pytest_npubench.plugin.own_case import Measure

    return Measure.of(request, _session(request.config))
