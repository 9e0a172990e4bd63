"""The SLO gate over real nights: what the first accepted one could do is what later ones are held to.

The torch engine on a small model, with a pause in each iteration that outweighs what it computes: a device whose speed
the test knows.
"""

import pytest
from suite_folder import SuiteFolder, serving

pytest.importorskip("torch", reason="the torch engine needs torch")

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


@pytest.fixture
def night(tmp_path):
    """A night on which each iteration is `factor` times as long: its process and its one case's record."""
    folder = SuiteFolder(tmp_path)
    folder.hardware("served", serving(experiments=["policy"], num_requests=2))
    options = ("-k", "served and chunked-layered-arxiv", *folder.plugin("paused_device", PAUSED))

    def run(factor, *arguments):
        env = {"PAUSE_S": str(PAUSE_S * factor)}
        done = folder.run("scheduling/test_policy.py", *options, "-p", "no:hypothesispytest", *arguments, env=env)
        assert done.cases.keys() == {CASE}, done.process.stdout + done.process.stderr
        return done.process, done.cases[CASE]

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
