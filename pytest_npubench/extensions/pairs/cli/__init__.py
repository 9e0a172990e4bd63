"""`npubench partition`: a module for the command, and one for each group of its actions."""
