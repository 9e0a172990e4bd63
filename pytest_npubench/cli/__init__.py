"""The command line, `npubench`: one file a command, each with `add_parser` and the function that runs it."""
