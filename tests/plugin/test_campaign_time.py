"""The time of a campaign beside that of its cases."""

from types import SimpleNamespace

import pytest

from pytest_npubench.plugin.campaign_time import CampaignTime, show, take_off


def test_a_campaigns_time_is_taken_off_and_shown_as_a_report_that_any_plugin_can_look_at():
    report = SimpleNamespace(duration=12.5)
    take_off(report, CampaignTime(campaign="cpu-tiny-b1", seconds=12.0))
    assert report.duration == pytest.approx(0.5)
    reporter = SimpleNamespace(stats={})
    show(reporter, report)
    show(reporter, SimpleNamespace(duration=1.0))
    show(None, report)
    (shown,) = reporter.stats[""]  # the reports of no name are in no count
    assert (shown.nodeid, shown.when, shown.duration) == ("cpu-tiny-b1", "campaign", 12.0)
    assert vars(shown)
