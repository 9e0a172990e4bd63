"""Shards: every group in one of them, the same on every host, as short as Graham's bound says."""

import itertools
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_records import HOST

from pytest_npubench.campaign.sharding import group_of, known_durations, parse_shard, shard
from pytest_npubench.errors import ConfigError
from pytest_npubench.store.journal import JournalWriter, read_journal

names = st.lists(st.text(max_size=8), unique=True, max_size=12)
seconds = st.floats(0, 1e4) | st.none()
counts = st.integers(1, 6)


@st.composite
def groups(draw, duration=seconds, largest=12):
    return [(name, draw(duration)) for name in draw(st.lists(st.text(max_size=6), unique=True, max_size=largest))]


def shards(given_groups, count):
    return [shard(given_groups, index, count) for index in range(1, count + 1)]


@given(groups(), counts, st.randoms(use_true_random=False))
def test_every_group_is_in_exactly_one_shard_whatever_the_order(given_groups, count, chance):
    found = shards(given_groups, count)
    assert sorted(name for part in found for name in part) == sorted(name for name, _ in given_groups)
    mixed = list(given_groups)
    chance.shuffle(mixed)
    assert shards(mixed, count) == found


@settings(max_examples=60)
@given(groups(st.integers(0, 30).map(float), largest=7), st.integers(1, 3))
def test_the_longest_shard_is_within_grahams_bound_of_the_best_division(given_groups, count):
    durations = dict(given_groups)
    longest = max(sum(durations[name] for name in part) for part in shards(given_groups, count))
    best = min(
        max(
            sum(value for value, own in zip(durations.values(), places, strict=True) if own == one)
            for one in range(count)
        )
        for places in itertools.product(range(count), repeat=len(durations))
    )
    assert longest <= (4 / 3 - 1 / (3 * count)) * best + 1e-9


def test_the_worked_example():
    found = shards([("e", 3.0), ("c", 3.0), ("b", 4.0), ("a", 5.0), ("d", 3.0)], 2)
    loads = {part: sum({"a": 5, "b": 4}.get(name, 3) for name in part) for part in found}
    assert sorted(loads.values()) == [8, 10]
    assert not any({"a", "b"} <= part for part in found)


def test_a_group_of_unknown_duration_counts_as_the_median():
    known = [("long", 100.0), ("usual", 10.0), ("short", 1.0)]
    assert shards([*known, ("new", None)], 2) == shards([*known, ("new", 10.0)], 2)


@given(names.filter(bool), counts)
def test_without_durations_a_new_group_moves_no_other(all_names, count):
    before = shards([(name, None) for name in all_names[:-1]], count)
    after = shards([(name, None) for name in all_names], count)
    assert [part - {all_names[-1]} for part in after] == before


@given(names, counts)
def test_without_durations_one_shard_more_takes_over_and_moves_nothing_else(all_names, count):
    unknown = [(name, None) for name in all_names]
    for old, new in zip(shards(unknown, count), shards(unknown, count + 1), strict=False):
        assert new <= old


def test_without_durations_shards_are_about_even():
    sizes = [len(part) for part in shards([(f"cpu-model{number}-b1", None) for number in range(1000)], 5)]
    assert min(sizes) > 150  # five standard deviations of a binomial below 200 is 137


def test_another_process_divides_alike():
    script = (
        "from pytest_npubench.campaign.sharding import shard\n"
        "groups = [(f'g{n}', float(n % 3) if n % 2 else None) for n in range(20)]\n"
        "print([sorted(shard(groups, i, 3)) for i in (1, 2, 3)], sorted(shard([(n, None) for n, _ in groups], 2, 3)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


@given(st.integers(1, 10**6 - 1), st.integers(1, 10**6 - 1))
def test_parse_reads_what_is_written(one, other):
    index, count = sorted((one, other))
    assert parse_shard(f" {index}/{count}\n") == (index, count)


@pytest.mark.parametrize(
    "text", ["", "2", "/", "0/2", "3/2", "-1/2", "1/0", "1/2/3", "a/b", "1.0/2", "١/٢", "1 / 2", "1e1/20"]
)
def test_parse_says_what_is_allowed(text):
    with pytest.raises(ConfigError, match=r"want I/N with whole numbers 1 <= I <= N, such as 2/5"):
        parse_shard(text)


@pytest.mark.parametrize(
    ("bad", "index", "message"),
    [
        ([("a", 1.0)], 3, "shard 3/2"),
        ([("a", 1.0), ("a", 2.0)], 1, "'a' stands twice"),
        ([("a", float("nan"))], 1, "'a' took nan"),
        ([("a", -1.0)], 1, "'a' took -1.0"),
    ],
)
def test_wrong_groups_are_named(bad, index, message):
    with pytest.raises(ConfigError, match=message):
        shard(bad, index, 2)


@pytest.fixture
def journal(tmp_path):
    """Two sessions of one campaign, of 10 + 1 s and 30 + 3 s, and an own case."""
    path = tmp_path / "journal.jsonl"
    case = {
        "record": "case",
        "fingerprint": None,
        "id": "cpu-tiny-b4-x",
        "hardware": "cpu",
        "model": "tiny",
        "batch_size": 4,
        "digest": "d",
        "verdict": {"kind": "passed"},
    }
    for factor in (1.0, 3.0):
        with JournalWriter.open(path, host=HOST, settings={}) as writer:
            for kind, duration_s in (("profile", 10.0), ("steps", 1.0)):
                writer.append({**case, "case": f"buckets/{kind}/cpu-tiny-b4-x", "duration_s": duration_s * factor})
            writer.append({**case, "case": "buckets/profile/cpu-tiny-b4-y", "duration_s": 1e3, "resumed": True})
            writer.append(
                {**case, "case": "buckets/a/cpu-tiny-b4-z", "duration_s": 1e3, "verdict": {"kind": "invalid"}}
            )
            own = {"case": "own/callable/cpu-callable-b1-t.py::test_a", "axes": {"test": "t.py::test_a"}}
            writer.append({**case, **own, "duration_s": 2.0})
            writer.append({**case, "case": "buckets/steps/cpu-tiny-b4-w", "duration_s": None})
    return read_journal(path)


def test_known_durations_are_medians_of_a_groups_sum(journal):
    assert known_durations(journal) == {"cpu-tiny-b4": 22.0, "t.py::test_a": 2.0}
    assert known_durations(journal, profile="nightly") == known_durations(None) == {}
    by_kind = known_durations(journal, group=lambda record: record["case"].split("/")[1])
    assert by_kind == {"profile": 20.0, "steps": 2.0, "callable": 2.0}


def test_groups_are_the_campaigns_keys(tmp_path):
    from reports.journals import make_plan, measure, write_run

    plan = make_plan(4)
    path = tmp_path / "journal.jsonl"
    write_run(path, measure(plan))
    records = [record for record in read_journal(path).records if record["record"] == "case"]
    assert {group_of(record) for record in records} == {plan.key}
