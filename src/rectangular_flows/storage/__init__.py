"""Files: the one atomic writer, what a folder holds, who may write to it, and models on disk."""
