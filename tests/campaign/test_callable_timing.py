"""Timing a callable: what is called how often, and what is waited for."""

from time import sleep

from pytest_npubench.campaign.callable_timing import time_callable


class Log:
    """Counts calls of a function and what was waited for; compiles in the calls whose number it is told."""

    def __init__(self, compiles_in=()):
        self.calls = []
        self.waited_for = []
        self.compiles_in = compiles_in
        self.num_compiles = 0

    def function(self, *arguments, **keywords):
        self.calls.append((arguments, keywords))
        self.num_compiles += len(self.calls) in self.compiles_in
        return len(self.calls)

    def time(self, rounds=5, max_warmup=4):
        return time_callable(
            self.function,
            (1, 2),
            {"three": 3},
            self.waited_for.append,
            rounds=rounds,
            max_warmup=max_warmup,
            count_compiles=lambda: self.num_compiles,
        )


def test_each_call_is_waited_for():
    log = Log()
    timing = log.time()
    assert len(timing.samples_s) == 5
    assert all(sample_s >= 0 for sample_s in timing.samples_s)
    assert 7 <= len(log.calls) <= 9  # 2 to 4 to warm up
    assert log.waited_for == list(range(1, len(log.calls) + 1))
    assert set(map(str, log.calls)) == {str(((1, 2), {"three": 3}))}
    assert timing.num_late_compiles == 0


def test_compiles_while_warming_up_are_not_late():
    assert Log(compiles_in=(1, 2)).time(max_warmup=2).num_late_compiles == 0
    assert Log(compiles_in=(1, 3, 7)).time(max_warmup=2).num_late_compiles == 2


def test_the_device_is_waited_for_inside_the_time():
    """A wait that takes longer than anything else here shows up in every sample."""
    timing = time_callable(
        lambda: None, (), {}, lambda value: sleep(0.005), rounds=4, max_warmup=2, count_compiles=lambda: 0
    )
    assert min(timing.samples_s) >= 0.005
