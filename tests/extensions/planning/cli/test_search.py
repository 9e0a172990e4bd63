"""npubench search: what is cheapest is so by npubench simulate, a killed search goes on, nothing is lost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product, takewhile
from pathlib import Path

import pytest
from cli.conftest import Answer, small_device

from pytest_npubench.engines.model_directory import config_of
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.cli import search_pools, searched_settings
from pytest_npubench.extensions.planning.cli.searched_settings import Candidate, Goal

Run = Callable[..., Answer]
SLO = ["--slo-ttft", "3s", "--slo-tbt", "60ms"]
LOAD = ["--model", "small-moe", "--workload", "layered-sharegpt", "--num-requests", 30, "--rate", 40, 10, 2000]
SEARCH = ["search", "--hardware", "nvidia-h100", *LOAD, *SLO, "--processes", 2]
POLICIES = [("chunked", 64), ("chunked", 2048), ("layered", None)]
NOWHERE = ["--hardware", "none.toml", "--model", "small-moe", "--price", "nvidia-h100=2"]
SETTINGS = ["--policy", "chunked", "layered", "--tensor-parallel", 1, 2, "--chunk-size", 64, 2048]


@pytest.fixture(autouse=True)
def _in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches simulate in this process: to start another takes longer. test_search_pools.py has processes."""

    @contextmanager
    def threads(number: int) -> Iterator[search_pools.Pool]:
        pool = ThreadPoolExecutor(number)
        yield search_pools.Pool(submit=pool.submit, width=number)
        pool.shutdown(cancel_futures=True)

    monkeypatch.setattr(search_pools, "processes", threads)


def test_the_cheapest_is_what_simulate_says_of_each(call: Run, tmp_path: Path) -> None:
    """2 devices x (2 chunks + 1 layered) = 6 settings, each at 3 rates; price 2 an hour a device."""
    page = tmp_path / "page.html"
    done = call(*SEARCH, *SETTINGS, "--price", "nvidia-h100=2", "--output", page, "--json")
    assert done.status == 0, done.err
    costs: dict[str, float] = {}
    attained: dict[tuple[str, float], float] = {}
    for devices, (policy, chunk), rate in product((1, 2), POLICIES, (10, 40, 2000)):
        load = [*LOAD[:6], "--rate", rate, "--policy", policy, *(["--chunk-size", chunk] if chunk else []), *SLO]
        on = ["--hardware", "nvidia-h100", "--tensor-parallel", devices]
        (run,) = call("simulate", *on, *load, "--json").json["runs"]
        name = f"{devices} x nvidia-h100 {policy}{f' (chunk_size_tokens {chunk})' if chunk else ''}"
        value = next(one["value"] for one in run["metrics"] if one["name"] == "slo_attainment")
        attained[name, rate] = value
        if value >= 0.9 and all(attained[name, lower] >= 0.9 for lower in (10, 40, 2000) if lower < rate):
            costs[name] = 1000 * 2 * devices / 3600 / rate
    rows = done.json["settings"]
    assert done.json["num_settings"] == 6
    assert [row["name"] for row in rows] == sorted(costs, key=lambda name: (costs[name], name))
    for row in rows:
        assert row["cost"] == pytest.approx(costs[row["name"]])
        assert row["tried"][-1]["rate_per_s"] == row["rate_per_s"]
        for tried in row["tried"]:
            assert tried["attainment"] == pytest.approx(attained[row["name"], tried["rate_per_s"]])
    assert f"the best {len(costs)} of 6 settings keep the SLO" in page.read_text(encoding="utf-8")
    shown = call(*SEARCH, *SETTINGS).out
    assert "cost of 1000" in shown
    goal = "small-moe with layered-sharegpt, 90% within TTFT "
    assert shown.splitlines()[0].startswith(f"best: {rows[0]['name']}, carries ")
    assert goal in shown.splitlines()[0]
    assert goal in page.read_text(encoding="utf-8")
    assert [row["is_largest"] for row in rows] == [row["rate_per_s"] == 2000 for row in rows]
    assert (">= 2000/s (largest tried)" in shown) == any(row["is_largest"] for row in rows)
    (first, *_) = call(*SEARCH, *SETTINGS, "--top", 1, "--json").json["settings"]
    assert first["name"] == rows[0]["name"]


