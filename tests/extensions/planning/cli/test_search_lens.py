"""npubench search batch and buckets: what they print is what the searches find in the profiles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import Answer

from pytest_npubench.predictors.profile import BucketProfile, BucketTiming

Run = Callable[..., Answer]


@pytest.fixture
def profiles(tmp_path: Path) -> Callable[..., Path]:
    """A profile file of a batch size, its buckets' (ttft, tbt) in milliseconds."""

    def write(batch_size: int, **buckets: tuple[float, float]) -> Path:
        timings = {int(name[1:]): BucketTiming(ttft_s=a / 1000, tbt_s=b / 1000) for name, (a, b) in buckets.items()}
        path = tmp_path / f"b{batch_size}.json"
        path.write_text(json.dumps(BucketProfile(buckets=timings, batch_size=batch_size).to_json()), encoding="utf-8")
        return path

    return write


@pytest.fixture
def lengths(tmp_path: Path) -> Path:
    """One prompt of 100 tokens and one of 200, in equal parts, three tokens each, at times in no known unit."""
    path = tmp_path / "lengths.csv"
    path.write_text("input_tokens,output_tokens,stamp\n100,3,5\n200,3,9\n", encoding="utf-8")
    return path


def test_the_cheapest_batch_is_worked_out_by_hand(call: Run, profiles: Callable[..., Path], lengths: Path) -> None:
    """A batch of 1: 20 + 2 x 2 ms for 3 tokens, of 2: 2 x 15 + 2 x 2 ms for 6, of 4: 4 x 25 + 2 x 2 ms for 12."""
    paths = [profiles(1, b256=(20, 2)), profiles(2, b256=(15, 2)), profiles(4, b256=(25, 2))]
    line = ["search", "batch", *paths, "--workload", lengths, "--num-requests", 8]
    found = call(*line, "--json").json
    assert found["best"] == str(paths[1])
    speeds = {one["batch_size"]: one["tokens_per_s"] for one in found["batches"]}
    assert speeds == pytest.approx({1: 3 / 0.024, 2: 6 / 0.034, 4: 12 / 0.104})
    assert call(*line, "--device-price", f"{paths[1]}=3", "--json").json["best"] == str(paths[0])
    tight = call(*line, "--max-ttft", "25ms", "--json").json
    assert (tight["best"], [one["keeps_limits"] for one in tight["batches"]]) == (str(paths[0]), [False, True, False])
    nothing = call(*line, "--max-tbt", "1ms")
    assert nothing.status == 1
    assert "no batch size keeps a TBT of 0.001 s; the least is 0.002 s" in nothing.err
    assert "b9.json: no profile is named so" in call(*line, "--device-price", "b9.json=3").error


def test_the_best_set_leaves_the_slow_bucket_out(
    call: Run, profiles: Callable[..., Path], lengths: Path, tmp_path: Path
) -> None:
    """The prompt of 200 takes 20 + 2 x 2 ms in bucket 512 and 30 + 2 x 3 ms in 256."""
    path = profiles(1, b128=(10, 1), b256=(30, 3), b512=(20, 2))
    line = ["search", "buckets", path, "--workload", lengths, "--num-requests", 64]
    found = call(*line, "--json").json
    assert [one["buckets"] for one in found["sets"]] == [[512], [128, 512]]
    assert found["inverted"] == [{"bucket": 256, "faster": 512}]
    assert found["all_buckets"]["seconds"] > found["sets"][-1]["seconds"]
    said = call(*line).out
    assert "best: 128, 512" in said
    assert "a decode step of bucket 512 is faster than one of bucket 256" in said
    assert call(*line, "--choice", "fastest", "--json").json["all_buckets"]["seconds"] == pytest.approx(
        found["sets"][-1]["seconds"]
    )
    costs = tmp_path / "costs.csv"
    costs.write_text("bucket,compile_s,memory_bytes\n128,5,1e9\n256,5,1e9\n512,5,1e9\n", encoding="utf-8")
    limited = [*line, "--costs", costs]
    assert [one["buckets"] for one in call(*limited, "--max-compile-time", "9s", "--json").json["sets"]] == [[512]]
    assert "no set of buckets keeps the memory" in call(*limited, "--max-memory", "1e8").error
    assert "the memory of bucket 128 is not known" in call(*line, "--max-memory", "1e8").error
    costs.write_text("bucket,compile_s,memory_bytes\n128,x,1e9\n", encoding="utf-8")
    assert "costs.csv, line 2: want a bucket" in call(*limited).error


def test_the_other_search_is_still_there(call: Run) -> None:
    assert "--hardware" in call("search", "--help").out
    assert "arguments are required" in call("search", "--model", "small-moe").err
    assert "did you mean 'buckets'" in call("search", "bucketz").err
    assert "PROFILE.json" in call("search", "batch", "--help").out
