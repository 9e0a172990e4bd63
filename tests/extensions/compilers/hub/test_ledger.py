"""The file of job ids: what a kill leaves, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import FormatVersionError, StoreError
from pytest_npubench.extensions.compilers.hub.ledger import STATES, JobEntry, JobLedger

ENTRY = JobEntry(kind="compile", name="npubench-x-0", state="intended", submitted_at_s=12.5)
TEXT = st.text(max_size=20)
ENTRIES = st.builds(
    JobEntry,
    kind=st.sampled_from(("compile", "profile")),
    name=TEXT,
    state=st.sampled_from(STATES),
    submitted_at_s=st.floats(0, 1e10),
    job_id=st.none() | TEXT,
    reason=st.none() | TEXT,
)


@settings(max_examples=25, deadline=None)
@given(jobs=st.dictionaries(TEXT, ENTRIES, max_size=4), models=st.dictionaries(TEXT, TEXT, max_size=3))
def test_everything_comes_back(
    tmp_path_factory: pytest.TempPathFactory, jobs: dict[str, JobEntry], models: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "deep" / "jobs.json"
    ledger = JobLedger(path)
    for key, entry in jobs.items():
        ledger.put(key, entry)
    for digest, model in models.items():
        ledger.put_model(digest, model)
    again = JobLedger(path)
    assert {key: again.job(key) for key in jobs} == jobs
    assert {digest: again.model(digest) for digest in models} == models


def test_changes(tmp_path: Path) -> None:
    ledger = JobLedger(tmp_path / "jobs.json")
    for key in ("a", "b", "c"):
        ledger.put(key, ENTRY)
    ledger.change("a", state="submitted", job_id="j1")
    ledger.settle(["a", "b"])
    ledger.put_model("d", "m1")
    ledger.forget_model("d")
    again = JobLedger(tmp_path / "jobs.json")
    found = [again.job(key) for key in ("a", "b", "c")]
    assert [entry.state for entry in found if entry] == ["settled", "settled", "intended"]
    assert found[0] is not None
    assert found[0].job_id == "j1"
    assert again.model("d") is None
    assert again.job("nothing") is None


def test_a_kill_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jobs.json"
    JobLedger(path).put("a", ENTRY)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        JobLedger(path).put("b", ENTRY)
    again = JobLedger(path)
    assert again.job("a") == ENTRY
    assert again.job("b") is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": 1}', '{"format": 1, "jobs": {"a": {"state": "odd"}}, "models": {}}', '"text"'],
)
def test_not_a_ledger(tmp_path: Path, text: str) -> None:
    (tmp_path / "jobs.json").write_text(text)
    with pytest.raises(StoreError, match=r"jobs.json: not a file of AI Hub jobs: .*; move it away"):
        JobLedger(tmp_path / "jobs.json")


def test_unknown_state(tmp_path: Path) -> None:
    JobLedger(tmp_path / "jobs.json").put("a", ENTRY)
    text = (tmp_path / "jobs.json").read_text().replace("intended", "done")
    (tmp_path / "jobs.json").write_text(text)
    with pytest.raises(StoreError, match="state 'done'; want one of intended, submitted"):
        JobLedger(tmp_path / "jobs.json")


def test_later_format(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text(json.dumps({"format": 2, "jobs": {}, "models": {}}))
    with pytest.raises(FormatVersionError, match="format 2; this version knows up to 1"):
        JobLedger(tmp_path / "jobs.json")


def test_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        JobLedger(tmp_path / "file" / "jobs.json").put("a", ENTRY)
