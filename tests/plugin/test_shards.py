"""--npubench-shard: several runs that between them run every case once, and know nothing of each other."""

import json

import pytest
from store.journal_lines import read_lines, write_lines

from .project import Project, make_project, summary

OWN = """
import pytest

pytestmark = pytest.mark.openvino


@pytest.mark.parametrize("word", ["a", "b", "c"])
def test_own(npubench, word):
    npubench(len, word)


def test_plain():
    pass
"""
SELECT = ("-k", "(fake and profile and bucket16) or own or plain")
DURATIONS_S = {"fake": 5.0, "fake-b": 4.0, "fake-c": 3.0}  # and 0.5 s for each of the three own cases


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Three campaigns and three own cases, with a journal of what each took."""
    project = make_project(tmp_path_factory.mktemp("fleet"))
    project.fake()
    for name in DURATIONS_S.keys() - {"fake"}:
        project.hardware(name, family="openvino", match="^Fake accelerator$")
    project.write("test_own.py", OWN)
    assert project.run(*SELECT).ret == 0
    lines = read_lines(project.journal_path)
    for line in lines:
        if line["record"] == "case":
            line["duration_s"] = DURATIONS_S.get(line["hardware"], 0.5) if line["model"] != "callable" else 0.5
    write_lines(project.root / "durations.jsonl", lines)
    return project


def run_shards(project: Project, count: int, *options: str) -> list[set[str]]:
    """The cases of each shard; a plain test runs in all of them."""
    found = []
    for index in range(1, count + 1):
        name = f"{'-'.join(options)}-{index}-of-{count}.jsonl".lstrip("-")
        shard = ("--npubench-shard", f"{index}/{count}", "--npubench-journal", name)
        result = project.run(*SELECT, *shard, *options, "-rA")
        assert result.ret == 0, result.errlines + result.outlines
        assert any(node.endswith("::test_plain") for node in summary(result, "PASSED"))
        path = project.root / name
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        cases = [line["case"] for line in lines if line["record"] == "case"]
        assert len(cases) == len(set(cases)) == result.parseoutcomes()["passed"] - 1
        found.append(set(cases))
    return found


def test_each_case_is_in_one_shard(fleet):
    shards = run_shards(fleet, 2)
    assert shards[0].isdisjoint(shards[1])
    assert shards[0] | shards[1] == fleet.cases().keys()
    assert len(fleet.cases()) == 6


def test_known_durations_balance_the_shards(fleet):
    """Longest first, each to the lightest: 5 s and the three halves, then 4 and 3 s."""
    first, second = run_shards(fleet, 2, "--npubench-durations=durations.jsonl")
    assert {case.split("/")[2].split("-mini")[0] for case in second} == {"fake-b", "fake-c"}
    assert first == fleet.cases().keys() - second


def test_durations_that_are_not_there_are_a_usage_error(fleet):
    result = fleet.run(*SELECT, "--npubench-shard=1/2", "--npubench-durations=nowhere.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines[0] == f"ERROR: journal {fleet.root / 'nowhere.jsonl'}: No such file or directory"


def test_what_is_required_may_be_another_shards_but_not_absent(fleet):
    """fake-c is the second shard's; where its device is gone, that shard says so, and the first does not mind."""
    options = ("--npubench-durations=durations.jsonl", "--npubench-require=fake-c")
    run_shards(fleet, 2, *options)
    text = (fleet.root / "conftest.py").read_text()
    fleet.write("conftest.py", text.replace("install(", "install(absent='no fake accelerator today'"))
    first, second = (fleet.run(*SELECT, f"--npubench-shard={index}/2", *options) for index in (1, 2))
    third = fleet.run(*SELECT, "--npubench-shard=1/2", options[0], "--npubench-require=openvino")
    fleet.write("conftest.py", text)
    assert first.ret == 0, first.errlines
    assert third.ret == pytest.ExitCode.USAGE_ERROR  # the first has cases of that marker, too
    assert second.ret == pytest.ExitCode.USAGE_ERROR
    assert second.errlines[0] == "ERROR: --npubench-require fake-c: no fake accelerator today"


def test_a_shard_without_a_case_is_green(fleet):
    """Three campaigns in four shards: one has nothing to do, which is no failure of its job."""
    select = ("-k", "fake and profile and bucket16", "-p", "no:cacheprovider")
    results = [
        fleet.run(*select, "--npubench-shard", f"{index}/4", "--npubench-journal", "x.jsonl") for index in range(1, 5)
    ]
    assert any(not result.parseoutcomes().get("passed") for result in results)
    assert [result.ret for result in results] == [0] * 4
