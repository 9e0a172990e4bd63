"""`npubench simulate`, `search` and `calibrate`."""
