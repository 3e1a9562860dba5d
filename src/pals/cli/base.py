"""What all commands share: the program, how it ends, where it prints, common options."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from pals import __version__
from pals.util.errors import InputError
from pals.util.files import PATTERN, check_readable
from pals.util.interrupt import Interrupt, Stopped, ending_politely
from pals.util.old_names import OldRunWarning
from pals.util.registry import PluginWarning

if TYPE_CHECKING:
    from pals.training.distributed import Ranks
    from pals.util.display import Reporter

STOPPING_RUN = "Stopping after this epoch. Press Ctrl-C again to stop at once."


class Commands(TyperGroup):
    """The commands; one that is stopped, by Ctrl-C or by the system, ends with how to continue."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with ending_politely():
                return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            if not console.quiet:
                errors.print("Stopped. Run the same command to continue from the last checkpoint.")
            sys.exit(stopped.code if isinstance(stopped, Stopped) else 128 + signal.SIGINT)


app = typer.Typer(
    name="pals",
    cls=Commands,
    help="Learn a classifier from ambiguous, noisy labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
console = Console()
errors = Console(stderr=True)

Out = Annotated[Path | None, typer.Option(help="Run folder. Run the same command again to resume.")]
Device = Annotated[str | None, typer.Option(help="Device to use: auto, cpu, cuda, cuda:1 or mps.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", rich_help_panel="Advanced", help="Override any setting, e.g. --set method.delta=0.5. Repeatable."),
]
Plugin = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        rich_help_panel="Advanced",
        is_eager=True,
        callback=lambda paths: _load_plugins(paths),
        help="Python file that adds a method, data set, reader, network or encoder (docs/plugins.md). Repeatable.",
    ),
]
DataDir = Annotated[Path | None, typer.Option(help="Folder that holds the data sets (default: $PALS_DATA).")]


def main() -> None:
    """Entry point: bad input is one sentence and exit code 2, never a traceback."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, warnings.showwarning)
            app()
    except InputError as error:
        errors.print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        if "TORCHELASTIC_ERROR_FILE" in os.environ:
            from pals.runs.torchrun import report_to_torchrun

            report_to_torchrun(error)
        sys.exit(2)


def _show_warning(usual: Callable[..., None], message: Warning | str, category: type[Warning], file: str, *place: Any) -> None:
    """Show warnings of this package, also about plug-ins and old runs, without the place in the code."""
    if issubclass(category, (PluginWarning, OldRunWarning)) or Path(file).is_relative_to(Path(__file__).parents[1]):
        errors.print(f"[bold yellow]Warning:[/] {escape(str(message))}", highlight=False, soft_wrap=True)
    else:
        usual(message, category, file, *place)


def _load_plugins(paths: list[Path] | None) -> list[Path] | None:
    from pals.util.plugins import load_plugins

    load_plugins(paths or [])
    return paths


def _version(value: bool) -> None:
    if value:
        console.print(f"pals {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn a classifier from ambiguous, noisy labels."""


def say(text: str) -> None:
    """Print one line as it is: a folder called [x] is no markup."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def check_files(answers: Iterable[Path], **others: Path | None) -> None:
    """Refuse files that do not exist before anything large is loaded; `others` are named by their options."""
    for path in answers:
        check_readable(path, "the file with the answers")
    for name, other in others.items():
        if other is not None and not PATTERN.search(str(other)):
            check_readable(
                other, {"images": "the folder of images", "run": "the run's folder"}.get(name, f"the file for --{name}")
            )


@contextmanager
def as_one() -> Iterator[Ranks]:
    """The processes of this command, of which the first alone prints. One that ends because another has failed prints no error;
    the other, or the program that started both, does."""
    from pals.runs.torchrun import ENDED_BY_OTHERS, is_launched
    from pals.training.distributed import PeerError, PeerLostError, joined

    try:
        with joined() as ranks:
            console.quiet = not ranks.is_first
            yield ranks
    except (PeerError, PeerLostError) as error:
        if isinstance(error, PeerError) or is_launched():
            raise typer.Exit(ENDED_BY_OTHERS) from None
        raise


@contextmanager
def stopping_after_epoch(reporter: Reporter) -> Iterator[Callable[[], bool]]:
    """A function for `Run.epochs`: whether Ctrl-C was pressed. The epoch is then finished and saved; a second Ctrl-C stops
    at once."""
    with Interrupt().on_signal(lambda: reporter.line(STOPPING_RUN)) as interrupt:
        yield lambda: interrupt.requested
        if interrupt.requested:
            raise interrupt.stopped
