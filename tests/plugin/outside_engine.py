"""An engine of another distribution: the fake accelerator's times, but one prefill for a whole batch, and rows that
ended leave it. Copied into a project beside the .dist-info that registers it."""

from __future__ import annotations

from fake_device import DECODE_S_PER_TOKEN, PREFILL_S_PER_TOKEN, FakeEngine

from pytest_npubench.core.buckets import bucket_of
from pytest_npubench.core.measurement import Phase, Run, Segment
from pytest_npubench.engines.descriptor import EngineDescriptor
from pytest_npubench.suites.buckets.service import BucketService


class Outside(EngineDescriptor):
    name = "outside"
    title = "Outside"
    about = "the test's own"
    families = ("openvino",)
    parts = {"buckets": "outside_engine:OutsideBuckets"}  # noqa: RUF012 - of the class

    def why_not_here(self, family):
        try:
            return open("missing.txt").read()  # noqa: PTH123 - of the test's project
        except OSError:
            return ""

    def software(self):
        return "outside 1.2"


class OutsideBuckets(BucketService):
    finished = "drop"
    prefill_shared = True
    moves_cache = False

    def engine(self, runtime, plan, folder):
        return OutsideEngine(runtime, plan.buckets, plan.batch_size)


class OutsideEngine(FakeEngine):
    name, finished, prefill_shared = "outside", "drop", True

    def run(self, requests):
        longest = bucket_of(self.buckets, max(item.input_tokens for item in requests))
        parts = [(Phase.PREFILL, longest, longest * PREFILL_S_PER_TOKEN)]
        for step in range(1, max(item.output_tokens for item in requests)):
            alive = [item.input_tokens + step for item in requests if item.output_tokens > step]
            bucket = bucket_of(self.buckets, max(alive))
            parts.append((Phase.DECODE, bucket, bucket * DECODE_S_PER_TOKEN))
        segments = [
            Segment(phase=phase, bucket=bucket, num_steps=1, duration_s=duration_s)
            for phase, bucket, duration_s in parts
        ]
        return Run(e2e_s=sum(segment.duration_s for segment in segments), segments=tuple(segments), moves=())


ENGINE = Outside()
