"""RAPL's counters on a FAKE tree of /sys written by hand: no energy was measured for these tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.backends.telemetry.cpu import CpuTelemetry
from pytest_npubench.backends.telemetry.rapl import Rapl
from pytest_npubench.backends.telemetry.round_state import between

RANGE_UJ = 10_000_000


class FakeSys:
    """A /sys with RAPL domains, all of one range."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / "class" / "powercap"

    def domain(self, folder: str, name: str, microjoules: float) -> None:
        (self.place / folder).mkdir(parents=True, exist_ok=True)
        for file, text in (("name", name), ("energy_uj", microjoules), ("max_energy_range_uj", RANGE_UJ)):
            (self.place / folder / file).write_text(f"{text}\n", encoding="utf-8")


@pytest.fixture
def sys(tmp_path: Path) -> FakeSys:
    return FakeSys(tmp_path)


def test_packages_and_separate_memory_are_added_and_nothing_twice(sys: FakeSys) -> None:
    sys.domain("intel-rapl:0", "package-0", 9_000_000)
    sys.domain("intel-rapl:0:0", "core", 77)
    sys.domain("intel-rapl:0:1", "uncore", 78)
    sys.domain("intel-rapl:0:2", "dram", 250_000)
    sys.domain("intel-rapl:1", "package-1", 500_000)
    sys.domain("intel-rapl:2", "psys", 9_900_000)
    sys.domain("intel-rapl-mmio:0", "package-0", 9_000_000)
    assert Rapl(sys.folder).energy_j() == (pytest.approx(9.75), None)


def test_an_amd_processor_has_a_package_and_its_cores(sys: FakeSys) -> None:
    sys.domain("intel-rapl:0", "package-0", 3_000_000)
    sys.domain("intel-rapl:0:0", "core", 2_000_000)
    assert Rapl(sys.folder).energy_j() == (3.0, None)


def test_it_goes_on_where_a_counter_begins_again(sys: FakeSys) -> None:
    sys.domain("intel-rapl:0", "package-0", 9_000_000)
    sys.domain("intel-rapl:1", "package-1", 500_000)
    telemetry = CpuTelemetry(proc=sys.folder / "proc", sys=sys.folder, cpus=(0,))
    before = telemetry.read()
    sys.domain("intel-rapl:0", "package-0", 2_000_000)
    after = telemetry.read()
    assert (before.energy_j, after.energy_j) == (pytest.approx(9.5), pytest.approx(12.5))
    found = between(before, after)
    assert (found.energy_j, found.energy_unknown) == (pytest.approx(3.0), None)


@settings(max_examples=30)
@given(start=st.integers(0, RANGE_UJ - 1), steps=st.lists(st.integers(0, RANGE_UJ - 1), min_size=1, max_size=20))
def test_any_steps_of_less_than_the_range_add_up(start: int, steps: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sys = FakeSys(Path(folder))
        sys.domain("intel-rapl:0", "package-0", start)
        rapl = Rapl(sys.folder)
        first, _ = rapl.energy_j()
        total = start
        for step in steps:
            total += step
            sys.domain("intel-rapl:0", "package-0", total % RANGE_UJ)
            last, _ = rapl.energy_j()
        assert first is not None
        assert last is not None
        assert last - first == pytest.approx(sum(steps) / 1e6, abs=1e-9)


def test_no_counter_says_where_it_looked(sys: FakeSys) -> None:
    joules, why = Rapl(sys.folder).energy_j()
    assert joules is None
    assert why is not None
    assert why.startswith(f"unavailable: no RAPL counter at {sys.place}: ")
    telemetry = CpuTelemetry(proc=sys.folder / "proc", sys=sys.folder, cpus=(0,))
    found = between(telemetry.read(), telemetry.read())
    assert (found.energy_j, found.energy_unknown) == (None, why)
    assert found.to_json()["energy_unknown"] == why


@contextmanager
def _nobody() -> Iterator[None]:
    """As a user who owns nothing: root may read any file."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no permissions to take away on this system")
def test_permission_denied_says_which_path_and_how_to_grant_it() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sys = FakeSys(Path(folder))
        sys.domain("intel-rapl:0", "package-0", 5)
        path = sys.place / "intel-rapl:0" / "energy_uj"
        path.chmod(0)
        for parent in (path.parent, sys.place, sys.place.parent, sys.folder):
            parent.chmod(0o755)
        with _nobody():
            joules, why = Rapl(sys.folder).energy_j()
        assert joules is None
        assert why == (
            f"unavailable: {path}: permission denied; grant it with: sudo chmod a+r {sys.place}/intel-rapl*/energy_uj "
            "(until the next boot)"
        )
        path.chmod(0o644)
        with _nobody():
            assert Rapl(sys.folder).energy_j() == (5e-6, None)


def test_a_counter_that_is_hidden_or_junk_is_unavailable(sys: FakeSys) -> None:
    sys.domain("intel-rapl:0", "package-0", 5)
    rapl = Rapl(sys.folder)
    path = sys.place / "intel-rapl:0" / "energy_uj"
    path.write_text("not a number\n", encoding="utf-8")
    joules, why = rapl.energy_j()
    assert joules is None
    assert "could not convert" in (why or "")
    path.unlink()
    assert rapl.energy_j() == (None, f"unavailable: {path}: No such file or directory")
