"""A log of single iterations and stretches, read while it grows; the logs of several devices as one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pytest_npubench.serving.log as log_module
from pytest_npubench.serving.iteration import (
    DecodeStretch,
    EachDecode,
    IterationOutcome,
    IterationPlan,
    LayerGroup,
    LayerPass,
    PrefillRow,
)
from pytest_npubench.serving.log import IterationLog, merged

ENTRIES = st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.5]), st.integers(0, 99), st.none() | st.floats(0, 1)))


def log_of(entries: list[tuple[float, int, float | None]]) -> IterationLog:
    log = IterationLog()
    ends, counts, joules = zip(*sorted(entries, key=lambda one: one[0]), strict=True) if entries else ((), (), ())
    columns: dict[str, Any] = {"end_s": ends, "start_s": ends, "energy_j": joules}
    log.extend({name: columns.get(name, counts) for name in log.columns()})
    return log


@given(st.lists(ENTRIES, min_size=1, max_size=4))
def test_iterations_are_in_the_order_in_which_they_ended_the_first_device_first(
    found: list[list[tuple[float, int, float | None]]],
) -> None:
    logs = [log_of(entries) for entries in found]
    order = sorted((log.end_s[index], which, index) for which, log in enumerate(logs) for index in range(len(log)))
    for name, column in merged(logs).columns().items():
        assert list(column) == [logs[which].columns()[name][index] for _, which, index in order]
        assert isinstance(column, type(logs[0].columns()[name]))


class PlainLog:
    """The same columns as lists, an iteration at a time."""

    def __init__(self) -> None:
        self.columns: dict[str, list[float | None]] = {name: [] for name in IterationLog().columns()}

    def add(self, **entry: float | None) -> None:
        for name, column in self.columns.items():
            column.append(entry.get(name, None if name == "energy_j" else 0))


COUNT = st.integers(0, 2**40)
SINGLES = st.tuples(st.just("single"), st.integers(0, 5), COUNT, COUNT, st.none() | st.floats(0, 1))
STRETCHES = st.tuples(st.just("stretch"), st.integers(1, 5), COUNT, st.integers(0, 9), st.booleans())
READS = st.tuples(st.just("read"), st.sampled_from(sorted(IterationLog().columns())))


@settings(max_examples=200)
@given(st.lists(SINGLES | STRETCHES | READS | st.just(("all",)), max_size=12), st.integers(1, 3))
def test_columns_are_those_of_a_plain_log_whenever_which_of_them_is_read(
    steps: list[tuple[Any, ...]], many_stretches: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "MANY_STRETCHES", many_stretches)
        log, plain, now_s = IterationLog(), PlainLog(), 0.0
        for what, *how in steps:
            now_s += 0.25  # idle
            if what == "single":
                rows, num_bytes, num_activations, joules = how
                plan = IterationPlan(
                    decode=tuple(range(rows)), passes=(LayerPass(LayerGroup(1, 4), (PrefillRow(9, 10, 3),)),)
                )
                outcome = IterationOutcome(
                    duration_s=0.5, expert_activations=num_activations, kv_bytes=num_bytes, energy_j=joules
                )
                log.append(now_s, now_s + 0.5, plan, outcome, num_running=rows, num_waiting=2)
                plain.add(
                    start_s=now_s,
                    end_s=now_s + 0.5,
                    num_decode=rows,
                    num_prefill_tokens=3,
                    num_prefill_layers=3,
                    num_prefill_pairs=11 + 12 + 13,
                    num_running=rows,
                    num_waiting=2,
                    expert_activations=num_activations,
                    kv_bytes=num_bytes,
                    energy_j=joules,
                )
                now_s += 0.5
            elif what == "stretch":
                number, num_bytes, num_hidden, is_apart = how
                step_s, growth_s = 0.5, 0.25  # exact in binary
                ends_s = [now_s + (k + 1) * (step_s + k * growth_s / 2) for k in range(number)]
                found = list(range(number))
                each = EachDecode([end_s + 1 for end_s in ends_s], found, found, found) if is_apart else None
                ends_s = each.end_s if each else ends_s
                stretch = DecodeStretch(number, ends_s[-1], step_s, growth_s, num_bytes, 7.5, num_hidden, each)
                assert stretch.last_start_s(now_s) == ([now_s, *ends_s])[-2]
                log.add_decode(stretch, now_s, num_decode=4, num_running=5, num_waiting=6)
                for k, (start_s, end_s) in enumerate(zip([now_s, *ends_s], ends_s, strict=False)):
                    of_each = dict.fromkeys(EachDecode._fields, k) if is_apart else {}
                    fixed = {"num_decode": 4, "num_running": 5, "num_waiting": 6, "hidden_bytes": num_hidden}
                    held = {"kv_bytes": int(num_bytes + k * 7.5)}
                    plain.add(**(of_each | fixed | held | {"start_s": start_s, "end_s": end_s}))
                now_s = ends_s[-1]
            elif what == "read":
                assert list(getattr(log, how[0])) == plain.columns[how[0]]
            elif what == "all":
                assert {name: list(column) for name, column in log.columns().items()} == plain.columns
            assert len(log) == len(plain.columns["end_s"])
        assert {name: list(getattr(log, name)) for name in plain.columns} == plain.columns
