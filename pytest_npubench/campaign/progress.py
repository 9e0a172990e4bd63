"""Where a campaign tells how far it is. The terminal's version lives in the plugin; this one keeps quiet."""

from __future__ import annotations

from pytest_npubench.campaign.protocol import CampaignPlan


class Progress:
    """Silent. Subclasses show; none of the calls may fail a measurement."""

    def stage(self, campaign: str, text: str) -> None:
        """What the campaign does before its rounds."""

    def begin_round(self, plan: CampaignPlan, index: int, num_samples: int, measured_s: float) -> None:
        """A round of so many samples begins; measured_s is what the rounds before it took."""

    def sample(self) -> None:
        """One sample of the round is there."""
