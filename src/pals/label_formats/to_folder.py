"""Images in one folder per class, as torchvision's ImageFolder and most training scripts read them, with labels.csv beside."""

from __future__ import annotations

from pathlib import Path

from pals.label_formats import to_csv
from pals.label_formats.export_target import flat_names, folder_names, place_image
from pals.label_formats.run_labels import RunLabels


def write(labels: RunLabels, target: Path, *, link: bool) -> list[str]:
    """Fill the folder `target`; a class without items has no folder."""
    labels.refuse_missing_images("write --to csv")
    folder_of, name_of = folder_names(labels.classes), flat_names(item.item for item in labels.items)
    for item in labels.items:
        place_image(labels.image(item.item), target / folder_of[item.label] / name_of[item.item], link=link)
    to_csv.write(labels, target / "labels.csv")
    return []
