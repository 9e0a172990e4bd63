"""npubench search: what is cheapest is so by npubench simulate, a killed search goes on, nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_npubench.cli import searched_settings
from pytest_npubench.cli.searched_settings import Candidate, Goal

from .conftest import Answer

Run = Callable[..., Answer]
SLO = ["--slo-ttft", "3s", "--slo-tbt", "60ms"]
LOAD = ["--model", "small-moe", "--workload", "layered-sharegpt", "--requests", 30, "--rate", 40, 10, 2000]
SEARCH = ["search", "--hardware", "nvidia-h100", *LOAD, *SLO, "--processes", 2]
SETTINGS = ["--policy", "chunked", "layered", "--tensor-parallel", 1, 2, "--chunk-size", 64, 2048]


def test_the_cheapest_is_what_simulate_says_of_each(call: Run, tmp_path: Path) -> None:
    """2 devices x (2 chunks + 1 layered) = 6 settings, each once; price 2 an hour a device."""
    page = tmp_path / "page.html"
    done = call(*SEARCH, *SETTINGS, "--price", "nvidia-h100=2", "--picture", page, "--json")
    assert done.status == 0, done.err
    assert "npubench: 6 of 6 settings" in done.err
    rows = done.json["settings"]
    assert len({row["name"] for row in rows}) == len(rows) == 6
    for row in rows:
        for tried in row["tried"]:
            policy, chunk = ("layered", []) if "layered" in row["name"] else ("chunked", ["--chunk-size"])
            chunk += [row["name"].split("chunk_size_tokens ")[1].rstrip(")")] if chunk else []
            load = [*LOAD[:6], "--rate", tried["rate_per_s"], "--policy", policy, *chunk, *SLO]
            devices = ["--hardware", "nvidia-h100", "--tensor-parallel", row["devices"]]
            (run,) = call("simulate", *devices, *load, "--json").json["runs"]
            attained = next(one["value"] for one in run["metrics"] if one["name"] == "slo_attainment")
            assert tried["attainment"] == pytest.approx(attained)
        carried = [one["rate_per_s"] for one in row["tried"] if one["attainment"] >= 0.9]
        assert row["rate_per_s"] == (max(carried) if carried else None)
        assert row["cost"] == (pytest.approx(1000 * 2 * row["devices"] / 3600 / max(carried)) if carried else None)
    costs = [row["cost"] for row in rows if row["cost"] is not None]
    assert costs == sorted(costs)
    assert f"{len(costs)} of 6 settings keep the SLO" in page.read_text(encoding="utf-8")
    assert "cost of 1000" in call(*SEARCH, *SETTINGS).out


def test_a_search_that_was_killed_goes_on(call: Run, tmp_path: Path) -> None:
    """Half of a line, as a kill leaves it, is written again; nothing that is there is simulated twice."""
    results = tmp_path / "results.jsonl"
    whole = call(*SEARCH, *SETTINGS, "--results", results, "--json")
    lines = results.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) == 6
    results.write_text("".join(lines[:3]) + lines[3][:20], encoding="utf-8")
    again = call(*SEARCH, *SETTINGS, "--results", results, "--json")
    assert "npubench: 3 of 6 settings are in" in again.err
    assert again.json == whole.json
    after = results.read_text(encoding="utf-8").splitlines()
    assert sorted(after) == sorted(line.rstrip("\n") for line in lines)
    assert all(json.loads(line)["key"] for line in after)
    other = call(*SEARCH, *SETTINGS, "--results", results, "--seed", 1, "--json")
    assert "are in" not in other.err  # another load


@pytest.mark.soak
def test_a_search_that_is_killed_again_and_again_ends_as_if_it_had_not_been(call: Run, tmp_path: Path) -> None:
    """With SIGKILL, as soon as one more result is there; what was there before a kill is there after it, each once."""
    results, settings = tmp_path / "results.jsonl", [*SETTINGS, "--max-batch", 4, 256]
    search = [*map(str, SEARCH), *map(str, settings), "--results", str(results), "--json"]
    code = "import sys; from pytest_npubench.cli.main import main; sys.exit(main())"
    kept: list[str] = []
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", code, *search], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            deadline_s = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < deadline_s and len(_lines(results)) <= len(kept):
                time.sleep(0.005)
            children = _children(process.pid)
            process.kill()
        while any(_is_there(pid) for pid in children):
            assert time.monotonic() < deadline_s, children
            time.sleep(0.02)
        found = _lines(results)
        assert found[: len(kept)] == kept
        kept = found
    assert kept
    again = call(*SEARCH, *settings, "--results", results, "--json")
    assert f"npubench: {len(kept)} of 12 settings are in" in again.err or len(kept) == 12
    assert again.json == call(*SEARCH, *settings, "--json").json
    assert len({json.loads(line)["key"] for line in _lines(results)}) == len(_lines(results)) == 12


def _children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def _is_there(pid: int) -> bool:
    """And no zombie that nobody waits for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _lines(path: Path) -> list[str]:
    """Whole ones."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_a_hardware_file_that_changed_is_another_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shipped one, by its name."""
    goal = Goal(
        model="small-moe",
        workload="layered-sharegpt",
        num_requests=9,
        rates_per_s=(1.0,),
        slo_ttft_s=1.0,
        slo_tbt_s=1.0,
        attainment=0.9,
        seed=0,
        expert_parallel=False,
    )
    one = Candidate(hardware="mine", tensor_parallel=1, data_parallel=1, policy="chunked", settings=())
    monkeypatch.setattr(searched_settings, "known_folders", lambda: [tmp_path])
    keys = {one.key(goal)}
    for text in ("a = 1", "a = 2"):
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        keys.add(one.key(goal))
    assert len(keys) == 3


