"""A whole run on the host's processors: what it prints, writes and returns."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from itertools import groupby

import pytest

from pytest_npubench.cli.main import main
from pytest_npubench.suites.buckets.points import seconds_in

from .project import run_until, summary

CI = {"GITHUB_ACTIONS": "true"}
BUCKETS = (16, 32, 64)
KERNELS = ("matmul", "copy", "dispatch")
CASES = {
    "buckets/prediction/mini-mini-llama-b2-lengths.csv",
    "buckets/mean_error/mini-mini-llama-b2",
    "buckets/answers/mini-mini-llama-b2",
    *(f"buckets/{kind}/mini-mini-llama-b2-bucket{bucket}" for kind in ("profile", "steps") for bucket in BUCKETS),
    *(f"buckets/canary/mini-mini-llama-b2-{kernel}" for kernel in KERNELS),
}


def test_it_passes_and_says_so_for_each_case(green):
    assert green.result.ret == 0, green.result.stdout.str()
    green.result.assert_outcomes(passed=len(CASES), deselected=green.result.parseoutcomes()["deselected"])
    text = green.result.stdout.str()
    figures = "mean .*%, signed .*%, median .*%, p90 .*%, max .*%"  # on one line or, with larger ones, on two
    assert re.search(f"LENS prediction error over 1 case: {figures}", " ".join(text.split()))
    assert len(re.findall(r"^ \S.* no-baseline$", text, re.MULTILINE)) == len(CASES)
    green.result.stdout.fnmatch_lines_random(
        [
            " case * figure * verdict",
            "buckets  cpu:0  mini-mini-llama-b2",
            " prediction/lengths.csv * prediction_error * no-baseline",
            f"{len(CASES) - 1} cases: no-baseline: 0 accepted sessions on this stack; want 3 or more",
            f"journal: {green.project.journal_path}",
        ]
    )


def test_the_journal_tells_the_run_in_order(green):
    journal = green.project.journal()
    session = journal.sessions[0]
    kinds = [kind for kind, _ in groupby(record["record"] for record in session.records)]
    assert kinds == ["device", "compile", "round", *["case", "outcome"] * len(CASES), "end"]
    assert [record["round"] for record in green.records("round")] == [0, 1]
    assert [record["complete"] for record in green.records("round")] == [False, True]
    assert green.cases().keys() == CASES
    assert session.end["exit_status"] == 0
    assert session.end["counts"] == {"no-baseline": len(CASES)}
    (device,) = green.records("device")
    measured = [record for record in session.records if record["record"] in ("compile", "round", "case")]
    assert {record["fingerprint"] for record in measured} == {device["digest"]}
    assert {record["campaign"] for record in measured} == {"mini-mini-llama-b2"}
    assert device["fingerprint"]["device"]["family"] == "cpu"
    assert session.header["settings"]["profile"] == "quick"
    assert journal.torn == ()


def test_every_sample_of_a_case_is_one_of_its_rounds(green):
    rounds = green.records("round")
    for bucket in BUCKETS:
        case = green.cases()[f"buckets/profile/mini-mini-llama-b2-bucket{bucket}"]
        short = [value for record in rounds for value in record["points"][f"profile/{bucket}/1"]]
        assert case["metrics"]["ttft_s"]["samples"] == [value / 2 for value in short]  # two prompts a batch
        assert case["metrics"]["ttft_s"]["value"] == pytest.approx(sum(short) / len(short) / 2)
        step = green.cases()[f"buckets/steps/mini-mini-llama-b2-bucket{bucket}"]
        assert step["metrics"]["prefill_s"]["samples"] == [v for r in rounds for v in r["points"][f"step/{bucket}"]]


def test_tbt_is_the_slope_between_the_two_points(green):
    rounds = green.records("round")
    for bucket in BUCKETS:
        case = green.cases()[f"buckets/profile/mini-mini-llama-b2-bucket{bucket}"]
        means = {}
        for name in (name for name in seconds_in(rounds[0]["points"]) if name.startswith(f"profile/{bucket}/")):
            values = [value for record in rounds for value in record["points"][name]]
            means[int(name.rpartition("/")[2])] = sum(values) / len(values)
        assert len(means) == 2
        (few, short_s), (many, long_s) = sorted(means.items())
        assert case["metrics"]["tbt_s"]["value"] == pytest.approx((long_s - short_s) / (many - few))


def test_two_points_and_two_binaries_a_bucket(green):
    names = [record["name"] for record in green.records("compile")]
    for phase in ("prefill", "decode"):
        assert sorted(name for name in names if name.startswith(phase)) == sorted(
            f"{phase}-mini-llama-b2-{bucket}" for bucket in BUCKETS
        )
    points = seconds_in(green.records("round")[0]["points"])
    for bucket in BUCKETS:
        assert len([name for name in points if name.startswith(f"profile/{bucket}/")]) == 2
        cost = green.cases()[f"buckets/profile/mini-mini-llama-b2-bucket{bucket}"]["detail"]["cost"]
        assert (cost["points"], cost["binaries"]) == (2, 2)
        compiles = green.records("compile")
        own = [record["compile_s"] for record in compiles if record["name"].endswith(f"b2-{bucket}")]
        assert cost["compile_s"] == pytest.approx(sum(own))


def test_junit_carries_verdict_metrics_and_error(green):
    cases = {}
    for case in ElementTree.parse(green.project.root / "junit.xml").iter("testcase"):
        cases[case.get("name")] = {item.get("name"): item.get("value") for item in case.iter("property")}
    assert len(cases) == len(CASES)
    record = green.cases()["buckets/prediction/mini-mini-llama-b2-lengths.csv"]
    properties = cases["test_prediction[mini-mini-llama-b2-lengths.csv]"]
    assert properties["npubench.key"] == record["case"]
    assert properties["npubench.device"] == "cpu:0"
    assert properties["npubench.campaign"] == "mini-mini-llama-b2"
    assert properties["npubench.verdict"] == "no-baseline"
    assert properties["npubench.reason"] == record["verdict"]["reason"]
    assert float(properties["npubench.error"]) == record["error"]
    assert float(properties["npubench.predicted_s"]) == record["predicted_s"]
    assert float(properties["npubench.e2e_s"]) == record["metrics"]["e2e_s"]["value"]


def test_every_file_that_was_asked_for_has_every_case(green):
    root, keys = green.project.root, {record["case"] for record in green.records("case")}
    lines = list(csv.DictReader(io.StringIO((root / "run.csv").read_text(encoding="utf-8"))))
    assert {line["case"] for line in lines} == keys == CASES
    values = {(line["case"], line["metric"]): float(line["value"]) for line in lines}
    assert values == {
        (record["case"], name): metric["value"]
        for record in green.records("case")
        for name, metric in record["metrics"].items()
    }
    metrics = (root / "run.prom").read_text(encoding="utf-8")
    assert set(re.findall(r'^npubench_verdict\{case="([^"]+)"', metrics, re.MULTILINE)) == keys
    markdown = (root / "run.md").read_text(encoding="utf-8")
    assert markdown.startswith(f"## npubench: {len(CASES)} no-baseline\n")
    # below a case stand its other metrics where they differ, without its name: under load a slope can be below 0
    assert len(re.findall(r"^\| \S.* \| no-baseline \|$", markdown, re.MULTILINE)) == len(CASES)
    assert (root / "summary.md").read_text(encoding="utf-8") == f"a step before\n{markdown}"


def test_the_run_is_printed_again_from_its_journal(green, capsys):
    journal = [str(green.project.journal_path), "--session", green.project.journal().sessions[0].id]
    assert main(["show", *journal]) == 0
    shown = capsys.readouterr().out
    table, _, commands = shown.partition("next:\n")
    assert table in green.result.stdout.str()
    assert f"npubench baseline accept {green.project.journal_path}" in commands
    assert main(["show", *journal, "--csv"]) == 0
    assert capsys.readouterr().out == (green.project.root / "run.csv").read_text(encoding="utf-8")


def test_durations_have_the_campaign(green):
    green.result.stdout.fnmatch_lines(["=* slowest 3 durations =*", "* campaign *mini-mini-llama-b2"])


def test_one_case_says_how_long_it_waited_for_the_campaign_and_its_time_is_without(green):
    waited = {}
    for case in ElementTree.parse(green.project.root / "junit.xml").iter("testcase"):
        found = {item.get("name"): item.get("value") for item in case.iter("property")}
        if "npubench.campaign_s" in found:
            waited[case.get("name")] = float(found["npubench.campaign_s"]), float(case.get("time"))
    ((campaign_s, time_s),) = waited.values()
    assert time_s < campaign_s
    assert campaign_s < max(record["duration_s"] for record in green.records("case"))


def test_pytest_benchmark_has_the_very_samples_of_the_journal(green):
    saved = json.loads((green.project.root / "benchmark.json").read_text())
    records = {f"{record['case']}": record for record in green.records("case")}
    assert len(saved["benchmarks"]) == len(CASES) - 2  # the mean error is no time, and neither are answers
    for benchmark in saved["benchmarks"]:
        ours = benchmark["extra_info"]["npubench"]
        record = records[ours["case"]]
        samples = next(iter(record["metrics"].values()))["samples"]
        stats = benchmark["stats"]
        assert stats["data"] == samples
        assert (stats["rounds"], stats["min"], stats["max"]) == (len(samples), min(samples), max(samples))
        assert stats["mean"] == pytest.approx(sum(samples) / len(samples), rel=1e-12)
        assert stats["iterations"] == 1
        assert ours["verdict"] == "no-baseline"
        assert ours["metrics"] == {name: metric["value"] for name, metric in record["metrics"].items()}
    assert "hz_actual" not in saved["machine_info"]["cpu"]


def test_saved_runs_can_be_compared(green):
    assert len(list((green.project.root / ".benchmarks").glob("*/*.json"))) == 1
    result = green.project.run("-k", "mini and profile and bucket16", "--benchmark-compare", "--npubench-resume")
    assert result.ret == 0
    result.stdout.fnmatch_lines_random(["test_profile?mini-mini-llama-b2-bucket16? (0001_*", "*bucket16? (NOW) *"])


def test_a_green_run_is_accepted(green):
    (path,) = (green.project.root / "baselines" / "mini").glob("buckets-*.json")
    accepted = json.loads(path.read_text())["cases"]
    assert accepted.keys() == CASES
    for key, record in green.cases().items():
        judged = {
            name: metric
            for name, metric in record["metrics"].items()
            if metric["gate"] != "none" and metric["verdict"]["kind"] != "invalid"  # under load a slope is below 0
        }
        kept = accepted[key]["sessions"][0]["metrics"]
        assert kept.keys() == judged.keys()
        for name, metric in judged.items():
            assert kept[name]["num_measured"] == [len(metric["samples"]) or 1]


def test_a_narrow_selection_measures_only_what_it_needs(green, tmp_path):
    """The bucket and the move into it, which is no more than its neighbour; and it satisfies --npubench-require by
    marker and by hardware."""
    finished = run_until(
        lambda result: result.ret == 0,
        lambda number: green.project.copy(tmp_path / str(number)),
        *("-k", "mini and bucket32 and not steps"),
        *("--npubench-require", "cpu,mini", "--npubench-journal", "narrow.jsonl"),
    )
    result = finished.result
    assert result.ret == 0, result.stdout.str()
    result.assert_outcomes(passed=1, deselected=result.parseoutcomes()["deselected"])
    lines = [json.loads(line) for line in (finished.project.root / "narrow.jsonl").read_text().splitlines()]
    compiled = [line["name"] for line in lines if line["record"] == "compile"]
    assert sorted(name for name in compiled if not name.startswith("weights")) == [
        "decode-mini-llama-b2-16",
        "decode-mini-llama-b2-32",
        "move-mini-llama-b2-16-32",
        "prefill-mini-llama-b2-16",
        "prefill-mini-llama-b2-32",
    ]
    for line in lines:
        if line["record"] == "round":
            assert seconds_in(line["points"]).keys() == {"profile/32/1", "profile/32/9", "move/16/32"}


def test_a_tightened_limit_fails_with_one_clean_line(project):
    project.fake("noise=0.01")
    tight = ("--npubench-case-error", "1e-9", "--npubench-accept", "--npubench-baselines", "none")
    result = project.run("-k", "fake and lengths", *tight, env=CI)
    assert result.ret == 1
    text = result.stdout.str()
    assert "::error file=test_prediction.py,title=npubench prediction/lengths.csv::failed: prediction error" in text
    ((test, reason),) = summary(result, "FAILED").items()
    assert test == "test_prediction.py::test_prediction[fake-mini-llama-b2-lengths.csv]"
    assert reason.startswith("Failed: prediction error")
    assert " > 1e-07 %" in reason
    assert "Traceback" not in text
    assert ".py:" not in text.partition("FAILURES")[2].partition("= short test summary")[0]
    assert "nothing accepted: buckets/prediction/fake-mini-llama-b2-lengths.csv is failed (prediction error" in text
    assert not (project.root / "none").exists()
    (session,) = project.journal().sessions
    assert session.end["exit_status"] == 1
    assert session.end["counts"] == {"failed": 1}
