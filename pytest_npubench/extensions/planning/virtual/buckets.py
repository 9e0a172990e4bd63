"""Seconds of an iteration on static buckets, from LENS profiles: TTFT_b and TBT_b by bucket and batch size.

    b = bucket(longest KV length and prompt of the iteration)        N = smallest compiled batch that holds all rows
    step = moves to b + TTFT_b(N) x prompts + TBT_b(N)

Decode is padded to b and N, and so is every prompt: a staircase (LENS, arXiv 2606.18042, Eq. 7 to 11). TBT_b counts
where anything decodes; where prompts are prefilled together TTFT_b counts once. Between neighbouring buckets the whole
cache moves, up or down at the same cost, as only the smaller one is copied; a cache that holds nothing moves for free.

Two things are in no profile of requests that come one behind the other: what a device that had nothing to do takes
longer at first (waking_s), and what a prompt behind many decode steps and the steps behind it do (joining_s). Each has
the seconds of one iteration after the other, from that prompt's on; a prompt that comes before they are over adds none.

Worked example: TTFT 10 and 18 ms, TBT 2 and 3 ms in buckets 128 and 256, 1 ms to move: a prompt of 200 tokens beside a
request at KV length 120, which ran in 128 before, takes 1 + 18 + 3 = 22 ms. With waking_s of 5 and 2 ms the one of 120
tokens had its first token after 10 + 5 ms where nobody was there, and the next one 2 + 2 ms later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from pytest_npubench.errors import ConfigError, LengthError
from pytest_npubench.extensions.planning.virtual.step_cost import StepWork
from pytest_npubench.predictors.profile import BucketProfile


class BucketCost:
    """A StepCost that knows in which bucket the iteration before left the cache: a new one for each run.

    profiles: by the batch size that they were compiled and measured for. waking_s and joining_s may have what is below
    0, as measured differences have; no iteration takes less than 0 s. Raises ConfigError where there is none, one
    stands under another batch size, or a bucket lacks one of its times; LengthError for an iteration that no bucket or
    no batch size holds.
    """

    def __init__(
        self,
        profiles: Mapping[int, BucketProfile],
        *,
        waking_s: Sequence[float] = (),
        joining_s: Sequence[float] = (),
    ) -> None:
        self._profiles = dict(sorted(profiles.items()))
        self._waking_s, self._joining_s = waking_s, joining_s
        self._extra_s: Sequence[float] = ()  # of the iterations from some prompt's on
        self._num_since = 0  # iterations since
        self._bucket = 0
        _check(self._profiles)

    def seconds(self, work: StepWork) -> float:
        prompts = [row.num_tokens for one in work.passes for row in one.prefill]
        profile = self._profile(work.decode_rows + len(prompts))
        bucket = _smallest(tuple(profile.buckets), max([work.longest_context, *prompts]), "a KV length")
        moved_s = self._moved_s(profile, bucket) if work.decode_rows else 0.0
        self._bucket = bucket
        timing = profile.buckets[bucket]
        ttft_s, tbt_s = timing.ttft_s, timing.tbt_s
        assert ttft_s is not None
        assert tbt_s is not None
        prefill_s = ttft_s * (min(len(prompts), 1) if profile.prefill_shared else len(prompts))
        decode_s = tbt_s if work.decode_rows else 0.0
        step_s = moved_s + prefill_s + decode_s
        if work.is_from_idle:
            self._extra_s, self._num_since = self._waking_s, 0
        elif prompts and self._num_since >= len(self._extra_s):
            self._extra_s, self._num_since = self._joining_s, 0
        if self._num_since < len(self._extra_s):
            step_s += self._extra_s[self._num_since]
            self._num_since += 1
        return max(0.0, step_s)

    def _profile(self, num_rows: int) -> BucketProfile:
        return self._profiles[_smallest(tuple(self._profiles), num_rows, "a batch")]

    def _moved_s(self, profile: BucketProfile, bucket: int) -> float:
        low, high = sorted((self._bucket, bucket))
        return sum(seconds for into, seconds in (profile.transitions_s or {}).items() if low < into <= high)


def _check(profiles: Mapping[int, BucketProfile]) -> None:
    if not profiles:
        raise ConfigError("no bucket profile; want one for each batch size")
    for batch_size, profile in profiles.items():
        if profile.batch_size != batch_size:
            raise ConfigError(
                f"a profile of batch size {profile.batch_size} under {batch_size}; want each under its own"
            )
        if profile.prefill_buckets != profile.decode_buckets:
            raise ConfigError(
                f"batch size {batch_size}: prefill has the buckets {profile.prefill_buckets}, decode has "
                f"{profile.decode_buckets}; want one set for both"
            )


def _smallest(sizes: tuple[int, ...], wanted: int, what: str) -> int:
    index = bisect_left(sizes, wanted)
    if index == len(sizes):
        raise LengthError(f"{what} of {wanted}; the profiles hold {', '.join(map(str, sizes))}")
    return sizes[index]
