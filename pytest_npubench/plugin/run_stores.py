"""What a run writes to and is held against: its journal, what that held before, and the accepted baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.errors import JournalError, StoreError
from pytest_npubench.plain_text import counted, plain
from pytest_npubench.plugin.run_process import run_id, worker
from pytest_npubench.plugin.settings import Settings

if TYPE_CHECKING:
    from pytest_npubench.plugin.regression import Regression
    from pytest_npubench.store.history import SeriesRow
    from pytest_npubench.store.journal import Journal, JournalWriter

OF_HISTORY = timedelta(days=90)


class RunStores:
    """The journal and what the run is held against, each opened on first use. `notes` are shown below the table.
    `earlier`: the journal that is resumed."""

    def __init__(self, config: pytest.Config, settings: Settings, notes: list[str]) -> None:
        """Raises StoreError for an earlier journal that cannot be used."""
        self._config, self._settings, self._notes = config, settings, notes
        self._before: Journal | None = None
        """What the journal held before this process wrote to it."""
        self.earlier = self._read_earlier()
        self.collected: tuple[tuple[str, str], ...] = ()
        """Case and digest of all that the run is to judge."""
        self._journal: JournalWriter | None = None
        self._regression: Regression | None = None

    def open(self) -> None:
        """Raises pytest.UsageError."""
        try:
            _ = self.journal, self.regression
        except StoreError as error:
            raise pytest.UsageError(str(error)) from None

    @property
    def journal(self) -> JournalWriter:
        if self._journal is None:
            from pytest_npubench.store.fingerprint import collect_host
            from pytest_npubench.store.journal import JournalWriter, recorded

            self._read_before()
            self._journal = JournalWriter.open(
                self._settings.journal,
                host=collect_host(self._config.rootpath),
                settings={
                    "profile": self._settings.profile,
                    "arguments": recorded(list(map(str, self._config.invocation_params.args))),
                },
                worker=worker(self._config),
                run=run_id(self._config),
            )
        return self._journal

    def _read_before(self) -> Journal | None:
        """What the journal holds before this process writes; None where it begins. What is damaged in it is said at
        once: a run whose end needs the journal must not find out then. Raises StoreError."""
        if self._before is None and self._settings.journal.is_file():
            from pytest_npubench.store.journal import read_journal

            self._before = read_journal(self._settings.journal)
            self._notes.extend(self._before.remarks)
        return self._before

    def _read_earlier(self) -> Journal | None:
        if not self._settings.resume:
            return None
        if not self._settings.journal.exists():  # a run that was killed before its first line
            self._notes.append(f"nothing to resume: no journal {self._settings.journal}")
            return None
        from pytest_npubench.store.fingerprint import untracked_python, why_no_revision

        if why := why_no_revision(self._config.rootpath):  # what is unknown then and now may have changed
            self._notes.append(f"nothing is resumed, all is measured anew: the commit is not known ({why})")
            return None
        if names := untracked_python(self._config.rootpath):
            what = counted(len(names), "Python file")
            self._notes.append(f"resumed as if {what} had not changed that git does not track: {plain(names[0])}")
        return self._read_before()

    @property
    def regression(self) -> Regression:
        """What the run is held against; without baselines while suspects are measured again."""
        if self._regression is None:
            from pytest_npubench.comparison.earlier_nights import EarlierNights
            from pytest_npubench.plugin.regression import Regression
            from pytest_npubench.store.baselines import Baselines

            settings, session = self._settings, self.journal.session
            stored, nights = Baselines(directory=settings.baselines, files=()), EarlierNights()
            if not settings.remeasuring:
                stored = Baselines.load(settings.baselines, missing_ok=settings.is_default_baselines or settings.accept)
                if self._before is not None:
                    nights = EarlierNights.read(self._before, run_id(self._config))
                if settings.history is not None and stored.files:
                    nights = nights.joined(EarlierNights.of_history(self._in_history()))
            self._notes.extend(f"session {name} began in the future and is not used" for name in nights.from_future)
            self._regression = Regression(
                baselines=stored,
                margin=settings.margin,
                across=settings.compare_across,
                num_again=settings.remeasure,
                earlier=nights,
                session=session,
                collected=self.collected,
            )
        return self._regression

    def _in_history(self) -> Sequence[SeriesRow]:
        """What the history holds of the last weeks; nothing where it cannot be read, which is said."""
        from pytest_npubench.store.history import history_series

        assert self._settings.history is not None
        try:
            return history_series(self._settings.history, since=datetime.now(timezone.utc) - OF_HISTORY)
        except StoreError as error:
            self._notes.append(f"sessions before this one are the journal's alone: {error}")
            return ()

    def known_durations(self) -> Mapping[str, float]:
        """Seconds that groups of cases took before, for shards of like length. Raises pytest.UsageError."""
        if self._settings.durations is None:
            return {}
        from pytest_npubench.campaign.sharding import known_durations
        from pytest_npubench.store.journal import read_journal

        try:
            journal = read_journal(self._settings.durations)
        except StoreError as error:
            raise pytest.UsageError(str(error)) from None
        self._notes.extend(journal.remarks)
        return known_durations(journal)

    def campaign_durations(self) -> Mapping[str, float]:
        """Campaign or own case -> the seconds that it took in earlier runs of this profile that the journal has."""
        from pytest_npubench.campaign.sharding import known_durations

        profile = self._settings.profile
        return known_durations(
            self._before, group=lambda record: record.get("campaign") or record["case"], profile=profile
        )

    def close(self, exit_status: int, records: Sequence[Mapping[str, Any]], failed_tests: Sequence[str] = ()) -> None:
        """Write the last record of the journal. `failed_tests` are node ids of tests that measured no case."""
        if self._journal is None and not (failed_tests and worker(self._config)):
            return
        counts = Counter(record["verdict"]["kind"] for record in records)
        end = {"record": "end", "exit_status": exit_status, "counts": counts, "failed_tests": list(failed_tests)}
        try:
            self.journal.append(end)
        except JournalError as error:
            self._notes.append(str(error))
        self.journal.close()
