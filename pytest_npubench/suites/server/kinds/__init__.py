"""The kinds of cases of the server suite: one file each, holding one `KIND`."""
