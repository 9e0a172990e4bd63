"""Accepted baselines: looked up by case, metric and fingerprint key, and added to when a session is accepted.

Saving is not accepting: nothing enters a baseline but through `accept`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from pytest_npubench.errors import BaselineError
from pytest_npubench.store.acceptance import CaseResult, MetricResult, check_result, with_result
from pytest_npubench.store.baseline_file import baseline_paths, locked, read_baseline_file, write_baseline_file
from pytest_npubench.store.baseline_format import BaselineFile, checked_time
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.json_text import JsonError

__all__ = ["Baselines", "CaseResult", "MetricResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """The baseline files of a directory as they were when loaded."""

    directory: Path
    files: tuple[BaselineFile, ...]

    @classmethod
    def load(cls, directory: Path, *, missing_ok: bool = False) -> Baselines:
        """Read every file. Raises BaselineError naming file and place, FormatVersionError on an unknown version.

        A directory that does not exist is an error too, since a misspelt one would judge nothing for ever;
        missing_ok is for the default directory before anything was accepted.
        """
        try:
            files = tuple(read_baseline_file(directory, path) for path in baseline_paths(directory))
        except FileNotFoundError as error:
            if not missing_ok or directory.exists():
                raise BaselineError(f"baselines {directory}: {error.strerror}") from error
            files = ()
        except OSError as error:
            raise BaselineError(f"baselines {directory}: {error.strerror}: {error.filename}") from error
        return cls(directory=directory, files=files)

    def sessions(
        self, case: str, metric: str, key: FingerprintKey, *, digest: str, across: Collection[str] = ()
    ) -> list[list[list[float]]]:
        """Accepted sessions x processes x samples in the order accepted, the anchor first; empty where there are none.

        `case` is the case's key, `digest` that of what is measured; `across` names parts of `key` that may differ.
        Sessions under several keys follow each other key by key. Raises ConfigError where `across` names no part.
        """
        matching = [
            file.cases[case] for file in self.files if not file.key.differences(key, across) and case in file.cases
        ]
        found = [item for item in matching if item.digest == digest and item.sessions]
        found.sort(key=lambda item: datetime.fromisoformat(item.sessions[0].accepted_at))
        return [
            [list(samples) for samples in session.metrics[metric].processes]
            for item in found
            for session in item.sessions
            if metric in session.metrics
        ]

    def mismatches(self, case: str, key: FingerprintKey, *, digest: str) -> tuple[str, ...]:
        """Why sessions accepted for `case` may not be compared, one text a file; files that match are left out."""
        reasons = []
        for file in self.files:
            if case in file.cases:
                accepted = file.cases[case].digest
                changed = (f"case digest {accepted} -> {digest}",) if accepted != digest else ()
                reasons.append(", ".join(file.key.differences(key) + changed))
        return tuple(filter(None, reasons))

    def accept(
        self, results: Iterable[CaseResult], *, session: str, key: FingerprintKey, accepted_at: str | None = None
    ) -> tuple[Path, ...]:
        """Add one session's results to the files on the disk; returns the files changed. This object stays as it was.

        Every file is replaced as a whole, under a lock, on top of what other processes accepted meanwhile. A case that
        holds the session already stays as it is. accepted_at is ISO 8601 with an offset, by default now.
        Raises BaselineError on results that cannot be accepted (see acceptance), before any file is written, and where
        a file cannot be read or written.
        """
        accepted_at = accepted_at or datetime.now(timezone.utc).isoformat(timespec="seconds")
        by_suite: dict[tuple[str, str], list[CaseResult]] = {}
        for result in results:
            check_result(result)
            by_suite.setdefault((result.hardware, result.suite), []).append(result)
        try:
            checked_time(accepted_at, "accepted_at")
            with locked(self.directory):
                pairs = [self._merged(group, session, key, accepted_at) for group in by_suite.values()]
                return tuple(write_baseline_file(self.directory, new) for old, new in pairs if new != old)
        except JsonError as error:
            raise BaselineError(str(error)) from None
        except OSError as error:
            raise BaselineError(f"baselines {self.directory}: {error.strerror}: {error.filename}") from error

    def _merged(
        self, results: list[CaseResult], session: str, key: FingerprintKey, accepted_at: str
    ) -> tuple[BaselineFile, BaselineFile]:
        """The file of one hardware and suite as it is on the disk, and as it is to be."""
        old = BaselineFile(hardware=results[0].hardware, suite=results[0].suite, key=key, cases={})
        if (self.directory / old.relative_path).exists():
            old = read_baseline_file(self.directory, old.relative_path)
        cases = dict(old.cases)
        for result in results:
            cases[result.case] = with_result(cases.get(result.case), result, session=session, accepted_at=accepted_at)
        return old, replace(old, cases=cases)
