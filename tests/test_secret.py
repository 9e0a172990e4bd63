"""What keeps a secret from being shown, and what finds one in text that nobody parsed."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass

import pytest

from pytest_npubench.core.secret import Secret, masked


@dataclass(frozen=True)
class Holder:
    name: str
    secret: Secret


def test_a_secret_shows_itself_nowhere() -> None:
    holder = Holder("db", Secret("s3cret"))
    for text in (repr(holder), str(holder.secret), f"{holder.secret}", f"{holder.secret!r}"):
        assert "s3cret" not in text
    with pytest.raises(TypeError):
        json.dumps({"secret": holder.secret})
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(holder)
    assert holder.secret.reveal() == "s3cret"
    assert holder == Holder("db", Secret("s3cret")) != Holder("db", Secret("other"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ann:s3cret@db/bench?sslpassword=s3cret", "postgresql://ann:***@db/bench?sslpassword=***"),
        ("postgresql://ann@host:s3cret@db", "postgresql://***@db"),
        ("postgresql:/ann:s3cret@db", "postgresql:/ann:***@db"),
        ("host=db password=s3cret dbname=bench", "host=db password=***"),
        ("http://ann:s3c/r@et@db/", "http://ann:***@db/"),
        ("suites/test_a.py::test[b@0]", "suites/test_a.py::test[b@0]"),
        ("http://db:8000/v1", "http://db:8000/v1"),
        ("postgresql://ann@db/bench", "postgresql://ann@db/bench"),
    ],
)
def test_a_password_in_text_that_nobody_parsed_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown
