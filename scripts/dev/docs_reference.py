"""Writes the two pages of the reference that follow from the code: settings and commands.

    python -m scripts.dev.docs_reference            writes docs/reference/settings.md and commands.md
    python -m scripts.dev.docs_reference --check    exits with 1 if a page is out of date

Types, defaults and bounds come from `dedup_job.config`, options and help from click. What a setting means,
and its example, are in `scripts/dev/docs_settings.py`; a key without an entry is an error.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import click
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from dedup_job.cli import commands
from dedup_job.cli.all_commands import SECTIONS as SECTIONS_OF_COMMANDS
from dedup_job.cli.options import Number
from dedup_job.config import MOST_WHOLE, Settings, keys_of
from dedup_job.preference.preference_rule import PreferRule
from dedup_job.recipe_from_settings import PROFILES
from scripts.dev.docs_settings import INTRODUCTION, MEANINGS, SECTIONS

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
GENERATED = "<!-- Written by `python -m scripts.dev.docs_reference`; edit the script, not this page. -->"
SHARED_OPTIONS = ("config", "assignments", "as_json", "log_format", "verbose", "help")

PROFILE_KEYS: dict[str, tuple[str, ...]] = {
    "match": ("radius", "bands", "rows", "band_radius", "min_similarity", "shingle", "numbers"),
    "recipe": ("bits", "min_terms", "features", "min_length", "tf", "idf", "top"),
}

COMMANDS_INTRODUCTION = """\
# Commands

Every command takes these options; `compile` reads no settings:

| option | meaning |
|---|---|
| `-c`, `--config FILE` | the settings file; default: the file in `DEDUP_CONFIG`, or `dedup-job.toml` |
| `--set SECTION.KEY=VALUE` | change a setting for this command; may be repeated (not for `init`) |
| `--json` | print JSON only, also for an error: [JSON](json.md) |
| `--log json` | write each line of the log as a JSON object |
| `-v`, `--verbose` | log more, with the traceback of an error |
| `-h`, `--help` | show the help of the command |

