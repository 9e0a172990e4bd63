"""The upgrade gate on made-up nights whose truth is known."""

import numpy as np
import pytest

from pytest_npubench.comparison.outcome import Row, canary_verdict, moved_with
from pytest_npubench.comparison.side_sources import load_side
from pytest_npubench.comparison.sides import Side
from pytest_npubench.comparison.upgrade import compare_sides
from pytest_npubench.errors import ConfigError
from pytest_npubench.stats.ranking import relative_throughputs
from pytest_npubench.verdict import Verdict, VerdictKind

from .made_nights import CANARIES, CASES, metric, night, stack, write_nights, write_session

REGRESSED, IMPROVED, UNCHANGED = VerdictKind.REGRESSED, VerdictKind.IMPROVED, VerdictKind.UNCHANGED
SLOW = CASES[4]


@pytest.fixture
def compared(tmp_path):
    """compared(num_old, num_new, planted=...): sessions of driver 570.86 against those of 580.12."""

    def run(num_old=10, num_new=4, planted=None, **options):
        old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
        write_nights(old, num_old, seed=1)
        write_nights(new, num_new, seed=2, planted=planted, fingerprint=stack("580.12"))
        return compare_sides(load_side(str(old)), load_side(str(new)), **options)

    return run


def kinds(found):
    return {row.definition.case: row.kind for row in found.rows}


@pytest.mark.parametrize("num_new", [1, 2, 4])
def test_a_planted_slow_down_is_reported_and_no_other(compared, num_new):
    found = compared(num_new=num_new, planted={SLOW: 1.10})
    assert [case for case, kind in kinds(found).items() if kind is REGRESSED] == [SLOW]
    (row,) = found.of_kind(REGRESSED)
    assert row.verdict.ratio == pytest.approx(1.10, abs=0.015)
    low, high = row.verdict.interval
    assert low < 1.10 < high
    assert row.after / row.before == pytest.approx(1.10, abs=0.02)
    assert not row.with_suite
    assert found.exit_status(1.0) == 1
    assert found.canary.kind is not REGRESSED
    assert found.stack == ("driver 570.86 -> 580.12",)


@pytest.mark.parametrize("num_new", [1, 2, 4])
@pytest.mark.parametrize("better", ["lower", "higher"])
def test_the_figures_of_a_row_make_the_change_that_it_shows(tmp_path, num_new, better):
    """Skewed samples and a night that moves all cases: medians of samples would tell another ratio than the judge."""
    rng = np.random.default_rng(num_new)

    def one(level):
        shared = rng.lognormal(0, 0.05)
        return {
            case: {
                "ttft_s": metric(list(level * shared * (1 + rng.exponential(0.3, 9))), better=better),
                "share": metric(list(level + rng.normal(0, 0.01, 5)), unit="", better=better, gate="difference"),
            }
            for case in CASES[:6]
        }

    found = two_sides(tmp_path, [one(0.5) for _ in range(5)], [one(0.6) for _ in range(num_new)])
    rows = [row for row in found.rows if row.verdict.ratio is not None]
    assert {row.definition.metric for row in rows} == {"ttft_s", "share"}
    for row in rows:
        change = row.after - row.before if row.definition.gate == "difference" else row.after / row.before
        assert change == pytest.approx(row.verdict.ratio)
        assert 0.3 < row.before < 0.9


def test_nothing_planted_is_no_regression(compared):
    found = compared()
    assert not found.regressed
    assert found.canary.kind is UNCHANGED
    assert [name for name, _ in found.suites] == ["s"]
    assert found.exit_status(0.5) == 0


@pytest.mark.parametrize("num_new", [1, 4])
def test_a_shift_of_the_whole_suite_is_one_finding(compared, num_new):
    """5 % in all cases, canaries included, and 15 % in one of them: that one moved apart from the suite."""
    found = compared(num_new=num_new, planted={"": 1.05, SLOW: 1.15})
    assert found.canary.kind is REGRESSED
    ((_, suite),) = found.suites
    assert suite.kind is REGRESSED
    assert suite.ratio == pytest.approx(1.05, abs=0.006)
    alone, together = (found.of_kind(REGRESSED, with_suite=flag) for flag in (False, True))
    assert [row.definition.case for row in alone] == [SLOW]
    assert {row.definition.case for row in together} <= {*CASES} - {SLOW}
    assert len(together) >= 8
    assert all(row.verdict.reason.endswith("moved with the suite") for row in together)
    assert found.exit_status(1.0) == 1


def test_canaries_alone(compared):
    """The device is slower, what runs on it is not, which the exit status says too."""
    found = compared(planted=dict.fromkeys(CANARIES, 1.08))
    assert found.canary.kind is REGRESSED
    assert "3 of 3 canaries regressed, x1.0" in found.canary.reason
    assert {*kinds(found).values()} == {UNCHANGED}
    assert found.exit_status(1.0) == 1


