"""What a round of a pair becomes in a trace."""

from __future__ import annotations

from pytest_npubench.extensions.pairs.pair_rounds import pair_lanes


def test_a_pair_s_units_stand_below_the_whole() -> None:
    (lane,) = pair_lanes({"a/b/total_s": (2.0, 3.0), "a/b/gpu_s": (1.5, 2.5), "a/b/npu_s": (), "other": (1.0,)})
    shown = [(span.track, span.start_s, span.duration_s) for span in lane.spans]
    assert lane.title == "a/b"
    assert shown == [("whole", 0.0, 2.0), ("whole", 2.0, 3.0), ("gpu", 0.0, 1.5), ("gpu", 2.0, 2.5)]
