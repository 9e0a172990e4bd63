"""What people read: a table in the terminal, an HTML page. Both take the case records of a journal."""