def test_canaries_are_no_part_of_what_the_suite_has_in_common(compared):
    found = compared(planted=dict.fromkeys(CANARIES, 2.0))
    assert not set(CANARIES) & kinds(found).keys()
    ((_, suite),) = found.suites
    assert suite.reason.startswith("12 cases together")


def test_an_improvement_is_no_regression(compared):
    found = compared(planted={SLOW: 0.9})
    assert kinds(found)[SLOW] is IMPROVED
    assert found.exit_status(0.5) == 0


def test_too_few_sessions_of_a_have_no_baseline(compared):
    found = compared(num_old=2)
    assert {*kinds(found).values()} == {VerdictKind.NO_BASELINE}
    assert found.canary.kind is VerdictKind.INCONCLUSIVE
    assert found.undecided_fraction == 1
    assert (found.exit_status(0.5), found.exit_status(1.0)) == (3, 0)


def test_margin_and_metric(compared):
    assert compared(planted={SLOW: 1.05}, margin=0.1).of_kind(REGRESSED) == ()
    assert compared(metrics=["tbt_s"]).canaries
    with pytest.raises(ConfigError, match="--metric ttft_s: neither side has it; they have kernel_s, tbt_s"):
        compared(metrics=["ttft_s"])
    with pytest.raises(ConfigError, match="margin is 3"):
        compared(margin=3)


def two_sides(tmp_path, old, new, **options):
    """Nights of these cases: dicts case -> metrics, one a session."""
    sides = []
    for name, nights in (("old", old), ("new", new)):
        path = tmp_path / f"{name}.jsonl"
        for metrics in nights:
            write_session(path, metrics)
        sides.append(load_side(str(path)))
    return compare_sides(*sides, **options)


def test_a_case_that_vanished_is_named_and_is_not_decided(tmp_path):
    rng = np.random.default_rng(0)
    old = [night(rng) for _ in range(5)]
    new = [night(rng, cases=[*CASES[2:], *CANARIES, "buckets/profile/new"]) for _ in range(3)]
    new[-1][CASES[5]]["ttft_s"] = metric([1.0])
    found = two_sides(tmp_path, old, new)
    assert [item.name for item in found.only_old] == list(CASES[:2])
    assert [item.name for item in found.only_new] == ["buckets/profile/new", f"{CASES[5]} ttft_s"]
    assert found.num_compared == 12
    assert found.undecided_fraction >= 2 / 12
    assert found.exit_status(0.1) == 3


def test_a_case_that_is_invalid_in_b_says_why(tmp_path):
    rng = np.random.default_rng(0)
    old = [night(rng) for _ in range(4)]
    path = tmp_path / "both.jsonl"
    for metrics in old:
        write_session(path, metrics)
    first = load_side(str(path))
    second = tmp_path / "new.jsonl"
    write_session(second, night(rng, cases=CASES[:3]))
    write_session(second, {SLOW: {}}, verdict={"kind": "invalid", "reason": "out of memory"})
    found = compare_sides(first, load_side(str(second)))
    assert {item.name: item.reason for item in found.only_old}[SLOW] == "invalid there: out of memory"


def test_what_is_measured_changed(tmp_path):
    rng = np.random.default_rng(0)
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    for _ in range(3):
        write_session(old, night(rng, cases=CASES[:1]))
        write_session(new, night(rng, cases=CASES[:1]), digest="ffffffffffff")
    (row,) = compare_sides(load_side(str(old)), load_side(str(new))).rows
    assert row.kind is VerdictKind.INCOMPARABLE
    assert row.verdict.reason == "what is measured changed: case digest 5d41402abc4b -> ffffffffffff"


def test_counters_differences_and_margins_of_their_own(tmp_path):
    """expert bytes repeat exactly; an error is judged by its difference; energy has a margin of 20 %."""
    rng = np.random.default_rng(0)

    def one(counter, error, energy):
        values = {
            "expert_bytes": metric([counter], unit="B", gate="exact"),
            "prediction_error": metric([error + rng.normal(0, 1e-4)], unit="", gate="difference"),
            "energy_j": metric([energy * np.exp(rng.normal(0, 1e-3))], unit="J", margin=0.2),
        }
        return {CASES[0]: values}

    found = two_sides(tmp_path, [one(4096, 0.0, 10.0) for _ in range(5)], [one(4100, 0.03, 11.0) for _ in range(3)])
    verdicts = {row.definition.metric: row.verdict for row in found.rows}
    assert verdicts["expert_bytes"].kind is REGRESSED
    assert verdicts["prediction_error"].kind is REGRESSED
    assert verdicts["prediction_error"].ratio == pytest.approx(0.03, abs=1e-3)
    assert verdicts["energy_j"].kind not in (REGRESSED, IMPROVED)


def test_nothing_to_compare(tmp_path):
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="no case is on both sides: A has 1 case, B 1 case"):
        two_sides(tmp_path, [night(rng, cases=CASES[:1])], [night(rng, cases=CASES[1:2])])
    empty = Side(label="x.jsonl", sessions=(), notes=("left out: 1 run without an end record",))
    with pytest.raises(ConfigError, match=r"A, x\.jsonl: no finished session with cases \(left out: 1 run without"):
        compare_sides(empty, empty)


