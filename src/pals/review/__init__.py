"""The web app on which annotators correct the labels of a run: `pals review RUN`.

`store` keeps every answer (SQLite), `run_view` reads a finished run, `orders` decides which item comes next, `image_files` and
`image_shards` read the images, `rounds` and `apply` update the run with the answers, `session` joins these. `app`, `security`,
`protocol` and `serve` are the server, `web/` holds templates, styles and scripts. Labels, decisions and reasons are those of
`pipeline` and `relabel`. Only `app`, `protocol` and `serve` import Starlette and uvicorn (the extra `review`).
Shape letters: M items of the queue, R rows of a table, T likeliest classes of an item.

The package can be called: `pals.review(run, name="", port=0, browser=True)` opens the page of a run folder, or of findings, and
returns it, with its `address` and `close()` (`notebook_page`).

    >>> rows = [(item, who, "ab"[item % 2 if who != "cy" else 0]) for item in range(20) for who in ("al", "bo", "cy")]
    >>> table = __import__("pandas").DataFrame(rows, columns=["item", "annotator", "label"])
    >>> with pals.review(pals.fit(None, table, out="run", no_images=True), browser=False) as page:
    ...     page.address[:17]
    'http://127.0.0.1:'
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pals.review.notebook_page import ReviewPage


class CallablePackage(ModuleType):
    """This package, which is also the function that opens the page."""

    def __call__(self, run: Any, **options: Any) -> ReviewPage:
        """`notebook_page.open_page`: open the review page of a run or of findings."""
        from pals.review.notebook_page import open_page

        return open_page(run, **options)


sys.modules[__name__].__class__ = CallablePackage
