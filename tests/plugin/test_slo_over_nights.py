"""The SLO gate over real nights: what the first accepted one could do is what later ones are held to.

The torch engine on a small model, with a pause in each iteration that outweighs what it computes: a device whose speed
the test knows.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_npubench.store.journal import read_journal

from .test_scheduling_run import HARDWARE, PROFILE

pytest.importorskip("torch", reason="the torch engine needs torch")

ROOT = Path(__file__).resolve().parents[2]
CASE = "scheduling/policy/served-small-gpt-oss-b8-chunked-layered-arxiv-div64-u0.5"
PAUSED = """
import os
import time

from pytest_npubench.engines.torch_moe.executor import TorchExecutor

run = TorchExecutor.run


def paused(self, plan):
    time.sleep(float(os.environ["PAUSE_S"]))
    return run(self, plan)


TorchExecutor.run = paused
"""
PAUSE_S = 0.03
SHORT = HARDWARE.replace("num_requests = 3", "num_requests = 2")


@pytest.fixture
def night(tmp_path):
    """A night on which each iteration is `factor` times as long: its exit code and its one case's record."""
    profiles = "".join(PROFILE.format(name=name) for name in ("quick", "nightly", "full"))
    (tmp_path / "hw").mkdir()
    (tmp_path / "hw" / "served.toml").write_text(SHORT + profiles, encoding="utf-8")
    (tmp_path / "paused_device.py").write_text(PAUSED, encoding="utf-8")
    journal = tmp_path / "journal.jsonl"

    def run(factor, *arguments):
        selected = ("suites/scheduling/test_policy.py", "-k", "served and chunked-layered-arxiv", "-q")
        options = ("-p", "paused_device", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--benchmark-disable")
        places = (f"--npubench-hardware={tmp_path / 'hw'}", f"--npubench-journal={journal}")
        places += (f"--npubench-baselines={tmp_path / 'baselines'}", "--npubench-other-load=1")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *selected, *options, *places, *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PAUSE_S": str(PAUSE_S * factor),
                "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        cases = [record for record in read_journal(journal).records if record["record"] == "case"]
        assert cases, done.stdout + done.stderr
        assert cases[-1]["case"] == CASE
        return done, cases[-1]

    return run


def quiet(night, *arguments):
    """A night as long as it should be; once more where other work on this machine made it longer."""
    for _ in range(3):
        done, case = night(1, *arguments)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout
    return case


@pytest.mark.soak
def test_a_night_on_a_slower_device_is_red_and_another_is_not(night):
    first = quiet(night, "--npubench-accept")
    assert first["detail"]["held_to"]["rate"] == "measured in this campaign"
    assert first["frozen"]["full_rate_per_s"] < 1 / PAUSE_S
    same = quiet(night)
    done, slow = night(8)
    assert done.returncode == 1
    assert slow["verdict"]["kind"] == "failed"
    assert "requests that miss the SLO" in slow["verdict"]["reason"]
    assert "; rate and limits frozen on 20" in slow["verdict"]["reason"]
    for later in (same, slow):
        assert later["frozen"] == first["frozen"]
        assert later["detail"]["slo"] == first["detail"]["slo"]
        assert later["detail"]["rate_per_s"] == first["detail"]["rate_per_s"]
        assert later["detail"]["held_to"]["limits"].startswith("frozen on 20")
