"""`pals doctor`: check the installation."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from pals.cli.base import app, console


@app.command()
def doctor() -> None:
    """Show versions, devices and precisions, and report what is broken.

    Example:  pals doctor
    """
    from pals.cli.diagnosis import check

    facts, problems = check()
    table = Table("what", "found", title="pals doctor")
    for name, value in facts:
        table.add_row(name, value)
    console.print(table)
    for problem in problems:
        console.print(f"[bold red]Problem:[/] {escape(problem)}", highlight=False, soft_wrap=True)
    if not problems:
        console.print("[green]Everything that PALS needs is in order.[/]")
