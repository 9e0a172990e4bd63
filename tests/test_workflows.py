"""The workflows and lock files of this repository fit each other, the command line and what is installed.

Their form is checked by `make lint` (check-jsonschema, zizmor).
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from pytest_npubench.cli.main import make_parser
from pytest_npubench.nightly.lock_file import lock_text, read_pins

ROOT = Path(__file__).parent.parent
NIGHTLY = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8"))
JOB = NIGHTLY["jobs"]["measure"]
FAMILIES = JOB["strategy"]["matrix"]["family"]
NOT_EVERYWHERE = ("#", "setuptools", "nvidia-", "cuda-", "triton")  # torch's own, by version of Python and build


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_lock_of_its_own_runtime(family: str) -> None:
    pins = read_pins(ROOT / "locks" / f"{family}.txt")
    needed = {"cpu": {"jax", "jaxlib", "torch"}, "cuda": {"jax", "torch"}, "tpu": {"jax", "libtpu"}}[family]
    assert {*needed, "numpy", "pytest", "psycopg", "sqlalchemy", "jinja2"} <= pins.keys()


def test_the_cpu_lock_pins_all_that_the_extra_needs() -> None:
    """Everything that an environment of the extra has here, whatever its version: a dependency that was added since
    the lock was written would come unpinned."""
    needed = {
        line.partition("==")[0]
        for line in lock_text(("cpu", "postgres")).splitlines()
        if not line.startswith(NOT_EVERYWHERE)
    }
    assert needed <= read_pins(ROOT / "locks" / "cpu.txt").keys()


@pytest.mark.parametrize("document", [".github/workflows/nightly.yml", "docs/nightly.md"])
def test_its_commands_are_understood(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8").replace("\\\n", " ")
    if document.endswith(".yml"):
        text = "\n".join(step["run"] for step in JOB["steps"] if "run" in step)
    commands = re.findall(r"npubench (nightly .*)", text)
    assert commands
    for command in commands:
        words = shlex.split(command.partition("`")[0].replace("$FAMILY", "cpu"), comments=True)
        if words[1].islower() and "FAMILY" not in words:
            make_parser().parse_args(words)


def test_the_token_goes_to_one_step_and_the_checkout_keeps_none() -> None:
    assert NIGHTLY["permissions"] == {}
    (checkout,) = (step for step in JOB["steps"] if step.get("uses", "").startswith("actions/checkout"))
    assert checkout["with"]["persist-credentials"] is False
    (with_token,) = (step for step in JOB["steps"] if "GITHUB_TOKEN" in step.get("env", {}))
    assert with_token["run"].startswith("exec .venv/bin/npubench nightly run ")  # no shell stays that has it
