"""A FAKE engine for tests: its latencies are a table, walked step by step with plain loops. It measures nothing."""

import pytest

from pytest_npubench.core.measurement import Phase, Run, Segment


class FakeTableEngine:
    """Serves batches from {bucket: (ttft_s, tbt_s)}; prefill and decode may have sets of their own."""

    def __init__(self, ttft_s, tbt_s, batch_size=1, prefill_shared=False, moves_s=None, extra_step=0):
        self.ttft_s, self.tbt_s, self.batch_size = ttft_s, tbt_s, batch_size
        self.prefill_shared, self.moves_s, self.extra_step = prefill_shared, moves_s, extra_step

    @staticmethod
    def bucket(table, length):
        return min(bucket for bucket in table if length <= bucket)

    def kv_lengths(self, requests, finished):
        """c_max of every decode step."""
        ends = [output - 1 + self.extra_step for _, output in requests]
        for step in range(max(ends)):
            caches = []
            for (prompt, _), end in zip(requests, ends, strict=True):
                if finished == "drop" and step >= end:
                    continue
                caches.append(prompt + min(step + 1, end) if finished == "freeze" else prompt + step + 1)
            yield max(caches)

    def run(self, requests, attention="padded", finished="grow"):
        """(prefill_s, decode_s) of one batch."""
        prompts = sorted(prompt for prompt, _ in requests)
        if self.prefill_shared:
            prompts = prompts[-1:]
        prefill_s = sum(self.ttft_s[self.bucket(self.ttft_s, prompt)] for prompt in prompts)
        if attention == "ragged":
            ends = [(prompt, output - 1 + self.extra_step) for prompt, output in requests]
            steps = [prompt + step + 1 for prompt, end in ends for step in range(end)]
            shares = [self.tbt_s[self.bucket(self.tbt_s, kv)] / self.batch_size for kv in steps]
            return prefill_s, sum(shares)
        cache, moved_s = self.bucket(self.ttft_s, prompts[0]), 0.0
        for prompt in prompts:
            cache, cost_s = self.grow(cache, prompt)
            moved_s += cost_s
        prefill_s, decode_s = prefill_s + moved_s, 0.0
        for kv in self.kv_lengths(requests, finished):
            cache, cost_s = self.grow(cache, kv)
            decode_s += cost_s + self.tbt_s[self.bucket(self.tbt_s, kv)]
        return prefill_s, decode_s

    def grow(self, cache, length):
        """The cache's bucket once it holds the length, and the seconds of getting there one bucket at a time."""
        cost_s = 0.0
        while self.moves_s is not None and cache < length:
            cache = min(bucket for bucket in self.ttft_s if bucket > cache)
            cost_s += self.moves_s[cache]
        return cache, cost_s

    def measure(self, point):
        """A full batch of one profile point, with the buckets it used."""
        requests = [(point.input_tokens, point.output_tokens)] * self.batch_size
        prefill_s, decode_s = self.run(requests)
        used = [(Phase.PREFILL, self.bucket(self.ttft_s, point.input_tokens))]
        used += [(Phase.DECODE, self.bucket(self.tbt_s, kv)) for kv in self.kv_lengths(requests, "grow")]
        segments = [Segment(phase=phase, bucket=bucket, num_steps=1, duration_s=0.0) for phase, bucket in used]
        return Run(e2e_s=prefill_s + decode_s, segments=tuple(segments), moves=())


@pytest.fixture(scope="session")
def fake_table_engine():
    return FakeTableEngine
