"""The local web page on which people put a run right: `pals review RUN`.

`store` keeps every answer (SQLite), `run_view` is a finished run as the page shows it, `orders` says which item comes next,
`image_files` reads and shrinks pictures, `rounds` takes the answers in; `security` and `app` are the server, `web/` holds
templates, styles and scripts. Nothing is estimated here: labels, decisions and reasons are those of `pipeline`. Starlette and
uvicorn (the extra `review`) are imported by `app` and `serve` alone.
"""
