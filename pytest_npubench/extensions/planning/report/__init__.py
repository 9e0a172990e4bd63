"""The pages of `npubench simulate` and `search`."""
