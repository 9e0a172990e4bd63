"""npubench predict and npubench profile from a journal: the numbers of the campaign itself, and what is no profile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reports.journals import (
    BUCKETS,
    MOVE_S,
    TBT_S,
    TTFT_S,
    WORKLOADS,
    duration_s,
    make_fingerprint,
    make_plan,
    measure,
    only,
    open_journal,
    write_rounds,
    write_run,
)
from store.journal_lines import read_lines, write_lines

from pytest_npubench.core.measurement import Request
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.predictors.lens import BucketProfile
from pytest_npubench.store.journal import read_journal
from pytest_npubench.suites.buckets.points import BucketPoint

from .conftest import REQUEST, Answer, lengths

Run = Callable[..., Answer]
B1, B4 = ("--campaign", "cpu-tiny-llama-b1"), ("--campaign", "cpu-tiny-llama-b4")
TIMES = ("prefill_s", "decode_s", "e2e_s")


@pytest.mark.parametrize("batch_size", [1, 4])
def test_the_profile_of_a_journal_is_the_devices_table(
    batch_size: int, journal: Path, call: Run, tmp_path: Path
) -> None:
    path = tmp_path / "profile.json"
    answer = call("profile", "--journal", journal, "--campaign", f"cpu-tiny-llama-b{batch_size}", "-o", path)
    assert answer.status == 0
    assert f"wrote   {path}" in answer.out
    found = BucketProfile.from_json(json.loads(path.read_text(encoding="utf-8")))
    assert found.batch_size == batch_size
    assert {b: t.ttft_s for b, t in found.buckets.items()} == pytest.approx(TTFT_S)
    assert {b: t.tbt_s for b, t in found.buckets.items()} == pytest.approx(TBT_S)
    assert found.transitions_s == pytest.approx(MOVE_S)


def test_a_prediction_from_the_journal_is_the_devices_time(journal: Path, call: Run) -> None:
    source = ("predict", "--journal", journal, *B1, "--json")
    for inputs, outputs in ((100, 60), (1, 500), (512, 1), (200, 300)):
        point = BucketPoint(name="x", requests=(Request(input_tokens=inputs, output_tokens=outputs),))
        answer = call(*source, *lengths(inputs, outputs)).json
        assert answer["e2e_s"] == pytest.approx(duration_s(point))
        assert answer["band"]["low_s"] < answer["e2e_s"] < answer["band"]["high_s"]
        assert answer["profile"]["buckets"] == list(BUCKETS)


def test_a_prediction_from_the_journal_is_the_one_that_the_campaign_made(journal: Path, call: Run) -> None:
    cases = {r["id"]: r["detail"] for r in read_journal(journal).records if r["record"] == "case"}
    plan = make_plan()
    for name in WORKLOADS:
        for batch, predicted_s in zip(plan.draws(name), cases[f"{plan.key}-{name}"]["predicted_s"], strict=True):
            (request,) = batch.requests
            source = ("predict", "--journal", journal, "--campaign", plan.key, "--json")
            asked = lengths(request.input_tokens, request.output_tokens)
            assert call(*source, *asked).json["e2e_s"] == pytest.approx(predicted_s, rel=1e-12)


def test_literal_fits_the_journal_literally(journal: Path, call: Run) -> None:
    source = ("predict", "--journal", journal, *B1, "--literal", "--json")
    answer = call(*source, *lengths(10, 60)).json
    # within one bucket the fit absorbs the step: TTFT less one TBT, and 60 steps instead of 59
    assert [answer[name] for name in TIMES] == pytest.approx([0.008, 0.120, 0.128])


def test_a_later_run_of_a_few_cases_does_not_hide_the_whole_one(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = measure(make_plan())
    write_run(path, whole)
    write_run(path, only(whole, "profile/128"))
    question = (*B1, *lengths(300, 1), "--json")
    assert call("predict", "--journal", path, *question).json["profile"]["buckets"] == list(BUCKETS)


def test_another_fingerprint_that_came_later_counts(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_run(path, measure(make_plan()))
    write_run(path, measure(make_plan(), slow={"profile": 2.0}), accelerator="NVIDIA A100")
    question = (*B1, *lengths(10, 1), "--json")
    assert call("predict", "--journal", path, *question).json["e2e_s"] == pytest.approx(0.020)


def test_moves_that_were_not_all_measured_are_left_out_and_said(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write_run(path, only(measure(make_plan()), "profile", "move/128"))
    answer = call("profile", "--journal", path, *B1, "-o", tmp_path / "p.json")
    assert "none was measured into bucket 512" in answer.out
    assert json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))["transitions_s"] is None


@pytest.mark.parametrize(
    ("kept", "failures", "words"),
    [
        (("step",), {}, "its rounds hold no profile points"),
        (("profile/128", "profile/512", "move/256"), {}, "no profile points of bucket 256"),
        (("profile",), {"profile/256/33": "out of memory"}, "profile/256/33 failed, so the profile has a hole"),
        (("profile/128/1", "profile/256"), {}, "bucket 128"),
    ],
)
def test_rounds_that_make_no_profile(
    kept: tuple[str, ...], failures: dict[str, str], words: str, call: Run, tmp_path: Path
) -> None:
    path = tmp_path / "journal.jsonl"
    with open_journal(path) as writer:
        measurement = only(
            measure(make_plan(), failures=failures), *(f"{name}/" if name.count("/") == 1 else name for name in kept)
        )
        write_rounds(writer, measurement, writer.device(make_fingerprint()))
    assert words in call("predict", "--journal", path, *B1, *lengths(1, 1)).error


def test_journals_that_cannot_be_used(journal: Path, call: Run, tmp_path: Path) -> None:
    rest = ("-o", tmp_path / "p.json")
    missing = call("profile", "--journal", tmp_path / "none.jsonl", "--campaign", "x-b1", *rest).error
    assert "none.jsonl: No such file or directory" in missing
    (tmp_path / "other.txt").write_text("hello\n", encoding="utf-8")
    assert "is not a journal" in call("profile", "--journal", tmp_path / "other.txt", "--campaign", "x", *rest).error
    unknown = call("profile", "--journal", journal, "--campaign", "cpu-tiny-llama-b2", *rest).error
    assert "campaigns there: cpu-tiny-llama-b1, cpu-tiny-llama-b4" in unknown
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert "campaigns there: none" in call("profile", "--journal", empty, "--campaign", "x-b1", *rest).error
    assert not (tmp_path / "p.json").exists()


def test_a_profile_that_cannot_be_written(journal: Path, call: Run, tmp_path: Path) -> None:
    target = tmp_path / "none" / "p.json"
    error = call("profile", "--journal", journal, *B1, "-o", target).error
    assert f"{target}: No such file or directory" in error


@pytest.mark.parametrize("points", [{"profile/128/1": [0.1, "x"]}, {"profile/128/1": 3}, {"profile/128/1": [True]}])
def test_samples_that_are_no_seconds(points: dict[str, Any], call: Run, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with open_journal(path) as writer:
        place = {"fingerprint": "0" * 12, "campaign": "x-b1", "campaign_digest": "1" * 12}
        writer.append({"record": "round", **place, "round": 0, "points": {"profile/128/1": [0.1]}})
    lines = read_lines(path)
    write_lines(path, [lines[0], lines[1] | {"points": points}])
    error = call("profile", "--journal", path, "--campaign", "x-b1", "-o", tmp_path / "p.json").error
    assert "is damaged, 1 session left out: line 2: points.profile/128/1" in error


def test_rivals_beside_lens_from_the_rounds_of_a_journal(journal: Path, call: Run) -> None:
    """The line through the points of the table, by numpy's own pseudo-inverse: two points a bucket."""
    question = ("predict", "--journal", journal, *B4, *REQUEST)
    alone, answer = call(*question, "--json").json, call(*question, "--predictor", "all", "--json").json
    beside = answer.pop("predictors")
    assert answer == alone
    points = [(bucket, output) for bucket in BUCKETS for output in (1, 33)]
    terms = [(1, 4 * (bucket - 33), output) for bucket, output in points]
    times_s = [4 * TTFT_S[bucket] + (output - 1) * TBT_S[bucket] for bucket, output in points]
    line = np.linalg.pinv(terms) @ times_s
    assert beside["linear"]["e2e_s"] == pytest.approx(line @ (1, 100, 60))
    assert f"linear     {beside['linear']['e2e_s']:.4g} s e2e" in call(*question, "--predictor", "linear").out
    many = ("predict", "--journal", journal, *B4, "--workload", WORKLOADS[0])
    found = call(*many, "--num-requests", 40, "--batch", 4, "--finished", "freeze", "--predictor", "linear", "--json")
    assert set(found.json["predictors"]["linear"]["e2e_s"]) == {"mean", "p50", "p90", "p99"}


