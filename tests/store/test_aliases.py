"""Renamed cases keep their history, and only theirs: chains, clashes, circles, and digests that change later."""

import json
import os
import signal

import pytest
from accepted_results import CASE, OTHER, accept, anchor_sessions, result, values

from pytest_npubench.errors import BaselineError, FormatVersionError
from pytest_npubench.store.aliases import Alias, Aliases
from pytest_npubench.store.baseline_changes import reject, rename
from pytest_npubench.store.baselines import Baselines

NEW, NEWER = "buckets/profile/cpu-small-b4-bucket128", "latency/profile/cpu-small-b4-bucket128"


def sessions(directory, key, case=NEW, digest="n1", **about):
    return values(Baselines.load(directory).sessions(case, "tbt_s", key, digest=digest, **about))


def anchor(directory, key, case=NEW, digest="n1"):
    return values(anchor_sessions(Baselines.load(directory), case, "tbt_s", key, digest=digest))


def accept_days(directory, key, days, *, case=CASE, digest="d1"):
    for day in days:
        accept(directory, key, result((float(day),), case=case, digest=digest), session=f"s{day}", day=day)


def test_worked_example_of_a_chain():
    a_to_b = Alias(case="B", digest="a", case_digest="b")
    aliases = Aliases(entries={"A": a_to_b, "B": Alias(case="C", digest="b", case_digest=None)})
    assert aliases.names("C", "c") == (("C", "c"), ("B", "b"), ("A", "a"))
    assert aliases.names("B", "b") == (("B", "b"), ("A", "a"))
    assert aliases.names("B", "x") == (("B", "x"),)  # B measures something else now
    assert aliases.latest_name("A") == aliases.latest_name("C") == "C"


def test_a_renamed_case_finds_its_sessions_and_goes_on(directory, key):
    accept_days(directory, key, range(3))
    done = rename(directory, CASE, NEW)
    assert (done.num_sessions, done.alias) == (3, Alias(case=NEW, digest="d1", case_digest=None))
    assert sessions(directory, key) == anchor(directory, key) == [0, 1, 2]
    accept_days(directory, key, range(3, 10), case=NEW, digest="n1")
    assert sessions(directory, key) == [*range(10)]
    assert anchor(directory, key) == [*range(8)]  # the first eight of the case, not of the name
    assert sessions(directory, key, CASE, "d1") == [0, 1, 2]  # an older branch goes on under the old name


def test_a_session_under_the_old_name_stands_where_it_was_accepted(directory, key):
    accept_days(directory, key, (0, 1))
    accept_days(directory, key, (2,), case=NEW, digest="n1")
    assert rename(directory, CASE, NEW).alias.case_digest == "n1"
    accept_days(directory, key, (3,))
    accept_days(directory, key, (4,), case=NEW, digest="n1")
    assert sessions(directory, key) == [0, 1, 2, 3, 4]
    assert anchor(directory, key)[:2] == [0, 1]


def test_a_new_name_that_began_an_anchor_gives_it_up_to_the_old_one(directory, key):
    accept_days(directory, key, range(9))
    accept_days(directory, key, (9, 10), case=NEW, digest="n1")
    assert anchor(directory, key) == [9, 10]
    rename(directory, CASE, NEW)
    assert sessions(directory, key) == [*range(11)]
    assert anchor(directory, key) == [*range(8)]


def test_a_case_that_measures_something_else_later_leaves_its_old_name_behind(directory, key):
    accept_days(directory, key, (0,))
    rename(directory, CASE, NEW)
    accept_days(directory, key, (1,), case=NEW, digest="n1")
    assert sessions(directory, key, digest="n2") == []
    loaded = Baselines.load(directory)
    assert loaded.mismatches(NEW, key, digest="n2") == ("case digest n1 -> n2",)
    accept_days(directory, key, (2,), case=NEW, digest="n2")
    assert sessions(directory, key, digest="n2") == [2]
    assert anchor(directory, key, digest="n2") == [2]


