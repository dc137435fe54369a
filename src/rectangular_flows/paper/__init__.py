"""Everything that exists to reproduce the paper: its experiments, its algorithm as published, the benchmark of both."""
