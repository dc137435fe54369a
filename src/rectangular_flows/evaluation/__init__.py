"""How good a run is: its scores, its samples, what it says of other data."""
