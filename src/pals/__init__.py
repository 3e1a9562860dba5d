"""PALS: learn a classifier from ambiguous, noisy labels.

The names below are the public API, each described in docs/api.md; nothing else is promised to stay. They are loaded when first
used, so `import pals` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pals import estimator as estimator
    from pals.crowd import closed_form as closed_form
    from pals.crowd import dawid_skene as dawid_skene
    from pals.crowd import majority_vote as majority_vote
    from pals.data import DATASETS as DATASETS
    from pals.data import load_dataset as load_dataset
    from pals.data.dataset import Dataset as Dataset
    from pals.data.dataset import Items as Items
    from pals.data.dataset import Loader as Loader
    from pals.data.row_source import FileImages as FileImages
    from pals.data.row_source import ItemSource as ItemSource
    from pals.data.row_source import open_array as open_array
    from pals.data.shards.random_access import ShardImages as ShardImages
    from pals.estimator import PALSClassifier as PALSClassifier
    from pals.label_formats import export_labels as export_labels
    from pals.labels.candidates import CandidateSets as CandidateSets
    from pals.labels.candidates import Truth as Truth
    from pals.labels.noise import draw_annotators as draw_annotators
    from pals.labels.noise import make_candidates as make_candidates
    from pals.labels.noise import official_candidates as official_candidates
    from pals.labels.taxonomy import Taxonomy as Taxonomy
    from pals.methods import METHODS as METHODS
    from pals.methods import Batch as Batch
    from pals.methods import Context as Context
    from pals.methods import EpochPlan as EpochPlan
    from pals.methods import Group as Group
    from pals.methods import Method as Method
    from pals.methods import Phase as Phase
    from pals.methods import Problem as Problem
    from pals.methods import Selection as Selection
    from pals.model import Model as Model
    from pals.model import load_model as load_model
    from pals.model import predict_folder as predict_folder
    from pals.pipeline import fit as fit
    from pals.pipeline import update as update
    from pals.pseudo_labels import nearest as nearest
    from pals.pseudo_labels import pseudo_label as pseudo_label
    from pals.pseudo_labels.prune_sets import prune as prune
    from pals.readers import READERS as READERS
    from pals.readers import Records as Records
    from pals.readers import Source as Source
    from pals.readers import Table as Table
    from pals.readers import Votes as Votes
    from pals.readers import read_votes as read_votes
    from pals.relabel import next_answers as next_answers
    from pals.runs.run import Run as Run
    from pals.runs.run_config import RunConfig as RunConfig
    from pals.training.extract import encode as encode
    from pals.util.config import STRICT as STRICT
    from pals.util.errors import InputError as InputError
    from pals.util.plugins import load_plugin as load_plugin
    from pals.vision.augment import ImageSteps as ImageSteps
    from pals.vision.augment import MethodView as MethodView
    from pals.vision.augment import View as View
    from pals.vision.augment import Views as Views
    from pals.vision.augment import image_views as image_views
    from pals.vision.augment import vector_views as vector_views
    from pals.vision.images.listing import list_images as list_images
    from pals.vision.images.load_folder import load_images as load_images
    from pals.vision.images.pixel_statistics import image_statistics as image_statistics
    from pals.vision.networks import NETWORKS as NETWORKS
    from pals.vision.networks import Network as Network
    from pals.vision.networks import Output as Output
    from pals.vision.pretrained import ENCODERS as ENCODERS
    from pals.vision.pretrained import KnownEncoder as KnownEncoder

    __version__: str

_NAMES = {
    "pals.crowd": ("closed_form", "dawid_skene", "majority_vote"),
    "pals.data": ("DATASETS", "load_dataset"),
    "pals.data.dataset": ("Dataset", "Items", "Loader"),
    "pals.data.row_source": ("FileImages", "ItemSource", "open_array"),
    "pals.data.shards.random_access": ("ShardImages",),
    "pals.estimator": ("PALSClassifier",),
    "pals.pipeline": ("fit", "update"),
    "pals.relabel": ("next_answers",),
    "pals.pseudo_labels": ("nearest", "pseudo_label"),
    "pals.pseudo_labels.prune_sets": ("prune",),
    "pals.label_formats": ("export_labels",),
    "pals.labels.candidates": ("CandidateSets", "Truth"),
    "pals.labels.noise": ("draw_annotators", "make_candidates", "official_candidates"),
    "pals.labels.taxonomy": ("Taxonomy",),
    "pals.methods": ("METHODS", "Batch", "Context", "Group", "Method", "Phase", "EpochPlan", "Problem", "Selection"),
    "pals.model": ("Model", "load_model", "predict_folder"),
    "pals.readers": ("READERS", "Records", "Source", "Table", "Votes", "read_votes"),
    "pals.runs.run": ("Run",),
    "pals.runs.run_config": ("RunConfig",),
    "pals.training.extract": ("encode",),
    "pals.util.config": ("STRICT",),
    "pals.util.errors": ("InputError",),
    "pals.util.plugins": ("load_plugin",),
    "pals.vision.augment": ("ImageSteps", "MethodView", "View", "Views", "image_views", "vector_views"),
    "pals.vision.networks": ("NETWORKS", "Network", "Output"),
    "pals.vision.pretrained": ("ENCODERS", "KnownEncoder"),
    "pals.vision.images.listing": ("list_images",),
    "pals.vision.images.load_folder": ("load_images",),
    "pals.vision.images.pixel_statistics": ("image_statistics",),
}
_MODULES = ("estimator",)  # whole modules: this one has a class for every method, also for those of plug-ins
_RENAMED = {"Pictures": "FileImages", "ShardPictures": "ShardImages"}
"""Names of version 0.2: they work, with a warning."""
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_HOME, *_MODULES, "__version__"])

if not TYPE_CHECKING:  # a type checker is to know the names above and no others

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _RENAMED:
            import warnings

            warnings.warn(f"pals.{name} is now called pals.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
            return __getattr__(_RENAMED[name])
        if name in _MODULES:
            return import_module(f"pals.{name}")
        if name == "__version__":
            value = _version()
        elif name in _HOME:
            value = getattr(import_module(_HOME[name]), name)
        else:
            raise AttributeError(f"module 'pals' has no attribute {name!r}; its names are listed in docs/api.md")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pals-learn")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "0+source"
