"""Files: the one atomic writer, and models on disk."""