def test_what_does_not_compare_is_said_of_the_old_name_too(directory, key, other_driver):
    accept_days(directory, key, (0,))
    rename(directory, CASE, NEW)
    loaded = Baselines.load(directory)
    assert loaded.mismatches(NEW, other_driver, digest="n1") == ("driver 570.86 -> 580.12",)
    assert loaded.mismatches(NEW, other_driver, digest="n1", across=["driver"]) == ()
    assert sessions(directory, other_driver, across=["driver"]) == [0]


def test_a_chain_over_another_suite(directory, key):
    accept_days(directory, key, (0,))
    rename(directory, CASE, NEW)
    accept_days(directory, key, (1,), case=NEW, digest="n1")
    rename(directory, NEW, NEWER)
    accept_days(directory, key, (2,), case=NEWER, digest="r1")
    assert sessions(directory, key, NEWER, "r1") == [0, 1, 2]
    assert anchor(directory, key, NEWER, "r1") == [0, 1, 2]


def test_a_name_that_was_never_used_is_skipped_in_a_chain(directory, key):
    accept_days(directory, key, (0,))
    rename(directory, CASE, NEW)
    done = rename(directory, NEW, NEWER)
    assert (done.old, done.num_sessions) == (CASE, 1)
    assert sessions(directory, key, NEWER, "r1") == [0]
    assert sessions(directory, key) == []


def test_renamings_that_are_refused(directory, key):
    accept_days(directory, key, (0,))
    accept_days(directory, key, (1,), case=OTHER)
    rename(directory, CASE, NEW)
    accept_days(directory, key, (2,), case=NEW, digest="n1")
    before = (directory / "aliases.json").read_bytes()
    for old, new, message in (
        (CASE, NEWER, f"{CASE} is renamed already, to {NEW}"),
        (OTHER, NEW, f"cannot rename {OTHER} to {NEW}: {NEW} would be the new name of both {CASE} and {OTHER}"),
        (NEW, CASE, f"cannot rename {NEW} to {CASE}: {CASE} was renamed to {NEW}"),
        (OTHER, OTHER, f"cannot rename {OTHER} to {OTHER}: the names go round in a circle: {OTHER} -> {OTHER}"),
        (CASE + "x", NEWER, f"no session was accepted for '{CASE}x'; did you mean '{CASE}'"),
        (OTHER, "small", "case 'small': want SUITE/KIND/ID"),
    ):
        with pytest.raises(BaselineError) as caught:
            rename(directory, old, new)
        assert message in str(caught.value)
    assert (directory / "aliases.json").read_bytes() == before


def test_a_renaming_that_would_count_a_session_twice_is_refused(directory, key):
    both = (result((1.0,)), result((2.0,), case=NEW, digest="n1"))
    accept(directory, key, *both, session="s1")
    with pytest.raises(BaselineError, match=r"the session s1 stands under cases\..* of .* too"):
        rename(directory, CASE, NEW)
    assert not (directory / "aliases.json").exists()


def test_a_session_under_both_names_that_a_merge_left_is_an_error(directory, key):
    accept_days(directory, key, (0,))
    rename(directory, CASE, NEW)
    aliases = (directory / "aliases.json").read_bytes()
    (directory / "aliases.json").unlink()
    (path,) = accept(directory, key, result((0.0,), case=NEW, digest="n1"), session="s0")
    (directory / "aliases.json").write_bytes(aliases)
    with pytest.raises(BaselineError, match=rf"{path}: cases\..*: the session s0 stands under cases\..* too"):
        Baselines.load(directory)


def test_accepting_both_names_in_one_session_is_refused_before_anything_is_written(directory, key):
    accept_days(directory, key, (0,))
    rename(directory, CASE, NEW)
    before = {path: path.read_bytes() for path in directory.rglob("*.json")}
    with pytest.raises(BaselineError, match="the session s1 stands under"):
        accept(directory, key, result(), result(case=NEW, digest="n1"), session="s1")
    assert {path: path.read_bytes() for path in directory.rglob("*.json")} == before


