"""The command that opens a run in the browser, for people to put it right."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from pals.cli.base import Plugin, app, say
from pals.cli.crowd import Run, Trust


@app.command()
def review(
    run: Run,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 0,
    host: Annotated[
        str, typer.Option(help="Where to listen; 0.0.0.0 lets other machines in, with the token that is printed.")
    ] = "127.0.0.1",
    name: Annotated[str, typer.Option(help="Whose answers these are (default: the page asks).")] = "",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page at once.")] = True,
    trust: Trust = None,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="Show pictures that are links out of the picture folder, too.")
    ] = False,
    plugin: Plugin = None,
) -> None:
    """Look at the items of a run one by one, or many at once, and put them right in the browser.

    Every answer is kept in RUN/review.sqlite at once. The button "Update now", and `pals update RUN`, take them in.

    Example:  pals review runs/ponds --name ana

    Example:  pals review runs/ponds --host 0.0.0.0 --port 8000 --no-browser
    """
    from pals.fitting.review.serve import serve

    with suppress(KeyboardInterrupt):  # where Ctrl-C is ignored, as in the background of a shell, it just returns
        serve(
            run,
            host=host,
            port=port,
            name=" ".join(name.split()),
            browser=browser,
            trust=trust or (),
            follow_links=follow_links,
            say=say,
        )
    say(f"Stopped. All answers are in {run / 'review.sqlite'}; `pals update {run}` takes them in.")
