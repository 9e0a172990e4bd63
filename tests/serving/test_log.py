"""The logs of several devices as one, and the work of a plan."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan, LayerGroup, LayerPass, PrefillRow
from pytest_npubench.serving.log import IterationLog, merged

ENTRIES = st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.5]), st.integers(0, 99), st.none() | st.floats(0, 1)))


def log_of(entries: list[tuple[float, int, float | None]]) -> IterationLog:
    log = IterationLog()
    ends, counts, joules = zip(*sorted(entries, key=lambda one: one[0]), strict=True) if entries else ((), (), ())
    columns: dict[str, Any] = {"end_s": ends, "start_s": ends, "energy_j": joules, "host_s": joules}
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


def test_an_iteration_is_its_plan_and_its_outcome() -> None:
    """Three tokens behind ten, through three layers: 11 + 12 + 13 pairs."""
    log = IterationLog()
    plan = IterationPlan(decode=(4, 5), passes=(LayerPass(LayerGroup(1, 4), (PrefillRow(9, 10, 3),)),))
    outcome = IterationOutcome(
        expert_activations=6, padded_expert_activations=7, expert_load_bytes=8, kv_bytes=9, hidden_bytes=10
    )
    log.append(1.0, 1.5, plan, outcome, num_running=3, num_waiting=2)
    assert len(log) == 1
    assert {name: column[0] for name, column in log.columns().items()} == {
        "start_s": 1.0,
        "end_s": 1.5,
        "num_decode": 2,
        "num_prefill_tokens": 3,
        "num_prefill_layers": 3,
        "num_prefill_pairs": 36,
        "num_running": 3,
        "num_waiting": 2,
        "expert_activations": 6,
        "padded_expert_activations": 7,
        "expert_load_bytes": 8,
        "kv_bytes": 9,
        "hidden_bytes": 10,
        "energy_j": None,
        "host_s": None,
    }
