"""The work folder on its file system, which may be HDFS or S3: the names of its files."""

from __future__ import annotations

from urllib.parse import unquote

from dedup_job.config import WILDCARDS


def escape_wildcards(path: str) -> str:
    r"""Escape the characters that Spark reads as a pattern when it reads a path, but not when it writes it.

    >>> escape_wildcards("file:///data/[1]")
    'file:///data/\\[1\\]'
    """
    return WILDCARDS.sub(r"\\\g<0>", path)


def pattern_of(uri: str) -> str:
    """Convert a percent-encoded URI, as Spark lists files, to the pattern that reads this file alone.

    >>> pattern_of("file:///data/a%20b/part-0.parquet")
    'file:///data/a b/part-0.parquet'
    """
    return escape_wildcards(unquote(uri))
