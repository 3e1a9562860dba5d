"""Bad input is one clear sentence and exit code 2; nothing is half-written and no traceback is shown."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from _toy import TINY, Answer, toy_candidates, toy_data
from pals.data import DATASETS
from pals.data.dataset import Dataset, Items
from pals.labels.candidates import CandidateSets, Truth
from pals.util.errors import InputError

Pals = Callable[..., Answer]
SOURCE = Path(__file__).parents[2] / "src"
TRAIN = ("train", "toy", *TINY, "--epochs", "2")


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


@pytest.fixture
def refused(pals: Pals, tmp_path: Path) -> Callable[..., str]:
    """Runs a command that must be refused and leave everything as it was; gives what it said."""

    def check(*arguments: str | Path) -> str:
        before = contents(tmp_path)
        answer = pals(*arguments)
        assert contents(tmp_path) == before
        assert answer.code == 2, answer
        lines = answer.err.splitlines()
        assert len(lines) == 1, answer.err
        assert lines[0].startswith("Error: ") and lines[0].endswith((".", "?")) and answer.out == ""
        return lines[0].removeprefix("Error: ")

    return check


REFUSED = [  # flags of `pals train`, words of the message
    ("--method pls", "'pls' 'pals'"),
    ("--set data.name=digts", "'digts' 'digits'"),
    ("--set train.bathc_size=3", "'train.bathc_size' 'train.batch_size'"),
    ("--set method.neighbours=3", "'method.neighbours' 'method.neighbors'"),
    ("--set trian.lr=3", "'trian' 'train'"),
    ("--set method.preset=oficial", "'oficial' 'official'"),
    ("--preset smal", "'smal' 'small' official, paper,"),
    ("--set method.delta=al", "method.delta 'al' number 'all'"),
    ("--set network.name=resnet81", "'resnet81' 'resnet18'"),
    ("--device cdua", "'cdua' 'cuda'"),
    ("--device meta", "'meta'"),
    ("--protocol g7", "data.protocol 'g7' 'g1', 'g4'"),
    ("--precision fp8", "engine.precision 'fp8' 'auto', 'fp16'"),
    ("--method [/bold]", "'[/bold]'"),
    ("--set train.lr=0", "train.lr 0: greater"),
    ("--set train.lr=.inf", "train.lr inf: finite"),
    ("--set train.lr=fast", "train.lr 'fast'"),
    ("--set train.lr", "'train.lr' section.key=value"),
    ("--set train=5", "train section train.key=value"),
    ("--set train.milestones=[1", "'train.milestones=[1' line 1"),
    ("--set seed=-1", "seed -1 4294967295"),
    ("--epochs 0", "train.epochs 0"),
    ("--noise-rate 1.5", "data.noise_rate 1.5"),
    ("--partial-rate -0.1", "data.partial_rate -0.1"),
    ("--protocol g3 --partial-rate 0", "g3"),
    ("--set data.draws=official --protocol g2", "official g1"),
    ("--set method.neighbors=90", "90 89"),
    ("--set network.name=resnet18", "'resnet18' (6,)"),
    ("--precision fp16", "'fp16' CUDA bf16"),
    ("--seeds 1,x", "'1,x' --seed 5"),
    ("--seeds=", "--seeds ''"),
    ("--seeds 3,1,3", "'3,1,3' twice"),
    ("--seeds 0", "--seeds 0 --seed 0"),
    ("--seeds 2024", "2,024 runs --seed 2024"),
    ("--seeds 1,4294967296", "--seeds 4294967296 4294967295"),
    ("--seed -4", "--seed -4 4294967295"),
    ("--seeds 3 --seed 5", "--seeds --seed combined"),
    ("digits --method dividemix --set method.label_seed=4294967296", "method.label_seed 4294967296"),
    ("digits --method irnet --set method.tau_end=1", "method.tau_end method.tau both"),
    ("digits --method pico+ --set method.delta=1 --set method.noise_rate=0", "method.delta method.noise_rate reliable"),
    (
        "digits --method alim-scale --set method.lambda_step=0.1 --set method.noise_rate=0",
        "method.lambda_step method.noise_rate null",
    ),
]


@pytest.mark.parametrize(("flags", "words"), REFUSED)
def test_the_message_names_option_value_and_nearest_name(flags: str, words: str, refused: Callable[..., str]) -> None:
    start = ("train",) if flags.startswith("digits") else TRAIN
    message = refused(*start, *flags.split(), "--out", "run")
    assert [word for word in words.split() if word not in message] == []


@pytest.mark.parametrize(("flag", "key"), [("--protocol=g3", "protocol"), ("--noise-rate=0.4", "noise_rate")])
def test_rates_for_what_people_answered(
    flag: str, key: str, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = toy_data()
    monkeypatch.setitem(DATASETS, "toy", lambda **_: replace(data, votes=toy_candidates(data)))
    said = refused(*TRAIN, flag, "--out", "run")
    assert said.startswith(f"Setting data.{key} = ")
    assert said.endswith("the candidates of toy are people's answers; drop it.")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there(refused: Callable[..., str]) -> None:
    said = refused(*TRAIN, "--device", "cuda:1", "--out", "run")
    assert "'cuda:1'" in said and "there are 0 CUDA devices" in said and "--device cpu or auto" in said


SETTINGS_FILES = [
    (b"train: [1", "settings.yaml, line 1"), (b"train:\n  lr: 0.1\n lr: 3\n", "settings.yaml, line 3"),
    (b"- train\n", "settings.yaml should hold sections"), (b"trian:\n  lr: 1\n", "'trian': did you mean 'train'?"),
    (b"train:\n  lrr: 1\n", "'train.lrr': did you mean 'train.lr'?"), (b"method: average\n", "method.key=value"),
    (b"\xff\xfe\x00", "Cannot read the settings file settings.yaml"),
    (None, "Cannot read the settings file settings.yaml"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), SETTINGS_FILES)
def test_bad_settings_files(text: bytes | None, words: str, refused: Callable[..., str], tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "settings.yaml").write_bytes(text)
    assert words in refused("train", "--config", "settings.yaml", "--out", "run")


def broken(**changes: Any) -> Callable[..., Dataset]:
    return lambda **_: replace(toy_data(), **changes)


def with_nan() -> Items:
    items = toy_data().train
    items.inputs[41, 3] = float("nan")
    return items


DATA: dict[str, Callable[..., Dataset]] = {  # words of the message
    "True label 3 of item 2": lambda **_: replace(toy_data(), truth=Truth.of([0, 1, 3] * 30, toy_data().class_names)),
    "first 'train-41'": broken(train=with_nan()),
    "Only one class (cat)": lambda **_: replace(toy_data(), class_names=("cat",), truth=Truth.of([0] * 90, ("cat",))),
    "an item has only 4": lambda **_: toy_data(items=5),
    "no items": lambda **_: toy_data(items=0),
    "91 inputs but candidate sets for 90": broken(train=Items(torch.zeros(91, 6), toy_data().train.ids)),
}


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("words", DATA)
def test_bad_data(words: str, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "toy", DATA[words])
    assert words in refused(*TRAIN, "--out", "run")


def test_candidate_sets_that_mean_nothing_and_data_that_are_not_there(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"1 of 3 items have no candidate label; the first is 'b'\."):
        CandidateSets.from_matrix([[1, 0], [0, 0], [1, 1]], ids=["a", "b", "c"])
    with pytest.raises(InputError, match=r"Label 7 of item '1' lies outside the 3 classes"):
        CandidateSets.from_lists([[0], [7]], class_names=["a", "b", "c"])
    (tmp_path / "data").mkdir()
    assert "data" in refused("train", "cifar10", "--data-dir", "data", "--device", "cpu", "--out", "run")
    monkeypatch.delenv("PALS_DATA", raising=False)
    said = refused("data", "fetch", "cifar10")
    assert "--data-dir" in said and "PALS_DATA" in said
    assert "did you mean 'cifar10'?" in refused("data", "fetch", "cifar1", "--data-dir", "data")


def test_folders_that_hold_something_else(pals: Pals, refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for name in ("folder", "[x]"):  # the second is a name, not markup
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text("mine")
    for command in (
        *((*TRAIN, "--out", name) for name in ("file", "folder", "[x]")),
        (*TRAIN, "--seeds", "1,2", "--out", "folder"),
        *(("demo", *fresh, "--device", "cpu", "--out", "folder") for fresh in ((), ("--fresh",))),
    ):
        assert refused(*command).startswith(f"{command[-1]} exists, but does not hold a PALS run. Choose another --out")
    assert "Could not write" in refused(*TRAIN, "--out", "file/inside")
    (tmp_path / "empty").mkdir()
    pals(*TRAIN, "--out", "empty", code=0)


def test_folders_that_hold_another_run(pals: Pals, refused: Callable[..., str]) -> None:
    pals(*TRAIN, "--out", "run", code=0)
    average = ("train", "toy", "--method", "average", "--set", "network.name=mlp", "--device", "cpu")
    for command, difference in (
        ((*TRAIN, "--noise-rate", "0.1"), "data.noise_rate is 0.3 there and 0.1 here"),
        ((*TRAIN, "--seed", "5"), "seed is 1 there and 5 here"),
        (average, "method.name is 'pals' there and 'average' here"),
    ):
        said = refused(*command, "--out", "run")
        assert said.startswith(f"run/config.yaml belongs to a run with other settings: {difference}") and "another" in said
    for command in ((*TRAIN, "--seeds", "1,2"), ("demo", "--device", "cpu"), ("demo", "--fresh", "--device", "cpu")):
        assert refused(*command, "--out", "run").startswith("run is the folder of a single run. Choose another --out")


@pytest.mark.parametrize("damage", ["flip", "truncate", "text", "empty"])
def test_damaged_checkpoints(damage: str, pals: Pals, refused: Callable[..., str], tmp_path: Path) -> None:
    pals(*TRAIN, "--out", "run", "--stop-after", "1")
    path = tmp_path / "run" / "checkpoint.pt"
    data = path.read_bytes()
    place = len(data) // 3
    flipped = data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]
    path.write_bytes({"flip": flipped, "truncate": data[:-1000], "text": b"hello", "empty": b""}[damage])
    for command in ((*TRAIN, "--out", "run"), ("evaluate", "run", "--device", "cpu")):
        assert refused(*command).startswith("The checkpoint run/checkpoint.pt cannot be read (its checksum is wrong).")


def test_checkpoints_of_another_run_or_other_data(
    pals: Pals, refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pals(*TRAIN, "--out", "one")
    pals(*TRAIN, "--seed", "2", "--out", "two")
    shutil.copy(tmp_path / "two" / "checkpoint.pt", tmp_path / "one" / "checkpoint.pt")
    message = "one/checkpoint.pt belongs to a run with other settings: seed is 2 there and 1 here."
    assert refused(*TRAIN, "--out", "one").startswith(message) and refused("evaluate", "one").startswith(message)
    pals(*TRAIN, "--out", "run", "--stop-after", "1")
    monkeypatch.setitem(DATASETS, "toy", lambda **_: toy_data(items=120))
    assert refused(*TRAIN, "--out", "run").startswith("run holds a run on other items or candidates.")
    message = "The checkpoint run/checkpoint.pt does not fit this data, device or version ("
    assert refused("evaluate", "run", "--device", "cpu").startswith(message)


def test_run_folders_changed_by_hand_or_empty(pals: Pals, refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        assert refused("evaluate", name).startswith(f"{name} is not a run folder: it has no config.yaml.")
    pals(*TRAIN, "--out", "run", "--stop-after", "1")
    (tmp_path / "run" / "checkpoint.pt").unlink()
    assert refused("evaluate", "run") == "There is no checkpoint run/checkpoint.pt."
    pals(*TRAIN, "--out", "run", "--stop-after", "1")
    log = (tmp_path / "run" / "log.jsonl").read_text()
    (tmp_path / "run" / "log.jsonl").write_text("hello\n" + log)
    assert refused(*TRAIN, "--out", "run").startswith("run/log.jsonl, line 1 is not JSON.")
    (tmp_path / "run" / "log.jsonl").write_text(log)
    (tmp_path / "run" / "config.yaml").write_text("train: [")
    assert refused(*TRAIN, "--out", "run").startswith("Cannot read run/config.yaml, line 1: ")
    assert refused("evaluate", "run").startswith("Cannot read run/config.yaml, line 1: ")


@pytest.mark.parametrize("arguments", [["trian"], ["train", "--metod", "pals"], ["train", "--epochs", "x"], ["evaluate"],
                                       ["train", "toy", "--stop-after", "0"]])  # fmt: skip
def test_commands_that_do_not_exist(arguments: Sequence[str], pals: Pals, tmp_path: Path) -> None:
    answer = pals(*arguments)
    assert answer.code == 2 and "Traceback" not in answer.err and "Usage" in answer.err
    assert contents(tmp_path) == {}


def command_line(*arguments: str, folder: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """`python -m pals ...` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pals", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, **more)


