"""Ask a person before something is changed."""

from __future__ import annotations

import sys

import click

from dedup_job.errors import UsageError


def confirm(about: str, question: str) -> None:
    """Show a plan of action, and ask; raise UsageError unless a person says yes."""
    check_terminal()
    click.echo(about, err=True)
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort:
        # The input has ended; the next line must not follow the question on its line.
        click.echo(err=True)
    raise UsageError("nothing was done")


def check_terminal() -> None:
    """Raise UsageError if there is no terminal."""
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on: add --yes, or --dry-run to see what it would do")
