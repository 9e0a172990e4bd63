"""The least time of some work, by hand from the makers' figures, and what is told of a time below it."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from pytest_npubench.core.bounds import ON_CHIP_BYTES, Bound, Peaks, bound, peaks_of, too_fast
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.suites.hardware_files import load_all

SPECS = load_all([default_directory()])
WEIGHTS = 15.0e9  # bytes, of llama-3.1-8b in bf16
H100 = Peaks(flops_per_s=989.4e12, bytes_per_s=3.35e12, on_chip_bytes=2.0**28)


@pytest.mark.parametrize(
    ("name", "dtype", "peaks"),
    [
        ("nvidia-h100", "bf16", H100),
        ("nvidia-h100", "fp32", H100),  # a product of fp32 may run in fewer bits
        ("tpu-v5e", "bf16", Peaks(flops_per_s=4 * 197e12, bytes_per_s=4 * 0.819e12, on_chip_bytes=4 * 2.0**28)),
        ("cpu", "bf16", Peaks(flops_per_s=None, bytes_per_s=None, on_chip_bytes=2.0**28)),
    ],
)
def test_peaks_of_the_chips_of_a_group(name: str, dtype: str, peaks: Peaks) -> None:
    assert peaks_of(SPECS[name], dtype) == peaks


def test_a_cache_of_unknown_size_leaves_the_flop_alone() -> None:
    assert peaks_of(replace(SPECS["nvidia-h100"], family="cpu"), "bf16").bytes_per_s is None


def test_a_peak_of_fp32_alone_does_not_bound_what_may_run_in_fewer_bits() -> None:
    assert list(SPECS["jetson-orin"].peak.flops_per_s) == ["fp32", "int8"]
    assert peaks_of(SPECS["jetson-orin"], "fp32").flops_per_s is None


def test_a_processor_has_the_peak_that_none_exceeds() -> None:
    """Of all cores of the machine, for it is where the file is read that the times were taken."""
    flops_per_s = peaks_of(SPECS["cpu"], "fp32").flops_per_s
    assert flops_per_s == 64 * 6.5e9 * (os.cpu_count() or 1)


def test_the_larger_of_both_binds() -> None:
    read_s = (WEIGHTS - 2**28) / 3.35e12
    assert bound(8 * 15.0e9, WEIGHTS, H100) == Bound(memory_s=pytest.approx(read_s))
    assert bound(15.0e9 * 4096, WEIGHTS, H100) == Bound(compute_s=pytest.approx(15.0e9 * 4096 / 989.4e12))
    assert bound(0, 10 * WEIGHTS, H100, num_passes=10).seconds == pytest.approx(10 * read_s)


def test_what_fits_on_the_chip_takes_no_time() -> None:
    assert bound(0, 3 * ON_CHIP_BYTES, H100, num_passes=3).seconds == 0
    assert too_fast(0.0, Bound(), H100) == ""


def test_a_time_below_the_bound_is_told_in_words() -> None:
    least = bound(0, WEIGHTS, H100)
    assert too_fast(0.41 * least.seconds, least, H100) == (
        "faster than the device can be (0.41 of the time that its bytes take at 3.35 TB/s): "
        "work was left out, the clock is wrong or the hardware file is"
    )
    both = least + bound(1e15, 0, H100)
    assert "0.5 of the time that its FLOP and bytes take at 989 TFLOP/s and 3.35 TB/s" in too_fast(
        both.seconds / 2, both, H100
    )


def test_a_clock_above_the_stated_one_is_possible() -> None:
    """An H100 at 1,980 MHz, whose peak is stated at 1,830."""
    least = bound(1e15, 0, H100)
    assert too_fast(least.seconds * 1830 / 1980, least, H100) == ""
    assert too_fast(least.seconds * 0.89, least, H100)