PARTS_MS = {"embed": 0.1, "project": 0.2, "output": 0.1, "feed_forward": 0.4, "head": 0.5}


def with_parts(path: Path, campaign: str, *, without: str = "none") -> None:
    """A round of 16 layers in two buckets: a prefill of 3 ms a layer and 2 more, steps of 1 ms a layer and 1 more."""
    points = {f"part/{name}/{phase}/128": ms for name, ms in PARTS_MS.items() for phase in ("prefill", "decode")}
    points |= {f"part/{name}/prefill/256": 2 * ms for name, ms in PARTS_MS.items() if name != "head"}
    for bucket in (128, 256):
        points |= {f"part/attend/{phase}/{bucket}": 0.1 * bucket / 128 for phase in ("prefill", "decode")}
        points |= {f"part/kernels/prefill/{bucket}": 7.0, f"part/kernels/decode/{bucket}": 1.5}
        for prefix, layers in (("", 16), ("b1-128-256-layers1/", 1), ("b1-128-256-layers2/", 2)):
            points |= {f"{prefix}profile/{bucket}/{n}": 2 + 3 * layers + (n - 1) * (1 + layers) for n in (1, 33)}
    rows = {name: [ms / 1e3] for name, ms in points.items() if without not in name}
    place = {"fingerprint": "0" * 12, "campaign": campaign, "campaign_digest": "1" * 12, "round": 0}
    with open_journal(path) as writer:
        writer.append({"record": "round", **place, "points": rows})


