"""Draw the selected and correct items of a long run beside the paper's figures, and keep the curve as a small table.

    python benchmarks/selection_curve.py RUN --out benchmarks/results/NAME --paper 7211 4036 45285 40330

`--paper` takes what the paper reports: selected and correct in the first epoch, selected and correct in the last. Writes
NAME.csv and NAME.png. RUN needs only its `log.jsonl`.
"""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

from matplotlib.figure import Figure

from pals.files import write_bytes, write_text
from pals.report.curves import FADED, RIGHT, read_epochs

COLUMNS = ("epoch", "test_accuracy", "selected", "correct", "quota", "loss", "lr", "seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--paper", type=int, nargs=4, metavar="N")
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    records = read_epochs(args.run)

    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([[record[column] for column in COLUMNS] for record in records])
    write_text(Path(f"{args.out}.csv"), table.getvalue())

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    selection, accuracy = figure.subplots(1, 2)
    epochs = [record["epoch"] for record in records]
    selection.plot(epochs, [r["selected"] for r in records], color=FADED, linewidth=2, label="selected")
    selection.plot(epochs, [r["correct"] for r in records], color=RIGHT, linewidth=2, label="of these correct")
    if args.paper:
        ends = [1, 1, epochs[-1], epochs[-1]]
        selection.scatter(ends, args.paper, color="black", marker="x", zorder=3, label="paper (first and last epoch)")
    selection.set(title="Selected pairs", xlabel="epoch", ylabel="items")
    selection.set_ylim(bottom=0)
    selection.legend(frameon=False)
    accuracy.plot(epochs, [100 * r["test_accuracy"] for r in records], color="#0b6e99", linewidth=1.5)
    accuracy.set(title=f"Test accuracy, last epoch {100 * records[-1]['test_accuracy']:.2f}", xlabel="epoch", ylabel="%")
    for axes in (selection, accuracy):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(args.title, fontweight="bold")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_bytes(Path(f"{args.out}.png"), buffer.getvalue())


if __name__ == "__main__":
    main()
