"""Flags and doorbells inside one process, and what the registry refuses."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from pytest_npubench.errors import RegistryError
from pytest_npubench.extensions.pairs.partition.units.signals import (
    EVENT,
    PIPE,
    Doorbell,
    check_mechanism,
    poll_word,
    sleep_until,
)


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