def test_rivals_that_add_up_parts_from_a_journal(call: Run, tmp_path: Path) -> None:
    """90 tokens in, 11 out run in bucket 128 alone; below it operators take what they take at 128."""
    campaign = "cpu-llama-3.2-1b-b1"
    assert dense_shape("llama-3.2-1b").num_layers == 16
    with_parts(tmp_path / "all.jsonl", campaign)
    with_parts(tmp_path / "some.jsonl", campaign, without="layers1")
    with_parts(tmp_path / "other.jsonl", "cpu-mine-b1")
    asked = (*lengths(90, 11), "--predictor", "all", "--json")
    found, some, other = (
        call("predict", "--journal", tmp_path / f"{name}.jsonl", "--campaign", own, *asked).json["predictors"]
        for name, own in (("all", campaign), ("some", campaign), ("other", "cpu-mine-b1"))
    )
    assert found["layer_sum"]["e2e_s"] == pytest.approx(0.050 + 10 * 0.017)
    assert found["kernel_sum"]["e2e_s"] == pytest.approx(0.007 + 10 * 0.0015)
    assert found["operator_sum"]["e2e_s"] == pytest.approx(11 * 1e-3 * (0.1 + 16 * 0.8 + 0.5))
    assert "measured without it; run with --npubench-predictors all" in some["layer_sum"]["reason"]
    assert some["kernel_sum"] == found["kernel_sum"]
    assert "cpu-mine-b1 names no decoder whose layers are known" in other["operator_sum"]["reason"]


