"""Damage to journals and baselines is named or harmless: benchmarks/damaged_files.py in small, and any bytes at all."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "damaged_files.py"


@pytest.fixture(scope="module")
def damaged_files():
    spec = importlib.util.spec_from_file_location("damaged_files", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def journal(damaged_files, tmp_path_factory):
    """The bytes of a journal of four sessions, and the records of each."""
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    damaged_files.make_journal(path, num_cases=2)
    written, is_damaged = damaged_files.used(path)
    assert not is_damaged
    return path.read_bytes(), written


def test_no_damage_to_lines_goes_unnoticed(damaged_files, tmp_path):
    for kind, counts in damaged_files.damage_lines(0.2, tmp_path).items():
        assert not [name for name in counts if name.startswith("wrong")], (kind, counts)


def test_a_flipped_bit_is_noticed_without_exception(damaged_files, tmp_path):
    path = tmp_path / "journal.jsonl"
    damaged_files.make_journal(path, num_sessions=2, num_cases=1)
    written, _ = damaged_files.used(path)
    raw, chance = path.read_bytes(), random.Random(1)
    for _ in range(200):
        path.write_bytes(damaged_files.flip_bit(raw, chance))
        assert damaged_files.outcome(path, written) in ("named", "as killed")


def test_no_value_of_another_type_ends_in_a_traceback(damaged_files, tmp_path):
    pytest.importorskip("jinja2")
    ((kind, counts),) = damaged_files.damage_values(0.05, tmp_path).items()
    assert not [name for name in counts if name.startswith("wrong")], (kind, counts)


def test_no_damage_to_baselines_goes_unnoticed(damaged_files, tmp_path):
    for kind, counts in damaged_files.damage_baselines(0.2, tmp_path).items():
        assert not [name for name in counts if name.startswith("wrong")], (kind, counts)


def test_no_bytes_put_over_others_change_what_is_used(damaged_files, journal, tmp_path):
    raw, written = journal
    chance = random.Random(2)
    path = tmp_path / "journal.jsonl"
    for _ in range(300):
        begin = chance.randrange(len(raw))
        instead = chance.choice([chance.randbytes(chance.randrange(40)), b"\n", b"", raw[begin - 200 : begin]])
        path.write_bytes(raw[:begin] + instead + raw[begin + chance.randrange(40) :])
        assert damaged_files.outcome(path, written) in ("named", "as killed", "harmless"), (begin, instead)
