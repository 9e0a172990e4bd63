"""Child processes of probes that end at once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from pytest_npubench.processes import guarded


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """FAKE: every child process ends at once with this output, or raises this error."""

    def install(stdout: str = "", stderr: str = "", returncode: int = 0, error: Exception | None = None) -> None:
        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            if error:
                raise error
            return subprocess.CompletedProcess(command, returncode, stdout, stderr)

        monkeypatch.setattr(guarded, "run", run)

    return install
