"""Commit of attention rows: the accepted path moves to the front."""

from drafttree.ops.kv_commit.gather import commit_rows
from drafttree.ops.kv_commit.naive import commit_rows_naive
from drafttree.ops.kv_commit.paged import PagedCaches, commit_paged_rows

__all__ = ["PagedCaches", "commit_paged_rows", "commit_rows", "commit_rows_naive"]
