"""A process that does nothing but move memory while a word in shared memory says so: contention for the units.

    python -m pytest_npubench.extensions.pairs.offload.bandwidth_hog JSON

It copies one 64 MiB array into another, far more than caches hold. It keeps off the units' cores where there is a
third; where there is none it shares the dynamic unit's, and takes its time as well as its bandwidth.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.processes.child import python_child
from pytest_npubench.processes.owner import Owner

ELEMENTS = 8 << 20
IDLE_S = 1e-3
SWITCH = "hog/on"


class BandwidthHog:
    """The owner's end. cores: where it may run; none given: on the cores of its owner, whose time it then takes.
    Raises UnitLostError where the process died."""

    def __init__(self, arena: SharedArena, cores: Sequence[int]) -> None:
        self._switch = arena.allocate(SWITCH, (1,), np.uint8)
        arguments = {"arena_fd": arena.fd, "cores": list(cores)}
        self._child = python_child(
            "pytest_npubench.extensions.pairs.offload.bandwidth_hog",
            arguments,
            name="bandwidth hog",
            fds=(arena.fd,),
            timeout_s=30.0,
        )
        self._child.started()

    @contextmanager
    def running(self) -> Iterator[None]:
        """It moves memory inside the `with`."""
        self._child.check()
        self._switch[0] = 1
        try:
            yield
        finally:
            self._switch[0] = 0


def main() -> None:
    arguments = json.loads(sys.argv[1])
    owner = Owner()
    if arguments["cores"]:
        os.sched_setaffinity(0, arguments["cores"])
    switch = SharedArena(arguments["arena_fd"]).view(SWITCH)
    source, target = np.ones(ELEMENTS), np.empty(ELEMENTS)
    owner.answer(None)
    while True:  # its guard ends it
        if switch[0]:
            np.copyto(target, source)
        else:
            time.sleep(IDLE_S)


if __name__ == "__main__":
    main()
