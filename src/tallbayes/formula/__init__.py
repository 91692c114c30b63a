"""The formula door."""