Results go to standard output, the log to standard error. `dedup-job --version` prints the version.
"""


def main() -> int:
    """Write the pages, or with `--check` return 1 if one is out of date."""
    parser = argparse.ArgumentParser(description="Write the generated pages of the reference.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page differs")
    check = parser.parse_args().check
    outdated = [name for name, text in pages().items() if _read(name) != text]
    for name in outdated:
        print(f"docs/reference/{name} is out of date" if check else f"docs/reference/{name} written")
        if not check:
            (REFERENCE / name).write_text(pages()[name], "utf-8")
    return 1 if check and outdated else 0


def pages() -> dict[str, str]:
    """Return the text of each generated page, by its file name."""
    return {"settings.md": settings_page(), "commands.md": commands_page()}


def section_model(name: str) -> type[BaseModel]:
    """Return the model of a section; of a repeated section, the model of each table."""
    annotation: Any = Settings.model_fields[name].annotation
    model: type[BaseModel] = next(iter(get_args(annotation)), annotation)
    return model


def settings_page() -> str:
    """Return the page of the settings: a table for each section, and the profiles."""
    parts = [INTRODUCTION.replace("# Settings\n", f"# Settings\n\n{GENERATED}\n", 1)]
    for section in SECTIONS:
        rows = [_setting_row(section, key, info) for key, info in keys_of(section_model(section)).items()]
        table = "\n".join(["| key | type | default | meaning | example |", "|---|---|---|---|---|", *rows])
        title = f"[[{section}]]" if section == "reference" else f"[{section}]"
        parts.append(f"## `{title}`\n\n{SECTIONS[section]}\n\n{table}\n")
    parts.append(_profiles())
    return "\n".join(parts)


def commands_page() -> str:
    """Return the page of the commands: usage, help, options and examples of each."""
    parts = [COMMANDS_INTRODUCTION.replace("# Commands\n", f"# Commands\n\n{GENERATED}\n", 1)]
    rows = [
        f"| {section} | {' · '.join(f'[{name}](#{name})' for name in names)} |"
        for section, names in SECTIONS_OF_COMMANDS.items()
    ]
    parts.append("\n".join(["| | commands |", "|---|---|", *rows, ""]))
    names = sorted(commands.commands)
    parts += [_command(name, commands.commands[name]) for name in names]
    return "\n".join(parts)


def _read(name: str) -> str:
    page = REFERENCE / name
    return page.read_text("utf-8") if page.exists() else ""


def _setting_row(section: str, key: str, info: FieldInfo) -> str:
    meaning, example = MEANINGS[section][key]
    default = _default(info)
    if default == "none" and key in PROFILE_KEYS.get(section, ()):
        default = "profile"
    cells = [f"`{key}`", _type(info), default, meaning, f"`{key} = {example}`"]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(info: FieldInfo) -> str:
    annotation: Any = info.annotation
    # `int | None`: None only says that the setting may be absent.
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{json.dumps(value)}`" for value in get_args(annotation))
    if get_origin(annotation) is tuple:
        return "list of rules" if PreferRule in get_args(annotation) else "list of strings"
    if get_origin(annotation) is dict:
        return "table of strings"
    names = {bool: "`true` or `false`", int: "integer", float: "number", Path: "path", str: "string"}
    name = names.get(annotation, "string" if annotation is SecretStr else "path")
    return name + _bounds(info)


def _bounds(info: FieldInfo) -> str:
    words = []
    for bound in info.metadata:
        match bound:
            case annotated_types.Ge(ge):
                words.append(f"≥ {ge:,}")
            case annotated_types.Gt(gt):
                words.append(f"> {gt:,}")
            # The page says once that no integer is larger.
            case annotated_types.Le(le) if le != MOST_WHOLE:
                words.append(f"≤ {le:,}")
    return f" {', '.join(words)}" if words else ""


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if info.default_factory is not None:
        return "one per usable processor" if info.annotation is int else "`{}`"
    match info.default:
        case None:
            return "none"
        case tuple(values):
            return f"`{json.dumps(list(values))}`"
        case float(number) if number.is_integer():
            return f"`{int(number)}`"
        case value:
            return f"`{json.dumps(value)}`"


def _profiles() -> str:
    rows = []
    for section, keys in PROFILE_KEYS.items():
        for key in keys:
            values = [_profile_value(profile, key) for profile in PROFILES.values()]
            rows.append(f"| `[{section}] {key}` | " + " | ".join(values) + " |")
    head = " | ".join(f"`{name}`" for name in PROFILES)
    table = "\n".join([f"| setting | {head} |", "|---" * (len(PROFILES) + 1) + "|", *rows])
    return (
        "## Profiles\n\nA profile gives the values of all settings in `[recipe]` and `[match]` that the file "
        f"does not set.\n\n{table}\n"
    )


def _profile_value(profile: Any, key: str) -> str:
    for holder in (profile, profile.matching, profile.terms):
        if hasattr(holder, key):
            value = getattr(holder, key)
            return "3 or 5, by script" if key == "shingle" and value is None else f"`{json.dumps(value)}`"
    raise KeyError(key)


def _command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"dedup-job {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    text, _, examples = inspect.cleandoc(command.help or "").partition("\b\n")
    own = [option for option in command.params if option.name not in SHARED_OPTIONS]
    rows = [
        f"| `{', '.join(option.opts)}{_metavar(option, context)}` | {_option_help(option)} |"
        for option in own
        if isinstance(option, click.Option)
    ]
    parts = [f"## {name}", f"    dedup-job {name} {usage}", _prose(text)]
    if rows:
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    if examples:
        lines = [line.strip() for line in examples.strip().splitlines() if line.strip()]
        code = [f"    {line}" for line in lines[1:]]
        parts += [lines[0], "\n".join(code)]
    return "\n\n".join(parts) + "\n"


def _prose(text: str) -> str:
    """Join the lines of each paragraph of a help text."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def _metavar(option: click.Option, context: click.Context) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return " " + "\\|".join(map(str, option.type.choices))
    plain = {click.IntRange: "N", Number: "N"}
    return " " + (option.metavar or plain.get(type(option.type), option.make_metavar(context)))


def _option_help(option: click.Option) -> str:
    words = option.help or ""
    # The help says `[default: 5000]` by itself where the option asks for it.
    if option.show_default and option.default is not None and not option.is_flag:
        words = f"{words} Default: {option.default}.".strip()
    return words.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