@pytest.mark.parametrize(
    ("on", "name", "devices"),
    [
        (["chunked", "--pipeline-parallel", 2, "--data-parallel", 2], "2 x 2 stages of 1 x nvidia-h100 chunked", 4),
        (
            ["disaggregated", "--tensor-parallel", 3, "--prefill-devices", 2],
            "3 x nvidia-h100 disaggregated (prefill_devices 2)",
            3,
        ),
    ],
)
def test_stages_and_pools_are_searched_as_simulate_has_them(
    call: Run, on: list[object], name: str, devices: int
) -> None:
    on = ["--policy", *on]
    (row,) = call(*SEARCH, *on, "--json").json["settings"]
    assert (row["name"], row["devices"]) == (name, devices)
    load = [*LOAD[:6], "--rate", row["rate_per_s"], *SLO]
    (run,) = call("simulate", "--hardware", "nvidia-h100", *on, *load, "--json").json["runs"]
    value = next(one["value"] for one in run["metrics"] if one["name"] == "slo_attainment")
    assert row["tried"][-1]["attainment"] == pytest.approx(value)


def test_pools_are_searched_and_priced_by_all_of_their_workers(call: Run) -> None:
    """1 or 2 of 3 devices prefill, with 1 or 3 such workers, and 2 workers decode; chunked is tried once, without."""
    pools = ["--tensor-parallel", 3, "--prefill-devices", 1, 2, "--prefill-replicas", 1, 3, "--decode-replicas", 2]
    policies = ["--policy", "disaggregated", "chunked", "--price", "nvidia-h100=2"]
    done = call(*SEARCH, "--rate", 300, *policies, *pools, "--json")
    assert done.json["num_settings"] == 5
    rows = {row["name"]: row for row in done.json["settings"] if "disaggregated" in row["name"]}
    costs: dict[str, float] = {}
    for on, workers in product((1, 2), (1, 3)):
        chosen = ["--policy", "disaggregated", "--prefill-devices", on, "--prefill-replicas", workers]
        load = [*LOAD[:6], *chosen, "--tensor-parallel", 3, *pools[-2:], "--rate", 10, 40, 300, 2000, *SLO]
        name = f"3 x nvidia-h100 disaggregated (prefill_devices {on}, prefill_replicas {workers}, decode_replicas 2)"
        attained = {
            run["rate_per_s"]: next(one["value"] for one in run["metrics"] if one["name"] == "slo_attainment")
            for run in call("simulate", "--hardware", "nvidia-h100", *load, "--json").json["runs"]
        }
        carried = [rate for rate, _ in takewhile(lambda entry: entry[1] >= 0.9, attained.items())]
        if carried:
            costs[name] = 1000 * 2 * (on * workers + (3 - on) * 2) / 3600 / carried[-1]
            assert {tried["rate_per_s"]: tried["attainment"] for tried in rows[name]["tried"]} == pytest.approx(
                {rate: attained[rate] for rate in carried}
            )
    assert {name: row["cost"] for name, row in rows.items()} == pytest.approx(costs)
    assert list(rows) == sorted(costs, key=lambda name: (costs[name], name))
    assert len(costs) > 1


def test_the_fewest_devices_and_the_most_requests_a_device_are_goals_too(call: Run) -> None:
    rows = {
        objective: call(*SEARCH, *SETTINGS, "--objective", objective, "--json").json["settings"]
        for objective in ("cost", "devices", "goodput")
    }
    assert len(rows["devices"]) == len(rows["cost"])
    assert [row["devices"] for row in rows["devices"]] == sorted(row["devices"] for row in rows["cost"])
    goodput = [row["rate_per_s"] * row["tried"][-1]["attainment"] / row["devices"] for row in rows["goodput"]]
    assert goodput == sorted(goodput, reverse=True)


