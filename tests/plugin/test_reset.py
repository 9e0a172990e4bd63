"""An intended change of one case: red, reset with a reason, accepted anew and judged again; every other is kept."""

import json
import time

from .conftest import COMPARED

CASE = "buckets/profile/fake-mini-llama-b2-bucket32"
SLOWER = """

def changed(requests, run):
    if len(requests) == 2 and run.segments[0].bucket == 32:
        return dataclasses.replace(run, e2e_s=1.1 * run.e2e_s)
    return run

"""
BASELINES = ("--npubench-remeasure", "1")


def reset(project, *cases, reason):
    """In a later second than the night before it began: times are whole seconds, and a night of the same one counts."""
    from pytest_npubench.store.baseline_changes import reset as reset_cases

    time.sleep(1 - time.time() % 1)
    return reset_cases(project.root / "baselines", cases, reason=reason)


def test_changed_red_reset_accepted_and_judged_again(nights, tmp_path):
    project = nights.after(tmp_path / "project", SLOWER, "alter=changed")
    before = project.accepted()
    assert project.run(*COMPARED, *BASELINES, "--npubench-accept").ret == 1
    red = project.journal().sessions[-1].id
    assert project.kinds()[CASE] == "regressed"
    change = reset(project, CASE, reason="the cache is kept in fp8 now")
    assert (change.num_cases, len(change.sessions)) == (1, 4)
    content = json.loads(project.baseline_path.read_text())
    assert content["resets"][CASE]["reason"] == "the cache is kept in fp8 now"
    assert CASE not in content["cases"]
    for number in range(3):
        result = project.run(*COMPARED, *BASELINES, "--npubench-accept")
        assert result.ret == 0, result.stdout.str()
        verdicts = project.kinds()
        assert verdicts.pop(CASE) == "no-baseline", number
        assert set(verdicts.values()) == {"unchanged"}
    content = project.accepted()
    assert len(content.pop(CASE)["sessions"]) == 3
    for case, entry in content.items():  # four nights, the red one, three since: nothing of theirs went
        names = [session["session"] for session in entry["sessions"]]
        assert names[:5] == [*(session["session"] for session in before[case]["sessions"]), red]
        assert len(names) == 8
    assert project.run(*COMPARED, *BASELINES).ret == 0
    assert set(project.kinds().values()) == {"unchanged"}
