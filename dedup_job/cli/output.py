"""Results of commands on stdout, as text or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from dedup_job.errors import StorageFull
from dedup_job.report.terminal_text import colour_text, has_colours, to_json_line

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Output:
    """Prints results to stdout, as text or JSON; everything else goes to stderr."""

    as_json: bool

    def show(self, text: str, values: dict[str, Any], exit_code: int = 0) -> int:
        """Print a result, and return the exit code; a closed pipe is no error, as the work is done.

        Args:
            text: The result for people.
            values: The result as JSON values; the exit code is added.
            exit_code: The exit code of the command.

        Raises:
            StorageFull: If stdout cannot be written.
        """
        shown = to_json_line({**values, "exit_code": exit_code}) if self.as_json else text
        self._print(shown, "the work is done, but its report cannot be written")
        return exit_code

    def stream(
        self, items: Iterable[Item], text: Callable[[Item], str], values: Callable[[Item], dict[str, Any]]
    ) -> bool:
        """Print some results at once, one per line.

        Args:
            items: The results.
            text: Returns the text of a result.
            values: Returns the JSON values of a result.

        Returns:
            Whether anybody is still reading.

        Raises:
            StorageFull: If stdout cannot be written.
        """
        lines = [to_json_line(values(item)) if self.as_json else text(item) for item in items]
        return self._print("\n".join(lines), "the answers cannot be written")

    def _print(self, shown: str, problem: str) -> bool:
        """Print text or JSON; return whether anybody is still reading.

        Args:
            shown: The text or JSON.
            problem: The beginning of the message if stdout cannot be written.
        """
        try:
            click.echo(colour_text(shown) if not self.as_json and has_colours() else shown)
        except BrokenPipeError:
            return False
        except OSError as error:
            raise StorageFull(f"{problem}: {error.strerror}") from error
        return True
