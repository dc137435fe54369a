"""Benchmarks, and the algorithm as published that they compare with. Run them by ``rnf bench volume``."""