def test_a_session_rejected_under_the_old_name_is_out_of_the_new_one(directory, key):
    accept_days(directory, key, (0, 1))
    rename(directory, CASE, NEW)
    reject(directory, "s0")
    assert sessions(directory, key) == [1]


# the file


def test_the_file_is_sorted_text_that_comes_back(directory, key):
    accept_days(directory, key, (0,))
    accept_days(directory, key, (1,), case=OTHER)
    rename(directory, OTHER, NEWER)
    rename(directory, CASE, NEW)
    text = (directory / "aliases.json").read_text()
    content = json.loads(text)
    assert text.endswith("}\n")
    assert list(content["aliases"]) == sorted([CASE, OTHER])
    assert Aliases.from_json(content) == Baselines.load(directory).aliases


def aliases(*pairs):
    content = {"format": "npubench-aliases", "version": 1, "aliases": {}}
    for old, new in pairs:
        content["aliases"][old] = Alias(case=new, digest="d", case_digest=None).to_json(old)
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1 column 1: Expecting value"),
        (b"<<<<<<< HEAD", "line 1 column 1: Expecting value"),
        (b"\xff", "line 1 column 1: not UTF-8 text"),
        (b'{"format": "npubench-baseline"}', "format: want 'npubench-aliases', found 'npubench-baseline'"),
        (b'{"format": "npubench-aliases", "version": 1}', "aliases: missing"),
        (aliases(("A", "C"), ("B", "C")), "C would be the new name of both A and B"),
        (aliases(("A", "B"), ("B", "C"), ("C", "A")), "the names go round in a circle: A -> B -> C -> A"),
        (aliases(("A", "B")).replace(b'"B"', b'"C"'), r"aliases\.A\.check: .* altered"),
        (aliases(("A", "B")).replace(b'"A"', b'"C"'), r"aliases\.C\.check: .* altered"),
        (aliases(("A", "B")).replace(b'"digest"', b'"digit"'), r"aliases\.A\.digit: unknown"),
    ],
)
def test_aliases_that_cannot_be_read_are_an_error_with_the_place(directory, key, content, message):
    (path,) = accept(directory, key, result(), session="s1")
    (directory / "aliases.json").write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(BaselineError, match=rf"aliases\.json:? ?{message}"):
        Baselines.load(directory)
    with pytest.raises(BaselineError, match=message):
        accept(directory, key, result(), session="s2")
    assert path.read_bytes() == before


def test_aliases_of_a_later_version_a_folder_and_a_dangling_link(directory, key):
    accept(directory, key, result(), session="s1")
    path = directory / "aliases.json"
    path.write_text('{"format": "npubench-aliases", "version": 3}')
    with pytest.raises(FormatVersionError, match=r"aliases\.json: written by format 3; this version reads 1"):
        Baselines.load(directory)
    path.unlink()
    path.symlink_to(directory / "nowhere")
    with pytest.raises(BaselineError, match=r"aliases\.json: is a link"):
        Baselines.load(directory)
    path.unlink()
    path.mkdir()
    with pytest.raises(BaselineError, match=r"aliases\.json: is a folder; want a file"):
        Baselines.load(directory)


KILLED = """
import os, signal, sys
from pathlib import Path
from pytest_npubench.store.baseline_changes import rename
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
rename(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
"""


def test_a_kill_before_the_replace_leaves_the_old_aliases(directory, key, start):
    accept_days(directory, key, (0,))
    accept_days(directory, key, (1,), case=OTHER)
    rename(directory, CASE, NEW)
    before = (directory / "aliases.json").read_bytes()
    process = start(KILLED, directory, OTHER, NEWER)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == -signal.SIGKILL
    assert (directory / "aliases.json").read_bytes() == before
    (left,) = directory.glob(".npubench-*.tmp")
    os.utime(left, (0, 0))
    rename(directory, OTHER, NEWER)
    assert not list(directory.glob(".npubench-*.tmp"))
    assert sessions(directory, key, NEWER, "r1") == [1]
