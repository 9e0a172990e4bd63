"""What units share: named arrays over one file descriptor, flags and doorbells."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import numpy as np
import pytest

from pytest_npubench.errors import MeasurementError, RegistryError
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena, available_memory_bytes
from pytest_npubench.extensions.pairs.partition.units.signals import (
    EVENT,
    PIPE,
    Doorbell,
    check_mechanism,
    poll_word,
    sleep_until,
)


def test_both_holders_see_one_array() -> None:
    owner = SharedArena()
    guest = SharedArena(os.dup(owner.fd))
    ours = owner.allocate("weight", (3, 5), np.float32)
    assert not ours.any()
    theirs = guest.view("weight")
    ours[1] = 7
    theirs[2] = 9
    assert np.array_equal(ours, theirs)
    assert ours.sum() == 5 * (7 + 9)
    guest.close()
    owner.close()


def test_arrays_do_not_overlap_and_begin_on_a_cache_line() -> None:
    arena = SharedArena()
    arrays = [arena.allocate(f"array {i}", (size,), np.int64) for i, size in enumerate((1, 511, 512, 513, 0))]
    for value, array in enumerate(arrays):
        array[:] = value
    assert all((array == value).all() for value, array in enumerate(arrays))
    assert all(array.ctypes.data % 64 == 0 for array in arrays)
    arena.close()


def test_a_freed_name_is_gone_for_both_and_can_be_made_anew() -> None:
    owner = SharedArena()
    guest = SharedArena(os.dup(owner.fd))
    owner.allocate("out", (4,), np.float32)[:] = 1
    assert guest.view("out").sum() == 4
    owner.free("out")
    with pytest.raises(MeasurementError, match="no shared array 'out'"):
        guest.view("out")
    owner.allocate("out", (2, 2), np.float64)[:] = 3
    assert guest.view("out").tolist() == [[3, 3], [3, 3]]
    guest.close()
    owner.close()


def test_freeing_gives_the_memory_back() -> None:
    arena = SharedArena()
    arena.allocate("large", (8 << 20,), np.uint8)[:] = 1
    held = os.fstat(arena.fd).st_blocks * 512
    arena.free("large")
    assert os.fstat(arena.fd).st_blocks * 512 == held - (8 << 20)
    arena.close()


def test_more_than_there_is_names_both_sizes() -> None:
    arena = SharedArena()
    with pytest.raises(MeasurementError, match=r"'weight' takes 1,073,741,824\.0 MiB; [\d,.]+ MiB of memory are free"):
        arena.allocate("weight", (1 << 50,), np.uint8)
    arena.close()


def test_a_refused_reservation_names_the_size() -> None:
    available = available_memory_bytes()
    assert available is not None
    assert available > 16 << 20
    arena = SharedArena()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, hard))
    try:
        with pytest.raises(MeasurementError, match=r"'weight' of 16\.0 MiB: File too large"):
            arena.allocate("weight", (16 << 20,), np.uint8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "weight" not in arena
    arena.close()


def test_one_name_once() -> None:
    arena = SharedArena()
    arena.allocate("weight", (1,), np.float32)
    with pytest.raises(MeasurementError, match="is there already"):
        arena.allocate("weight", (1,), np.float32)
    arena.close()


def holders() -> list[str]:
    """This process's mappings of an arena."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if "npubench-arena" in line]


def test_a_closed_arena_leaves_no_file_and_says_so() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    arena = SharedArena()
    array = arena.allocate("weight", (2,), np.float32)
    arena.close()
    arena.close()
    assert array.tolist() == [0, 0]
    assert len(holders()) == 1, "the view that is still held"
    del array
    assert holders() == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with pytest.raises(MeasurementError, match="was closed"):
        arena.view("weight")


class NeverRang(Exception):
    pass


def give_up() -> None:
    raise NeverRang


@pytest.mark.parametrize("mechanism", [PIPE, EVENT])
def test_a_doorbell_rings_once(mechanism: str) -> None:
    bell = Doorbell(mechanism)
    bell.ring()
    bell.wait(give_up)
    with pytest.raises(NeverRang):
        bell.wait(give_up)
    fds = bell.fds
    bell.close()
    for fd in set(fds):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_polling_ends_at_the_value_and_checks_meanwhile() -> None:
    words = np.zeros(4, np.int64)
    checks = []

    def check() -> None:
        checks.append(1)
        words[2] = 5

    poll_word(words.data, 2, 5, check)
    assert len(checks) == 1
    poll_word(words.data, 2, 4, give_up)


def test_a_predicted_wait_ends_before_its_time_and_a_past_one_at_once() -> None:
    began_s = time.perf_counter()
    sleep_until(began_s - 1)
    sleep_until(began_s + 0.05)
    assert time.perf_counter() - began_s > 0.04


def test_an_unknown_mechanism_names_those_there_are() -> None:
    with pytest.raises(RegistryError, match=r"no synchronisation 'semaphore'; there are flag, pipe, event"):
        check_mechanism("semaphore")
