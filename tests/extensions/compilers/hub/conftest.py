"""A stand-in service, the unmodified client configured for it, and a small decoder to send there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.core import hardware_reader
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.extensions.compilers.hub.jobs import JobOptions
from pytest_npubench.extensions.compilers.suites.graphs.phone_plan import PhonePlan
from pytest_npubench.suites.hardware_files import load_hardware

NOT_INSTALLED = "qai-hub is not installed: pip install pytest-npubench[qaihub]"
BUCKETS = (8, 16)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The stand-in, and the environment that leads the client there. The client's pauses between retries are cut."""
    pytest.importorskip("qai_hub", reason=NOT_INSTALLED)
    from qai_hub.util import session

    from .stand_in import serving

    monkeypatch.setattr(session, "BACKOFF_FACTOR", 0.001)
    monkeypatch.setattr(session, "MAX_WAIT", 0.001)
    with serving() as server:
        monkeypatch.setenv("QAIHUB_CLIENT_INI", str(server.configure(tmp_path)))
        yield server


@pytest.fixture
def spec() -> HardwareSpec:
    return load_hardware(hardware_reader.default_directory() / "snapdragon-8-gen3.toml")


@pytest.fixture
def make_plan(spec: HardwareSpec) -> Callable[..., PhonePlan]:
    """A plan of the hardware file with a small model and two small buckets."""

    def make(**changes: Any) -> PhonePlan:
        size = replace(spec.profile("quick"), buckets=changes.pop("buckets", BUCKETS), workloads=("lens-sharegpt",))
        plan = PhonePlan(spec=spec, size=replace(size, min_rounds=1, max_rounds=1), model="tiny-llama", batch_size=1)
        return replace(plan, **changes)

    return make


@pytest.fixture
def quick() -> Callable[..., JobOptions]:
    """Job options that do not wait."""

    def make(**changes: Any) -> JobOptions:
        known = {"qairt": "2.37", "qairt_full": "2.37.0.250724", "poll_s": 0.01, "timeout_s": 30.0, "rate_limit_s": 0.1}
        return JobOptions(**(known | changes))

    return make
