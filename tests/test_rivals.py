"""benchmarks/rivals.py: how output becomes a cell, and cells a table. The trials themselves need other tools."""

import pytest
import rivals


@pytest.mark.parametrize(
    ("output", "expected"),
    [("read 200.1 50.0", "200.1 and 50.0 ms"), ("Traceback: no such option", "no"), ("", "no")],
)
def test_a_cell_says_what_the_pattern_reads_in_the_output(output, expected):
    assert rivals.cell(("serve", r"read (\S+) (\S+)", "{0} and {1} ms"), output) == expected


def test_a_table_has_the_rows_of_its_tools_and_an_empty_cell_where_nothing_was_tried():
    rows = {"bisects": {"asv": "yes", "npubench": "no"}, "images": {"AIPerf": "yes"}}
    assert rivals.table(rows, ("asv", "ReFrame", "npubench")).splitlines() == [
        "|  | asv | ReFrame | npubench |",
        "| --- | --- | --- | --- |",
        "| bisects | yes |  | no |",
    ]


def test_every_row_names_tools_of_the_tables_and_ours_last():
    for name, trials in rivals.TRIALS.items():
        assert tuple(trials) in (rivals.CODE, rivals.SERVERS), name
    assert tuple(rivals.JUDGED) == rivals.CODE