@pytest.mark.parametrize(
    ("ratio", "interval", "expected"),
    [(1.05, (1.03, 1.07), True), (1.055, (1.052, 1.058), True), (1.15, (1.12, 1.18), False)],
    ids=["inside the interval", "within the margin", "beyond both"],
)
def test_moving_with_the_suite(compared, ratio, interval, expected):
    definition = compared(num_old=3, num_new=1).rows[0].definition
    suite = Verdict(kind=REGRESSED, reason="", ratio=1.05, interval=(1.04, 1.06))
    own = Verdict(kind=REGRESSED, reason="", ratio=ratio, interval=interval)
    assert moved_with(suite, own, definition, 0.01) is expected
    assert not moved_with(None, own, definition, 0.01)
    better = Verdict(kind=IMPROVED, reason="", ratio=0.95, interval=(0.9, 1.2))
    assert not moved_with(suite, better, definition, 0.01)


def test_many_canaries_speak_together_too():
    """Each of them inconclusive, all of them alike worse: that is the device."""
    alike = Verdict(kind=REGRESSED, reason="24 cases together are 2 % worse", ratio=1.02)
    own = Verdict(kind=VerdictKind.INCONCLUSIVE, reason="", ratio=1.02)
    rows = [Row(definition=None, verdict=own)] * 24
    assert canary_verdict(rows, [alike]) is alike
    assert canary_verdict(rows).kind is VerdictKind.INCONCLUSIVE
    assert canary_verdict([]) is None


def test_canaries_count_where_there_is_nothing_else(tmp_path):
    rng = np.random.default_rng(0)
    one, few = [[night(rng, cases=CANARIES) for _ in range(number)] for number in (4, 2)]
    found = two_sides(tmp_path, few, one)
    assert (found.rows, found.undecided_fraction, found.exit_status(0.5)) == ((), 1.0, 3)


def choices(seconds, rng):
    """A night of a case that timed two choices: 6 rounds, 0.5 % of noise."""
    rounds = [np.asarray(seconds) * np.exp(0.005 * rng.standard_normal(2)) for _ in range(6)]
    found = relative_throughputs(list(zip(*rounds, strict=True)))
    return {
        CASES[0]: {
            f"relative_throughput/batch{size}": metric(list(own), unit="", better="higher")
            for size, own in zip((4, 8), found, strict=True)
        }
    }


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ((1.0, 1.1), None),
        ((2.0, 2.2), None),  # both alike: the device is slower, the best is the same
        ((1.15, 1.0), f"{CASES[0]}: the best choice was batch4 and is batch8"),
    ],
)
def test_an_optimum_that_moves_with_the_stack_is_told(tmp_path, after, told):
    rng = np.random.default_rng(3)
    found = two_sides(tmp_path, [choices((1.0, 1.1), rng) for _ in range(5)], [choices(after, rng) for _ in range(3)])
    assert [note for note in found.notes if "best choice" in note] == ([told] if told else [])
    kinds_of = {row.definition.metric: row.kind for row in found.rows}
    expected = (REGRESSED, IMPROVED) if told else (UNCHANGED, UNCHANGED)
    assert (kinds_of["relative_throughput/batch4"], kinds_of["relative_throughput/batch8"]) == expected


def test_choices_that_are_equal_but_for_noise_are_not_said_to_have_moved_for_sure(tmp_path):
    rng = np.random.default_rng(4)
    found = two_sides(
        tmp_path, [choices((1.0, 1.0005), rng) for _ in range(5)], [choices((1.0005, 1.0), rng) for _ in range(3)]
    )
    assert all(note.endswith("though neither moved by more than chance") for note in found.notes if "best" in note)


@pytest.mark.parametrize("num_new", [1, 4])
def test_what_most_calls_suffer_is_found_where_the_better_quartile_stands(tmp_path, num_new):
    """Three calls of five take three times as long, which moves the median alone: in every night of B of one case, in
    half of the nights of another, where there is more than one; two calls of five of a third move nothing."""
    rng = np.random.default_rng(5)
    for name, num_nights in (("old.jsonl", 5), ("new.jsonl", num_new)):
        for index in range(num_nights):
            cases = night(rng)
            slow = {SLOW: 3, CASES[1]: 3 * (index % 2), CASES[2]: 2} if name == "new.jsonl" else {}
            for case, num_calls in slow.items():
                samples = cases[case]["tbt_s"]["samples"]
                samples[:num_calls] = [3 * value for value in samples[:num_calls]]
            write_session(tmp_path / name, cases)
    found = compare_sides(*(load_side(str(tmp_path / name)) for name in ("old.jsonl", "new.jsonl")))
    (row,) = found.of_kind(REGRESSED)
    assert row.definition.case == SLOW
    assert row.verdict.reason.startswith("its median is ")
    assert "than that of 5 sessions" in row.verdict.reason
    assert found.exit_status(1.0) == 1
