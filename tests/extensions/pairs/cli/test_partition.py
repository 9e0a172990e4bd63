"""npubench partition: plans and explanations from a profile file, a profile from a made-up pair, and every error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from extensions.pairs.partition.fake_pair import FakePair
from pytest_npubench.extensions.pairs.partition import units
from pytest_npubench.extensions.pairs.partition.model_shapes import OPERATOR_SHAPES, OperatorShape
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.profile_file import read_profile, write_profile
from pytest_npubench.extensions.pairs.partition.profiler import measure_profile

SHAPES = (
    OperatorShape(name="attention_q", rows=256, cols=256),
    OperatorShape(name="ffn_down", rows=512, cols=2048),
)
MODEL = "made-up"


@pytest.fixture(autouse=True)
def _made_up_model(monkeypatch):
    monkeypatch.setitem(OPERATOR_SHAPES, MODEL, SHAPES)


@pytest.fixture
def pairs(monkeypatch) -> list[FakePair]:
    """open_pair gives made-up pairs, which are kept here."""
    opened: list[FakePair] = []

    def open_pair(name, *, standard_sizes, tile):
        assert name == "host"
        opened.append(FakePair(sync_s=1e-6))
        return opened[-1]

    monkeypatch.setattr(units, "open_pair", open_pair)
    return opened


@pytest.fixture(scope="module")
def profile(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("partition") / "pair.json"
    pair = FakePair(sync_s=1e-6)
    options = SplitOptions(standard_sizes=(1, 64, 128), tile=32)
    write_profile(path, measure_profile(pair, SHAPES, (1, 100), budget_s=1e6, options=options, max_rounds=3))
    return path


def test_a_plan_as_a_table(call, profile):
    answer = call("partition", "plan", "--profile", profile, "--model", MODEL)
    assert answer.status == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[0].split() == ["operator", "weight", "tokens", "strategy", "split", "predicted", "gain"]
    assert [line.split()[0] for line in lines[1:]] == ["attention_q", "attention_q", "ffn_down", "ffn_down"]
    assert "[512, 2048]" in lines[4]
    assert "npu padded to 128" in answer.out


def test_a_plan_as_json_for_some_lengths(call, profile):
    plan = call("partition", "plan", "--profile", profile, "--model", MODEL, "--length", 30, 100, "--json").json
    assert [(item["operator"], item["tokens"]) for item in plan["decisions"]] == [
        *(("attention_q", 30), ("attention_q", 100), ("ffn_down", 30), ("ffn_down", 100))
    ]
    for item in plan["decisions"]:
        assert sum(part["num_rows"] * part["num_tokens"] for part in item["parts"]) == item["rows"] * item["tokens"]


def test_baselines_are_chosen_from_when_named(call, profile):
    arguments = ("partition", "plan", "--profile", profile, "--model", MODEL, "--length", 100, "--json")
    plan = call(*arguments, "--strategy", "pipe", "--strategy", "chunked").json
    assert {item["strategy"] for item in plan["decisions"]} <= {"pipe", "chunked"}


def test_an_explanation(call, profile):
    answer = call(
        *("partition", "explain", "--profile", profile, "--model", MODEL),
        *("--operator", "ffn_down", "--length", 100),
    )
    assert answer.status == 0, answer.err
    first, *others = answer.out.splitlines()
    assert first.startswith("ffn_down [512, 2048] x 100: ")
    assert len(others) == 4
    assert all(line.startswith("  why not ") for line in others)
    told = call(
        *("partition", "explain", "--profile", profile, "--model", MODEL),
        *("--operator", "ffn_down", "--length", 100, "--json"),
    ).json
    assert (told["format"], told["version"]) == ("npubench-partition-explanation", 1)
    assert f" x {told['tokens']}: {told['strategy']} " in first
    reasons = [item["strategy"] for item in (*told["others"], *told["left_out"])]
    assert [line.split()[2].rstrip(":") for line in others] == reasons
    assert all(item["predicted_s"] >= told["predicted_s"] for item in told["others"])


def test_a_profile_of_another_machine(call, profile, tmp_path):
    other = tmp_path / "other.json"
    data = json.loads(profile.read_text())
    data["fingerprint"]["processor"] = "another"
    other.write_text(json.dumps(data))
    arguments = ("partition", "plan", "--profile", other, "--model", MODEL)
    assert "the profile was measured elsewhere: processor another -> " in call(*arguments).error
    assert call(*arguments, "--any-fingerprint").status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "--model", "llama-9b"), "no weight shapes of 'llama-9b'; known: llama-8b"),
        (("plan", "--model", "llama-8b"), "the profile does not know llama-8b: attention_q [4096, 4096] x 1: no split"),
        (("plan", "--model", MODEL, "--strategy", "magic"), "no strategy 'magic'"),
        (("plan", "--model", MODEL, "--mechanism", "smoke"), "no synchronisation by 'smoke'; measured: flag, pipe"),
        (
            ("explain", "--model", MODEL, "--operator", "lm_head", "--length", "1"),
            "made-up has no operator 'lm_head'; it has attention_q, ffn_down",
        ),
    ],
)
def test_what_cannot_be_planned(call, profile, arguments, words):
    assert words in call("partition", arguments[0], "--profile", profile, *arguments[1:]).error


def test_files_that_are_no_profiles(call, tmp_path):
    empty = tmp_path / "empty.json"
    empty.touch()
    assert "the file is empty" in call("partition", "plan", "--profile", empty, "--model", MODEL).error
    missing = tmp_path / "missing.json"
    assert "missing.json: cannot be read" in call("partition", "plan", "--profile", missing, "--model", MODEL).error


def test_usage(call):
    assert call("partition").status == 2
    assert call("partition", "plan", "--model", MODEL).status == 2
    assert call("partition", "plan", "--help").out.count("example: npubench partition plan") == 1


def test_a_profile_is_measured_written_and_gone_on_with(call, pairs, tmp_path):
    output = tmp_path / "pair.json"
    arguments = ("partition", "profile", "--model", MODEL, "--output", output, "--length", 1, 100, "--size", 1, 128)
    answer = call(*arguments, "--budget", 0.3)
    assert answer.status == 0, answer.err
    assert "sync  p50      p99" in answer.out
    assert "[1/2] attention_q: round 1" in answer.err
    profile = read_profile(output)
    assert profile.options == SplitOptions(standard_sizes=(1, 128), tile=32)
    again = call(*arguments, "--resume", "--budget", 600)
    assert again.status == 0, again.err
    assert "finished" in again.out
    told = call(*arguments, "--resume", "--json").json
    assert (told["format"], told["is_finished"]) == ("npubench-partition-profile-written", True)
    assert f"points  {told['num_points']}" in again.out
    assert [item["mechanism"] for item in told["syncs"]] == ["flag", "pipe"]
    assert read_profile(output).is_finished
    assert len(pairs) == 3
    assert all(pair.closed for pair in pairs)


def test_a_pair_is_closed_and_nothing_written_when_measuring_fails(call, pairs, tmp_path):
    output = tmp_path / "pair.json"
    arguments = ("partition", "profile", "--model", MODEL, "--output", output)
    assert "no synchronisation by 'smoke'; it has flag, pipe" in call(*arguments, "--mechanism", "smoke").error
    assert "standard sizes (64, 1); want whole numbers from 1 that increase" in call(*arguments, "--size", 64, 1).error
    assert "a share of 2.0 of the rows" in call(*arguments, "--decode-shares", 2).error
    assert [pair.closed for pair in pairs] == [True]
    assert not output.exists()


def test_a_pair_that_is_not_there(call, tmp_path):
    answer = call("partition", "profile", "--pair", "ghost", "--model", MODEL, "--output", tmp_path / "pair.json")
    assert "ghost" in answer.error
