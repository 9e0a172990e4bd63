"""How far a run is: on a terminal one line that is redrawn, with cases done, the campaign's round and sample, and time
left; elsewhere a line a minute, so that hours of measuring are no silence after which a runner is killed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import Any

import pytest

from pytest_npubench.campaign.protocol import CampaignPlan, Progress
from pytest_npubench.plain_text import plain

REDRAW_S = 0.2
HEARTBEAT_S = 60.0


class CaseProgress(Progress):
    """A progress that also knows when a campaign waits for a device, and when it is over."""

    def waits(self, campaign: str, text: str) -> None:
        """The device is in use: `text` says by whom."""
        self.stage(campaign, text)

    def done(self) -> None:
        """A campaign is over: give the line back."""


class TerminalProgress(CaseProgress):
    """One line, redrawn in place through pytest's own reporter.

    count_cases: (done, all). remaining_s: the budgets of the campaigns that have not begun, in seconds.
    """

    def __init__(
        self, config: pytest.Config, count_cases: Callable[[], tuple[int, int]], remaining_s: Callable[[], float]
    ) -> None:
        self._count_cases, self._remaining_s = count_cases, remaining_s
        self._reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        self._capture: Any = config.pluginmanager.getplugin("capturemanager")
        self._shown = False
        self._drawn_at_s = 0.0
        self._campaign, self._text = "", ""
        self._sample, self._num_samples = 0, 0
        self._ends_at_s: float | None = None

    def stage(self, campaign: str, text: str) -> None:
        self._campaign, self._text, self._num_samples, self._ends_at_s = campaign, text, 0, None
        self._draw()

    def begin_round(self, plan: CampaignPlan, index: int, num_samples: int, measured_s: float) -> None:
        size = plan.size
        self._campaign, self._text = plan.key, f"round {index + 1} of {size.min_rounds} to {size.max_rounds}"
        self._sample, self._num_samples = 0, num_samples
        if index:
            rounds_s = measured_s / index * max(0, size.min_rounds - index)
            self._ends_at_s = monotonic() + max(size.budget_s - measured_s, rounds_s) + self._remaining_s()
        self._draw()

    def sample(self) -> None:
        self._sample += 1
        if monotonic() - self._drawn_at_s >= REDRAW_S:
            self._draw()

    def done(self) -> None:
        if self._shown:
            with self._uncaptured():
                self._reporter.rewrite("", erase=True)
                self._reporter.rewrite("")
            self._shown = False

    def _draw(self) -> None:
        num_done, num_cases = self._count_cases()
        parts = [f"npubench {num_done}/{num_cases} cases", self._campaign, self._text]
        if self._num_samples:
            parts.append(f"sample {self._sample}/{self._num_samples}")
        if self._ends_at_s is not None:
            left_s = max(0, int(self._ends_at_s - monotonic()))
            parts.append(f"at most {left_s // 60}:{left_s % 60:02d} left")
        with self._uncaptured():
            if not self._shown:
                self._reporter.ensure_newline()
            self._reporter.rewrite(plain(" | ".join(parts)), erase=True)
        self._shown, self._drawn_at_s = True, monotonic()

    def _uncaptured(self) -> AbstractContextManager[None]:
        return uncaptured(self._capture)


class HeartbeatProgress(CaseProgress):
    """A line about every minute, through pytest's own reporter. count_cases: (done, all)."""

    def __init__(self, config: pytest.Config, count_cases: Callable[[], tuple[int, int]]) -> None:
        self._count_cases = count_cases
        self._reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        self._capture: Any = config.pluginmanager.getplugin("capturemanager")
        self._campaign, self._text = "", ""
        self._began_at_s = self._said_at_s = monotonic()

    def waits(self, campaign: str, text: str) -> None:
        self._said_at_s = -math.inf  # at once: whoever sees it may end the other run
        self.stage(campaign, text)

    def stage(self, campaign: str, text: str) -> None:
        self._campaign, self._text = campaign, text
        self._beat()

    def begin_round(self, plan: CampaignPlan, index: int, num_samples: int, measured_s: float) -> None:
        self.stage(plan.key, f"round {index + 1} of {plan.size.min_rounds} to {plan.size.max_rounds}")

    def sample(self) -> None:
        self._beat()

    def _beat(self) -> None:
        now_s = monotonic()
        if now_s - self._said_at_s < HEARTBEAT_S:
            return
        self._said_at_s = now_s
        (num_done, num_cases), elapsed_s = self._count_cases(), int(now_s - self._began_at_s)
        where = f"{num_done} of {num_cases} cases, {self._campaign}: {self._text}"
        with uncaptured(self._capture):
            self._reporter.ensure_newline()
            self._reporter.write_line(plain(f"npubench: {where}, {elapsed_s // 60}:{elapsed_s % 60:02d} elapsed"))
            self._reporter.flush()


@contextmanager
def uncaptured(capture: Any) -> Iterator[None]:
    """What is written inside reaches the reporter's own stream. `capture`: pytest's capture manager, None without."""
    if capture is None:
        yield
    else:
        with capture.global_and_fixture_disabled():
            yield


def progress_for(
    config: pytest.Config, count_cases: Callable[[], tuple[int, int]], remaining_s: Callable[[], float]
) -> CaseProgress:
    """A line on a terminal, a heartbeat elsewhere; silence in a worker of xdist, with -q -q or without a reporter."""
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or "PYTEST_XDIST_WORKER" in os.environ or config.get_verbosity() < -1:
        return CaseProgress()
    return (
        TerminalProgress(config, count_cases, remaining_s)
        if reporter.isatty
        else HeartbeatProgress(config, count_cases)
    )
