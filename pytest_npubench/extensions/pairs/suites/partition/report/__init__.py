"""What the suite shows: its charts, tables and sentences."""
