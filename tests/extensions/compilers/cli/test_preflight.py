"""`npubench preflight`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli.conftest import Answer

from pytest_npubench.extensions.compilers.cli import preflight


def test_preflight_is_a_run_of_the_suites_of_compilers(
    call: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(preflight, "replace_process", lambda command: started.append(command) or 0)
    assert call("preflight", "-m", "tpu", "--npubench-profile", "nightly").status == 0
    words = " ".join(started.pop())
    without_phone = "--ignore-glob=*/graphs/test_phone.py"
    assert words.endswith(f" suites/compiled suites/graphs {without_phone} -m tpu --npubench-profile nightly")
    assert "npubench preflight" in call("preflight", "-k", "x", "--help").out
    assert "-m tpu" in call("preflight", "tpu").error
    assert started == []
