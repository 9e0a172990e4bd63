"""What is read off a scheduler's output, a stand-in of vLLM's with the attributes that are read."""

from __future__ import annotations

from types import SimpleNamespace as Made

from pytest_npubench.extensions.vllm.schedule_watch import ScheduleWatch


def test_the_pairs_of_prompts_by_hand() -> None:
    """A new prompt of 3 tokens, one that goes on with 2 behind its first 4, and a decode row, which has none."""
    output = Made(
        num_scheduled_tokens={"new": 3, "goes on": 2, "decodes": 1},
        scheduled_new_reqs=[Made(req_id="new", num_computed_tokens=0)],
        scheduled_cached_reqs=Made(req_ids=["goes on", "decodes"], num_computed_tokens=[4, 9]),
    )
    scheduler = Made(
        schedule=lambda: output,
        requests={name: Made(num_output_tokens=int(name == "decodes")) for name in output.num_scheduled_tokens},
        running=[1, 2, 3],
        waiting=[],
        kv_cache_manager=Made(usage=0.5),
    )
    watch = ScheduleWatch(scheduler)
    assert scheduler.schedule() is output
    found = watch.take()
    assert found is not None
    assert (found.num_decode, found.num_prefill_tokens) == (1, 5)
    assert found.num_prefill_pairs == (1 + 2 + 3) + (5 + 6)
    assert watch.take() is None