def test_a_search_that_was_killed_goes_on(call: Run, tmp_path: Path) -> None:
    """Half of a line, as a kill leaves it, is written again; nothing that is there is simulated twice."""
    results = tmp_path / "results.jsonl"
    whole = call(*SEARCH, *SETTINGS, "--results", results, "--json")
    lines = results.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) > 6
    results.write_text("".join(lines[:3]) + lines[3][:20], encoding="utf-8")
    again = call(*SEARCH, *SETTINGS, "--results", results, "--json")
    assert "npubench: 3 simulations are in" in again.err
    assert again.json == whole.json
    after = _lines(results)
    assert after[:3] == lines[:3]
    assert len(_simulated(after)) == len(after)
    more = call(*SEARCH, *SETTINGS, "--results", results, "--rate", 20, "--json")
    assert f"npubench: {len(after)} simulations are in" in more.err
    other = call(*SEARCH, *SETTINGS, "--results", results, "--seed", 1, "--json")
    assert "are in" not in other.err  # another load


def _simulated(lines: Sequence[str]) -> set[tuple[str, float]]:
    entries = [json.loads(line) for line in lines]
    return {(entry["key"], entry["rate_per_s"]) for entry in entries}


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
    assert f"npubench: {len(kept)} simulations are in" in again.err
    assert again.json == call(*SEARCH, *settings, "--json").json
    assert len(_simulated(_lines(results))) == len(_lines(results))


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
        slo_ttft_s=1.0,
        slo_tbt_s=1.0,
        attainment=0.9,
        seed=0,
        expert_parallel=False,
    )
    one = Candidate(hardware="mine", tensor_parallel=1, data_parallel=1, policy="chunked", settings=())
    monkeypatch.setattr(searched_settings, "folders_of_runs", lambda: [tmp_path])
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


def test_all_settings_serve_the_same_requests(call: Run, tmp_path: Path) -> None:
    """None is longer than the model's context; a device whose cache does not hold the longest is not served."""
    config = {**config_of(decoder_shape("small-moe"), "bf16"), "max_position_embeddings": 600}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    load = ["--model", path, *LOAD[2:6], "--rate", 10, *SLO, "--policy", "chunked"]
    (run,) = call("simulate", "--hardware", "nvidia-h100", *load, "--json").json["runs"]
    value = next(one["value"] for one in run["metrics"] if one["name"] == "slo_attainment")
    small = small_device(tmp_path, decoder_shape("small-moe"), 400)
    done = call(
        "search", "--hardware", "nvidia-h100", small, *load, "--objective", "devices", "--processes", 1, "--json"
    )
    assert done.status == 0, done.err
    (row,) = done.json["settings"]
    assert row["tried"][-1]["attainment"] == pytest.approx(value)
    told = call("search", "--hardware", "nvidia-h100", small, *load, "--objective", "devices", "--processes", 1)
    assert re.search(
        r"not served: 1 x small chunked: a request of \d+ tokens; its KV cache holds \d+", told.err + told.out
    )


def test_what_is_doubted_of_the_model_is_said(call: Run, tmp_path: Path) -> None:
    """As `npubench simulate` says it: in words, in JSON and on the page."""
    path, page = tmp_path / "config.json", tmp_path / "page.html"
    path.write_text(json.dumps(config_of(decoder_shape("small-moe"), "bf16") | {"surprising_key": 5}), encoding="utf-8")
    search = ["search", "--hardware", "nvidia-h100", "--model", path, *LOAD[2:6], "--rate", 10, *SLO]
    search += ["--policy", "chunked", "--processes", 1]
    words = "config.json: surprising_key: not read, whatever that changes"
    assert call(*search, "--output", page, "--json").json["doubts"] == [words]
    assert words in page.read_text(encoding="utf-8")
    assert f"doubt: {words}" in call(*search).out
    assert call(*SEARCH, "--policy", "chunked", "--json").json["doubts"] == []


