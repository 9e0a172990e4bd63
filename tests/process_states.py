"""What a test asks of processes that it did not start itself: whether one runs, and waiting until something holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

TIMEOUT_S = 60


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
