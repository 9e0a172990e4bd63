"""The static unit: a process of its own, pinned to one core, that runs graphs compiled ahead of time by XLA for CPUs.

It stands for an NPU: one graph a shape, made before it is needed, run in order, results copied into shared memory. Its
owner submits keys of graphs and waits for them. This module is the owner's side and imports no jax; `xla_process` is
the child's. What a key computes is up to the `kernels` module, which the child imports:

    build(spec: Mapping[str, object], arena: SharedArena) -> Callable[[], float | None]

build compiles; each call of what it returns runs the graph once and leaves the result in the arena. It may return the
seconds of that which went into copying the result there.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import MeasurementError, PartitionError, UnitLostError
from pytest_npubench.extensions.pairs.partition.units import xla_channel as words
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.cores import last_cache_bytes
from pytest_npubench.extensions.pairs.partition.units.signals import (
    EVENT,
    FLAG,
    MECHANISMS,
    PIPE,
    Doorbell,
    check_mechanism,
    fence,
    poll_word,
    sleep_until,
)
from pytest_npubench.processes.child import python_child

_numbers = itertools.count()


class XlaWorker:
    """A fresh Python process pinned to one core with jax on one thread; shares `arena` with its owner.

    timeout_s: a build or submission that takes longer counts as hung. Every method raises UnitLostError where the
    process died or hangs, with its last words; DeviceUnavailableError where it cannot be pinned or has no jax.
    """

    def __init__(self, *, core: int, arena: SharedArena, kernels: str, timeout_s: float = 120.0) -> None:
        self.core = core
        self._arena = arena
        name = f"xla_worker_{next(_numbers)}"
        self._channel = words.Channel(arena, name, make=True)
        self._go = {mechanism: Doorbell(mechanism) for mechanism in (PIPE, EVENT)}
        self._done = {mechanism: Doorbell(mechanism) for mechanism in (PIPE, EVENT)}
        go = {mechanism: bell.fds for mechanism, bell in self._go.items()}
        done = {mechanism: bell.fds for mechanism, bell in self._done.items()}
        arguments = {"arena_fd": arena.fd, "core": core, "kernels": kernels, "channel": name, "go": go, "done": done}
        fds = {arena.fd, *(fd for pair in (*go.values(), *done.values()) for fd in pair)}
        self._ids: dict[str, int] = {}
        self._typical_s: dict[str, float] = {}
        self._submitted: tuple[str, ...] | None = None
        self._submitted_at_s = 0.0
        self._copies_s: tuple[float, ...] = ()
        self._closed = False
        self._child = python_child(
            "pytest_npubench.extensions.pairs.partition.units.xla_process",
            arguments,
            name=f"static unit on core {core}",
            fds=tuple(fds),
            timeout_s=timeout_s,
        )
        try:
            self._child.started()
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return f"XLA on core {self.core}"

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return MECHANISMS

    @property
    def cache_bytes(self) -> int:
        return last_cache_bytes(self.core)

    @property
    def pid(self) -> int:
        return self._child.pid

    def build(self, key: str, spec: Mapping[str, object]) -> float:
        """Compiles `spec` under this key, in place of an earlier graph. Returns the seconds, caches cold."""
        number = self._ids.setdefault(key, len(self._ids))
        self._typical_s.pop(key, None)
        return float(self._child.call("build", number, dict(spec)))

    def forget(self) -> None:
        """Drop all graphs."""
        self._ids.clear()
        self._typical_s.clear()
        self._child.call("forget")

    def arm(self, mechanism: str = FLAG) -> None:
        """Let the process wait the way the next submission will come: poll its flag, or block. Without it the first
        submission by flag may find it blocked, and one by pipe may be seen by polling. Costs a pipe round trip."""
        state = words.POLLING if mechanism == FLAG else words.ASLEEP
        if self._channel.words[words.STATE] != state:
            self._child.call("arm", mechanism == FLAG)

    def submit(self, keys: Sequence[str], *, mechanism: str = FLAG) -> None:
        """Have the graphs of these keys run in order. Raises PartitionError on an unknown key, or where the submission
        before was not waited for."""
        check_mechanism(mechanism)
        self._check_submission(keys)
        for index, key in enumerate(keys):
            self._channel.keys[index] = self._ids[key]
        self._begin(len(keys), mechanism)
        self._submitted = tuple(keys)
        self._ring(mechanism)

    def wait(self) -> tuple[float, ...]:
        """Wait for the submission, the way it was submitted. Returns the seconds of each key as the process saw them.
        Raises MeasurementError where a graph failed."""
        if self._submitted is None:
            raise PartitionError("the static unit was given nothing to wait for")
        keys, self._submitted = self._submitted, None
        mechanism = MECHANISMS[self._channel.words[words.MECHANISM]]
        if mechanism == FLAG:
            sleep_until(self._predicted_end_s(keys))
            poll_word(self._channel.words, words.DONE, self._channel.words[words.GO], self._check)
        else:
            self._done[mechanism].wait(self._check)
        if self._channel.words[words.FAILED]:
            self._child.answer()
        return self._note(keys)

    @property
    def num_done(self) -> int:
        """How many keys of the current submission are done; may be asked before `wait`."""
        return int(self._channel.words[words.PROGRESS])

    @property
    def copies_s(self) -> tuple[float, ...]:
        """Returns the seconds of each key of the last awaited submission that went into copying its result."""
        return self._copies_s

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        """Signal and answer with nothing in between: the seconds of each trip."""
        check_mechanism(mechanism)
        channel = self._channel.words
        self._child.call("echo", mechanism, num_trips)
        trips = []
        for _ in range(num_trips):
            self._submitted_at_s = began_s = perf_counter()
            channel[words.GO] += 1
            if mechanism == FLAG:
                poll_word(channel, words.DONE, channel[words.GO], self._check)
            else:
                self._go[mechanism].ring()
                self._done[mechanism].wait(self._check)
            trips.append(perf_counter() - began_s)
        self._child.answer()
        return tuple(trips)

    def check(self) -> None:
        """Raises UnitLostError where the process is no more; may be asked while a submission runs."""
        self._child.check()

    def close(self) -> None:
        """End the process and give its words back. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._child.close()
        for bell in (*self._go.values(), *self._done.values()):
            bell.close()
        with contextlib.suppress(MeasurementError):  # the arena may be closed before
            self._channel.free(self._arena)

    def _check_submission(self, keys: Sequence[str]) -> None:
        if self._closed:
            raise UnitLostError(f"{self._child.name} was closed")
        if self._submitted is not None:
            raise PartitionError("the static unit was given work before its last was waited for")
        unknown = [key for key in keys if key not in self._ids]
        if unknown or len(keys) > words.MAX_KEYS:
            raise PartitionError(
                f"{len(keys)} graphs submitted, unknown: {unknown or 'none'}; want up to {words.MAX_KEYS} built ones"
            )

    def _begin(self, num_keys: int, mechanism: str) -> None:
        channel = self._channel.words
        channel[words.NUM_KEYS] = num_keys
        channel[words.MECHANISM] = MECHANISMS.index(mechanism)
        channel[words.PROGRESS] = 0
        fence()

    def _ring(self, mechanism: str) -> None:
        self._submitted_at_s = perf_counter()
        self._channel.words[words.GO] += 1
        if mechanism != FLAG:
            self._go[mechanism].ring()
            return
        fence()
        if self._channel.words[words.STATE] != words.POLLING:
            self._child.send("wake", (), {})

    def _predicted_end_s(self, keys: Sequence[str]) -> float:
        return self._submitted_at_s + sum(self._typical_s.get(key, 0.0) for key in keys)

    def _note(self, keys: Sequence[str]) -> tuple[float, ...]:
        """Read the seconds of each key, and keep the shortest seen as its prediction: a poll too early costs nothing,
        a sleep too long is lost."""
        spent_s = tuple(self._channel.seconds[0, : len(keys)].tolist())
        self._copies_s = tuple(self._channel.seconds[1, : len(keys)].tolist())
        for key, took_s in zip(keys, spent_s, strict=True):
            self._typical_s[key] = min(took_s, self._typical_s.get(key, took_s))
        return spent_s

    def _check(self) -> None:
        self.check()
        if perf_counter() - self._submitted_at_s > self._child.timeout_s:
            raise self._child.hung(self._child.timeout_s)