def test_requests_that_no_context_holds_are_counted(call: Run, tmp_path: Path) -> None:
    """The rest of the load is another load."""
    path = tmp_path / "config.json"
    short = config_of(decoder_shape("small-moe"), "bf16") | {"max_position_embeddings": 2048}
    path.write_text(json.dumps(short), encoding="utf-8")
    search = ["search", "--hardware", "nvidia-h100", "--model", path, *LOAD[2:6], "--rate", 10, *SLO]
    (words,) = call(*search, "--policy", "chunked", "--processes", 1, "--json").json["doubts"]
    assert re.fullmatch(r"\d+ of \d+ requests are longer than the context of 2048 tokens, and left out", words)


def test_where_none_attains_the_closest_is_named(call: Run) -> None:
    tight = ["--slo-ttft", "1ms", "--slo-tbt", "60ms"]
    done = call("search", "--hardware", "nvidia-h100", *LOAD, "--policy", "chunked", *tight, "--processes", 1)
    assert done.status == 1
    assert "no setting attains 90%; the closest is 1 x nvidia-h100 chunked with" in done.err
    assert "TTFT is what it misses more" in done.err


def test_a_trace_in_no_known_unit_is_searched_for_its_lengths(call: Run, tmp_path: Path) -> None:
    """Its stamps have a fraction, as seconds, and its ids are of 512 tokens, as in milliseconds."""
    rows = [{"timestamp": at, "input_length": 521, "output_length": 9, "hash_ids": [1, 2]} for at in (61.5, 121.5)]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    load = ["--model", "small-moe", "--workload", path, "--num-requests", 5, "--rate", 10, *SLO]
    done = call("search", "--hardware", "nvidia-h100", *load, "--policy", "chunked", "--processes", 1)
    assert (done.status, "best: 1 x nvidia-h100 chunked" in done.out) == (0, True), done.err


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (["--policy", "chunkd"], 2, "no scheduling policy 'chunkd'"),
        (["--price", "nvidia-a100=3"], 2, "none of --hardware is named so"),
        (["--price", "nvidia-h100=-1"], 2, "want a price above 0"),
        (["--workload", "nothing"], 2, "no workload is named 'nothing'"),
        (["--results", "BROKEN"], 2, "line 1: no result of a search"),
        (["--model", "gpt-oss-120b"], 1, "none of 1 settings can be served: unknown decoder shape"),
        ([*NOWHERE, "--price", "none.toml=1"], 0, "not served: 1 x none chunked: none.toml"),
        (["--decode-replicas", "2"], 2, "--decode-replicas is of --policy disaggregated"),
        (["--policy", "disaggregated", "--prefill-replicas", "0"], 2, "argument --prefill-replicas: "),
        (["--policy", "disaggregated", "--decode-replicas", "1025"], 2, "argument --decode-replicas: "),
        (["--policy", "disaggregated", "--prefill-devices", "1"], 0, "none of 1 devices is left to decode"),
        (["--hardware", "nvidia-a100"], 2, "nvidia-h100 has no price, so that its cost cannot be ranked"),
        (["--hardware", "nvidia-a100", "--price", "nvidia-h100=2"], 2, "nvidia-a100 has no price"),
        (["--hardware", "nvidia-a100", "--objective", "goodput"], 0, "best: 1 x nvidia-"),
    ],
)
def test_what_cannot_be_searched_is_said(call: Run, tmp_path: Path, change: list[str], status: int, words: str) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{}\n", encoding="utf-8")
    change = [str(broken) if word == "BROKEN" else word for word in change]
    done = call(*SEARCH, "--policy", "chunked", *change)
    assert done.status == status, done.err
    assert words in done.out + done.err
