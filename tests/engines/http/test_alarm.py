"""A coroutine that is woken at a time, by a timer of the system or by giving way until then."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from pytest_npubench.engines.http.alarm import Alarm
from pytest_npubench.engines.http.load_run import _loop_runner


@pytest.fixture(params=["timer", "spin"])
def way(request, monkeypatch) -> None:
    if request.param == "spin":
        monkeypatch.setattr(sys, "platform", "darwin")
    elif sys.platform != "linux":
        pytest.skip("a timer that is a file is Linux's")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("runner", [asyncio.run, _loop_runner()], ids=["asyncio", "ours"])
def test_nobody_is_woken_before_the_time_and_what_is_over_is_not_waited_for(runner):
    async def woken() -> list[float]:
        begun_s = time.monotonic()
        dues_s = [begun_s + after_s for after_s in (-1e6, -1.0, 0.0, 0.0003, 0.004, 0.0041, 0.02)]
        early = []
        with Alarm() as alarm:
            for due_s in dues_s:
                await alarm.until(due_s)
                early.append(due_s - time.monotonic())
        return early

    assert max(runner(woken())) <= 0


@pytest.mark.usefixtures("way")
def test_others_run_while_it_is_waited_for():
    async def both() -> list[str]:
        seen = []

        async def other() -> None:
            await asyncio.sleep(0.01)
            seen.append("other")

        task = asyncio.create_task(other())
        with Alarm() as alarm:
            await alarm.until(time.monotonic() + 0.2)
        seen.append("woken")
        await task
        return seen

    assert asyncio.run(both()) == ["other", "woken"]


@pytest.mark.skipif(sys.platform != "linux", reason="a timer that is a file is Linux's")
def test_its_file_is_closed():
    async def opened() -> None:
        with Alarm() as alarm:
            await alarm.until(time.monotonic() + 0.001)

    asyncio.run(opened())
    names = [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert not [name for name in names if "timerfd" in name]
