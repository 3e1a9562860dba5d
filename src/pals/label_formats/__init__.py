"""The labels of a finished run in the formats of other programs.

`export_formats` has the table of formats and the public function; `run_labels` reads a run's current result as plain data; a
module `to_*` writes each format; `export_target` writes files and folders entirely or not at all. The classifier itself is
exported by `model.onnx_export`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pals.util.lazy import lazily

if TYPE_CHECKING:
    from pals.label_formats.export_formats import export_labels

__all__ = ["export_labels"]

__getattr__ = lazily(__name__, {"export_formats": ("export_labels",)})
