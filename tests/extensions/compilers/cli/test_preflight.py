"""`npubench preflight`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli.conftest import Answer

from pytest_npubench.extensions.compilers.cli import preflight


def test_preflight_is_a_run_of_the_bucket_suite_on_compilers(
    call: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(preflight, "replace_process", lambda command: started.append(command) or 0)
    assert call("preflight", "-m", "tpu", "--npubench-profile", "nightly").status == 0
    words = " ".join(started.pop())
    assert words.endswith(" --npubench-engine compiled -m tpu --npubench-profile nightly")
    assert "buckets" in words
    assert "npubench preflight" in call("preflight", "-k", "x", "--help").out
    assert "-m tpu" in call("preflight", "tpu").error
    assert started == []
