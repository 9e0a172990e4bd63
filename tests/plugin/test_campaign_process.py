"""A campaign in a child process: who opens the device, what is handed on, and what a child that is lost leaves."""

import re
import signal
from collections import Counter

import pytest
from process_states import runs, until

from pytest_npubench import backends
from pytest_npubench.backends.protocol import Device
from pytest_npubench.plugin.fresh_process import OF_THE_RUN, fresh_command, fresh_environment
from pytest_npubench.plugin.options import OPTIONS
from pytest_npubench.plugin.outcome import ExitStatus
from pytest_npubench.plugin.settings import Settings
from pytest_npubench.processes import CHILD

from .project import Project, interrupt_after_a_round

OPENED = """
def opened(engine, requests):
    guard = open(f"/proc/{os.getppid()}/stat").read()
    with open("opened.txt", "a") as file:
        file.write(f"{os.getpid()} {guard.rpartition(')')[2].split()[1]}\\n")
"""
TWO_BATCHES = "batch_sizes = [2]", "batch_sizes = [1, 2]"


def openers(project: Project) -> dict[int, set[int]]:
    """The processes that ran the fake engine, by the one that started them."""
    found: dict[int, set[int]] = {}
    for line in (project.root / "opened.txt").read_text(encoding="utf-8").splitlines():
        child, parent = map(int, line.split())
        found.setdefault(parent, set()).add(child)
    return found


def two_batch_sizes(project: Project) -> None:
    path = project.root / "hw" / "fake.toml"
    path.write_text(path.read_text(encoding="utf-8").replace(*TWO_BATCHES), encoding="utf-8")


def dies_once(project: Project, what: str) -> None:
    """The fake engine does this once, in a batch of the third bucket's points after four of them."""
    project.fake("on_run=ending")
    project.in_front(
        "import signal, socket, time\n"
        "def is_connected(number):\n"
        "    try:\n"
        "        return bool(socket.socket(fileno=os.dup(number)).send(b'') == 0)\n"
        "    except OSError:\n"
        "        return False\n"
        "runs = []\n"
        "def ending(engine, requests):\n"
        "    runs.append(1)\n"
        "    if engine.batch_size == 2 and len(runs) == 60 and not os.path.exists('ended.txt'):\n"
        "        open('ended.txt', 'w').close()\n"
        f"        {what}\n"
    )
    two_batch_sizes(project)


def test_no_campaign_s_device_is_opened_by_the_run_itself(project):
    project.fake("on_run=opened")
    project.in_front(OPENED)
    two_batch_sizes(project)
    process = project.start("-k", "fake and profile", "-q")
    process.communicate()
    assert process.returncode == 0
    (parent,) = openers(project)
    assert parent == process.pid
    assert len(openers(project)[parent]) == 2  # a process each for the campaigns of two batch sizes
    assert Counter(record["campaign"] for record in project.records("round")) == {
        "fake-mini-llama-b2": 2,
        "fake-mini-llama-b1": 2,
    }
    assert len(project.records("device")) == 1


def test_a_child_that_is_killed_ends_its_campaign_alone_and_leaves_its_rounds(project):
    """It prints more than any pipe holds before."""
    said = "os.write(2, b'y' * 10**7 + b'\\nthe device is on fire\\n')"
    dies_once(project, f"{said}; os.kill(os.getpid(), signal.SIGKILL)")
    result = project.run("-k", "fake and profile", "--npubench-compile-cache", "cache")
    assert result.ret == ExitStatus.INVALID
    found = {name: record["verdict"] for name, record in project.cases().items()}
    lost = {name for name in found if "-b2-" in name}
    assert len(lost) == len(found) - len(lost) == 3
    for name, verdict in found.items():
        assert verdict["kind"] == ("invalid" if name in lost else "no-baseline")
    for name in lost:
        text = r"the process of fake-mini-llama-b2 \(process \d+\) was lost: killed by signal 9 \(SIGKILL\)"
        assert re.match(text, found[name]["reason"])
        assert found[name]["reason"].endswith(" | the device is on fire")
        assert len(found[name]["reason"]) < 1000
    rounds = [record for record in project.records("round") if record["campaign"] == "fake-mini-llama-b2"]
    assert rounds
    assert not rounds[-1]["complete"]

    again = project.run("-k", "fake and profile", "--npubench-resume")
    assert again.ret == 0, again.stdout.str()
    after = [record for record in project.records("round") if record["campaign"] == "fake-mini-llama-b2"]
    assert [record["round"] for record in (*rounds, *after)] == list(range(len(rounds) + len(after)))


