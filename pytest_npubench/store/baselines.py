"""Accepted baselines: looked up by case, metric and fingerprint key, and added to when a session is accepted.

Saving is not accepting: nothing enters a baseline but through `accept`. A renamed case is found under its new name with
the sessions of its old ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from pytest_npubench.core.record_reader import JSON, WrongEntryError
from pytest_npubench.errors import BaselineError
from pytest_npubench.store.acceptance import (
    Acceptance,
    CaseResult,
    MetricResult,
    SessionResults,
    check_result,
    check_results,
    with_result,
)
from pytest_npubench.store.accepted_session import AcceptedSession, Frozen, Quantity, Sessions
from pytest_npubench.store.aliases import FILE_NAME, Aliases
from pytest_npubench.store.baseline_files import (
    baseline_paths,
    locked,
    read_aliases,
    read_baseline_file,
    write_aliases,
    write_baseline_file,
)
from pytest_npubench.store.baseline_format import BaselineCase, BaselineFile, Reset
from pytest_npubench.store.fingerprint import Fingerprint, FingerprintKey
from pytest_npubench.store.json_text import JsonError, Time
from pytest_npubench.store.session_window import merged

__all__ = ["Baselines", "CaseResult", "MetricResult"]

Samples = list[list[list[float]]]  # sessions x processes x samples
SAME_KEY, COMPARED_KEY, OTHER_STACK = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The files that an acceptance changed, and what it left out: session, case and the reason."""

    paths: tuple[Path, ...]
    refused: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFrozen:
    """What a case was held to under `key`, whose latest accepted session is of the time `latest`. nearness: of the very
    key that was asked for, of one that may be compared with it, or of another stack of the same device."""

    frozen: Frozen
    key: FingerprintKey
    latest: datetime
    nearness: int

    @property
    def order(self) -> tuple[int, float, datetime, str]:
        """The least of several is the one to hold to, of one case and of several that must have one in common."""
        newest_first = -self.latest.timestamp() if self.nearness == OTHER_STACK else 0.0
        return (self.nearness, newest_first, *self.frozen.age)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """The baseline files of a directory and its renamed cases, as they were when loaded."""

    directory: Path
    files: tuple[BaselineFile, ...]
    aliases: Aliases = field(default_factory=Aliases)

    @classmethod
    def load(cls, directory: Path, *, missing_ok: bool = False) -> Baselines:
        """Read every file. Raises BaselineError naming file and place, FormatVersionError on an unknown version.

        A directory that does not exist is an error too, since a misspelt one would judge nothing for ever;
        missing_ok is for the default directory before anything was accepted.
        """
        try:
            files = tuple(read_baseline_file(directory, path) for path in baseline_paths(directory))
            aliases = read_aliases(directory)
        except FileNotFoundError as error:
            if not missing_ok or directory.exists():
                raise BaselineError(f"baselines {directory}: {error.strerror}") from error
            files, aliases = (), Aliases()
        except OSError as error:
            raise BaselineError(f"baselines {directory}: {error.strerror}: {error.filename}") from error
        check_claims(directory, files, aliases)
        return cls(directory=directory, files=files, aliases=aliases)

    def sessions(
        self, case: str, metric: str, key: FingerprintKey, *, digest: str, across: Collection[str] = ()
    ) -> Samples:
        """Accepted sessions x processes x samples in the order accepted, anchor and window; empty where there are none.

        `case` is the case's key, `digest` that of what is measured; `across` names parts of `key` that may differ.
        Sessions under several keys follow each other key by key. Raises ConfigError where `across` names no part.
        """
        histories = self.histories(case, key, digest=digest, across=across)
        return _samples(metric, (session for one in histories for session in one))

    def histories(
        self, case: str, key: FingerprintKey, *, digest: str, across: Collection[str] = ()
    ) -> tuple[Sessions, ...]:
        """The accepted sessions of a case, one history for each key, by the time of their first session."""
        by_key: dict[FingerprintKey, list[Sessions]] = {}
        for file, entry in self._entries(case, digest):
            if not file.key.differences(key, across):
                by_key.setdefault(file.key, []).append(entry.sessions)
        histories = [merged(found) for found in by_key.values()]
        return tuple(sorted(histories, key=lambda sessions: sessions[0].accepted_time))

    def quantity(
        self, case: str, metric: str, key: FingerprintKey, *, digest: str, across: Collection[str] = ()
    ) -> Quantity | None:
        """What the metric was when a session was last accepted for it; None where none was."""
        accepted = [
            (entry.sessions[-1].accepted_time, entry.metrics[metric])
            for file, entry in self._entries(case, digest)
            if metric in entry.metrics and not file.key.differences(key, across)
        ]
        return max(accepted, key=lambda entry: entry[0])[1] if accepted else None

    def quantities(self, case: str, *, digest: str) -> Mapping[str, Quantity]:
        """All metrics that anything was accepted of for the measurement, under any key."""
        return {name: found for _, entry in self._entries(case, digest) for name, found in entry.metrics.items()}

    def work(self, case: str, key: FingerprintKey, *, digest: str, across: Collection[str] = ()) -> Mapping[str, float]:
        """What the case did, counted, in the newest accepted session that says so; empty where none does."""
        sessions = [session for one in self.histories(case, key, digest=digest, across=across) for session in one]
        return next((session.work for session in reversed(sessions) if session.work), {})

    def under_other_stack(
        self, case: str, metric: str, key: FingerprintKey, *, digest: str
    ) -> tuple[AcceptedSession, tuple[str, ...]] | None:
        """The newest accepted session that has the metric, of another stack of the same accelerator and device class,
        and in which parts the stacks differ; None where there is none."""
        sessions = [
            (session, file.key.differences(key))
            for file, entry in self._entries(case, digest)
            if file.key.is_of_device(key) and file.key != key
            for session in entry.sessions
            if metric in session.metrics
        ]
        return max(sessions, key=lambda session: session[0].accepted_time, default=None)

    def _entries(self, case: str, digest: str) -> Iterator[tuple[BaselineFile, BaselineCase]]:
        """What files hold for the measurement, the oldest name of the case first: it decides where two sessions were
        accepted in the same second."""
        for name, of in reversed(self.aliases.names(case, digest)):
            for file in self.files:
                if name in file.cases and file.cases[name].digest == of:
                    yield file, file.cases[name]

    def frozen(
        self, case: str, key: FingerprintKey, *, digest: str, across: Collection[str] = ()
    ) -> Mapping[str, float]:
        """What the first accepted session of a case fixed, by name; empty where it fixed nothing or there is none.

        The arguments are those of `histories`. Where several keys match, `key` itself comes first, then the oldest.
        """
        standing = self.found_frozen(case, key, digest=digest, across=across)
        return dict(standing.frozen.values) if standing is not None and standing.nearness < OTHER_STACK else {}

    def found_frozen(
        self, case: str, key: FingerprintKey, *, digest: str, across: Collection[str] = ()
    ) -> FoundFrozen | None:
        """Finds, with where it stands, what a case was held to under this key. Where no key matches, it is what another
        stack of the same accelerator and device class was held to, that with the latest accepted session: a new driver
        is held to what the old one was."""
        standing = [
            FoundFrozen(
                frozen=entry.frozen,
                key=file.key,
                latest=max((session.accepted_time for session in entry.sessions), default=entry.frozen.age[0]),
                nearness=_nearness(file.key, key, across),
            )
            for file, entry in self._entries(case, digest)
            if entry.frozen is not None and (file.key.is_of_device(key) or not file.key.differences(key, across))
        ]
        return min(standing, key=lambda frozen: frozen.order, default=None)

    def mismatches(
        self, case: str, key: FingerprintKey, *, digest: str, across: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Why sessions accepted for `case` may not be compared, one text a file; files that match are left out.

        What was accepted stands before what is now: "driver 570.86 -> 580.12". A file lists all that differs, but for
        the parts that `across` names.
        """
        names = dict(self.aliases.names(case, digest))
        reasons = []
        for file in self.files:
            for name in names.keys() & file.cases.keys():
                accepted = file.cases[name].digest
                changed = (f"case digest {accepted} -> {names[name]}",) if accepted != names[name] else ()
                reasons.append(", ".join(file.key.differences(key, across) + changed))
        return tuple(dict.fromkeys(filter(None, reasons)))

    def accept(
        self,
        results: Iterable[CaseResult],
        *,
        session: str,
        key: FingerprintKey,
        accepted_at: str | None = None,
        git_revision: str | None = None,
    ) -> tuple[Path, ...]:
        """Add one session's results to the files on the disk; returns the files changed. This object stays as it was.

        Every file is replaced as a whole, under a lock, on top of what other processes accepted meanwhile. A case that
        holds the session already stays as it is. accepted_at is ISO 8601 with an offset, by default now.
        Raises BaselineError on results that cannot be accepted (see acceptance) or whose session was rejected, before
        any file is written, and where a file cannot be read or written.
        """
        group = SessionResults(session=session, key=key, git_revision=git_revision, results=tuple(results))
        check_results(group.results)
        return self._accept([group], accepted_at or now(), strict=True).paths

    def accept_sessions(self, groups: Iterable[SessionResults]) -> Accepted:
        """Add several sessions at once, case by case: a case that cannot be accepted (see acceptance; its session was
        rejected, or it was reset since) is left out and named, the others enter.

        Raises BaselineError, before any file is written, where a file cannot be read.
        """
        return self._accept(groups, now(), strict=False)

    def _accept(self, groups: Iterable[SessionResults], accepted_at: str, *, strict: bool) -> Accepted:
        with changing(self.directory, missing_ok=True) as current:
            JSON.value(Time, accepted_at, "accepted_at")
            changed, refused = current, []
            for group in groups:
                acceptance = Acceptance(
                    session=group.session,
                    accepted_at=accepted_at,
                    git_revision=group.git_revision,
                    stack=group.stack,
                )
                for result in group.results:
                    try:
                        changed = changed._with_result(result, acceptance, group.key)
                    except BaselineError as error:
                        if strict:
                            raise
                        why = str(error).removeprefix(result.case)
                        refused.append((group.session, result.case, why.removeprefix(": ").removeprefix(", ")))
            paths = write_changes(current, changed)
        return Accepted(paths=tuple(path for path in paths if path.parent != self.directory), refused=tuple(refused))

    def reset_of(self, case: str, key: FingerprintKey) -> Reset | None:
        """When and why a person last let the case begin anew, under any of its names and any key of that device;
        None for never."""
        latest = self.aliases.latest_name(case)
        resets = [
            reset
            for file in self.files
            if file.key.is_of_device(key)
            for name, reset in file.resets.items()
            if self.aliases.latest_name(name) == latest
        ]
        return max(resets, key=lambda reset: reset.time, default=None)

    def stack_of(self, session: str) -> Fingerprint | None:
        """What measured an accepted session, where a file says so."""
        fingerprints = (file.stacks[session].fingerprint for file in self.files if session in file.stacks)
        return next(fingerprints, None)

    def is_rejected(self, session: str) -> bool:
        return any(session in file.rejected for file in self.files)

    def file_of(self, hardware: str, suite: str, key: FingerprintKey) -> BaselineFile:
        """The file of one suite on one hardware under one key; an empty one where nothing was accepted yet."""
        empty = BaselineFile(hardware=hardware, suite=suite, key=key, cases={})
        return next((file for file in self.files if file.relative_path == empty.relative_path), empty)

    def with_files(self, *files: BaselineFile) -> Baselines:
        """With these files in place of those of the same hardware, suite and key, or besides them."""
        by_path = {file.relative_path: file for file in (*self.files, *files)}
        return replace(self, files=tuple(by_path.values()))

    def _refuse_rejected(self, session: str) -> None:
        for file in self.files:
            if (rejection := file.rejected.get(session)) is not None:
                why = f": {rejection.reason}" if rejection.reason else ""
                raise BaselineError(
                    f"baseline {self.directory / file.relative_path}: the session {session} was rejected on "
                    f"{rejection.rejected_at[:10]}{why}"
                )

    def _with_result(self, result: CaseResult, acceptance: Acceptance, key: FingerprintKey) -> Baselines:
        """Raises BaselineError where it cannot be accepted."""
        check_result(result)
        self._refuse_rejected(acceptance.session)
        if (reset := self.reset_of(result.case, key)) is not None and acceptance.began_at < reset.time:
            raise BaselineError(
                f"{result.case}: was reset on {reset.reset_at[:10]} ({reset.reason}), and the session "
                f"{acceptance.session} began before"
            )
        bound = replace(self, aliases=self.aliases.bound({result.case: result.digest}))
        file = bound.file_of(result.hardware, result.suite, key)
        history = tuple(s for one in bound.histories(result.case, key, digest=result.digest) for s in one)
        case = with_result(file.cases.get(result.case), result, acceptance, history=history)
        stacks = {acceptance.session: acceptance.stack} if acceptance.stack else {}
        cases = {**file.cases, result.case: case}
        return bound.with_files(replace(file, cases=cases, stacks={**file.stacks, **stacks}))


def _nearness(key: FingerprintKey, wanted: FingerprintKey, across: Collection[str]) -> int:
    if key == wanted:
        return SAME_KEY
    return OTHER_STACK if key.differences(wanted, across) else COMPARED_KEY


def now() -> str:
    """The time in ISO 8601 with its offset from UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@contextmanager
def changing(directory: Path, *, missing_ok: bool = False) -> Iterator[Baselines]:
    """The baselines as they are on the disk, for changing: nobody else changes them inside of the context.

    Raises BaselineError, also for an OSError or JsonError raised inside.
    """
    if not (missing_ok or directory.exists()):  # the lock would make the folder
        raise BaselineError(f"baselines {directory}: No such file or directory")
    try:
        with locked(directory):
            yield Baselines.load(directory, missing_ok=True)
    except (JsonError, WrongEntryError) as error:
        raise BaselineError(str(error)) from None
    except OSError as error:
        raise BaselineError(f"baselines {directory}: {error.strerror}: {error.filename}") from error


def write_changes(old: Baselines, new: Baselines) -> tuple[Path, ...]:
    """Write what differs, the aliases first; returns the files written. The caller holds the lock.

    Raises BaselineError, before anything is written, where a case or a session would stand twice; OSError.
    """
    check_claims(new.directory, new.files, new.aliases)
    before = {file.relative_path: file for file in old.files}
    aliases = () if new.aliases == old.aliases else (write_aliases(new.directory, new.aliases),)
    changed = [file for file in new.files if before.get(file.relative_path) != file]
    return (*aliases, *(write_baseline_file(new.directory, file) for file in changed))


def _samples(metric: str, sessions: Iterable[AcceptedSession]) -> Samples:
    return [
        [list(samples) for samples in session.metrics[metric].processes]
        for session in sessions
        if metric in session.metrics
    ]


def check_claims(directory: Path, files: Iterable[BaselineFile], aliases: Aliases) -> None:
    """What no single file shows: a case that two files claim under one key, a session under two names of a case.

    Git can leave either: a hardware folder copied to another name, or the same session accepted before and after a
    renaming. Both would count sessions twice. Raises BaselineError naming both places.
    """
    cases: dict[tuple[FingerprintKey, str], Path] = {}
    sessions: dict[tuple[FingerprintKey, str, str], tuple[Path, str]] = {}
    for file in files:
        path = directory / file.relative_path
        for name, case in file.cases.items():
            other = cases.setdefault((file.key, name), path)
            if other != path:
                raise BaselineError(f"baseline {path}: cases.{name}: {other} holds this case under the same key")
            latest = aliases.latest_name(name)
            for session in case.sessions:
                claim = sessions.setdefault((file.key, latest, session.session), (path, name))
                if claim != (path, name):
                    raise BaselineError(
                        f"baseline {path}: cases.{name}: the session {session.session} stands under cases.{claim[1]} "
                        f"of {claim[0]} too, which is the same case by {FILE_NAME}"
                    )
