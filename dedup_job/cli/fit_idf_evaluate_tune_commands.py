"""The commands fit-idf, evaluate and tune."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dedup_job.cli.all_commands import commands
from dedup_job.cli.options import (
    COUNT,
    PATH,
    THRESHOLD_OPTION,
    common_options,
    prepare_settings,
    workers_option,
)
from dedup_job.errors import UsageError


@commands.command("fit-idf")
@click.option("--output", type=PATH, default=Path("idf.txt"), show_default=True, help="File to write.")
@click.option(
    "--min-df", type=COUNT, default=2, show_default=True, help="Leave out terms in fewer texts than this."
)
@click.option("--limit", type=COUNT, help="Read at most this many records.")
@workers_option
@common_options
def fit_idf(config: Path, output: Path, min_df: int, limit: int | None, **options: Any) -> int:
    """Learn from the collection how rare terms are.

    Writes a file for the setting `[recipe] idf_table`, and nothing to MongoDB.

    \b
    Example:
      dedup-job fit-idf -c shop.toml --output idf.txt
    """
    from dedup_job.commands.fit_idf import fit_idf as learn
    from dedup_job.config import to_toml
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.output_files import check_file
    from dedup_job.report.progress import Progress

    settings, talk = prepare_settings(config, options, {"--output": output})
    output = output.absolute()
    check_file(output, "--output")
    with Context(settings) as context:
        count = context.source.estimated_matches()
        with Progress("fit-idf", min(limit or count, count), "docs") as progress:
            learned = learn(context, output, min_df, limit, progress.advance)
    text = (
        f"{learned.terms:,} terms of {learned.texts:,} texts in {output} (sha256 {learned.sha256[:12]})\n"
        f"to use it: [recipe] idf_table = {to_toml(str(output))}; a target made with another table must be "
        "rebuilt"
    )
    return talk.show(text, {"output": str(output), **learned.as_json()})


@commands.command()
@click.option("--labels", type=PATH, required=True, help="File with one pair per line: two ids and a label.")
@THRESHOLD_OPTION
@workers_option
@common_options
def evaluate(config: Path, labels: Path, at: float, **options: Any) -> int:
    """Score the settings on labelled pairs.

    Prints precision, recall and F1; writes nothing to MongoDB.

    A pair is two ids, written as for `compare`, and a label: 1 or 0, same or different, true or false, or a
    similarity.  All lines of a file have the form of its first line: separated by tabs, separated by commas,
    or a JSON object with "id1", "id2" and "label".  If several lines name one pair, it counts once;
    their labels must be the same.

    \b
    Example:
      dedup-job evaluate -c shop.toml --labels labels.csv
    """
    from dedup_job.analysis import labelled_pairs
    from dedup_job.commands.evaluate import evaluate as judge
    from dedup_job.config import read_text_file
    from dedup_job.pipeline.command_context import Context

    settings, output = prepare_settings(config, options)
    try:
        # Not `splitlines`: an id may hold characters at which that also splits, such as U+2028.
        lines = read_text_file(labels).split("\n")
    except OSError as error:
        raise UsageError(f"{labels}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{labels}: not a text file in UTF-8") from None
    read = labelled_pairs.read_pairs(lines, at)
    with Context(settings) as context:
        evaluation = judge(context, read)
    return output.show(evaluation.as_text(), evaluation.as_json())


@commands.command()
@click.option(
    "--sample",
    type=click.IntRange(2, 20_000),
    default=5_000,
    show_default=True,
    help="Records to read, in stretches across the collection.",
)
@THRESHOLD_OPTION
@workers_option
@common_options
def tune(config: Path, sample: int, at: float, **options: Any) -> int:
    """Show what other settings would find.

    All texts of a sample are compared with each other; the table shows how many of their near duplicates the
    present settings, each profile, and each threshold would find.  Writes nothing to MongoDB.

    \b
    Example:
      dedup-job tune -c shop.toml --sample 10000
    """
    from dedup_job.commands.tune import tune as try_shapes
    from dedup_job.pipeline.command_context import Context
    from dedup_job.report.progress import Progress

    settings, output = prepare_settings(config, options)
    with Context(settings) as context, Progress("tune", sample, "docs") as progress:
        tuned = try_shapes(context, sample, at, progress.advance)
    return output.show(tuned.as_text(), tuned.as_json())
