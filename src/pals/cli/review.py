"""`pals review`: correct the labels of a run in the browser."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from pals.cli.base import Plugin, app, say
from pals.cli.options import TRUST_REVIEW_FLAG, TRUST_REVIEW_HELP, Run, Trust


@app.command()
def review(
    run: Run,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks that of the last start, or a free one.")
    ] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 admits other machines that have the printed token.")
    ] = "127.0.0.1",
    name: Annotated[str, typer.Option(help="Your name as annotator (default: the page asks).")] = "",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in your browser.")] = True,
    trust: Trust = None,
    trust_review: Annotated[bool | None, typer.Option(TRUST_REVIEW_FLAG, help=TRUST_REVIEW_HELP)] = None,
    audit: Annotated[
        float | None,
        typer.Option(help="Share of the queue that is drawn at random (default: 0.25 if answers are trusted, else 0)."),
    ] = None,
    instructions: Annotated[
        Path | None, typer.Option(help="Markdown file with instructions, shown beside each item; kept as RUN/instructions.md.")
    ] = None,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="Also show images that are links to outside the image folder.")
    ] = False,
    plugin: Plugin = None,
) -> None:
    """Review and correct the labels of a run in your browser.

    Every answer is saved to RUN/review.sqlite immediately. "Update now" on the page, or `pals update RUN`, applies them.

    Example:  pals review runs/ponds --name ana

    Example:  pals review runs/ponds --host 0.0.0.0 --port 8000 --no-browser
    """
    from pals.review.serve import serve

    with suppress(KeyboardInterrupt):  # where Ctrl-C is ignored, as in the background of a shell, it returns
        serve(
            run,
            host=host,
            port=port,
            name=" ".join(name.split()),
            browser=browser,
            trust=trust or (),
            trust_review=trust_review,
            follow_links=follow_links,
            instructions=instructions,
            audit=audit,
            say=say,
        )
    say(f"Stopped. All answers are in {run / 'review.sqlite'}; `pals update {run}` applies them.")
