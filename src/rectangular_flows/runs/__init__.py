"""Runs: their data, their folders, and launching them."""
