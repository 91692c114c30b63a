"""The rows: one table, in memory or on disk."""
