"""The web app on which annotators correct the labels of a run: `pals review RUN`.

`store` keeps every answer (SQLite), `run_view` reads a finished run, `orders` decides which item comes next, `image_files` and
`image_shards` read the images, `rounds` and `apply` update the run with the answers, `session` joins these. `app`, `security`,
`protocol` and `serve` are the server, `web/` holds templates, styles and scripts. Labels, decisions and reasons are those of
`pipeline` and `relabel`. Only `app`, `protocol` and `serve` import Starlette and uvicorn (the extra `review`).
Shapes: N items, R rows of a table, K neighbours, T likeliest classes of an item.
"""
