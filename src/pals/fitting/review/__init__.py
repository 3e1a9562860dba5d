"""The local web page on which people put a run right: `pals review RUN`.

`store` keeps every answer (SQLite), `shown` is a finished run as the page shows it, `orders` says which item comes next,
`pictures` reads and shrinks pictures, `loop` takes the answers in; `guard` and `app` are the server, `pages/` holds templates,
styles and scripts. Nothing is estimated here: labels, decisions and reasons are those of `fitting`. Starlette and uvicorn (the
extra `review`) are imported by `app` and `serve` alone.
"""