def without_privileges() -> None:
    """Root may write to any folder, unless the process gives these two capabilities away."""
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are of Linux")
@pytest.mark.slow
def test_a_folder_that_nobody_may_write_to_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text("item,annotator,label\n1,ann,a\n1,bob,b\n")
    (tmp_path / "closed").mkdir(mode=0o555)
    for out in ("closed", "closed/new/run"):
        failed = command_line("fit", "votes.csv", "--no-images", "--out", out, folder=tmp_path, preexec_fn=without_privileges)
        assert failed.returncode == 2
        remedy = "Please choose a folder that you may write to."
        assert failed.stderr.splitlines() == [f"Error: Nothing can be written to {out}: Permission denied. {remedy}"]
    assert not failed.stdout  # not even that the answers were read


@pytest.mark.slow
def test_from_a_real_process(tmp_path: Path) -> None:
    answer = command_line("train", "digits", "--method", "[bold]pls", "--out", "run", folder=tmp_path)
    assert answer.returncode == 2 and answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("Error: Unknown method '[bold]pls': ") and contents(tmp_path) == {}


SLIPS = [
    ("gone.csv --out run", "gone.csv does not exist. Check the name of the file with the answers."),
    ("votes.csv --out run --truth gone.csv", "gone.csv does not exist. Check the name of the file for --truth."),
    ("votes.csv --out run --taxonomy pipe", "pipe: this is a pipe or a device, not a file."),
    (f"votes.csv --out {300 * 'x'}", "xxx': File name too long. Choose another name."),
    ("votes.csv --out run --set train", "Cannot read the setting 'train'"),
]


def test_slips_in_a_command_are_told_before_anything_large_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text("item,annotator,label\na,ann,x\nb,ann,y\n")
    os.mkfifo(tmp_path / "pipe")
    code = (
        "import sys\nfrom pals.cli import main\n"
        f"for slip in {[slip for slip, _ in SLIPS]!r}:\n"
        "    sys.argv = ['pals', 'fit', '--no-images', *slip.split()]\n"
        "    try:\n        main()\n    except SystemExit as end:\n        print(end.code)\n"
        "print([name for name in ('torch', 'pandas', 'scipy', 'sklearn') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "500"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split("\n")[:-1] == ["2"] * len(SLIPS) + ["[]"]
    for said, (_, expected) in zip(done.stderr.splitlines(), SLIPS, strict=True):
        assert expected in said
