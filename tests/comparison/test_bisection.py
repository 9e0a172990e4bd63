"""The search of a bisection, on versions whose levels are known and a gate that is made up."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.comparison.bisection import Search, change_text
from pytest_npubench.comparison.observation import Observation
from pytest_npubench.comparison.outcome import Comparison, Described, Row
from pytest_npubench.errors import ConfigError
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import GateKind

MARGIN, EQUIVALENT, HALF_WIDTH = 0.01, 0.03, 0.06


class Gate:
    """Says exactly by how much versions differ, with an interval that becomes narrower with the pairs."""

    def __init__(self, levels: dict[str, float | None], gate: GateKind = "ratio", better: str = "lower") -> None:
        self.levels, self.gate, self.better = levels, gate, better
        self.asked: list[tuple[str, str, int]] = []

    def measure(self, old: str, new: str, num_pairs: int) -> Comparison:
        self.asked.append((old, new, num_pairs))
        before, after = self.levels[old], self.levels[new]
        if before is None or after is None:
            raise ConfigError(f"{new} does not start")
        verdict = self.verdict(math.log(after / before), HALF_WIDTH / num_pairs)
        metric = Observation(
            case="own/case/a",
            digest="",
            metric="tbt_s",
            unit="s",
            better="lower" if self.better == "lower" else "higher",
            gate=self.gate,
            margin=None,
            processes=(),
        )
        side = Described(label="", num_sessions=num_pairs, first_at="", last_at="")
        return Comparison(
            old=side, new=side, stack=(), canary=None, canaries=(), answers=(), suites=(),
            rows=(Row(definition=metric, verdict=verdict),), only_old=(), only_new=(), notes=(),
        )  # fmt: skip

    def verdict(self, change: float, width: float) -> Verdict:
        worse = change if self.better == "lower" else -change
        kind = VerdictKind.INCONCLUSIVE
        if abs(worse) - width > MARGIN:
            kind = VerdictKind.REGRESSED if worse > 0 else VerdictKind.IMPROVED
        elif abs(worse) + width < EQUIVALENT:
            kind = VerdictKind.UNCHANGED
        if self.gate == "exact":
            return Verdict(kind=VerdictKind.REGRESSED if worse else VerdictKind.UNCHANGED, reason="exact")
        ends = math.exp(change - width), math.exp(change + width)
        return Verdict(kind=kind, reason="", ratio=math.exp(change), interval=ends)


def search(gate: Gate, most_pairs: int = 40) -> Search:
    return Search(tuple(gate.levels), gate.measure, num_pairs=5, most_pairs=most_pairs, say=lambda text: None)


def levels(*factors: float | None) -> dict[str, float | None]:
    return {f"v{number}": factor for number, factor in enumerate(factors)}


@given(st.data())
def test_a_planted_step_is_found_between_its_neighbours_whatever_cannot_be_measured(data: st.DataObject) -> None:
    num_before, num_after = (data.draw(st.integers(1, 40)) for _ in range(2))
    factor = data.draw(st.sampled_from([1.04, 1.5, 0.9]))
    wobble = st.sampled_from([1.0, 1.002, 0.998])
    truth = [data.draw(wobble) for _ in range(num_before)] + [factor * data.draw(wobble) for _ in range(num_after)]
    broken = data.draw(st.sets(st.integers(1, len(truth) - 2))) if len(truth) > 2 else set()
    gate = Gate(levels(*(None if number in broken else level for number, level in enumerate(truth))))
    answer = search(gate).run()
    assert answer.ends is not None
    good = max(number for number in range(num_before) if number not in broken)
    bad = min(number for number in range(num_before, len(truth)) if number not in broken)
    assert (answer.before, answer.after) == (f"v{good}", f"v{bad}")
    assert answer.outcome == ("found" if bad == good + 1 else "undecided")
    assert answer.passed_over == {f"v{number}": f"v{number} does not start" for number in range(good + 1, bad)}
    measured = {new for _, new, _ in gate.asked}
    assert len(measured) <= math.ceil(math.log2(len(truth))) + len(broken) + 2
    assert gate.asked[0][:2] == ("v0", f"v{len(truth) - 1}")


@pytest.mark.parametrize(
    ("gate", "outcome", "between"),
    [
        (Gate(levels(1, 1, 1, 1)), "alike", ("v0", "v3")),
        (Gate(levels(1, 1.02)), "undecided", ("v0", "v1")),  # beyond the margin by as much as one can see
        (Gate(levels(1, 1.008, 1.016, 1.024, 1.032, 1.04)), "spread", None),
        (Gate(levels(1, 1, 1.02, 1.10)), "found", ("v2", "v3")),  # the larger of two steps
        (Gate(levels(1, 1.05, 1.05, 1.0, 1.05)), "found", None),  # there and gone and there again: one of both
        (Gate(levels(1, 1, 1.08, 1.08), gate="exact"), "found", ("v1", "v2")),
        (Gate(levels(1, 1, 0.9, 0.9), better="higher"), "found", ("v1", "v2")),
        (Gate(levels(1, 1.04, 1.08)), "undecided", ("v0", "v2")),  # just at half of it
    ],
)
def test_what_is_said_of_other_shapes(gate: Gate, outcome: str, between: tuple[str, str] | None) -> None:
    answer = search(gate, most_pairs=5 if outcome == "undecided" else 40).run()
    assert answer.outcome == outcome
    assert between in (None, (answer.before, answer.after))


def test_what_is_not_decided_is_measured_longer_and_then_passed_over() -> None:
    gate = Gate(levels(1, 1.0392, 1.0385, 1.08))
    answer = search(gate).run()
    assert [pairs for _, new, pairs in gate.asked if new == "v1"] == [5, 10, 20, 40]
    assert answer.passed_over == {"v1": "not decided after 40 pairs", "v2": "not decided after 40 pairs"}
    assert answer.step is not None
    assert change_text(answer.step) == "+8.0 % (6.7 to 9.3)"
    far = search(Gate(levels(1, 3))).run().ends
    assert far is not None
    assert re.fullmatch(r"x3 \(x2\.\d\d? to x3\.\d\d?\)", change_text(far))


def test_ends_that_cannot_be_measured_are_an_error() -> None:
    with pytest.raises(ConfigError, match="v1 does not start"):
        search(Gate(levels(1, None))).run()
