"""Programs: functions as values, compiled once, kept on disk, and a canary for the compiler."""
