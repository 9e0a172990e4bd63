"""What a profile of one device says of another: how fast both are at arithmetic, memory and launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_npubench.core.measurement import Phase
from pytest_npubench.predictors.profile import BucketProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpeed:
    """Seconds of a FLOP, of a byte and of a launch, of all devices of a group together. launch_s: None where only peaks
    are known."""

    flop_s: float
    byte_s: float
    launch_s: float | None = None

    def explained_s(self, work: tuple[float, float]) -> float:
        """Returns the seconds of so many FLOPs and bytes, by whichever takes longer."""
        flops, num_bytes = work
        return max(flops * self.flop_s, num_bytes * self.byte_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTransfer:
    """The profile of another device, `there`, for a predictor of what `here` takes. work: the FLOPs and bytes of a
    prefill and of a decode step of each bucket. source: in words, where the profile came from."""

    profile: BucketProfile
    there: DeviceSpeed
    here: DeviceSpeed
    work: Mapping[tuple[Phase, int], tuple[float, float]]
    source: str

    def scaled_s(self, seconds: float, phase: Phase, bucket: int) -> float:
        """What a prefill or step takes here that takes so long there."""
        work = self.work[phase, bucket]
        there_s, here_s = self.there.explained_s(work), self.here.explained_s(work)
        if self.there.launch_s is None or self.here.launch_s is None:
            return seconds * here_s / there_s
        explained_s = min(seconds, there_s)
        rest_s = seconds - explained_s
        return explained_s * here_s / there_s + rest_s * self.here.launch_s / self.there.launch_s
