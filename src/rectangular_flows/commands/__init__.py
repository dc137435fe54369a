"""What each command of ``rnf`` does."""
