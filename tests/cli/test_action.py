"""The composite action for pull requests: its steps run in the shell that GitHub's runner starts.

The repository has two commits, and pytest the stand-in of the tests of `npubench bisect`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from .test_cli_bisect import Stage, git, stage

__all__ = ["stage"]
ACTION: Mapping[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / ".github" / "actions" / "npubench" / "action.yml").read_text(encoding="utf-8")
)
SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
"""https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax#defaultsrunshell"""
NPUBENCH = f"#!{sys.executable}\nimport sys\nfrom pytest_npubench.cli.main import main\nsys.exit(main())\n"


def steps(inputs: Mapping[str, str], folder: Path) -> tuple[int, dict[str, str]]:
    """Runs the action's own steps; the exit status of the last and the outputs of the first."""
    output, status = folder / "output", 0
    environment = {**os.environ, "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(folder / "summary")}
    values = {f"inputs.{name}": entry.get("default", "") for name, entry in ACTION["inputs"].items()}
    values |= {f"inputs.{name}": value for name, value in inputs.items()}
    for step in ACTION["runs"]["steps"]:
        if "run" in step:
            assert step["shell"] == "bash"
            given = {name: values[text.strip("${} ")] for name, text in step["env"].items()}
            script = folder / "step.sh"
            script.write_text(step["run"], encoding="utf-8")
            status = subprocess.run([*SHELL, str(script)], env={**environment, **given}, check=False).returncode
            written = re.findall(r"^(\w+)=(.*)$", output.read_text(encoding="utf-8"), re.MULTILINE)
            values |= {f"steps.{step.get('id', '')}.outputs.{name}": value for name, value in written}
    return status, dict(written)


@pytest.mark.parametrize(
    ("slower", "options", "status", "title"),
    [
        (1.2, "--pairs 3", 1, "slower"),
        (1.0, "--pairs 3 --metric 'tbt_s'", 0, "nothing became slower"),
        (1.0, "--pairs 3 --metric nothing", 1, "could not be measured"),
    ],
)
def test_a_pull_request_is_compared_with_its_base(
    stage: Stage, slower: float, options: str, status: int, title: str
) -> None:
    stage.stand_in(1.0, slower)
    git("init", "--quiet")
    for number, factor in enumerate((1.0, slower)):
        Path("planted.py").write_text(f"SLOWER = {factor}\nNUMBER = {number}\n")
        git("add", ".")
        git("commit", "--quiet", "-m", f"Change {number}")
    program = stage.folder / "npubench"
    program.write_text(NPUBENCH)
    program.chmod(0o755)
    base = git("rev-parse", "HEAD~1")
    inputs = {"arguments": "-m cpu -k 'a or b'", "base": base, "npubench": str(program), "options": options}
    ended, outputs = steps(inputs, stage.folder)
    assert (ended, outputs["status"]) == (status, str(status))
    comment = Path(outputs["comment"]).read_text(encoding="utf-8")
    assert comment.startswith(f"### npubench: {title}\n\n```text\n")
    assert comment == (stage.folder / "summary").read_text(encoding="utf-8")
    is_measured = title != "could not be measured"
    if is_measured:
        assert f"{base[:10]} (Change 0) (3 sessions)" in comment
        assert (Path("npubench-ab") / "comparison.html").exists()
    pairs = Path("npubench-ab") / "sides" / "pairs"
    assert len(list(pairs.glob("*/pair-*.jsonl"))) == (6 if is_measured else 2)
