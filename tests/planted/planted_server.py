"""A stand-in of a server that answers as $PLANTED says, while the run lasts; its processes ask the same one."""

from __future__ import annotations

import os

from campaign.server.stand_in import StandIn
from campaign.server.test_answers import NOT_JUDGED, model, says

GARBAGE, _ = NOT_JUDGED["garbage"]
PLANTS = {
    "the_same_to_everybody": lambda prompt, number: model(0, 0),
    "another_model": lambda prompt, number: model((prompt, "another"), 0),
    "garbage": GARBAGE,
}


def install() -> None:
    if "NPUBENCH_SERVER_URL" not in os.environ:
        answer = PLANTS.get(os.environ.get("PLANTED", ""), model)
        os.environ["NPUBENCH_SERVER_URL"] = StandIn(fault=says(answer)).start().url
