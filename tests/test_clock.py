"""A test that freezes time, or puts a clock of its own in place of the machine's, measures what it would have."""

import sys
import time

from pytest_npubench.campaign.callable_timing import time_callable

CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time")


def test_a_frozen_clock_is_no_matter_of_a_measurement(monkeypatch):
    """As freezegun does: the clocks of `time`, and every module's attribute that is one of them."""
    sleep, start_s = time.sleep, time.perf_counter()
    true_ones = {id(getattr(time, name)): name for name in CLOCKS}
    for module in [module for module in sys.modules.values() if module is not None]:
        for name, value in list(vars(module).items()):
            if id(value) in true_ones:
                monkeypatch.setattr(module, name, lambda: 15.1)
    timing = time_callable(
        sleep, (0.001,), {}, lambda value: None, rounds=3, max_warmup=2, count_compiles=lambda: 0, iterations=1
    )
    monkeypatch.undo()
    assert all(0.001 <= sample_s < time.perf_counter() - start_s for sample_s in timing.samples_s)


def test_no_module_that_measures_reads_another_clock():
    """Those that only wait for something may."""
    clocks = {id(time.perf_counter), id(time.monotonic)}
    rooms = ("backends", "campaign.re", "campaign.rounds", "engines", "serving", "suites", "partition", "offload")
    names = [name for name in sys.modules if name.startswith(tuple(f"pytest_npubench.{room}" for room in rooms))]
    assert names
    assert not [name for name in names if clocks & set(map(id, vars(sys.modules[name]).values()))]
