"""Every trace format on small files, and every way a file can be wrong."""

import gzip
import json
import os
import re

import pytest

from pytest_npubench.campaign import served_load
from pytest_npubench.errors import WorkloadError
from pytest_npubench.suites.buckets.sampling import many_requests
from pytest_npubench.workloads import FORMATS, load, workload

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45.5,GPT-4,1087,0,1087,API log
118,ChatGPT,417,276,693,Conversation log
"""
LENGTHS = "input_tokens,output_tokens\n10,20\n30,40\n"
LLMSERVINGSIM = "input_toks,output_toks,arrival_time_ns\n74,918,1000000000\n290,905,1250000000\n"
PREFILL_DECODE = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n74,918,992,0.08\n290,905,1195,0.32\n"
MOONCAKE = """{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}

{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46]}
"""
SHAREGPT = json.dumps(
    [
        {
            "id": "a",
            "conversations": [
                {"from": "human", "value": "hello there"},
                {"from": "gpt", "value": "hi"},
                {"from": "human", "value": "and again, at more length"},
            ],
        },
        {"id": "b", "conversations": [{"from": "gpt", "value": "nobody asked"}]},
        {"id": "c", "conversations": []},
        {
            "id": "d",
            "conversations": [
                {"from": "system", "value": "be brief"},
                {"from": "human", "value": "12345678"},
                {"from": "gpt", "value": "123456789"},
            ],
        },
    ]
)
FILES = {
    "azure": ("trace.csv", AZURE, ((374, 44), (396, 109)), (0.0, 4.314579)),
    "burstgpt": ("trace.csv", BURSTGPT, ((472, 18), (417, 276)), (0.0, 113.0)),
    "lengths": ("trace.csv", LENGTHS, ((10, 20), (30, 40)), None),
    "prefill-decode": ("trace.csv", PREFILL_DECODE, ((74, 918), (290, 905)), None),
    "llmservingsim": ("trace.csv", LLMSERVINGSIM, ((74, 918), (290, 905)), (0.0, 0.25)),
    "mooncake": ("trace.jsonl", MOONCAKE, ((6955, 52), (6472, 26)), (0.0, 3.053)),
    "sharegpt": ("trace.json", SHAREGPT, ((3, 1), (2, 3)), None),
}


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="trace.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def pairs(found):
    return tuple(zip(found.input_tokens, found.output_tokens, strict=True))


def test_the_table_of_formats_is_tested():
    assert set(FILES) == set(FORMATS)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("file_name", ["its own", "trace", "trace.txt"])
@pytest.mark.parametrize("stated", [True, False])
def test_each_format_is_read_whether_stated_or_found(name, file_name, stated, write):
    own_name, content, wanted, arrival_s = FILES[name]
    path = write(content, own_name if file_name == "its own" else file_name)
    found = load(path, file_format=name if stated else None)
    assert pairs(found) == wanted
    assert found.arrival_s == (None if arrival_s is None else pytest.approx(arrival_s, abs=1e-6))
    assert found.name == path.name
    assert found.source.endswith(f"({name})")
    assert found.kind.startswith("trace")


def test_the_case_of_an_ending_does_not_matter(write):
    assert pairs(load(write(LENGTHS, "TRACE.CSV"))) == ((10, 20), (30, 40))
    assert pairs(load(write(MOONCAKE, "TRACE.JSONL"))) == ((6955, 52), (6472, 26))


@pytest.mark.parametrize("form", [str, lambda path: path])
def test_a_path_is_a_workload(form, write):
    found = workload(form(write(LENGTHS)))
    assert {(request.input_tokens, request.output_tokens) for request in found.sample(50, seed=0).requests} == {
        (10, 20),
        (30, 40),
    }


def _json_lines(*rows):
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    return "".join(
        json.dumps(dict(zip(keys, row, strict=False)) | (row[4] if len(row) > 4 else {})) + "\n" for row in rows
    )


@pytest.mark.parametrize(
    ("rows", "how", "span_s", "note"),
    [
        ([(61.114, 521, 9, list(range(33))), (121.114, 10, 9, [1])], {}, 60.0, "stamps in seconds; ids of 16 tokens"),
        ([(61, 10, 9, [1], {"chat_id": 1}), (121, 10, 9, [1])], {}, 60.0, "stamps in seconds; ids of 16 tokens"),
        ([(61, 521, 9, list(range(33))), (121, 10, 9, [1])], {}, 60.0, "stamps in seconds; ids of 16 tokens"),
        ([(61.5, 521, 9), (121.5, 10, 9)], {}, 60.0, "stamps in seconds"),
        ([(61, 521, 9, [1, 2]), (121, 10, 9, [1])], {}, 0.06, "stamps in milliseconds; ids of 512 tokens"),
        ([(61.0, 521, 9), (121.0, 10, 9)], {}, 0.06, "in milliseconds; as Mooncake's, which nothing in the file shows"),
        ([(61.5, 521, 9, [1, 2]), (121.5, 10, 9, [1])], {"time_unit": "ms"}, 0.06, "in milliseconds; ids of 512"),
        ([(61, 521, 9), (121, 10, 9)], {"time_unit": "us"}, 6e-5, "stamps in microseconds"),
        ([(61, 521, 9, [1] * 9), (121, 10, 9, [1])], {"block_tokens": 64}, 0.06, "ids of 64 tokens"),
        ([(61, 521, 9, None, {"model": "x"}), (121, 1, 9)], {}, 0.06, "not read: model"),
    ],
)
def test_a_file_s_evidence_says_its_unit_and_what_an_id_is(rows, how, span_s, note, write):
    """Mooncake's and Bailian's traces have the same keys."""
    found = load(write(_json_lines(*rows), "trace.jsonl"), **how)
    assert found.arrival_s == pytest.approx((0.0, span_s))
    assert note in found.note
    assert f"2 requests; over {span_s:.4g} s, {1 / span_s:.3g} requests/s" in found.note


def test_lengths_alone_want_no_unit(write):
    path = str(write("input_tokens,output_tokens,stamp\n10,20,5\n"))
    assert [each.tolist() for each in many_requests(path, 2, 64)] == [[10, 10], [20, 20]]
    assert served_load.lengths(path, 2, 0, 64) == ((10, 20), (10, 20))


def test_evidence_that_contradicts_itself_is_asked_about(write):
    path = write(_json_lines((61.5, 521, 9, [1, 2]), (121.5, 10, 9, [1])), "trace.jsonl")
    with pytest.raises(
        WorkloadError, match=r"stamps with a fraction, .* ids of 512 tokens, .*; want --time-unit s or ms"
    ):
        load(path)


@pytest.mark.parametrize("lengths", ["input_tokens,output_tokens", "num_prefill_tokens,num_decode_tokens"])
@pytest.mark.parametrize(
    ("column", "unit_s"), [("arrived_at", 1.0), ("arrival_s", 1.0), ("arrival_ms", 1e-3), ("arrival_time_ns", 1e-9)]
)
def test_a_table_s_arrivals_are_in_the_unit_of_their_column(lengths, column, unit_s, write):
    found = load(write(f"{column},{lengths},tier\n4.0,374,44,a\n8.5,396,109,b\n"))
    assert found.arrival_s == pytest.approx((0.0, 4.5 * unit_s))
    assert found.note.endswith("not read: tier")


def test_times_in_no_known_unit_are_asked_about(write):
    path = write("start_time,input_tokens,output_tokens\n4,374,44\n8,396,109\n")
    with pytest.raises(WorkloadError, match="column 'start_time' seems to hold times, in a unit that is not known"):
        load(path)
    assert load(path, time_unit="ms").arrival_s == pytest.approx((0.0, 0.004))
    with pytest.raises(WorkloadError, match="columns arrival_s, arrived_at all hold arrivals"):
        load(write("arrival_s,arrived_at,input_tokens,output_tokens\n4,4,374,44\n"))


def test_milliseconds_of_a_clock_are_no_seconds(write):
    path = write("arrived_at,input_tokens,output_tokens\n1700000000000,374,44\n1700000004300,396,109\n")
    with pytest.raises(WorkloadError, match="are no seconds; want --time-unit ms, us or ns"):
        load(path)
    assert load(path, time_unit="ms").arrival_s == pytest.approx((0.0, 4.3))


def test_packed_files_are_read(write):
    assert pairs(load(write(gzip.compress(LENGTHS.encode("utf-8-sig")), "trace.csv.gz"))) == ((10, 20), (30, 40))
    assert pairs(load(write(gzip.compress(MOONCAKE.encode()), "t.jsonl.gz"))) == ((6955, 52), (6472, 26))


def test_failed_requests_are_left_out_and_counted(write):
    found = load(write(BURSTGPT))
    assert found.num_unusable == 1
    assert "1 more without a prompt or an answer left out" in found.note
    assert load(write(LENGTHS + "0,5\n5,0\n")).num_unusable == 2
    assert load(write(SHAREGPT, "trace.json")).num_unusable == 2


def test_sharegpt_lengths_are_labelled_approximate_unless_a_tokenizer_is_given(write):
    path = write(SHAREGPT, "trace.json")
    approximate, exact = load(path), load(path, count_tokens=lambda text: len(text.split()))
    assert approximate.kind == "trace, approximate lengths"
    assert "4 characters a token" in approximate.note
    assert (exact.kind, pairs(exact)) == ("trace", ((2, 1), (1, 1)))
    assert "approximated" not in exact.note


def test_a_file_out_of_time_order_is_sorted_by_arrival(write):
    found = load(write("arrival_s,input_tokens,output_tokens\n9,1,1\n2,2,2\n9,3,3\n4.5,4,4\n"))
    assert found.arrival_s == (0.0, 2.5, 7.0, 7.0)
    assert found.input_tokens == (2, 4, 1, 3)


def test_columns_may_stand_anywhere_with_blanks_quotes_and_a_byte_order_mark(write):
    text = '\ufeff"model", output_tokens ,input_tokens\r\n"a, b",20, 10\r\n\r\n"c\nd",40,30\r\n'
    assert pairs(load(write(text))) == ((10, 20), (30, 40))


@pytest.mark.parametrize(
    ("instant", "seconds"),
    [
        ("2023-11-16 18:15:47", 0.31941),
        ("2023-11-16T18:15:47Z", 0.31941),
        ("2023-11-16 18:15:47.000000+00:00", 0.31941),
        ("2023-11-16 20:15:47+02:00", 0.31941),
        ("2023-11-17 00:00:00", 5 * 3600 + 44 * 60 + 13.31941),
    ],
)
def test_instants_of_both_azure_releases_are_read(instant, seconds, write):
    found = load(write(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,1,1\n{instant},2,2\n"))
    assert found.arrival_s == pytest.approx((0.0, seconds), abs=1e-6)


CSV_FAULTS = [
    ("input_tokens,output_tokens\n1,2\n-3,4\n", r"line 3, column 'input_tokens': '-3'; want a whole number of tokens"),
    ("input_tokens,output_tokens\n1,2.5\n", r"line 2, column 'output_tokens': '2.5'; want a whole number"),
    ("input_tokens,output_tokens\n1,nan\n", r"column 'output_tokens': 'nan'"),
    ("input_tokens,output_tokens\n1,\n", r"column 'output_tokens': ''"),
    ("input_tokens,output_tokens\n1_0,2\n", r"column 'input_tokens': '1_0'"),
    ("input_tokens,output_tokens\n٣,2\n", r"column 'input_tokens': '٣'"),
    ("input_tokens,output_tokens\n2147483648,2\n", r"'2147483648'; want a whole number of tokens from 0 to 2147483647"),
    ("input_tokens,output_tokens\n" + "9" * 5000 + ",2\n", r"column 'input_tokens': '9{79}\.\.\.; want"),
    ("input_tokens,output_tokens\n1\n", r"line 2: 1 cells; want 2, as in the header"),
    ("input_tokens,output_tokens\n1,2,3\n", r"line 2: 3 cells; want 2"),
    ('input_tokens,output_tokens\n"1"x,2\n', r"line 2: no valid CSV"),
    ('input_tokens,output_tokens\n"1,2\n', r"no valid CSV"),
    ("input_tokens,output_tokens\n1\x00,2\n", r"line \d: no valid CSV|column 'input_tokens'"),
    ("input_tokens,output_tokens,input_tokens\n1,2,3\n", r"line 1: column 'input_tokens' stands there twice"),
    ("input_tokens,answer\n1,2\n", r"line 1: no known format has the columns input_tokens, answer; want .*burstgpt: "),
    ("1,2\n3,4\n", r"no known format has the columns 1, 2"),
    ("", r"is empty or starts with a blank line"),
    ("\n1,2\n", r"is empty or starts with a blank line"),
    ("input_tokens,output_tokens\n", r"holds no requests"),
    ("input_tokens,output_tokens\n0,5\n5,0\n", r"none of 2 requests has both a prompt and an answer"),
    (b"input_tokens,output_tokens\n\xff\xfe,2\n", r"is not UTF-8 text"),
    (b"\x89PNG\r\n\x1a\n\x00\x00", r"is not UTF-8 text"),
    ("arrival_s,input_tokens,output_tokens\ninf,1,2\n", r"column 'arrival_s': 'inf'; want a finite number"),
    ("arrival_s,input_tokens,output_tokens\n,1,2\n", r"column 'arrival_s': ''; want a finite number"),
    ("TIMESTAMP,ContextTokens,GeneratedTokens\n18:15,1,2\n", r"column 'TIMESTAMP': '18:15'; want a date and time like"),
    (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-30 00:00:00,1,2\n",
        r"column 'TIMESTAMP': '2023-02-30 00:00:00'; want a date and time like",
    ),
]
GOOD_LINE = '{"timestamp": 0, "input_length": 5, "output_length": 6}\n'
MOONCAKE_FAULTS = [
    (GOOD_LINE + '{"timestamp": 1, "input_le', r"line 2: no valid JSON"),
    (GOOD_LINE + "[1, 2]\n", r"line 2: a JSON list; want an object with timestamp, input_length, output_length"),
    ('{"timestamp": 1, "input_length": 5}\n', r"line 1: no 'output_length'; want an object"),
    ('{"timestamp": 1, "input_length": -5, "output_length": 6}', r"line 1, column 'input_length': -5; want a whole"),
    ('{"timestamp": 1, "input_length": 5.0, "output_length": 6}', r"column 'input_length': 5.0"),
    ('{"timestamp": 1, "input_length": true, "output_length": 6}', r"column 'input_length': True"),
    ('{"timestamp": 1, "input_length": 5, "output_length": "6"}', r"column 'output_length': '6'"),
    ('{"timestamp": NaN, "input_length": 5, "output_length": 6}', r"column 'timestamp': nan; want a finite number"),
    ('{"timestamp": null, "input_length": 5, "output_length": 6}', r"column 'timestamp': None"),
    ('{"timestamp": ' + "9" * 5000 + ', "input_length": 5, "output_length": 6}', r"line 1"),
    ("[" * 200_000, r"line 1: no valid JSON"),
    ("", r"holds no requests"),
    (b"\xff\xfe{}", r"is not UTF-8 text"),
]
SHAREGPT_FAULTS = [
    ("[{]", r"no valid JSON \(.*line 1 column 3"),
    ("", r"no valid JSON"),
    ("[" * 200_000, r"no valid JSON"),
    ('{"conversations": []}', r"holds a JSON dict; want a list of conversations"),
    ("[]", r"holds no requests"),
    ("[7]", r"entry 0: no list under 'conversations'"),
    ('[{"conversations": "x"}]', r"entry 0: no list under 'conversations'"),
    ('[{"conversations": [{"from": "human"}]}]', r"entry 0, message 0: want the texts 'from' and 'value'"),
    ('[{"conversations": [{"from": "gpt", "value": "x"}]}]', r"none of 1 requests"),
    (b'["\xff"]', r"is not UTF-8 text"),
]


FAULTS = {"trace.csv": CSV_FAULTS, "trace.jsonl": MOONCAKE_FAULTS, "trace.json": SHAREGPT_FAULTS}


@pytest.mark.parametrize(
    ("name", "content", "want"), [(name, *fault) for name, faults in FAULTS.items() for fault in faults]
)
def test_a_wrong_file_is_refused_with_its_place(name, content, want, write):
    path = write(content, name)
    with pytest.raises(WorkloadError, match=want) as info:
        load(path)
    assert str(path) in str(info.value)


@pytest.mark.parametrize("answer", [-1, 1.5, None, True])
def test_a_tokenizer_that_does_not_count_is_refused(answer, write):
    with pytest.raises(WorkloadError, match=r"entry 0: count_tokens returned"):
        load(write(SHAREGPT, "trace.json"), count_tokens=lambda text: answer)


def test_a_stated_format_names_the_missing_column(write):
    with pytest.raises(WorkloadError, match=r"line 1: column 'TIMESTAMP' is missing; format 'azure' wants TIMESTAMP, "):
        load(write(LENGTHS), file_format="azure")


def test_an_unknown_format_is_refused_with_the_known_ones(write):
    with pytest.raises(WorkloadError, match=r"unknown trace format 'parquet'; want one of: azure, burstgpt"):
        load(write(LENGTHS), file_format="parquet")


@pytest.mark.parametrize("stated", [None, *FORMATS])
def test_what_is_no_file_is_refused(stated, tmp_path):
    with pytest.raises(WorkloadError, match=re.escape(f"{tmp_path} cannot be read: is a folder")):
        load(tmp_path, file_format=stated)
    with pytest.raises(WorkloadError, match=r"no\.csv does not exist"):
        load(tmp_path / "no.csv", file_format=stated)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WorkloadError, match="pipe cannot be read: is a pipe; want a file"):
        load(tmp_path / "pipe", file_format=stated)
