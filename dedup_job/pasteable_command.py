"""Commands of this program as lines that a user can paste."""

from __future__ import annotations

import shlex

import click
from click.core import ParameterSource


def command_line(command: str) -> str:
    """Return a command with the program's name, and with the `-c FILE` of the running command.

    A settings file that the running command found by itself is found by the next command, too.

    >>> command_line("undo 20261123T021500-9f3c")
    'dedup-job undo 20261123T021500-9f3c'
    """
    context = click.get_current_context(silent=True)
    if context is None or context.get_parameter_source("config") is not ParameterSource.COMMANDLINE:
        return f"dedup-job {command}"
    name, space, rest = command.partition(" ")
    return f"dedup-job {name} -c {shlex.quote(str(context.params['config']))}{space}{rest}"
