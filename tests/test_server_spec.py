"""The [server] table of a hardware file: what it reads to, what it leaves out, and every error with its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import HardwareFileError
from pytest_npubench.suites.hardware_files import load_all, load_hardware
from pytest_npubench.suites.scheduling.spec import ServingSpec
from pytest_npubench.suites.server.spec import Asking, ServerSpec

GOOD = """
title = "A server of the tests"
family = "server"
[probe]
match = ['.*']
[server]
[[server.load]]
workload = "chat"
rates_per_s = [1, 2.5]
[[server.load]]
workload = "mail"
rates_per_s = [0.5]
[server.profile.quick]
workloads = ["chat"]
num_requests = 20
min_rounds = 2
max_rounds = 3
budget_s = 60
[server.profile.nightly]
num_requests = 100
min_rounds = 2
max_rounds = 3
budget_s = 600
[server.profile.full]
num_requests = 200
min_rounds = 2
max_rounds = 3
budget_s = 6000
"""


def read(folder: Path, old: str = "", new: str = ""):
    assert old in GOOD
    path = folder / "mine.toml"
    path.write_text(GOOD.replace(old, new, 1) if old else GOOD, encoding="utf-8")
    return load_hardware(path)


def test_a_server_file_has_loads_and_sizes_and_no_buckets(tmp_path: Path) -> None:
    spec = read(tmp_path)
    assert spec.section(ServerSpec) is not None
    assert spec.markers == ("server",)
    assert [(load.workload, load.rate_name) for load in spec.section(ServerSpec).loads] == [
        ("chat", "r1"),
        ("chat", "r2.5"),
        ("mail", "r0.5"),
    ]
    assert spec.section(ServerSpec).asking == Asking()
    assert spec.section(ServerSpec).asking.fields == {"ignore_eos": True}
    assert spec.section(ServerSpec).attainment == 0.9
    assert spec.section(ServerSpec).size("quick").workloads == ("chat",)
    assert spec.section(ServerSpec).size("full").workloads == ("chat", "mail")
    assert (spec.buckets, spec.models, spec.batch_sizes, spec.section(ServingSpec)) == ((), (), (), None)
    assert spec.section(ServerSpec).size("nightly").budget_s == 600


def test_every_setting_is_read(tmp_path: Path) -> None:
    settings = (
        '[server]\napi = "chat"\nprompt = "words"\ntoken_ids = [5, 9]\nmax_total_tokens = 64\nattainment = 1.0\n'
        "connect_timeout_s = 1\nidle_timeout_s = 2\nanswer_timeout_s = 3\n"
        "[server.extra_body]\ntop_k = 1\nstop = []\n"
    )
    spec = read(tmp_path, "[server]\n", settings)
    assert spec.section(ServerSpec) is not None
    assert spec.section(ServerSpec).asking == Asking(
        api="chat",
        prompt="words",
        token_ids=(5, 9),
        extra_body={"top_k": 1, "stop": []},
        max_total_tokens=64,
        connect_timeout_s=1.0,
        idle_timeout_s=2.0,
        answer_timeout_s=3.0,
    )
    assert spec.section(ServerSpec).attainment == 1.0


def test_the_chat_api_takes_words_unless_asked(tmp_path: Path) -> None:
    spec = read(tmp_path, "[server]\n", '[server]\napi = "chat"\n')
    assert spec.section(ServerSpec) is not None
    assert spec.section(ServerSpec).asking.prompt == "words"


@pytest.mark.parametrize(
    ("dialect", "extra_body", "api", "fields"),
    [
        ("", None, "completions", {"ignore_eos": True}),
        ("", {}, "completions", {}),
        ("vllm", {"min_p": 1}, "completions", {"ignore_eos": True, "min_p": 1}),
        ("tgi", None, "chat", {"temperature": None, "stream_options": {"include_usage": True}}),
        ("ollama", {"stream_options": None}, "chat", {"stream_options": None}),
    ],
)
def test_a_dialect_is_an_api_and_fields_that_extra_body_goes_before(dialect, extra_body, api, fields) -> None:
    asking = Asking(dialect=dialect, extra_body=extra_body)
    assert (asking.api, asking.fields) == (api, fields)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[server]\n", '[server]\napi = "responses"\n', "server.api: want one of completions, chat"),
        ("[server]\n", '[server]\napi = "chat"\nprompt = "tokens"\n', "server.prompt: the chat API takes no token ids"),
        ("[server]\n", "[server]\ntoken_ids = [1, 2, 3]\n", "server.token_ids: want the first and the last id"),
        ("[server]\n", "[server]\ntoken_ids = [9, 5]\n", "server.token_ids: 9 is followed by 5"),
        ("[server]\n", "[server]\nextra_body = 3\n", "server.extra_body: want a table"),
        ("[server]\n", "[server]\nextra_body = {stream = false}\n", "server.extra_body: stream is not for it to say"),
        ("[server]\n", "[server]\nextra_body = {max_tokens = 3}\n", "server.extra_body: max_tokens is the workload's"),
        ("[server]\n", '[server]\ndialect = "x"\n', "server.dialect: want one of openai, vllm"),
        ("[server]\n", "[server]\nextra_body = {at = 2026-01-01}\n", "server.extra_body: want what JSON can hold"),
        ("[server]\n", "[server]\nattainment = 1.5\n", "server.attainment: want a finite number above 0 and up to 1"),
        ("[server]\n", "[server]\nanswer_timeout_s = 0\n", "server.answer_timeout_s: want a finite number above 0"),
        ("[server]\n", "[server]\nkey = 'sk-1'\n", "server.key: unknown key"),
        ("rates_per_s = [1, 2.5]", "rates_per_s = []", r"server.load[0].rates_per_s: want a list"),
        ("rates_per_s = [1, 2.5]", "rates_per_s = [2, 1]", "each larger than the one before"),
        ("rates_per_s = [1, 2.5]", "rates_per_s = [0, 1]", "rates above 0"),
        ("rates_per_s = [1, 2.5]", "rates_per_s = [true]", "rates above 0"),
        ("rates_per_s = [1, 2.5]", "rates_per_s = [inf]", "rates above 0"),
        ("rates_per_s = [1, 2.5]", "rates_per_s = [1, 1.0000001]", "each larger than the one before"),
        ('workload = "mail"', 'workload = "chat"', "a second entry for chat"),
        ('workloads = ["chat"]', 'workloads = ["letters"]', "unknown letters; allowed: chat, mail"),
        ("[server.profile.full]", "[server.profile.huge]", "server.profile.huge: unknown key"),
        ("min_rounds = 2", "min_rounds = 1", "a whole number of at least 2"),
        ("[probe]", "[buckets]\nset = [1]\n[probe]", "buckets: unknown key"),
        ('family = "server"', 'family = "cpu"', "server: unknown key"),
    ],
)
def test_a_wrong_entry_names_file_key_and_what_is_allowed(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(HardwareFileError) as raised:
        read(tmp_path, old, new)
    assert words in str(raised.value)
    assert "mine.toml" in str(raised.value)


def test_a_file_without_loads_says_so(tmp_path: Path) -> None:
    start = GOOD.index("[[server.load]]")
    stop = GOOD.index("[server.profile.quick]")
    with pytest.raises(HardwareFileError, match=r"server\.load: missing"):
        read(tmp_path, GOOD[start:stop], "")


def test_the_shipped_file_has_limits_for_every_load() -> None:
    spec = load_all([default_directory()])["openai-server"]
    assert spec.section(ServerSpec) is not None
    assert all(spec.slo_for("any", load.workload) for load in spec.section(ServerSpec).loads)
