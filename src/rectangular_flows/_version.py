"""The version, in a file of its own so that the command line can print it without importing torch."""

__version__ = "0.1.0"
