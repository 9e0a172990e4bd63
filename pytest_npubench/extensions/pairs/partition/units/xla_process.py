"""The static unit's process: waits for submissions, runs the graphs, says when each is done. Started by XlaWorker.

    python -m pytest_npubench.extensions.pairs.partition.units.xla_process JSON

It pins itself before jax is imported, so that XLA's threads stay on its core, and turns XLA's own threading off. Idle
it blocks; once armed or after a submission it polls its flag for LINGER_S, as a busy driver does, then blocks again.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.extensions.pairs.partition.units import xla_channel as words
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.cores import pin_to
from pytest_npubench.extensions.pairs.partition.units.signals import FLAG, MECHANISMS, Doorbell, fence, poll_word
from pytest_npubench.processes.owner import Owner

LINGER_S = 0.005
_SPINS = 256

Run = Callable[[], "float | None"]


class XlaProcess:
    def __init__(self, arguments: Mapping[str, Any], owner: Owner) -> None:
        self._owner = owner
        pin_to(arguments["core"])
        self._arena = SharedArena(arguments["arena_fd"])
        self._channel = words.Channel(self._arena, arguments["channel"], make=False)
        self._go = {name: Doorbell(name, tuple(fds)) for name, fds in arguments["go"].items()}
        self._done = {name: Doorbell(name, tuple(fds)) for name, fds in arguments["done"].items()}
        self._jax = _import_jax()
        self._kernels = importlib.import_module(arguments["kernels"])
        self._runs: dict[int, Run] = {}
        self._num_seen = 0
        self._polls = False
        self._waits = select.poll()
        for fd in (owner.fileno(), *(bell.waiter_fd for bell in self._go.values())):
            self._waits.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Serves until the owner closes its end (EOFError)."""
        while True:
            if self._polls:
                self._poll_for_a_while()
            else:
                self._take(self._waits.poll())

    def _poll_for_a_while(self) -> None:
        """Run what is submitted; leave after LINGER_S without any. STATE goes to asleep before the last look at GO,
        and the owner looks at STATE after it wrote GO, so that no submission is missed."""
        channel = self._channel.words
        channel[words.STATE] = words.POLLING
        until_s = perf_counter() + LINGER_S
        while self._polls and perf_counter() < until_s:
            for _ in range(_SPINS):
                if channel[words.GO] > self._num_seen:
                    self._run_submission()
                    until_s = perf_counter() + LINGER_S
                    break
            else:
                self._take(self._waits.poll(0))
        self._polls = False
        channel[words.STATE] = words.ASLEEP
        fence()
        if channel[words.GO] > self._num_seen:
            self._polls = True

    def _take(self, ready: list[tuple[int, int]]) -> None:
        """A message, or a submission that rang a doorbell."""
        fds = {fd for fd, _ in ready}
        for bell in self._go.values():
            if bell.waiter_fd in fds:
                bell.clear()
                if self._channel.words[words.GO] > self._num_seen:
                    self._run_submission()
        if self._owner.fileno() in fds:
            self._obey(*self._owner.receive())

    def _obey(self, verb: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        try:
            getattr(self, f"_on_{verb}")(*arguments, **keywords)
        except Exception as error:  # noqa: BLE001 (any failure of a kernel is the owner's to hear)
            self._owner.answer_error(error)

    def _on_build(self, number: int, spec: Mapping[str, object]) -> None:
        self._jax.clear_caches()
        began_s = perf_counter()
        self._runs[number] = self._kernels.build(spec, self._arena)
        self._owner.answer(perf_counter() - began_s)

    def _on_forget(self) -> None:
        self._runs.clear()
        self._jax.clear_caches()
        forget = getattr(self._kernels, "forget", None)
        if forget is not None:
            forget()
        self._owner.answer(None)

    def _on_arm(self, polls: bool) -> None:
        self._polls = polls
        self._channel.words[words.STATE] = words.POLLING if polls else words.ASLEEP
        self._owner.answer(None)

    def _on_wake(self) -> None:
        self._polls = True

    def _on_echo(self, mechanism: str, num_trips: int) -> None:
        channel = self._channel.words
        self._owner.answer(None)
        for _ in range(num_trips):
            self._num_seen += 1
            if mechanism == FLAG:
                poll_word(channel, words.GO, self._num_seen, _check_nothing)
            else:
                self._go[mechanism].wait(_check_nothing)
            channel[words.DONE] = self._num_seen
            if mechanism != FLAG:
                self._done[mechanism].ring()
        self._owner.answer(None)

    def _run_submission(self) -> None:
        channel = self._channel.words
        fence()
        self._num_seen = channel[words.GO]
        channel[words.FAILED] = 0
        for index in range(channel[words.NUM_KEYS]):
            try:
                self._run_key(index)
            except Exception as error:  # noqa: BLE001 (likewise)
                channel[words.FAILED] = 1
                self._owner.answer_error(error)
                break
        fence()
        channel[words.DONE] = self._num_seen
        mechanism = MECHANISMS[channel[words.MECHANISM]]
        if mechanism != FLAG:
            self._done[mechanism].ring()

    def _run_key(self, index: int) -> None:
        run = self._runs[int(self._channel.keys[index])]
        began_s = perf_counter()
        copy_s = run()
        self._channel.seconds[0, index] = perf_counter() - began_s
        self._channel.seconds[1, index] = copy_s or 0.0
        fence()
        self._channel.words[words.PROGRESS] = index + 1


def _check_nothing() -> None:
    """The lifeline ends this process when its owner is gone."""


def _import_jax() -> Any:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        import jax
    except ImportError as error:
        raise DeviceUnavailableError(f"the static unit needs jax (pytest-npubench[cpu]): {error}") from None
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # a hand-over between threads of one core is all loss
    return jax


def main() -> None:
    arguments = json.loads(sys.argv[1])
    owner = Owner()
    if (process := owner.made(lambda: XlaProcess(arguments, owner))) is not None:
        with suppress(EOFError, ConnectionError):
            process.serve()


if __name__ == "__main__":
    main()