def test_a_model_that_changed_is_another_result(tmp_path: Path) -> None:
    """Its file counts, given by its folder or by its path."""
    config = tmp_path / "config.json"
    one = Candidate(hardware="nvidia-h100", tensor_parallel=1, data_parallel=1, policy="chunked", settings=())
    for model in (tmp_path, config):
        goal = Goal(
            model=str(model),
            workload="layered-sharegpt",
            num_requests=9,
            rates_per_s=(1.0,),
            slo_ttft_s=1.0,
            slo_tbt_s=1.0,
            attainment=0.9,
            seed=0,
            expert_parallel=False,
        )
        config.write_text("{}", encoding="utf-8")
        before = one.key(goal)
        config.write_text('{"num_hidden_layers": 1}', encoding="utf-8")
        assert one.key(goal) != before


def test_where_none_attains_the_closest_is_named(call: Run) -> None:
    tight = ["--slo-ttft", "1ms", "--slo-tbt", "60ms"]
    done = call("search", "--hardware", "nvidia-h100", *LOAD, "--policy", "chunked", *tight, "--processes", 1)
    assert done.status == 1
    assert "no setting attains 90%; the closest is 1 x nvidia-h100 chunked with" in done.err
    assert "TTFT is what it misses more" in done.err


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (["--policy", "chunkd"], 2, "no scheduling policy 'chunkd'"),
        (["--price", "nvidia-a100=3"], 2, "none of --hardware is named so"),
        (["--price", "nvidia-h100=-1"], 2, "want a price above 0"),
        (["--workload", "nothing"], 2, "no workload is named 'nothing'"),
        (["--results", "BROKEN"], 2, "line 1: no result of a search"),
        (["--model", "gpt-oss-120b"], 1, "cannot be served"),
        (["--hardware", "none.toml", "--model", "small-moe"], 0, "not served: 1 x none chunked: none.toml"),
    ],
)
def test_what_cannot_be_searched_is_said(call: Run, tmp_path: Path, change: list[str], status: int, words: str) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{}\n", encoding="utf-8")
    change = [str(broken) if word == "BROKEN" else word for word in change]
    done = call(*SEARCH, "--policy", "chunked", *change)
    assert done.status == status, done.err
    assert words in done.out + done.err
