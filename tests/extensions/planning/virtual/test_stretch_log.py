"""A log of single iterations and stretches, against one that has each iteration on its own."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.extensions.planning.virtual.stretch import DecodeStretch, EachDecode
from pytest_npubench.extensions.planning.virtual.stretch_log import StretchLog
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan, LayerGroup, LayerPass, PrefillRow
from pytest_npubench.serving.log import COLUMNS, MAYBE_UNKNOWN


class PlainLog:
    """The same columns as lists, an iteration at a time."""

    def __init__(self) -> None:
        self.columns: dict[str, list[float | None]] = {name: [] for name in COLUMNS}

    def add(self, **entry: float | None) -> None:
        for name, column in self.columns.items():
            column.append(entry.get(name, None if name in MAYBE_UNKNOWN else 0))


COUNT = st.integers(0, 2**40)
SINGLES = st.tuples(st.just("single"), st.integers(0, 5), COUNT, COUNT, st.none() | st.floats(0, 1))
STRETCHES = st.tuples(st.just("stretch"), st.integers(1, 5), COUNT, st.integers(0, 9), st.booleans())


@settings(max_examples=200)
@given(st.lists(SINGLES | STRETCHES, max_size=12), st.permutations(COLUMNS))
def test_columns_are_those_of_a_plain_log_in_whatever_order_they_are_read(
    steps: list[tuple[Any, ...]], order: list[str]
) -> None:
    log, plain, now_s = StretchLog(), PlainLog(), 0.0
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
        else:
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
        assert len(log) == len(plain.columns["end_s"])
    for name in order:
        assert list(getattr(log, name)) == plain.columns[name]
