"""Commands for research: train and evaluate methods on data sets with noisy candidate labels."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pals.cli import completion
from pals.cli.base import DataDir, Device, Out, Plugin, Set, app, as_one, console, say, stopping_after_epoch
from pals.cli.expand_options import expand_options
from pals.cli.launching import Cluster, Launcher, hand_over
from pals.cli.seeds import Seed, Seeds, chosen_seeds
from pals.runs.train_options import TrainOptions
from pals.util.errors import InputError
from pals.util.option import settings_from

if TYPE_CHECKING:
    from pals.runs.run_config import RunConfig

data_app = typer.Typer(help="Download data sets that are not bundled.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results (default: runs/demo; with --quick runs/demo-quick).")
    ] = None,
    seeds: Seeds = None,
    seed: Seed = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs per run (default: 60; with --quick 10).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed and ten epochs instead of three and sixty: 30 s.")] = False,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps. For networks this small a CPU is quickest.")
    ] = "cpu",
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the results of an earlier demo first.")] = False,
) -> None:
    """Train on handwritten digits with noisy candidate labels and compare with two baselines.

    Example:  pals demo --quick
    """
    from pals.bench.demo import FULL_DEMO, QUICK_DEMO, demo_runs, summarise
    from pals.util.display import Reporter

    scope = QUICK_DEMO if quick else FULL_DEMO
    numbers, out = chosen_seeds(seeds, seed, scope.seeds), out or scope.folder
    epochs = scope.epochs if epochs is None else epochs
    accuracies: dict[str, list[float]] = {}
    about: dict[str, Any] = {}
    with Reporter(console).showing() as reporter:
        for name, number, run in demo_runs(
            out, numbers, settings_from(TrainOptions(device=device, epochs=epochs)), fresh=fresh
        ):
            if name == "pals" and not about:
                about = run.describe()
                console.print(_intro(about, "handwritten digits"), highlight=False)
            shown = reporter.begin(f"{name:8} seed {number}", run.config.train.epochs, run.resumed_at)
            with stopping_after_epoch(reporter) as stop_requested:
                for record in run.epochs(None, stop_requested):
                    shown.record(record)
            accuracies.setdefault(name, []).append(100 * run.summary()["test_accuracy"])
    keep = ("items", "mean_set_size", "nominal_noise", "effective_noise", "engine")
    summary = summarise(out, accuracies, numbers, {key: about[key] for key in keep})
    _print_demo(out, summary, numbers)


def _intro(about: dict[str, Any], things: str = "items") -> str:
    """One sentence on the training items, their candidate labels and the device."""
    missing = ""
    if "protocol" in about:
        missing = (
            f", and the right one is missing for {100 * about['effective_noise']:.1f}% of them (protocol {about['protocol']})"
        )
    labels = f"{about['mean_set_size']:.1f} candidate labels on average{missing}"
    seen = f" Pictures are encoded by {about['encoder']} at {about['size']} px." if "encoder" in about else ""
    return f"{about['items']:,} {things} to learn from; each comes with {labels}.{seen} Running on {about['engine']}."


def _print_demo(out: Path, summary: dict[str, Any], seeds: list[int]) -> None:
    from pals.bench.demo import VARIANT_NAMES, demo_folder
    from pals.training.run_log import read_epochs

    selected = Table(title=f"Items that PALS selected (seed {seeds[0]})")
    for heading in ("epoch", "selected", "correct", "share correct", "accuracy"):
        selected.add_column(heading, justify="right")
    records = read_epochs(demo_folder(out, "pals", seeds[0]))
    shown = sorted({1, 2, 3, 5, *range(10, len(records), 10), len(records)})
    for record in (records[epoch - 1] for epoch in shown if epoch <= len(records)):
        share = f"{100 * record['correct'] / max(record['selected'], 1):.1f}%"
        row = (record["epoch"], record["selected"], record["correct"], share, f"{100 * record['test_accuracy']:.2f}")
        selected.add_row(*map(str, row))
    table = Table(title=f"Accuracy on held-out digits, last epoch, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}")
    table.add_column("trained with")
    table.add_column("accuracy (mean ± std)" if len(seeds) > 1 else "accuracy", justify="right")
    for name, words in VARIANT_NAMES.items():
        table.add_row(words, _spread(summary[name]["mean"], summary[name]["std"], len(seeds)))
    console.print(selected)
    console.print(table)
    say(f"Results, logs and checkpoints: {out}  (picture: {out / 'curves.png'})")


@app.command()
@expand_options
def train(
    options: TrainOptions,
    seeds: Seeds = None,
    seed: Seed = None,
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML), for example a run's config.yaml.")] = None,
    set_: Set = None,
    out: Out = None,
    data_dir: DataDir = None,
    stop_after: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many epochs; run the same command again to resume.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Number of processes that share each batch: one per GPU, or CPU cores.")
    ] = None,
    launcher: Launcher = "local",
    cluster: Cluster = None,
    plugin: Plugin = None,
) -> None:
    """Train a method on a data set with noisy candidate labels.

    Flags override --config, and --set overrides both. Each seed gets its own folder.

    Example:  pals train digits --method pals --partial-rate 0.5 --noise-rate 0.3 --seeds 3 --out runs/digits

    On two GPUs:  pals train cifar10 --processes 2 --out runs/two, or torchrun --nproc-per-node 2 -m pals train ...

    On a cluster:  pals train cifar10 --processes 8 --launcher slurm --cluster slurm_partition=gpu --out /shared/runs/eight
    """
    from pals.runs.run import Run, summarise_seeds
    from pals.runs.run_config import RunConfig
    from pals.runs.run_folder import check_base, default_folder
    from pals.util.config import merge, override, read_yaml
    from pals.util.display import Reporter, showing_count

    flags = {**settings_from(options), **_encoder_settings(options)}
    values = override(merge(read_yaml(config) if config else {}, flags), set_ or [])
    numbers = chosen_seeds(seeds, seed, [values.get("seed", 1)])
    configs = [RunConfig.of({**values, "seed": number}) for number in numbers]
    base = out or default_folder(configs[0])
    folders = [base]
    if out is None or len(numbers) > 1:
        check_base(base, runs="seed-*")
        folders = [base / f"seed-{number}" for number in numbers]
    started = _started(processes)
    if launcher != "local" or cluster:
        if started > 1:
            raise InputError(f"--launcher {launcher}, but torchrun has started {started} processes. Leave out one of the two.")
        for remark in _remarks(configs[0]):
            say(remark)
        hand_over(configs, folders, base, data_dir, processes or 1, stop_after, launcher, override({}, cluster or []))
        _print_scores(summarise_seeds(base, folders))
        return
    if started == 1 and processes not in (None, 1):
        from pals.runs.torchrun import run_by

        raise typer.Exit(run_by(processes, sys.argv[1:]))
    with as_one() as ranks:
        for run_config, folder in zip(configs, folders, strict=True):
            with showing_count(console, "features") as count:
                run = Run(run_config, folder, data_dir, progress=count, ranks=ranks)
            if folder == folders[0]:
                say(_intro(run.describe()))
                for remark in _remarks(run_config):
                    say(remark)
            if run.resumed_at:
                say(f"{folder}: continuing after epoch {run.resumed_at}.")
            with Reporter(console).showing() as reporter, stopping_after_epoch(reporter) as stop_requested:
                title = f"{run_config.method_name} seed {run_config.seed}"
                shown = reporter.begin(title, run_config.train.epochs, run.resumed_at)
                for record in run.epochs(stop_after, stop_requested):
                    shown.record(record)
        if ranks.is_first:
            _print_scores(summarise_seeds(base, folders))


def _started(processes: int | None) -> int:
    """Number of processes that torchrun has started for this command."""
    from pals.training.distributed import ranks_from_environment

    started = ranks_from_environment().size
    if processes is not None and started > 1 and started != processes:
        raise InputError(f"--processes {processes}, but torchrun has started {started}. Leave out one of the two.")
    return started


def _remarks(config: RunConfig) -> Iterator[str]:
    """Notes on settings that may surprise the user."""
    from pals.runs.run_config import other_settings_by_rates, unreachable_options

    for name in unreachable_options(config):
        yield (
            f"Note: method.{name} is {getattr(config.method, name)}, but training ends after epoch {config.train.epochs}, so "
            f"it never takes effect. Lower it, or train longer."
        )
    other = other_settings_by_rates(config)
    if other:
        found = ", ".join(f"{key}={value}" for key, value in other.items())
        yield (
            f"Note: at these rates the paper's tables use {config.method_name} with {found}. Set that with --set, or run "
            f"the experiment with `pals bench`."
        )


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    device: Device = None,
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    plugin: Plugin = None,
) -> None:
    """Evaluate a run's last checkpoint on the test items.

    Example:  pals evaluate runs/digits/seed-1
    """
    from pals.runs.run import evaluate as evaluate_run

    scores = evaluate_run(run, device, data_dir)
    if as_json:
        typer.echo(json.dumps(scores))
        return
    table = Table("score", "value", title=escape(f"{run} after {scores['epochs']} epochs ({scores['method']})"))
    for name in ("accuracy", "class_accuracy", "top5", "loss"):
        if name in scores:
            table.add_row(name, f"{scores[name]:.4f}")
    console.print(table)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Method whose options to show.", autocompletion=completion.methods)] = None,
    plugin: Plugin = None,
) -> None:
    """List the methods, or show one method's options and presets.

    The list shows what each method needs: views per item, networks to train, and the cost of a step relative to plain
    supervised training.

    Example:  pals methods pals
    """
    from pals.methods import METHODS, describe_options, find_method

    if name is not None:
        table = Table("option", "default", "meaning", title=f"{name}: use with --set method.OPTION=VALUE")
        method = find_method(name)
        for option, default, meaning in describe_options(method):
            table.add_row(option, escape(default), escape(meaning))
        console.print(table)
        for preset, options in method.PRESETS.items():
            what = ", ".join(f"{option}={value}" for option, value in options.items()) or "the defaults above"
            most = f"; at most {method.preset_epochs[preset]} epochs" if preset in method.preset_epochs else ""
            console.print(f"--preset {preset}: {what}{most}", highlight=False)
        return
    table = Table("name", "kind", "views", "networks", "cost", "reference")
    for key, method in METHODS.items():
        views = ", ".join(method.views) or "none"
        table.add_row(key, method.kind, views, str(method.networks), f"{method.cost:g}", method.reference)
    console.print(table)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100, resnet18-weights or resnet50-weights.")],
    data_dir: DataDir = None,
) -> None:
    """Download a data set or ImageNet weights from the original source. Interrupted downloads resume.

    Example:  pals data fetch cifar10 --data-dir ~/data
    """
    from pals.data.download import data_folder, fetch
    from pals.util.display import showing_bytes

    place = data_folder(data_dir)
    if place is None:
        raise InputError("Name a folder for the data with --data-dir, or set PALS_DATA.")
    with showing_bytes(console, name) as progress:
        folder = fetch(name, place, progress, say)
    say(f"{name} is in {folder}")


def _encoder_settings(options: TrainOptions) -> dict[str, Any]:
    from pals.runs.extractor import dataset_network_settings

    if options.encoder is not None:
        return {"network": dataset_network_settings(options.encoder, options.weights, options.frozen)}
    if options.weights is not None or options.frozen is not None:
        given = "--weights" if options.weights is not None else "--frozen" if options.frozen else "--no-frozen"
        raise InputError(f"{given} needs an encoder: name one with --encoder, or set network.weights with --set.")
    return {}


def _print_scores(scores: dict[str, Any] | None) -> None:
    if scores is None:
        console.print("Not finished yet: run the same command to continue.")
        return
    value, runs = scores["test_accuracy"], len(scores["runs"])
    seeds = f"mean and deviation of {runs} seeds" if runs > 1 else "one seed"
    console.print(f"Test accuracy, last epoch: {_spread(100 * value['mean'], 100 * value['std'], runs)} ({seeds}).")


def _spread(mean: float, deviation: float, runs: int) -> str:
    """Mean and standard deviation; one run has no deviation."""
    return f"{mean:.2f} ± {deviation:.2f}" if runs > 1 else f"{mean:.2f}"
