"""Running two environments in turn, A B B A A B B A ..., each time a fresh pytest process with a journal of its own.

In this order a drift that goes one way falls on both environments alike. A process that fails is run once more; where
it fails again its pair is dropped, and the comparison goes on with the others. The folder keeps every journal and a
list of what is finished, so an interrupted run goes on where it was.

Worked example: 3 pairs run as 1A 1B, 2B 2A, 3A 3B.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_npubench.comparison.ab_folder import AbFolder
from pytest_npubench.comparison.environments import Environment
from pytest_npubench.comparison.journal_sessions import journal_sessions
from pytest_npubench.comparison.outcome import Comparison
from pytest_npubench.comparison.paired_sides import compare_pairs
from pytest_npubench.errors import ConfigError
from pytest_npubench.processes.guarded import Guarded, ending
from pytest_npubench.store.journal_reader import read_journal

MEASURED = (0, 1, 10, 11, 12)  # a run to its end: all passed, or some failed or could not be measured
HOPELESS = {4: "cannot use these arguments", 5: "finds no test"}
MAX_ATTEMPTS = 2
INTERRUPT_WAIT_S = 5.0
SIDES = ("A", "B")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms two environments are compared: the wait between processes, how the gate judges, and who is told
    how far it is. `metrics` names some of them; none means all."""

    cooldown_s: float
    margin: float
    q: float
    metrics: tuple[str, ...]
    say: Say


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One pytest process to run; pairs count from 1."""

    pair: int
    side: str

    @property
    def name(self) -> str:
        return f"pair-{self.pair}-{self.side}"

    @property
    def title(self) -> str:
        return f"{self.side}, pair {self.pair}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AbRun:
    """The journals of the pairs that are whole, A's first, and what was dropped, in words."""

    pairs: tuple[tuple[Path, Path], ...]
    notes: tuple[str, ...]


def schedule(num_pairs: int) -> tuple[Process, ...]:
    """Returns a B B A A B B A ...: each pair begins with the side that the one before ended with."""
    return tuple(
        Process(pair=pair, side=side)
        for pair in range(1, num_pairs + 1)
        for side in (SIDES if pair % 2 else reversed(SIDES))
    )


def compare_in_turn(
    environments: Mapping[str, Environment],
    arguments: Sequence[str],
    folder: AbFolder,
    terms: Terms,
    *,
    num_pairs: int,
    labels: tuple[str, str] | None = None,
) -> Comparison:
    """Environment B held against A, by pairs of processes of which those that the folder has are not run again.
    `labels` name the two, by default by their interpreters.

    Raises ConfigError as `run_pairs` does, and where nothing can be compared; StoreError, JournalError for the folder.
    """
    done = run_pairs(environments, arguments, folder, num_pairs=num_pairs, cooldown_s=terms.cooldown_s, say=terms.say)
    old, new = (
        [journal_sessions(str(pair[side]), read_journal(pair[side])) for pair in done.pairs] for side in range(2)
    )
    return compare_pairs(
        list(zip(old, new, strict=True)),
        labels=labels or (str(environments["A"].python), str(environments["B"].python)),
        margin=terms.margin,
        q=terms.q,
        metrics=terms.metrics,
        notes=done.notes,
    )


def run_pairs(
    environments: Mapping[str, Environment],
    arguments: Sequence[str],
    folder: AbFolder,
    *,
    num_pairs: int,
    cooldown_s: float,
    say: Say,
) -> AbRun:
    """Run what the folder does not hold yet. `environments` by side; `arguments` are those of pytest.

    Raises ConfigError where pytest cannot use the arguments, finds no test or measures no case: once more would not
    help. Raises StoreError where the folder cannot be written.
    """
    runner = _Runner(environments, arguments, folder, num_processes=2 * num_pairs, cooldown_s=cooldown_s, say=say)
    dropped: dict[int, str] = {}
    for process in schedule(num_pairs):
        if process.pair in dropped:
            continue
        if (trouble := runner.finish(process)) is not None:
            dropped[process.pair] = trouble
            say(f"pair {process.pair} is dropped: {trouble}")
    whole = [pair for pair in range(1, num_pairs + 1) if pair not in dropped]
    return AbRun(
        pairs=tuple((folder.journal(f"pair-{pair}-A"), folder.journal(f"pair-{pair}-B")) for pair in whole),
        notes=tuple(f"pair {pair} is dropped: {trouble}" for pair, trouble in dropped.items()),
    )


