"""Pairs of texts come in as files of the task pair; what these look like goes out as FILES."""

from filbert.tasks.pair.files import FILES

__all__ = ["FILES"]
