"""Runnable examples on the bundled data."""
