"""The server suite from the command line, on stand-ins of servers in this process: whole runs, and everything that can
go wrong with a server while it is measured. The run ends, the journal is whole, and no key is in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_npubench.plugin.outcome import ExitStatus

pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install pytest-npubench[http]")

from campaign.server.stand_in import TOKEN, StandIn, after, refuses, sometimes, streams
from known_answer import KnownAnswer

from .project import OWN_HARDWARE, Project, put_under_git

SUITE = Path(__file__).parents[2] / "suites" / "server" / "test_open_load.py"
KEY = "sk-0123456789-abcdefghijklmnop"
NAMED = {"NPUBENCH_SERVER_KEY_VARIABLE": "MY_KEY"}
LENGTHS = "input_tokens,output_tokens\n5,3\n9,2\n14,4\n20,3\n"
HARDWARE = """
title = "A server of the tests"
family = "server"
[probe]
match = ['.*']
[[slo]]
model = "*"
workload = "*"
ttft_s = 20
tbt_s = 10
source = "the test's own"
[server]
attainment = 0.7
answer_timeout_s = 20
[[server.load]]
workload = "lengths.csv"
rates_per_s = [{rates}]
"""
PROFILE = """
[server.profile.{name}]
num_requests = 8
min_rounds = 2
max_rounds = 2
budget_s = {budget}
"""
KNOWN = KnownAnswer(ttft_s=0.06, itl_s=0.02)
# what the machine does besides puts the client off, and that is no concern of these tests
CONFTEST = "from pytest_npubench.suites.server import lateness\n\nlateness.SHARE = {share}\n"
CASE = "server/open_load/mini-served-b1-lengths.csv-r40"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    shutil.copy(SUITE, tmp_path)
    project.write("pytest.ini", "[pytest]\n")
    put_under_git(tmp_path)
    project.write("lengths.csv", LENGTHS)
    project.write("conftest.py", OWN_HARDWARE + CONFTEST.format(share=1e6))
    write_hardware(project)
    return project


def write_hardware(project: Project, rates: str = "40") -> None:
    sizes = (PROFILE.format(name=name, budget=9**at) for at, name in enumerate(("quick", "nightly", "full"), start=1))
    project.write("hw/mini.toml", HARDWARE.format(rates=rates) + "".join(sizes))


@pytest.fixture
def load(project: Project):
    """load(stand_in, *options) runs the suite against it."""

    def run(stand_in: StandIn, *options: str, **environment: str) -> pytest.RunResult:
        server = stand_in.start()
        try:
            variables = {"NPUBENCH_SERVER_URL": server.url, "OPENAI_API_KEY": "", **environment}
            return project.run("-m", "server", "-k", "mini", "-rs", *options, env=variables)
        finally:
            server.stop()

    return run


def reason(project: Project) -> str:
    """Of the only case of the last run, whose journal has its end."""
    assert len(project.records("end")) == 1
    (case,) = project.cases().values()
    return f"{case['verdict']['kind']}: {case['verdict']['reason']}"


def test_a_server_is_measured_reported_accepted_and_resumed(project, load):
    stand_in = StandIn(known=KNOWN, key=KEY)
    run = load(stand_in, "--npubench-report=report.html", "--npubench-accept", MY_KEY=KEY, **NAMED)
    assert run.ret == 0, run.stdout.str()
    case = project.cases()[CASE]
    metrics = case["metrics"]
    assert metrics["slo_attainment"]["value"] == 1.0
    assert metrics["num_finished"]["value"] == 16
    assert len(metrics["ttft_mean_s"]["samples"]) == 2
    assert metrics["ttft_p50_s"]["value"] >= 0.06  # never before the server was due to send it
    assert metrics["tbt_mean_s"]["value"] > 0
    names = {f"{time}_{part}_s" for time in ("ttft", "tbt") for part in ("mean", "p50", "p90", "p99")}
    assert metrics.keys() >= names | {"tbt_worst_s", "e2e_mean_s", "dispatch_lag_p99_s", "loop_stall_p99_s"}
    assert case["detail"]["counted_by"] == {"running usage": 16}
    (device,) = project.records("device")
    found = device["fingerprint"]["device"]
    assert (found["family"], found["name"], found["runtime"]) == ("server", "m", "vllm 0.32.0")
    output = run.stdout.str()
    assert "server under lengths.csv at 40 req/s: TTFT mean" in output
    assert "its client: dispatch lag p99" in output
    report = (project.root / "report.html").read_text(encoding="utf-8")
    assert "client dispatch lag p99" in report
    assert ": figures</caption>" in report
    assert (project.root / "baselines").is_dir()

    for path in project.root.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    assert KEY not in output


def test_a_resumed_run_takes_the_verdict_over(project):
    stand_in = StandIn(known=KNOWN)
    server = stand_in.start()
    try:
        environment = {"NPUBENCH_SERVER_URL": server.url, "OPENAI_API_KEY": ""}
        project.run("-k", "mini", env=environment)
        asked = len(stand_in.bodies)
        again = project.run("-k", "mini", "--npubench-resume", env=environment)
    finally:
        server.stop()
    assert asked > 0
    assert len(stand_in.bodies) == asked
    assert project.cases(0)[CASE]["verdict"]["kind"] == "no-baseline"
    assert project.cases()[CASE]["resumed"] is True
    assert "(resumed)" in again.stdout.str()


def test_a_slower_server_is_a_regression_and_an_upgraded_one_compares_across_runtime_alone(project, load):
    for _ in range(3):
        assert load(StandIn(known=KNOWN), "--npubench-accept").ret == 0
    options = ("--npubench-remeasure=0",)
    slow = KnownAnswer(ttft_s=0.6, itl_s=0.2)
    assert load(StandIn(known=slow), *options).ret == 1
    case = project.cases()[CASE]
    assert case["verdict"]["kind"] == "regressed"
    assert case["metrics"]["ttft_mean_s"]["verdict"]["kind"] == "regressed"
    upgraded = StandIn(known=slow, version={"version": "0.33.0"})
    load(upgraded, *options)
    assert project.cases()[CASE]["verdict"]["kind"] not in ("regressed", "unchanged")
    load(upgraded, *options, "--npubench-compare-across=runtime")
    assert project.cases()[CASE]["verdict"]["kind"] == "regressed"


def test_without_an_address_cases_skip_and_say_what_to_set(project):
    run = project.run("-m", "server", "-k", "mini", "-rs", env={"NPUBENCH_SERVER_URL": ""})
    assert run.ret == 0
    assert "set NPUBENCH_SERVER_URL" in run.stdout.str()
    required = project.run("-m", "server", "--npubench-require", "server", env={"NPUBENCH_SERVER_URL": ""})
    assert required.ret == 4
    assert "--npubench-require server: no server: set NPUBENCH_SERVER_URL" in required.stderr.str()


def test_nobody_at_the_address_skips_with_the_reason(project):
    server = StandIn().start()
    server.stop()
    run = project.run("-m", "server", "-k", "mini", "-rs", env={"NPUBENCH_SERVER_URL": server.url})
    assert run.ret == 0
    assert f"no server answers at {server.url}" in run.stdout.str()
    required = project.run("--npubench-require", "server", env={"NPUBENCH_SERVER_URL": server.url})
    assert required.ret == 4


def test_several_models_and_none_named_is_an_error_that_names_them(project, load):
    run = load(StandIn(models=("one", "two")))
    assert run.ret == ExitStatus.INVALID
    assert "invalid: the server serves 2 models; set NPUBENCH_SERVER_MODEL to one of one, two" in reason(project)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (refuses(404, "the model `m` does not exist"), "no request was answered: 2 of 2: HTTP 404 (HTTP 404 Not Found"),
        (
            refuses(500, f"cannot read Bearer {KEY}"),
            "2 of 2: HTTP 500 (HTTP 500 Internal Server Error, text/plain; charset=utf-8: cannot read",
        ),
        pytest.param(
            streams(TOKEN, "[DONE]"), "2 of 2: another number of tokens than asked for", marks=pytest.mark.soak
        ),
    ],
)
def test_a_server_that_answers_nothing_well_is_invalid_with_the_failures_by_count(project, load, fault, words):
    run = load(StandIn(fault=fault), OPENAI_API_KEY=KEY)
    assert run.ret == ExitStatus.INVALID
    assert reason(project).startswith("invalid: ")
    assert words in reason(project)
    assert KEY not in project.journal_path.read_text(encoding="utf-8") + run.stdout.str()
    assert "abcdefgh" not in project.journal_path.read_text(encoding="utf-8")


def test_a_server_that_goes_down_half_way_is_invalid_and_what_it_answered_is_kept(project, load):
    """Two requests to warm up, eight of the first round, then nothing."""
    run = load(StandIn(known=KNOWN, fault=after(10, refuses(503, "shutting down"))))
    assert run.ret == ExitStatus.INVALID
    assert "invalid: no request was answered: 8 of 8: HTTP 503" in reason(project)
    rounds = project.records("round")
    assert len(rounds[0]["points"]["lengths.csv@r40/request.arrival_s"]) == 8
    assert rounds[-1]["failures"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (refuses(429), "HTTP 429"),
        pytest.param(streams(TOKEN, cut=True), "disconnected", marks=pytest.mark.soak),
        pytest.param(streams("nonsense"), "malformed stream", marks=pytest.mark.soak),
    ],
)
def test_single_failures_count_against_attainment_and_are_named(project, load, fault, words):
    """Every fourth of 18: of the 16 measured four fail, so 75 % attain where 70 % are wanted."""
    run = load(StandIn(known=KNOWN, fault=sometimes(fault, every=4)))
    assert run.ret == 0, run.stdout.str()
    case = project.cases()[CASE]
    assert case["metrics"]["slo_attainment"]["value"] == 0.75
    assert f"; 4 of 16: {words}" in case["verdict"]["reason"]
    assert case["metrics"]["num_aborted"]["value"] == 4
    assert f"failed: 4 {words} of 16" in run.stdout.str().replace("\n  ", " ")


def test_too_many_failures_fail_the_case(project, load):
    run = load(StandIn(known=KNOWN, fault=sometimes(refuses(429), every=2)))
    assert run.ret == 1
    assert reason(project) == "failed: requests that miss the SLO 50.00 % > 30.00 %; 8 of 16: HTTP 429"


def test_without_usage_counts_tokens_are_counted_by_events_and_that_is_said(project, load):
    run = load(StandIn(known=KnownAnswer(ttft_s=0.06, itl_s=0.02, usage="none")))
    assert run.ret == 0, run.stdout.str()
    assert project.cases()[CASE]["detail"]["counted_by"] == {"events with text": 16}


def test_a_client_that_was_late_itself_is_invalid(project, load):
    project.write("conftest.py", OWN_HARDWARE + CONFTEST.format(share=1e-9))
    run = load(StandIn(known=KNOWN))
    assert run.ret == ExitStatus.INVALID
    assert reason(project).startswith("invalid: the client was late itself: its mean dispatch lag of ")
    assert project.cases()[CASE]["metrics"]["num_finished"]["value"] == 16


def test_a_workload_that_is_not_there_fails_alone(project, load):
    text = (project.root / "hw" / "mini.toml").read_text(encoding="utf-8")
    project.write("hw/mini.toml", text.replace('workload = "lengths.csv"', 'workload = "nobody-knows-it"'))
    load(StandIn())
    assert "no workload is named 'nobody-knows-it'" in reason(project)


def test_an_interrupted_run_leaves_a_whole_journal_and_goes_on(project):
    """The server itself is slow: the run is interrupted in its second round."""
    import signal

    from .project import interrupt_after_a_round

    write_hardware(project, rates="8, 40")
    size = (project.root / "hw" / "mini.toml").read_text(encoding="utf-8")
    project.write("hw/mini.toml", size.replace("min_rounds = 2\nmax_rounds = 2", "min_rounds = 3\nmax_rounds = 3"))
    stand_in = StandIn(known=KnownAnswer(ttft_s=0.2, itl_s=0.1))
    server = stand_in.start()
    try:
        environment = {"NPUBENCH_SERVER_URL": server.url, "OPENAI_API_KEY": ""}
        process = project.start("-k", "mini", env=environment)
        interrupt_after_a_round(project, process, signal.SIGINT)
        process.communicate(timeout=60)
        assert len(project.records("round")) == 2
        project.run("-k", "mini", "--npubench-resume", env=environment)
    finally:
        server.stop()
    assert [record["round"] for record in project.records("round")] == [2]
    assert len(project.cases()) == 2
