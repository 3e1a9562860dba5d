"""The files that a fit writes: the classifier, the tables, the report, and last of all `summary.json`."""

from __future__ import annotations

from pathlib import Path

from pals.model import FILE_NAME, Description, Model, Part
from pals.pipeline.finished_run import TAXONOMY
from pals.pipeline.none_of_these import write_lists
from pals.pipeline.run_arrays import ItemNeighbors
from pals.pipeline.stages.findings import Findings
from pals.pipeline.stages.load import encoder_name
from pals.pipeline.stages.trained import Trained
from pals.pipeline.tables.result_tables import probabilities_table, write_csv
from pals.report.data import report_data
from pals.report.render import write_report
from pals.util.csv_text import CSV_BLOCK_ROWS
from pals.util.files import write_json, write_text
from pals.vision.networks import Network


def write(findings: Findings, *, all_probabilities: bool = False) -> Path:
    """Write all files and return the path of the report. `summary.json` comes last: it marks a run that is complete."""
    folder, trained = findings.folder, findings.trained
    if trained.network is not None and trained.part is not None:
        model_of(trained, trained.network, trained.part).save(folder / FILE_NAME)
    write_csv(folder / "votes.csv", trained.loaded.votes.frames(trained.plan.data.separator, CSV_BLOCK_ROWS))
    if trained.loaded.votes.taxonomy is not None:
        write_text(folder / TAXONOMY, trained.loaded.votes.taxonomy.to_csv())
    more = {"probabilities": probabilities_table(findings.result)} if all_probabilities else {}
    for name, table in {**findings.tables, **more}.items():
        write_csv(folder / f"{name}.csv", table)
    findings.asking.save(folder)
    predicted_NC = None if trained.network is None else trained.predicted_NC
    ItemNeighbors.of(findings.neighbor_NK, findings.similarity_NK, predicted_NC).save(folder)
    write_lists(findings.groups, findings.result.votes.items, folder)
    write_json(folder / "report.json", report_data(findings))
    page = write_report(folder)
    write_json(folder / "summary.json", findings.numbers)
    return page


def model_of(trained: Trained, network: Network, part: Part) -> Model:
    """The classifier trained on all items, with everything that is needed to apply it."""
    loaded, encoded = trained.loaded, trained.encoded
    encoder = None
    if encoded.encoder is not None:
        encoder = Part(encoder_name(trained.plan), loaded.items.shape, *loaded.statistics)
    names, resize = loaded.candidates.class_names, trained.plan.data.resize
    tree, sure = loaded.votes.taxonomy, trained.plan.data.sure
    about = Description(names, part, encoder, trained.temperature, resize=resize, taxonomy=tree, sure=sure)
    return Model(about, network, encoded.encoder, device="cpu")
