"""What the vendor's own compiler makes of each bucket for a device that is not here."""