GARBAGE = "[os.write(int(name), b'garbage!') for name in os.listdir('/proc/self/fd') if is_connected(int(name))]"


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("time.sleep(3600)", "gave no answer within 2 s; it was ended"),
        (f"{GARBAGE}; time.sleep(3600)", r"sent the length of a message, [\d,]+ bytes; at most 268,435,456 are taken"),
    ],
    ids=["silent", "garbage"],
)
def test_a_child_that_hangs_or_sends_garbage_is_ended(project, what, how):
    dies_once(project, what)
    result = project.run("-k", "fake and profile", "--npubench-stall-timeout", "2")
    assert result.ret == ExitStatus.INVALID
    reasons = {record["verdict"]["reason"] for name, record in project.cases().items() if "-b2-" in name}
    (reason,) = reasons
    assert re.match(rf"the process of fake-mini-llama-b2 \(process \d+\) {how}", reason)
    assert {record["verdict"]["kind"] for name, record in project.cases().items() if "-b1-" in name} == {"no-baseline"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_ends_takes_its_child_along(project, number):
    project.fake("on_run=opened, sleep_s=0.05", max_rounds=1000, min_rounds=1000)
    project.in_front(OPENED)
    process = project.start("-k", "fake and profile and bucket16", "-q")
    interrupt_after_a_round(project, process, number)
    process.communicate()
    (child,) = openers(project)[process.pid]
    until(lambda: not runs(child))


def test_what_the_child_cannot_collect_is_said(project):
    project.fake()
    project.in_front("if 'NPUBENCH_CHILD' in os.environ:\n    raise SystemExit('not in this process')\n")
    result = project.run("-k", "fake and profile")
    assert result.ret == ExitStatus.INVALID
    for record in project.cases().values():
        assert record["verdict"]["kind"] == "invalid"
        assert "was lost: exit status" in record["verdict"]["reason"]
        assert "not in this process" in record["verdict"]["reason"]


def test_every_option_that_is_given_is_handed_on(pytester):
    values = {
        "require": "cpu", "profile": "nightly", "engine": "reference", "hardware": ".", "devices": "1,3",
        "baselines": "b", "journal": "j.jsonl", "report": "r.html", "compare_across": "driver", "history": "h.db",
        "shard": "1/2", "durations": "j.jsonl", "compile_cache": "cache",
    }  # fmt: skip
    values["remeasure"] = "3"
    arguments = [option.argument(values.get(option.name, "0.5")) for option in OPTIONS]
    config = pytester.parseconfig(*arguments)
    command = fresh_command(config, ["test_it.py::test_it"], {"--npubench-journal": "/there.jsonl"})
    handed = [text for text in arguments if text.partition("=")[0][11:].replace("-", "_") not in OF_THE_RUN]
    assert [text for text in command if text in arguments] == handed
    assert "--npubench-journal=/there.jsonl" in command
    assert command[-1] == "test_it.py::test_it"


def test_the_environment_says_nothing_of_this_pytest(monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw3")
    monkeypatch.setenv("SOMETHING", "else")
    found = fresh_environment(EXTRA="1")
    assert not [name for name in found if name.startswith(("PYTEST_XDIST", "PYTEST_CURRENT_TEST"))]
    assert (found["SOMETHING"], found["EXTRA"]) == ("else", "1")


def test_a_child_neither_accepts_nor_reports(monkeypatch, pytester):
    monkeypatch.setenv(CHILD, "{}")
    config = pytester.parseconfig("--npubench-accept", "--npubench-resume", "--npubench-report=r.html")
    settings = Settings.from_pytest_config(config)
    assert (settings.accept, settings.resume, settings.report) == (False, False, None)


def devices(family: str, name: str, *ordinals: int) -> list[Device]:
    return [Device(family=family, ordinal=ordinal, name=name) for ordinal in ordinals]


@pytest.mark.parametrize(
    ("here", "ordinals", "seen"),
    [("", (2,), "2"), ("GPU-a,GPU-b,GPU-c", (2, 0), "GPU-c,GPU-a"), ("1,0", (0,), "1"), ("3", (5,), "5")],
)
def test_gpus_are_made_visible_by_the_names_that_they_have_here(monkeypatch, here, ordinals, seen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", here)
    found = backends.visible(backends.backend("cuda"), devices("cuda", "NVIDIA H100", *ordinals))
    assert found == {"CUDA_VISIBLE_DEVICES": seen}


@pytest.mark.parametrize(
    ("name", "ordinals", "seen"),
    [
        ("TPU v5 lite", (3,), ("3", "1,1,1")),
        ("TPU v6 lite", (4, 5, 6, 7), ("4,5,6,7", "2,2,1")),
        ("TPU v5 lite", (0, 1, 2), None),  # no shape of chips
        ("TPU v3", (1,), None),  # two devices a chip
    ],
)
def test_chips_of_a_tpu_host_are_made_visible(name, ordinals, seen):
    found = backends.visible(backends.backend("tpu"), devices("tpu", name, *ordinals))
    if seen is None:
        assert found == {}
    else:
        assert (found["TPU_VISIBLE_CHIPS"], found["TPU_CHIPS_PER_PROCESS_BOUNDS"]) == seen
        assert found["TPU_PROCESS_BOUNDS"] == "1,1,1"


def test_a_device_is_found_by_its_place_among_the_visible():
    assert Device(family="cuda", ordinal=3, name="NVIDIA H100").index == 3
    assert Device(family="cuda", ordinal=3, name="NVIDIA H100", visible_index=0).index == 0


def test_what_opens_an_accelerator_in_this_process_runs_last(project):
    project.fake()
    project.write(
        "test_a_first.py",
        "import pytest\n\n\n@pytest.mark.openvino\ndef test_own(npubench):\n    npubench(lambda: None)\n",
    )
    result = project.run("-k", "own or (fake and profile and bucket16)", "-v")
    assert result.ret == 0, result.stdout.str()
    order = [line.partition("::")[0] for line in result.outlines if "::test_" in line and " PASSED" in line]
    assert order == ["test_profile.py", "test_a_first.py"]
