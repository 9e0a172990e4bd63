"""npubench history: uploading, listing, trends and changes of level, as a person and as a script reads them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from comparison.made_nights import metric, write_session
from reports.journals import make_plan, measure, write_run
from store.history.made_journals import redated
from store.journal_lines import read_lines, write_lines

from pytest_npubench.cli.arguments import sparkline
from pytest_npubench.errors import ConfigError
from pytest_npubench.store.journal import read_journal

from .conftest import Answer

Run = Callable[..., Answer]
CASE = "buckets/profile/cpu-tiny-llama-b1-bucket128"
NUM_OLD = 4


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight nights, in which decoding in bucket 128 takes a third longer from driver 580.12 on."""
    path = tmp_path_factory.mktemp("nights") / "journal.jsonl"
    for night in range(2 * NUM_OLD):
        slow = (1.0 if night < NUM_OLD else 1.3) * (1 + 0.001 * (-1) ** night)
        write_run(path, measure(make_plan(), slow={"profile/128/33": slow}))
    lines = read_lines(path)
    night = -1
    for line in lines:
        if line["record"] == "session":
            night += 1
            line["started_at"] = f"2026-11-{night + 1:02}T02:00:00+00:00"
        if night >= NUM_OLD and line["record"] == "device":
            line["fingerprint"]["device"]["driver"] = "580.12"
            line["digest"] = f"new{line['digest']}"
        if night >= NUM_OLD and line["record"] == "case":
            line["fingerprint"] = f"new{line['fingerprint']}"
    write_lines(path, lines)
    return path


@pytest.fixture
def history(nights: Path, tmp_path: Path, call: Run) -> str:
    url = str(tmp_path / "history.db")
    answer = call("history", "upload", str(nights), "--history", url)
    assert answer.status == 0, answer.err
    assert answer.out.startswith(f"uploaded {nights}: 8 sessions (8 new, 0 grown), 72 cases and ")
    return url


def test_uploading_again_writes_nothing(nights: Path, history: str, call: Run) -> None:
    answer = call("history", "upload", str(nights), str(nights), "--history", history)
    assert answer.out.count("8 sessions (0 new, 0 grown), 0 cases and 0 metrics written") == 2


