"""The command that deletes candidates before training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pals.cli.base import DataDir, Device, app, say
from pals.cli.fit import Terminal
from pals.cli.options import Cache, Encoding, Format, ItemColumn, LabelColumn, SkipBad, TruthFile, WorkerColumn
from pals.util.errors import InputError

if TYPE_CHECKING:
    from pals.pipeline.prune_files import Pruned


@app.command()
def prune(
    out: Annotated[Path, typer.Option(help="Answer file to write (.csv), readable by `pals fit`.")],
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[IMAGES] VOTES...", help="Folder of pictures (omit with --features), then answer files."),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="Feature vectors (.npy), ideally from a large pretrained network.")
    ] = None,
    names: Annotated[Path | None, typer.Option(help="With --features: text file that names the item of each row.")] = None,
    tau: Annotated[
        float, typer.Option(min=0, max=1, help="Share of a set's labels that may be deleted; one always stays.")
    ] = 0.4,
    neighbors: Annotated[int, typer.Option(min=1, help="Maximum number of neighbours that vote.")] = 150,
    class_share: Annotated[
        float, typer.Option(min=0, help="Also cap the neighbours at this share of the items per class; 0 for no cap.")
    ] = 0.25,
    spare: Annotated[
        bool, typer.Option("--spare/--no-spare", help="Leave sets unchanged that their neighbours contradict.")
    ] = True,
    look: Annotated[
        str | None, typer.Option(help="Compare pictures by patches or pixels (default: chosen by their size).")
    ] = None,
    size: Annotated[int, typer.Option(min=8, help="Resize pictures to this many pixels per side.")] = 32,
    format_: Format = None,
    item_column: ItemColumn = None,
    worker_column: WorkerColumn = None,
    label_column: LabelColumn = None,
    classes: Annotated[
        str | None, typer.Option(help="All classes, separated by commas, including any that nobody chose.")
    ] = None,
    encoding: Encoding = None,
    truth: TruthFile = None,
    skip_bad: SkipBad = False,
    cache: Cache = None,
    device: Device = None,
    data: Annotated[str | None, typer.Option(help="Use a data set instead of files, e.g. digits.")] = None,
    partial_rate: Annotated[
        float | None, typer.Option(help="With --data: probability that a wrong label is a candidate.")
    ] = None,
    noise_rate: Annotated[float | None, typer.Option(help="With --data: probability that the true label is left out.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Delete candidates that an item's neighbours do not share (CLSP). No training; any method can use the result.

    Lower --tau if sets may lack the true label.

    Example:  pals prune sets.csv --features clip.npy --names items.txt --out pruned.csv
    """
    from pals.util.files import write_text

    if look not in (None, "patches", "pixels"):
        raise InputError(f"--look {look!r}: choose patches or pixels.")
    options: dict[str, Any] = {"tau": tau, "neighbors": neighbors, "class_share": class_share or None, "spare": spare}
    options |= {"look": look, "device": device or "auto"}
    if data is not None:
        made = _of_dataset(data, {"partial_rate": partial_rate, "noise_rate": noise_rate}, data_dir, paths, options)
    else:
        columns = {"item": item_column, "worker": worker_column, "label": label_column}
        reading = {"names": names, "format": format_, "size": size, "skip_bad": skip_bad, "encoding": encoding}
        made = _of_files(paths or [], features, columns, classes, reading, options | {"truth": truth, "cache": cache})
    for line in made.lines():
        say(line)
    write_text(out, made.to_csv())
    say(f"The remaining candidates are in {out}")


def _of_dataset(
    name: str, rates: dict[str, float | None], data_dir: Path | None, paths: list[Path] | None, options: dict[str, Any]
) -> Pruned:
    from pals.pipeline.prune_files import prune_dataset
    from pals.runs import RunConfig

    if paths:
        raise InputError(f"Both --data {name} and {paths[0]} are given. Leave one out.")
    given = {"name": name, **{key: value for key, value in rates.items() if value is not None}}
    return prune_dataset(RunConfig.of({"data": given}), data_dir=data_dir, **options)


def _of_files(
    paths: list[Path],
    features: Path | None,
    columns: dict[str, str | None],
    classes: str | None,
    reading: dict[str, Any],
    options: dict[str, Any],
) -> Pruned:
    from pals.pipeline.prune_files import prune_files
    from pals.runs.run_config import VotesConfig
    from pals.util.config import build

    if not paths:
        raise InputError(
            "Nothing to prune is named. Give a file of answers with --features, or pictures and answers; or --data."
        )
    if features is None and len(paths) < 2:
        raise InputError(
            f"Only {paths[0]} is named. Give the folder of pictures, then the file with the answers; or --features."
        )
    values = {**reading, "images": paths[0]} if features is None else {**reading, "features": features}
    values["votes"] = tuple(map(str, paths if features is not None else paths[1:]))
    values["columns"] = {role: name for role, name in columns.items() if name is not None}
    values["class_names"] = None if classes is None else tuple(name.strip() for name in classes.split(","))
    given = {key: str(value) if isinstance(value, Path) else value for key, value in values.items() if value is not None}
    config = build(VotesConfig, given, "data")
    made, lines = prune_files(config, monitor=Terminal(), **options)
    for line in lines:
        say(line)
    return made