def test_the_compiler_s_estimates_are_in_the_journal_of_a_run(journal: Path, tmp_path: Path, call: Run) -> None:
    """By the equations of LENS: a prefill of bucket 128, 28 steps there and 31 in 256."""
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(journal.read_bytes())
    question = ("predict", "--journal", copy, *B4, *REQUEST)
    without = call(*question, "--predictor", "compiler", "--json").json["predictors"]["compiler"]
    assert "unavailable: the compiler told no cycles of 6 of 6 binaries" in without["reason"]
    rounds = [record for record in read_journal(copy).records if record["record"] == "round"]
    first = next(record for record in rounds if record["campaign"] == B4[1])
    campaign = {name: first[name] for name in ("fingerprint", "campaign", "campaign_digest")}
    writer = open_journal(copy)
    for phase, scale in (("prefill", 1e-4), ("decode", 1e-5)):
        for bucket in BUCKETS:
            name = f"{phase}-tiny-llama-b4-{bucket}"
            about = {"record": "compile", "name": name, "compile_s": 0.5, "cache": "cold"}
            writer.append({**about, **campaign, "estimated_s": scale * bucket})
    writer.close()
    found = call(*question, "--predictor", "compiler", "--json").json["predictors"]["compiler"]
    assert found["e2e_s"] == pytest.approx(0.0128 + 28 * 0.00128 + 31 * 0.00256)
    assert "compiled, not run" in call(*question, "--predictor", "compiler").out


def compiled_case(bucket: int, steps: dict[str, Any] | None, *, kind: str = "unchanged", is_old: bool = False) -> Any:
    name = f"tpu-v5e-llama-3.2-1b-b8-bucket{bucket}"
    return {
        "record": "case",
        "case": f"compiled/profile/{name}",
        "id": name,
        "campaign": "tpu-b8-compiled",
        "verdict": {"kind": kind, "reason": "", "ratio": None, "interval": None, "mde": None},
        "detail": {"engine": "compiled", "bucket": bucket, "steps": steps},
        **({"fingerprint": "0123456789ab"} if is_old else {}),
    }


def estimates(ttft_s: float | None, tbt_s: float | None) -> dict[str, Any]:
    return {"prefill": {"estimated_s": ttft_s}, "decode": {"estimated_s": tbt_s}}


@pytest.fixture
def compiled(tmp_path: Path, call: Run) -> Callable[..., Answer]:
    """What predict answers from a journal of nothing but compiled cases."""

    def run(*cases: Any) -> Answer:
        path = tmp_path / "compiled.jsonl"
        write_run(path, measure(make_plan()))
        lines = read_lines(path)
        template = next(line for line in lines if line["record"] == "case")
        head = [line for line in lines if line["record"] in ("session", "device")]
        older = head[-1] | {"digest": "0123456789ab"}
        write_lines(path, [*head, older, *({**template, **case} for case in cases)])
        return call("predict", "--journal", path, "--campaign", "tpu-b8-compiled", *REQUEST)

    return run


def test_compiled_cases_alone_are_a_profile_that_says_that_nothing_ran(compiled: Callable[..., Answer]) -> None:
    """The worked number of docs/lens.md again; what an older compiler estimated does not count."""
    answer = compiled(
        compiled_case(128, estimates(1.0, 1.0), is_old=True),
        compiled_case(256, estimates(0.018, 0.003)),
        compiled_case(128, estimates(0.010, 0.002)),
    )
    assert "tpu-b8-compiled, compiled, not run, in" in answer.out
    assert "nothing was measured" in answer.out
    assert "buckets    128, 256; compiled for a batch of 8" in answer.out
    assert answer.out.splitlines()[-1] == "e2e_s      0.159 s"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (compiled_case(256, None, kind="failed"), "-bucket256 failed, so the profile has a hole"),
        (compiled_case(256, None), "compiled, not run, and this compiler tells no times"),
        (compiled_case(256, estimates(0.018, None)), "this compiler tells no times; want rounds"),
    ],
)
def test_compiled_cases_without_times_are_no_profile(compiled: Callable[..., Answer], case: Any, words: str) -> None:
    answer = compiled(compiled_case(128, estimates(0.010, 0.002)), case)
    assert answer.status == 1
    assert words in answer.err


def test_what_was_compiled_is_never_written_as_a_measured_profile(
    compiled: Callable[..., Answer], call: Run, tmp_path: Path
) -> None:
    assert compiled(compiled_case(256, estimates(0.010, 0.002))).status == 0
    journal, output = tmp_path / "compiled.jsonl", tmp_path / "stored.json"
    answer = call("profile", "--journal", journal, "--campaign", "tpu-b8-compiled", "-o", output)
    assert answer.status != 0
    assert not output.exists()
