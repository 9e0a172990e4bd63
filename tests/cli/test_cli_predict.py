"""npubench predict from a file of a profile: numbers by hand and by brute force, and what cannot be asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npubench.predictors.lens import BucketProfile, BucketTiming
from pytest_npubench.workloads import workload

from .conftest import REQUEST, Answer, lengths

Run = Callable[..., Answer]
TIMES = ("prefill_s", "decode_s", "e2e_s")


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """The profile of docs/lens.md: 128 with 10 and 2 ms, 256 with 18 and 3 ms; a batch of 2."""
    timings = {128: BucketTiming(ttft_s=0.010, tbt_s=0.002), 256: BucketTiming(ttft_s=0.018, tbt_s=0.003)}
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(BucketProfile(buckets=timings, batch_size=2).to_json()), encoding="utf-8")
    return path


def test_the_worked_number(profile: Path, call: Run) -> None:
    answer = call("predict", profile, *REQUEST)
    assert answer.out.splitlines()[2:] == [
        "request    100 tokens in, 60 out, alone",
        "prefill_s  0.01 s",
        "decode_s   0.149 s",  # 28 steps of 2 ms and 31 of 3 ms
        "e2e_s      0.159 s",
    ]


def test_the_worked_number_literally_and_as_json(profile: Path, call: Run) -> None:
    answer = call("predict", profile, *REQUEST, "--literal", "--json").json
    assert [answer[name] for name in TIMES] == pytest.approx([0.010, 0.152, 0.162])
    assert answer["band"] is None
    assert answer["profile"] == {"source": str(profile), "buckets": [128, 256], "batch_size": 2, "remarks": []}


def test_a_batch_of_equal_requests(profile: Path, call: Run) -> None:
    """Two prefills; padded decode as of one request; ragged the same, as both halves add up."""
    attention, finished = ("--attention", "ragged"), ("--finished", "freeze")
    for how in ((), attention, finished, ("--attention", "padded", "--finished", "drop")):
        answer = call("predict", profile, *REQUEST, "--batch", 2, *how, "--json").json
        assert [answer[name] for name in TIMES] == pytest.approx([0.020, 0.149, 0.169])
    half = call("predict", profile, *REQUEST, "--batch", 1, "--attention", "ragged", "--json")
    assert half.json["decode_s"] == pytest.approx(0.149 / 2)


def test_a_workload_by_brute_force(profile: Path, call: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"{7 * index},{1 + index * index % 83}" for index in range(1, 40)]
    trace.write_text("\n".join(["input_tokens,output_tokens", *rows]), encoding="utf-8")
    answer = call("predict", profile, "--workload", trace, "--num-requests", 50, "--json").json
    sample = workload(trace).sample(50, seed=0, max_total_tokens=256, max_input_tokens=256)
    ttft_s, tbt_s = {128: 0.010, 256: 0.018}, {128: 0.002, 256: 0.003}
    prefill_s = [ttft_s[128 if item.input_tokens <= 128 else 256] for item in sample.requests]
    decode_s = [
        sum(tbt_s[128 if item.input_tokens + step + 1 <= 128 else 256] for step in range(item.output_tokens - 1))
        for item in sample.requests
    ]
    for name, times_s in zip(TIMES, (prefill_s, decode_s, np.add(prefill_s, decode_s)), strict=True):
        expected = {"mean": np.mean(times_s)} | {f"p{level}": np.percentile(times_s, level) for level in (50, 90, 99)}
        assert answer[name] == pytest.approx(expected)
    counts = [answer["workload"][f"num_{name}"] for name in ("requests", "drawn", "dropped")]
    assert counts == [50, sample.num_drawn, sample.num_dropped]
    assert sample.num_dropped > 0
    text = call("predict", profile, "--workload", trace, "--num-requests", 50).out
    assert f"dropped    {sample.num_dropped} of {sample.num_drawn} drawn" in text


def test_prompts_that_no_prefill_bucket_holds_are_dropped(call: Run, tmp_path: Path) -> None:
    timings = {128: BucketTiming(ttft_s=0.010, tbt_s=0.002), 256: BucketTiming(tbt_s=0.003)}
    (tmp_path / "p.json").write_text(json.dumps(BucketProfile(buckets=timings).to_json()), encoding="utf-8")
    (tmp_path / "t.csv").write_text("input_tokens,output_tokens\n128,2\n129,2\n", encoding="utf-8")
    answer = call("predict", tmp_path / "p.json", "--workload", tmp_path / "t.csv", "--num-requests", 9, "--json").json
    assert answer["workload"]["num_dropped"] > 0
    assert answer["e2e_s"]["p99"] == answer["e2e_s"]["mean"] == pytest.approx(0.013)


def test_a_workload_in_batches_with_a_last_one_that_is_smaller(profile: Path, call: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("input_tokens,output_tokens\n100,1\n", encoding="utf-8")
    arguments = ("predict", profile, "--workload", trace, "--num-requests", 3, "--batch", 2)
    answer = call(*arguments, "--json").json
    assert answer["prefill_s"]["mean"] == pytest.approx((0.020 + 0.010) / 2)
    assert answer["decode_s"]["p99"] == 0
    assert "3 requests, in batches of 2" in call(*arguments).out


def test_a_padded_batch_that_outgrows_the_buckets_says_what_to_do(profile: Path, call: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("input_tokens,output_tokens\n250,2\n2,250\n", encoding="utf-8")
    arguments = ("predict", profile, "--workload", trace, "--num-requests", 20, "--batch", 2)
    assert "wants finished='freeze' or 'drop'" in call(*arguments).error
    assert call(*arguments, "--finished", "freeze").status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lengths(-5, 1), "input_tokens: -5; want at least 1"),
        (lengths(5, 0), "output_tokens: 0; want at least 1"),
        (lengths(257, 1), "257 is longer than the largest bucket, 256 of (128, 256)"),
        (lengths(200, 58), "KV length of the last decode step: 257 is longer"),
        (lengths(10**30, 1), "want integers of 64 bits"),
        ((*lengths(5, 1), "--batch", 3), "--batch 3: the profile is compiled for 1 to 2"),
        (("--workload", "nothing", "--num-requests", 3), "no workload is named 'nothing'"),
        (("--workload", "layered-arxiv", "--num-requests", 3), "draws are within max_total_tokens=256"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(
    arguments: tuple[object, ...], words: str, profile: Path, call: Run
) -> None:
    assert words in call("predict", profile, *arguments).error


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("p.json",),
        ("p.json", "--input-tokens", "1"),
        ("p.json", *lengths(1, 1), "--workload", "x", "--num-requests", "1"),
        ("p.json", "--workload", "x"),
        ("p.json", "--num-requests", "5"),
        ("p.json", "--workload", "x", "--num-requests", "0"),
        ("p.json", *lengths(1, "x")),
        ("p.json", *lengths(1, 1), "--batch", "0"),
        ("p.json", *lengths(1, 1), "--attention", "ragged"),
        ("p.json", *lengths(1, 1), "--batch", "2", "--attention", "ragged", "--finished", "drop"),
        ("p.json", "--journal", "j", "--campaign", "c", *lengths(1, 1)),
        ("--journal", "j", *lengths(1, 1)),
        ("--campaign", "c", *lengths(1, 1)),
    ],
)
def test_half_a_question_is_a_usage_error(arguments: tuple[str, ...], call: Run) -> None:
    answer = call("predict", *arguments)
    assert answer.status == 2
    assert "want" in answer.err or "invalid int" in answer.err or "no meaning" in answer.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: "{", "line 1 column 2: Expecting property name"),
        (lambda data: "[1]", "no object with format 'npubench-bucket-profile'"),
        (lambda data: json.dumps(data | {"version": 2}), "version 2; this release reads version 1"),
        (lambda data: json.dumps(data | {"batch_size": "4"}), "batch_size: want a whole number, found a string"),
        (lambda data: json.dumps(data | {"buckets": {}}), "buckets: ()"),
        (lambda data: json.dumps(data | {"surprise": 1}), "surprise: unknown key; allowed: buckets, batch_size"),
        (lambda data: json.dumps(data).replace("0.01,", "-0.01,"), "buckets.128: ttft_s is -0.01"),
        (lambda data: json.dumps(data).replace("0.01,", "NaN,"), "NaN is not a finite number"),
        (lambda data: "[" * 100_000, "nested deeper than 32 levels"),
    ],
)
def test_a_corrupt_profile_is_named_with_its_place(
    change: Callable[[dict[str, Any]], str], words: str, profile: Path, call: Run
) -> None:
    profile.write_text(change(json.loads(profile.read_text(encoding="utf-8"))), encoding="utf-8")
    error = call("predict", profile, *lengths(1, 1)).error
    assert str(profile) in error
    assert words in error


def test_a_profile_that_is_no_text_or_a_folder(call: Run, tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    question = lengths(1, 1)
    assert "not UTF-8" in call("predict", tmp_path / "binary.json", *question).error
    assert "is a folder" in call("predict", tmp_path, *question).error


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ("--predictor", "linaer"),
            "no predictor 'linaer'; known: lens, aiconfigurator, compiler, kernel_sum, layer_sum, lens_literal, ",
        ),
        (("--predictor", "linear"), "rivals are fitted on rounds; want --journal and --campaign, not a PROFILE.json"),
    ],
)
def test_a_rival_that_cannot_predict(more: tuple[str, ...], words: str, profile: Path, call: Run) -> None:
    answer = call("predict", profile, *REQUEST, *more)
    assert answer.status in (1, 2)
    assert words in answer.err