class _Runner:
    """Runs processes one after the other and knows how long they take."""

    def __init__(
        self,
        environments: Mapping[str, Environment],
        arguments: Sequence[str],
        folder: AbFolder,
        *,
        num_processes: int,
        cooldown_s: float,
        say: Say,
    ) -> None:
        self._environments = environments
        self._arguments = arguments
        self._folder = folder
        self._num_processes = num_processes
        self._cooldown_s = cooldown_s
        self._say = say
        self._began_s = time.monotonic()
        self._num_done = 0
        self._durations_s: list[float] = []

    def finish(self, process: Process) -> str | None:
        """Run the process unless it is finished; why it failed for good, None where it did not."""
        self._num_done += 1
        if self._folder.is_finished(process.name):
            self._tell(process, "finished before")
            return None
        trouble = ""
        for attempt in range(MAX_ATTEMPTS):
            if self._durations_s or attempt:
                time.sleep(self._cooldown_s)
            status, duration_s = self._run(process)
            if status in MEASURED and self._folder.journal(process.name).exists():
                self._durations_s.append(duration_s)
                self._folder.finish(process.name, exit_status=status, duration_s=round(duration_s, 3))
                self._tell(process, f"exit status {status} after {_clock(duration_s)}")
                return None
            trouble = f"{process.title}: {ending(status)}, see {self._folder.log(process.name)}"
            self._raise_if_hopeless(process, status)
            self._folder.set_aside(process.name)
            self._tell(process, f"{ending(status)}{'' if attempt else ', once more'}")
        return f"{trouble} ({MAX_ATTEMPTS} attempts)"

    def _run(self, process: Process) -> tuple[int, float]:
        self._tell(process, f"running, {_clock(time.monotonic() - self._began_s)} so far{self._remaining()}")
        self._folder.set_aside(process.name)  # of an interrupted run
        journal = self._folder.journal(process.name)
        environment = self._environments[process.side]
        options = ["-m", "pytest", "-p", "no:cacheprovider", "--npubench-journal", str(journal)]
        if environment.folder is not None:  # nothing above it belongs to what is tested
            options += ["--rootdir", str(environment.folder), "--confcutdir", str(environment.folder)]
        command = [str(environment.python), *options, *self._arguments]
        started_s = time.monotonic()
        with self._folder.log(process.name).open("w", encoding="utf-8") as log:
            status = _wait(
                Guarded(
                    command,
                    grace_s=INTERRUPT_WAIT_S,
                    env=_environment(),
                    folder=environment.folder,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
        return status, time.monotonic() - started_s

    def _raise_if_hopeless(self, process: Process, status: int) -> None:
        reason = HOPELESS.get(status, "measures no case" if status in MEASURED else None)
        if reason is not None:
            last = self._folder.last_line(process.name)
            side = f"{process.side} ({self._environments[process.side].python})"
            raise ConfigError(f"pytest of environment {side} {reason}: {last}; see {self._folder.log(process.name)}")

    def _remaining(self) -> str:
        if not self._durations_s:
            return ""
        left = self._num_processes - self._num_done + 1
        each_s = sum(self._durations_s) / len(self._durations_s) + self._cooldown_s
        return f", about {_clock(left * each_s)} left"

    def _tell(self, process: Process, text: str) -> None:
        self._say(f"[{self._num_done}/{self._num_processes}] {process.title}: {text}")


def _wait(guarded: Guarded) -> int:
    """Returns the exit status. An interrupt of this process interrupts the other too, and ends it a moment later."""
    try:
        return guarded.process.wait()
    finally:
        guarded.end()


def _clock(duration_s: float) -> str:
    """83.2 seconds as "1 min 23 s"."""
    minutes, rest = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _environment() -> dict[str, str]:
    """Returns the environment without the summary of a step of GitHub Actions, which the comparison alone writes."""
    return {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
