"""Rejecting, moving the anchor, pruning: what changes, what stays, and what is named where it cannot be done."""

import json
import signal
from datetime import datetime, timezone

import pytest
from accepted_results import CASE, OTHER, accept, accepted_at, anchor_sessions, result, values

from pytest_npubench.errors import BaselineError
from pytest_npubench.store.baseline_changes import move_anchor, newest_time, prune, reject, rename
from pytest_npubench.store.baselines import Baselines

NEW = "buckets/profile/cpu-small-b4-bucket128"


@pytest.fixture
def directory(tmp_path, key):
    """Eight sessions of two cases, s0 to s7."""
    for day in range(8):
        both = (result((float(day),)), result((10.0 + day,), case=OTHER))
        accept(tmp_path / "baselines", key, *both, session=f"s{day}", day=day)
    return tmp_path / "baselines"


def sessions(directory, key, case=CASE, digest="d1"):
    return values(Baselines.load(directory).sessions(case, "tbt_s", key, digest=digest))


def anchor(directory, key, case=CASE, digest="d1"):
    return values(anchor_sessions(Baselines.load(directory), case, "tbt_s", key, digest=digest))


# reject


def test_a_rejected_session_is_gone_and_stays_out(directory, key):
    change = reject(directory, "s2", reason="the room was hot")
    assert (change.sessions, change.num_cases, len(change.paths)) == (("s2",), 2, 1)
    assert sessions(directory, key) == [0, 1, 3, 4, 5, 6, 7]
    assert anchor(directory, key) == [0, 1, 3, 4, 5, 6, 7]
    with pytest.raises(BaselineError, match=r"the session s2 was rejected on \d{4}-\d\d-\d\d: the room was hot$"):
        accept(directory, key, result((2.0,)), session="s2")
    accept(directory, key, result((8.0,)), session="s8", day=8)
    assert anchor(directory, key) == [0, 1, 3, 4, 5, 6, 7, 8]  # no window has begun


def test_a_rejected_session_enters_no_other_file_either(directory, key, other_driver):
    reject(directory, "s2")
    with pytest.raises(BaselineError, match=r"the session s2 was rejected on \d{4}-\d\d-\d\d$"):
        accept(directory, other_driver, result(), session="s2")


def test_rejecting_twice_changes_nothing(directory):
    (path,) = reject(directory, "s2", reason="hot").paths
    before = path.read_bytes()
    change = reject(directory, "s2", reason="something else")
    assert (change.sessions, change.num_cases, change.paths) == (("s2",), 0, ())
    assert path.read_bytes() == before


def test_a_journal_session_means_all_its_devices(directory, key):
    for device in ("cuda:0", "cuda:1"):
        accept(directory, key, result((9.0,)), session=f"s9@{device}", day=9)
    accept(directory, key, result((9.5,)), session="s90", day=9)
    assert reject(directory, "s9").sessions == ("s9@cuda:0", "s9@cuda:1")
    assert sessions(directory, key)[-1] == 9.5
    accept(directory, key, result((11.0,)), session="s11@cuda:0", day=11)
    accept(directory, key, result((11.0,)), session="s11@cuda:1", day=11)
    assert reject(directory, "s11@cuda:0").sessions == ("s11@cuda:0",)


def test_rejecting_the_last_session_leaves_no_case_but_its_name(tmp_path, key):
    (path,) = accept(tmp_path / "b", key, result(), session="s0")
    reject(tmp_path / "b", "s0")
    content = json.loads(path.read_text())
    assert content["cases"] == {}
    assert list(content["rejected"]) == ["s0"]
    assert Baselines.load(tmp_path / "b").sessions(CASE, "tbt_s", key, digest="d1") == []


def test_an_unknown_session_is_named_with_the_newest(directory):
    with pytest.raises(BaselineError, match=r"no accepted session 's'; the newest are s7, s6, s5, s4, s3; did"):
        reject(directory, "s")


def test_no_command_makes_a_folder(tmp_path):
    for change in (
        lambda: reject(tmp_path / "none", "s0"),
        lambda: move_anchor(tmp_path / "none", newest=1),
        lambda: prune(tmp_path / "none", keep=1),
        lambda: rename(tmp_path / "none", CASE, NEW),
    ):
        with pytest.raises(BaselineError, match="none: No such file or directory"):
            change()
    assert not (tmp_path / "none").exists()


# anchor


def test_the_anchor_moves_to_the_newest(directory, key):
    change = move_anchor(directory, newest=3)
    assert (change.sessions, change.num_cases) == (("s5", "s6", "s7"), 2)
    assert anchor(directory, key) == [5, 6, 7]
    assert sessions(directory, key) == [*range(8)]
    assert move_anchor(directory, newest=3).paths == ()


def test_the_anchor_moves_to_named_sessions_of_one_case(directory, key):
    change = move_anchor(directory, sessions=["s6", "s1"], case=OTHER)
    assert (change.sessions, change.num_cases) == (("s1", "s6"), 1)
    assert anchor(directory, key) == [*range(8)]
    assert anchor(directory, key, OTHER) == [11, 16]


