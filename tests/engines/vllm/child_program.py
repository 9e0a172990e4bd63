"""A child of test_child: does what it is told, badly where it is told so."""

from __future__ import annotations

import json
import os
import sys
import time
from multiprocessing.connection import Connection


def main() -> None:
    connection = Connection(json.loads(sys.argv[1])["connection_fd"])
    while True:
        name, *values = connection.recv()
        if name == "echo":
            connection.send(("ok", values))
        elif name == "refuse":
            connection.send(("error", values))
        elif name == "die":
            os.write(1, b"something broke\n")
            os._exit(7)
        elif name == "hang":
            time.sleep(600)


main()
