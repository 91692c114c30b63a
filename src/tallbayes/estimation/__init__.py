"""The door."""
