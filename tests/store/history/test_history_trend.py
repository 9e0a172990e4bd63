"""Series, stack changes and changes of level, from journals of made-up nights."""

import math
import statistics
from dataclasses import replace

import pytest
from made_journals import case_record, redated, stack, write_session

from pytest_npubench.store.history import history_series, upload_journal
from pytest_npubench.store.history.trend import changes_of, series_of
from pytest_npubench.store.journal import JournalWriter, read_journal

CASE = "buckets/profile/h200-tiny-b4-bucket0"


@pytest.fixture
def nights(tmp_path):
    """Ten nights of 2.0 ms on driver 570.86, then ten of 2.2 ms on 580.12 and another host; dates run backwards in the
    file, as in journals gathered from several hosts."""
    path, url = tmp_path / "journal.jsonl", str(tmp_path / "history.db")
    for night in reversed(range(20)):
        old = night < 10
        write_session(
            path,
            num_cases=1,
            driver="570.86" if old else "580.12",
            host="bench-1" if old else "bench-2",
            samples=[(0.002 if old else 0.0022) * (1 + 0.001 * (-1) ** night)] * 3,
        )
    redated(path, [f"2026-11-{night + 1:02}T02:00:00+00:00" for night in reversed(range(20))])
    upload_journal(url, read_journal(path))
    return url


def test_a_series_is_in_the_order_of_time(nights):
    tbt, padding = sorted(series_of(history_series(nights, CASE)), key=lambda item: item.metric, reverse=True)
    assert (tbt.metric, padding.metric) == ("tbt_s", "padding_fraction")
    assert [point.started_at[8:10] for point in tbt.points] == [f"{day:02}" for day in range(1, 21)]
    assert {point.num_samples for point in tbt.points} == {3}
    assert {point.num_samples for point in padding.points} == {0}


def test_the_worked_example(nights):
    (series,) = series_of(history_series(nights, CASE, "tbt_s"))
    (change,) = changes_of(series)
    assert (change.before, change.after) == (pytest.approx(0.002), pytest.approx(0.0022))
    assert change.ratio == pytest.approx(1.1)
    assert change.worse
    assert change.started_at == "2026-11-11T02:00:00+00:00"
    assert change.session == series.points[10].session
    assert change.stack == ("driver 570.86 -> 580.12", "host bench-1 -> bench-2")


def test_stack_changes_stand_where_they_happened(nights):
    (series,) = series_of(history_series(nights, CASE, "tbt_s"))
    found = [point.stack for point in series.points[1:]]
    assert [bool(changes) for changes in found] == [index == 9 for index in range(19)]


def test_hosts_in_turn_are_compared_each_with_its_own_session_before(tmp_path):
    path, url = tmp_path / "journal.jsonl", str(tmp_path / "history.db")
    for night in range(6):
        write_session(path, num_cases=1, host=f"bench-{night % 2}", driver="580.12" if night == 5 else "570.86")
    redated(path, [f"2026-11-{night + 1:02}T02:00:00+00:00" for night in range(6)])
    upload_journal(url, read_journal(path))
    (series,) = series_of(history_series(url, CASE, "tbt_s"))
    moved, updated = "host bench-0 -> bench-1", "driver 570.86 -> 580.12"
    assert [point.stack for point in series.points] == [(), (moved,), (), (), (), (updated,)]


def test_a_higher_figure_may_be_the_better_one(nights):
    rows = history_series(nights, CASE, "tbt_s")
    (series,) = series_of(rows)
    (change,) = changes_of(replace(series, better="higher"))
    assert not change.worse


def test_sessions_without_a_logarithm_are_left_out_of_the_search(nights):
    (series,) = series_of(history_series(nights, CASE, "tbt_s"))
    points = tuple(replace(point, median=0.0) if index == 3 else point for index, point in enumerate(series.points))
    (change,) = changes_of(replace(series, points=points))
    assert change.session == series.points[10].session
    assert changes_of(replace(series, points=tuple(replace(point, median=0.0) for point in points))) == ()


def test_several_devices_of_a_session_are_one_point_and_other_classes_and_digests_are_apart(tmp_path):
    path, url = tmp_path / "journal.jsonl", str(tmp_path / "history.db")
    with JournalWriter.open(path, host=stack().host, settings={}) as journal:
        digest, other = journal.device(stack()), journal.device(stack(device_class="H200 NVL"))
        metrics = [{"m": {"unit": "s", "value": value, "better": "lower", "samples": []}} for value in (1.0, 4.0, 7.0)]
        journal.append(case_record(digest, device="cuda:0", metrics=metrics[0]))
        journal.append(case_record(digest, device="cuda:1", metrics=metrics[1]))
        journal.append(case_record(digest, device="cuda:0", digest="000000000000", metrics=metrics[2]))
        journal.append(case_record(other, device="cuda:2", metrics=metrics[2]))
    upload_journal(url, read_journal(path))
    found = {
        (item.device_class, item.digest): [point.median for point in item.points]
        for item in series_of(history_series(url))
    }
    assert found == {
        ("H200 SXM 141 GB", "5d41402abc4b"): [pytest.approx(math.sqrt(1.0 * 4.0))],
        ("H200 SXM 141 GB", "000000000000"): [7.0],
        ("H200 NVL", "5d41402abc4b"): [7.0],
    }


def test_a_row_has_the_journals_value_and_a_point_the_median_of_its_samples(tmp_path):
    """A mean, as TTFT_b is, and the median of the same samples differ."""
    path, url = tmp_path / "journal.jsonl", str(tmp_path / "history.db")
    samples = [0.1, 0.1001, 0.1007]
    mean = statistics.fmean(samples)
    with JournalWriter.open(path, host=stack().host, settings={}) as journal:
        metrics = {"ttft_s": {"unit": "s", "value": mean, "better": "lower", "samples": samples}}
        journal.append(case_record(journal.device(stack()), metrics=metrics))
    upload_journal(url, read_journal(path))
    (row,) = history_series(url)
    (kept,) = (record["metrics"]["ttft_s"] for record in read_journal(path).records if record["record"] == "case")
    assert (row.value, list(row.samples)) == (kept["value"], kept["samples"]) == (mean, samples)
    ((point,),) = (series.points for series in series_of([row]))
    assert point.median == 0.1001 != row.value


def test_every_part_of_the_stack_is_named(tmp_path):
    path, url = tmp_path / "journal.jsonl", f"sqlite:///{tmp_path / 'history.db'}"
    before = stack()
    device = replace(before.device, extra=(("uuid", "GPU-2"),))
    later = replace(before, device=device, host=replace(before.host, python="CPython 3.13.1", num_cores=4))
    for found in (before, later):
        with JournalWriter.open(path, host=found.host, settings={}) as journal:
            journal.append(case_record(journal.device(found)))
    redated(path, [f"2026-11-0{day}T02:00:00+00:00" for day in (1, 2)])
    upload_journal(url, read_journal(path))
    (series,) = series_of(history_series(url, CASE, "tbt_s"))
    assert series.points[0].stack == ()
    assert {text.partition(" ->")[0].rpartition(" ")[0] for text in series.points[1].stack} == {
        "device uuid",
        "num_cores",
        "python CPython",
    }
