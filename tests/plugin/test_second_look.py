"""What a second look is, and whom it is for."""

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from pytest_npubench.comparison.observation import Observation, is_canary
from pytest_npubench.plugin import campaigns
from pytest_npubench.plugin.campaigns import REMEASURE_S, CampaignMember, Campaigns
from pytest_npubench.plugin.fresh_process import OWNER as OWNER_FILE
from pytest_npubench.plugin.fresh_process import PREFIX, again_folder, remove_left_over
from pytest_npubench.plugin.regression import _of_the_machine
from pytest_npubench.suites.scheduling.calibration import Calibration
from pytest_npubench.suites.scheduling.held_to import FrozenCalibration
from pytest_npubench.verdict import Verdict, VerdictKind


def observation(case):
    return Observation(
        case=case, digest="d", metric="m", unit="s", better="lower", gate="ratio", margin=None, processes=((1.0,),)
    )


def test_canaries_are_judged_among_themselves():
    canary, model = observation("buckets/canary/cpu-b1-copy"), observation("buckets/profile/cpu-b1-canary")
    assert is_canary(canary.case)
    assert not is_canary(model.case)
    assert canary.family != model.family
    assert canary.family[1:] == model.family[1:]


CANARY, MODEL = ("buckets/canary/cpu-b1-copy", "m"), ("buckets/profile/cpu-b1-16", "m")


@pytest.mark.parametrize(
    ("kind", "interval", "is_machine"),
    [
        (VerdictKind.REGRESSED, (1.04, 1.08), True),
        (VerdictKind.INCONCLUSIVE, (1.01, 1.11), True),
        (VerdictKind.INCONCLUSIVE, (0.99, 1.13), False),
        (VerdictKind.UNCHANGED, (0.99, 1.01), False),
    ],
)
def test_a_canary_alarms_nobody_and_tells_the_machine_from_what_runs_on_it(kind, interval, is_machine):
    verdicts = {
        CANARY: Verdict(kind=kind, reason="6 % worse", ratio=1.06, interval=interval, since="night-9"),
        MODEL: Verdict(kind=VerdictKind.REGRESSED, reason="10 % worse", ratio=1.10, since="night-9"),
    }
    seen = {name: observation(name[0]) for name in verdicts}
    told = _of_the_machine(verdicts, seen)
    assert told[CANARY].kind is not VerdictKind.REGRESSED
    assert told[MODEL].kind is (VerdictKind.INCONCLUSIVE if is_machine else VerdictKind.REGRESSED)
    assert told[MODEL].reason.startswith("the machine changed: ") is is_machine
    assert {verdict.since for verdict in told.values()} == {"night-9"}
    far = verdicts | {MODEL: replace(verdicts[MODEL], ratio=1.20)}
    assert _of_the_machine(far, seen)[MODEL].kind is VerdictKind.REGRESSED


@pytest.mark.parametrize(("again", "least_s"), [({}, REMEASURE_S), (None, 0.0)])
def test_a_second_look_lasts(monkeypatch, again, least_s):
    """A campaign of one case settles within seconds; in a fresh process it goes on."""
    tasks = []
    monkeypatch.setattr(campaigns, "run_campaign", lambda config, settings, task, heard: tasks.append(task))
    plan = SimpleNamespace(key="cpu-tiny-b1", framework="jax")
    workbench = MagicMock(lock_timeout_s=1.0)
    Campaigns(workbench)._run(plan, [MagicMock()], (), again=again)
    assert [task.at_least_s for task in tasks] == [least_s]
    assert [task.resume for task in tasks] == [bool(workbench.settings.resume) and again is None]


def test_a_second_look_is_held_to_what_the_first_was(monkeypatch):
    """Not to what is frozen, nor to what the fresh process would measure itself."""
    heard = []
    monkeypatch.setattr(campaigns, "run_campaign", lambda config, settings, task, found: heard.append(found))
    used = {"arxiv": Calibration(full_rate_per_s=2.0, decode_step_s=0.02)}
    workbench, fingerprint = MagicMock(lock_timeout_s=1.0), MagicMock()
    fingerprint.key.return_value.differences.return_value = ()
    Campaigns(workbench)._run(SimpleNamespace(key="cpu-moe-serving", framework="torch"), [MagicMock()], (), again=used)
    assert heard[0].fingerprint(fingerprint) == used


@pytest.mark.parametrize("is_of_other_stack", [True, False])
def test_a_run_notes_what_is_held_to_another_stack(is_of_other_stack):
    calibration = Calibration(full_rate_per_s=2.0, decode_step_s=0.02)
    found = FrozenCalibration(calibration=calibration, origin="frozen on D in S", is_of_other_stack=is_of_other_stack)
    workbench, plan = MagicMock(), MagicMock(key="moe-serving")
    expanded = SimpleNamespace(plan=plan, suite=SimpleNamespace(frozen=lambda *about: {"arxiv": found}))
    member = CampaignMember(expanded=expanded, test="test_it.py::test_it")
    assert Campaigns(workbench)._held_to(member, (), MagicMock()) == {"arxiv": calibration}
    notes = [call.args for call in workbench.note.call_args_list]
    assert notes == [("moe-serving, arxiv: rate and limits frozen on D in S",)] * is_of_other_stack


OWNER = """
import sys
from pytest_npubench.plugin import campaigns
from pytest_npubench.plugin.fresh_process import again_folder

with again_folder() as folder:
    (folder / "journal.jsonl").write_text("{}")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_a_killed_owner_s_folder_goes_and_a_living_one_s_stays(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    unknown = tmp_path / f"{PREFIX}without-a-lock"
    unknown.mkdir(mode=0o700)
    with (
        subprocess.Popen(
            [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as owner,
        again_folder() as ours,
    ):
        theirs = Path(owner.stdout.readline().strip())
        assert theirs.parent == tmp_path
        remove_left_over()
        assert {ours, theirs, unknown} == set(tmp_path.iterdir())
        owner.kill()
        owner.wait()
        assert theirs.exists()
        remove_left_over()
        assert {ours, unknown} == set(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == [unknown]


@pytest.mark.parametrize("what", ["a link", "open to others", "another user's"])
def test_what_another_user_may_have_put_there_is_left_alone(monkeypatch, tmp_path, what):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / OWNER_FILE).write_text("precious")
    planted = tmp_path / f"{PREFIX}planted"
    if what == "a link":
        planted.symlink_to(precious)
    else:
        precious.rename(planted)
        if what == "open to others":
            planted.chmod(0o777)
        elif os.geteuid() == 0:
            os.chown(planted, 65534, 65534)
        else:
            pytest.skip("only root can make another user's")
    remove_left_over()
    assert (planted / OWNER_FILE).read_text() == "precious"