def test_the_default_place(nights: Path, tmp_path: Path, call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("history", "upload", str(nights)).status == 0
    assert (tmp_path / ".npubench" / "history.db").is_file()
    assert call("history", "list").out.count("\n") == 9


def test_the_place_that_runs_here_have(
    nights: Path, tmp_path: Path, call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.npubench]\nhistory = "of-runs.db"\n', encoding="utf-8")
    assert call("history", "upload", str(nights)).status == 0
    assert (tmp_path / "of-runs.db").is_file()
    assert call("history", "list").out.count("\n") == 9
    assert call("site", "-o", "site").status == 0
    assert call("compare", "history:", "--by", "driver").status in (0, 1, 3)
    assert "other.db: no such file" in call("history", "list", "--history", "other.db").err


def test_list_is_newest_first_and_narrowed(nights: Path, history: str, call: Run) -> None:
    ids = [session.id for session in read_journal(nights).sessions]
    found = call("history", "list", "--history", history, "--json").json["sessions"]
    assert [item["session"] for item in found] == ids[::-1]
    assert found[0]["keys"][0]["driver"] == "580.12"
    assert sum(found[0]["verdicts"].values()) == 9
    for arguments, wanted in (
        (("--limit", "2"), ids[:-3:-1]),
        (("--where", "driver=570.86"), ids[3::-1]),
        (("--where", "driver=570.86", "--where", "host=bench-2"), []),
        (("--since", "2026-11-07"), ids[:-3:-1]),
        (("--since", "2026-11-08T04:00:00+02:00"), ids[:-2:-1]),
    ):
        answer = call("history", "list", "--history", history, "--json", *arguments)
        assert [item["session"] for item in answer.json["sessions"]] == wanted, arguments
    text = call("history", "list", "--history", history).out
    assert f"{ids[-1]}  bench-1  0123456789ab  0 " in text
    assert call("history", "list", "--history", history, "--since", "2027-01-01").out == "no sessions\n"


def test_show_marks_the_change_and_what_changed_with_it(nights: Path, history: str, call: Run) -> None:
    answer = call("history", "show", CASE, "--metric", "tbt_s", "--history", history)
    assert answer.status == 0, answer.err
    head, place, columns, *rows = answer.out.splitlines()
    assert head == f"{CASE}  tbt_s (lower is better)"
    assert re.search(r"  [▁▂]{4}[▇█]{4}$", place)
    assert len(rows) == 8
    place = columns.index("WHAT CHANGED")
    notes = [row[place:] for row in rows]
    assert re.fullmatch(
        r"CHANGE 1\.8\d* ms -> 2\.4\d* ms \(\+3\d\.\d %, worse\); driver 570\.86 -> 580\.12", notes[NUM_OLD]
    )
    assert not any(note for index, note in enumerate(notes) if index != NUM_OLD)


def written(path: Path, session: str, cases: dict[str, dict[str, object]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of that name, whose cases have these verdicts."""
    monkeypatch.setattr("pytest_npubench.store.journal.new_id", lambda: session)
    metrics = {case: {"tbt_s": metric([1.0], verdict=verdict)} for case, verdict in cases.items()}
    write_session(path, metrics, verdict=next(iter(cases.values())))


def test_show_says_since_when_a_metric_is_changed_and_when_that_went(
    tmp_path: Path, call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, url, first = tmp_path / "journal.jsonl", str(tmp_path / "history.db"), "20260102T000000-a"
    same, red = {"kind": "unchanged", "reason": ""}, {"kind": "regressed", "reason": "", "since": first}
    gone_then = {**same, "since": first}  # as the gate writes it in the night in which the change is gone
    for day, verdict in enumerate((same, red, red, {"kind": "no-baseline", "reason": ""}, gone_then, same), 1):
        written(path, f"2026010{day}T000000-a", {CASE: verdict}, monkeypatch)
    assert call("history", "upload", str(path), "--history", url).status == 0
    lines = call("history", "show", CASE, "--history", url).out.splitlines()[2:]
    place = lines[0].index("WHAT CHANGED")
    red_text, gone = "regressed since 2026-01-02", "as before 2026-01-02 again"
    assert [line[place:] for line in lines[1:]] == ["", red_text, red_text, "", gone, ""]
    (series,) = call("history", "show", CASE, "--history", url, "--json").json["series"]
    assert [point["gone"] for point in series["points"]] == [None] * 4 + [first, None]


@pytest.mark.parametrize(("other", "num_judged"), [("two", 3), ("one", None), ("later", None)])
def test_list_holds_the_parts_of_a_night_together(
    other: str, num_judged: int | None, tmp_path: Path, call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not runs of one case, and not those of another day."""
    path, url = tmp_path / "journal.jsonl", str(tmp_path / "history.db")
    same = {"kind": "unchanged", "reason": ""}
    written(path, "20260101T000000-a", {"s/k/one": {"kind": "regressed", "reason": "", "alarms_among": 2}}, monkeypatch)
    cases = ("s/k/one", "s/k/three") if other == "one" else ("s/k/two", "s/k/three")
    written(path, "20260101T020000-b", dict.fromkeys(cases, same), monkeypatch)
    redated(path, ["2026-01-01T00:00:00+00:00", f"2026-01-0{2 if other == 'later' else 1}T02:00:00+00:00"])
    call("history", "upload", str(path), "--history", url)
    found = call("history", "list", "--history", url, "--json").json["in_doubt"]
    assert [one["num_judged"] for one in found] == [num_judged] * (num_judged is not None)
    text = "in doubt: s/k/one tbt_s is regressed by 20260101T000000-a alone, and not among the 3 metrics of all 2"
    assert (text in call("history", "list", "--history", url).out) is bool(found)


def test_show_says_every_metric_and_since(history: str, call: Run) -> None:
    answer = call("history", "show", CASE, "--history", history, "--since", "2026-11-07")
    assert {line.split()[1] for line in answer.out.splitlines() if line.startswith(CASE)} == {
        "compile_s",
        "tbt_s",
        "ttft_s",
    }
    assert answer.out.count("2026-11-0") == 3 * 2
    assert call("history", "show", CASE, "--history", history, "--since", "2027-01-01").out == "no session since then\n"


def test_show_as_json(history: str, call: Run) -> None:
    (series,) = call("history", "show", CASE, "--metric", "tbt_s", "--history", history, "--json").json["series"]
    assert [point["median"] > 0.0021 for point in series["points"]] == [False] * 4 + [True] * 4
    (change,) = series["changes"]
    assert change["session"] == series["points"][NUM_OLD]["session"]
    assert change["ratio"] == pytest.approx(change["after"] / change["before"])


def test_a_case_by_a_short_name(history: str, call: Run) -> None:
    wanted = call("history", "show", CASE, "--history", history).out
    assert call("history", "show", "profile/b1-bucket128", "--history", history).out == wanted
    error = call("history", "show", "profile", "--history", history).error
    assert f"profile may be {CASE} or " in error
    assert call("history", "show", "profile/b1-bucket128", "--metric", "tbt_s", "--history", history).out in wanted


def test_what_is_not_there_is_answered_with_what_is(history: str, call: Run) -> None:
    error = call("history", "show", CASE[:-1], "--history", history).error
    assert repr(CASE) in error.partition("; did you mean ")[2].rstrip("?\n").split(" or ")
    error = call("history", "show", CASE, "--metric", "tbt", "--history", history).error
    assert "has no metric 'tbt'; it has compile_s, tbt_s, ttft_s; did you mean 'tbt_s'?" in error
    assert "there are 9 cases" in call("history", "show", "?", "--history", history).error
    assert "cannot select by 'drover'" in call("history", "list", "--where", "drover=1", "--history", history).error
    assert "no such file" in call("history", "changes", "--history", "nowhere.db").error
    assert "want a path ending in .db" in call("history", "list", "--history", "nowhere").error


def test_changes_over_all_cases(history: str, call: Run) -> None:
    found = call("history", "changes", "--history", history, "--json").json["changes"]
    times = [item for item in found if item["unit"] == "s"]
    assert [(item["case"], item["metric"], item["stack"]) for item in times] == [
        (CASE, "tbt_s", ["driver 570.86 -> 580.12"])
    ]
    assert {item["started_at"] for item in found} == {"2026-11-05T02:00:00+00:00"}
    text = call("history", "changes", "--history", history, "--since", "2026-11-05").out
    assert text.count("\n") == 1 + len(found)
    assert "driver 570.86 -> 580.12" in text
    none = call("history", "changes", "--history", history, "--since", "2026-11-06").out
    assert re.fullmatch(r"no change of level in \d+ series\n", none)


@pytest.mark.parametrize(
    "arguments", [("--since", "yesterday"), ("--where", "driver"), ("--where", "=1"), ("--limit", "0"), ("--metric",)]
)
def test_a_wrong_option_is_status_2(arguments: tuple[str, ...], call: Run) -> None:
    assert call("history", "list", *arguments).status == 2


@pytest.mark.parametrize("action", ["upload", "list", "show", "changes"])
def test_every_action_has_help_with_an_example(action: str, call: Run) -> None:
    assert f"example: npubench history {action}" in call("history", action, "--help").out


def test_the_password_is_not_in_an_error(nights: Path, call: Run) -> None:
    error = call("history", "upload", str(nights), "--history", "postgresql://ann:secret@127.0.0.1:1/bench").error
    assert "postgresql://ann:***@127.0.0.1:1/bench" in error
    assert "secret" not in error


def test_the_sparkline_spans_its_values() -> None:
    assert sparkline([1.0, 2.0, 3.0]) == "▁▅█"
    assert (sparkline([5.0, 5.0]), sparkline([5.0, 5.0], flat="▄")) == ("▁▁", "▄▄")
    assert len(sparkline([0.0, 1e-9, 1.0])) == 3


def test_a_part_of_a_wrong_name_is_our_error(history: str) -> None:
    from pytest_npubench.store.history import history_series

    with pytest.raises(ConfigError):
        history_series(history, where={"case": CASE})