def test_old_anchor_sessions_rotate_out_of_the_window(directory, key):
    move_anchor(directory, newest=2)
    for day in range(8, 34):
        accept(directory, key, result((float(day),)), session=f"s{day}", day=day)
    assert anchor(directory, key) == [6, 7]
    assert sessions(directory, key) == [6, 7, *range(10, 34)]


def test_the_anchor_moves_under_one_key_only(directory, key, other_driver):
    accept(directory, other_driver, result((1.0,)), session="s0")
    move_anchor(directory, newest=1, key=key.digest())
    assert anchor(directory, key) == [7]
    assert anchor(directory, other_driver) == [1]
    move_anchor(directory, sessions=["s0"])
    assert (anchor(directory, key), anchor(directory, other_driver)) == ([0], [1])


def test_the_anchor_moves_over_both_names_of_a_case(directory, key):
    rename(directory, CASE, NEW)
    accept(directory, key, result((8.0,), case=NEW, digest="n1"), session="s8", day=8)
    move_anchor(directory, newest=2, case=NEW)
    assert anchor(directory, key, NEW, "n1") == [7, 8]
    move_anchor(directory, sessions=["s0"], case=CASE)
    assert anchor(directory, key, NEW, "n1") == [0]


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"sessions": ["s1", "s9"]}, "no accepted session 's9'; the newest are s7"),
        ({"sessions": ["s1"], "case": "x"}, "no accepted case 'x'; there are 2 cases$"),
        ({"newest": 1, "key": "00000000"}, "no accepted session under the key 00000000$"),
    ],
)
def test_an_anchor_that_is_nowhere_is_named_and_nothing_changes(directory, key, about, message):
    with pytest.raises(BaselineError, match=message):
        move_anchor(directory, **about)
    assert anchor(directory, key) == [*range(8)]


# prune


@pytest.fixture
def three_keys(directory, key, other_driver):
    """Driver 570.86 accepted last on day 7, 580.12 on day 100, and another device on day 0."""
    accept(directory, other_driver, result((1.0,)), session="n", day=100)
    lab = key.__class__.from_json({**key.to_json(), "device_class": "H200 NVL"})
    accept(directory, lab, result((1.0,)), session="l", day=0)
    return directory


def left(directory):
    return sorted((file.key.driver, file.key.device_class[5:8]) for file in Baselines.load(directory).files)


NOW = datetime.fromisoformat(accepted_at(110))


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"older_than_days": 30}, [("570.86", "NVL"), ("580.12", "SXM")]),
        ({"older_than_days": 103.5}, [("570.86", "NVL"), ("570.86", "SXM"), ("580.12", "SXM")]),
        ({"older_than_days": 102.9}, [("570.86", "NVL"), ("580.12", "SXM")]),
        ({"older_than_days": 30, "keep": 2}, [("570.86", "NVL"), ("570.86", "SXM"), ("580.12", "SXM")]),
        ({"keep": 1}, [("570.86", "NVL"), ("580.12", "SXM")]),
        ({"keep": 2}, [("570.86", "NVL"), ("570.86", "SXM"), ("580.12", "SXM")]),
    ],
)
def test_what_nobody_ran_for_long_goes_but_for_the_newest_of_each_device(three_keys, about, expected):
    before = left(three_keys)
    gone = prune(three_keys, at=NOW, dry_run=True, **about)
    assert left(three_keys) == before
    assert prune(three_keys, at=NOW, **about) == gone
    assert left(three_keys) == expected


def test_a_key_goes_by_name(three_keys, key):
    (gone,) = prune(three_keys, keys=[key.digest()])
    assert newest_time(gone) == datetime(2026, 1, 8, 12, tzinfo=timezone.utc)
    assert len(left(three_keys)) == 2
    with pytest.raises(BaselineError, match=f"no file has the key {key.digest()}; keys: "):
        prune(three_keys, keys=[key.digest()])


# kills

KILLED = """
import os, signal, sys
from pathlib import Path
from pytest_npubench.store.baseline_changes import move_anchor
from pytest_npubench.store.baseline_changes import reject
replace, left = Path.replace, int(sys.argv[3])
def replace_or_die(self, target):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return replace(self, target)
Path.replace = replace_or_die
reject(Path(sys.argv[1]), "s2") if sys.argv[2] == "reject" else move_anchor(Path(sys.argv[1]), newest=2)
"""


@pytest.mark.parametrize("action", ["reject", "anchor"])
@pytest.mark.parametrize("num_replaced", [0, 1])
def test_a_kill_between_two_files_leaves_both_whole_and_the_repeat_ends_it(
    directory, key, other_driver, start, action, num_replaced
):
    for day in range(8):
        accept(directory, other_driver, result((float(day),)), session=f"s{day}", day=day)
    process = start(KILLED, directory, action, num_replaced)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == -signal.SIGKILL
    change = (lambda: reject(directory, "s2")) if action == "reject" else (lambda: move_anchor(directory, newest=2))
    assert len(change().paths) == 2 - num_replaced
    for one in (key, other_driver):
        assert sessions(directory, one) == ([0, 1, 3, 4, 5, 6, 7] if action == "reject" else [*range(8)])
        assert anchor(directory, one) == ([0, 1, 3, 4, 5, 6, 7] if action == "reject" else [6, 7])
