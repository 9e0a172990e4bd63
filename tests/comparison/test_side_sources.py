"""Journals, baselines and histories as sides."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_npubench.comparison.side_sources import load_side
from pytest_npubench.comparison.sides import apart
from pytest_npubench.comparison.stack_changes import stack_changes
from pytest_npubench.errors import ConfigError, HistoryError, JournalError, StoreError
from pytest_npubench.store.accept_run import accept_run
from pytest_npubench.store.baseline_changes import rename
from pytest_npubench.store.history import upload_journal
from pytest_npubench.store.journal import JournalWriter, read_journal

from .made_nights import CASES, HOST, case_record, metric, night, stack, write_nights, write_session


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "journal.jsonl"


def some(value=1.0, cases=CASES[:2]):
    return {case: {"tbt_s": metric([value, value * 1.1, value * 1.2])} for case in cases}


def test_every_finished_run_is_a_session(path):
    ids = write_nights(path, 3)
    write_session(path, some(), ends=False)
    side = load_side(str(path))
    assert [session.name for session in side.sessions] == ids
    assert side.notes == ("left out: 1 run without an end record",)
    assert side.sessions[0].facts["driver"] == "570.86"
    assert side.sessions[0].facts["jaxlib"] == "0.10.2"
    assert side.sessions[0].facts["device"] == "cuda:0"
    assert len(side.cases) == 15


def test_one_session_by_its_id_also_where_a_folder_has_an_at_sign(tmp_path):
    path = tmp_path / "a@b" / "journal.jsonl"
    ids = write_nights(path, 2)
    assert [session.name for session in load_side(f"{path}@{ids[1]}").sessions] == [ids[1]]
    assert len(load_side(str(path)).sessions) == 2
    with pytest.raises(JournalError, match="no session 'x' has cases; sessions with cases"):
        load_side(f"{path}@x")
    unfinished = write_session(path, some(), ends=False)
    side = load_side(f"{path}@{unfinished}")
    assert side.sessions == ()
    assert "no end record" in side.notes[0]


def test_the_workers_of_a_run_are_one_session_and_two_devices_two(path):
    fingerprint = stack()
    settings = {"host": HOST, "settings": {}}
    with (
        JournalWriter.open(path, worker="gw0", run="run", **settings) as one,
        JournalWriter.open(path, worker="gw1", run="run", **settings) as two,
    ):
        for writer, case in ((one, CASES[0]), (two, CASES[1]), (one, CASES[2])):
            writer.append(case_record(writer.device(fingerprint), case, {"tbt_s": metric([1.0])}))
        for writer in (one, two):
            writer.append({"record": "end", "exit_status": 0, "counts": {}})
        ids = [one.session, two.session]
    (session,) = load_side(str(path)).sessions
    assert (session.name, len(session.observations)) == (ids[0], 3)
    assert set(ids) < session.ids
    other = path.with_name("devices.jsonl")
    with JournalWriter.open(other, **settings) as writer:
        for ordinal in (0, 1):
            digest = writer.device(stack(extra=(("devices", f"GPU-{ordinal}"),)))
            writer.append(case_record(digest, CASES[0], {"tbt_s": metric([1.0])}, device=f"cuda:{ordinal}"))
        writer.append({"record": "end", "exit_status": 0, "counts": {}})
        name = writer.session
    assert [session.name for session in load_side(str(other)).sessions] == [f"{name}@cuda:0", f"{name}@cuda:1"]


def test_what_a_resumed_run_took_over_counts_once(path):
    """From a finished run: there. From a killed one: with the run that took it over."""
    write_session(path, some(1.0))
    write_session(path, some(1.0), resumed=True)
    assert len(load_side(str(path)).sessions) == 1
    other = path.with_name("killed.jsonl")
    write_session(other, some(1.0), ends=False)
    write_session(other, some(1.0), resumed=True)
    (session,) = load_side(str(other)).sessions
    assert len(session.observations) == 2


def test_an_invalid_case_is_remembered_with_its_reason(path):
    write_session(path, some(), verdict={"kind": "invalid", "reason": "throttled"})
    (session,) = load_side(str(path)).sessions
    assert session.observations == {}
    assert session.invalid == dict.fromkeys(CASES[:2], "throttled")


def test_baselines_know_the_key_and_are_found_again_in_their_journal(path, tmp_path):
    (session,) = write_nights(path, 1)
    journal = read_journal(path)
    accept_run(journal, journal.sessions, tmp_path / "baselines")
    side = load_side(str(tmp_path / "baselines"))
    (found,) = side.sessions
    assert (found.name, found.facts["driver"], found.facts["git_revision"]) == (session, "570.86", "0123456789ab")
    assert (found.facts["jaxlib"], found.facts["python"], found.whole) == ("0.10.2", "CPython 3.11.9", True)
    (original,) = load_side(str(path)).sessions
    for key, observation in original.observations.items():
        assert found.observations[key].processes == pytest.approx(np.array(observation.processes), rel=1e-5)
    with pytest.raises(ConfigError, match="hold the same sessions"):
        apart(side, load_side(str(path)))


def test_baselines_and_history_know_all_of_the_stack(path, tmp_path):
    """What changed since the accepted night is named, whichever part of the stack it is."""
    before, later = stack(extra=(("uuid", "GPU-1"),)), stack(extra=(("uuid", "GPU-2"),))
    later = replace(later, host=replace(later.host, python="CPython 3.13.1", plugin_version="0.2.0", num_cores=4))
    write_session(path, some(), fingerprint=before)
    journal = read_journal(path)
    accept_run(journal, journal.sessions, tmp_path / "baselines")
    write_session(path.with_name("later.jsonl"), some(), fingerprint=later)
    new = load_side(str(path.with_name("later.jsonl"))).sessions
    url = f"sqlite:///{tmp_path / 'history.db'}"
    upload_journal(url, journal)
    for source in (str(tmp_path / "baselines"), f"history:{url}", str(path)):
        assert set(stack_changes(load_side(source).sessions, new)) == {
            "pytest-npubench 0.1.0 -> 0.2.0",
            "python CPython 3.11.9 -> CPython 3.13.1",
            "num_cores 8 -> 4",
            "device uuid GPU-1 -> GPU-2",
        }


def test_a_renamed_case_is_found_under_its_new_name(path, tmp_path):
    new = "buckets/profile/h200-small-b4-bucket0"
    write_session(path, some(cases=CASES[:1]))
    journal = read_journal(path)
    accept_run(journal, journal.sessions, tmp_path / "baselines")
    rename(tmp_path / "baselines", CASES[0], new)
    (session,) = load_side(str(tmp_path / "baselines")).sessions
    assert list(session.observations) == [(new, "tbt_s")]


def test_a_history_by_its_query(path, tmp_path):
    write_nights(path, 2)
    write_nights(path, 3, fingerprint=stack("580.12"))
    write_session(path, some(), stack("580.12"), ends=False)
    url = str(tmp_path / "history.db")
    upload_journal(url, read_journal(path))
    side = load_side(f"history:{url}?driver=580.12")
    assert len(side.sessions) == 3
    assert side.notes == ("left out: 1 session without an end record",)
    assert {session.facts["driver"] for session in side.sessions} == {"580.12"}
    (sample,) = side.sessions[0].observations[CASES[0], "tbt_s"].processes
    assert len(sample) == 5
    assert len(load_side(f"history:{url}").sessions) == 5
    assert load_side(f"history:{url}?since=2999-01-01").sessions == ()
    with pytest.raises(ConfigError, match="'drivr' is not known; allowed are accelerator"):
        load_side(f"history:{url}?drivr=1")
    with pytest.raises(HistoryError, match="since=soon: want a date"):
        load_side(f"history:{url}?since=soon")


def test_a_server_keeps_its_own_parameters_and_its_password():
    with pytest.raises(StoreError) as error:
        load_side("history:postgresql://ann:secret@localhost:1/bench?driver=570.86&connect_timeout=1")
    assert "secret" not in str(error.value)


def test_what_is_not_there(tmp_path):
    with pytest.raises(JournalError, match="No such file"):
        load_side(str(tmp_path / "none.jsonl"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="nothing was accepted yet"):
        load_side(str(tmp_path / "empty"))


def test_made_nights_differ():
    rng = np.random.default_rng(0)
    assert night(rng) != night(rng)
