"""Texts with gaps come in as files of the task classify; what these look like goes out as FILES."""

from filbert.tasks.classify.files import FILES

__all__ = ["FILES"]
