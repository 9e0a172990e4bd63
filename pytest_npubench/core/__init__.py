"""The records that flow between all other folders, and what reads and shows text safely."""
