"""Bad input is one clear sentence and exit code 2; nothing is half-written and no traceback is shown."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from _toy import TINY, Answer, assert_same, toy_candidates, toy_data
from pals.data import DATASETS
from pals.data.dataset import Dataset, Items
from pals.labels.candidates import CandidateSets, Truth
from pals.training.checkpoint import load_checkpoint
from pals.util.errors import InputError
from pals.vision.networks import build_network

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
        assert lines[0].startswith("Error: ")
        assert lines[0].endswith((".", "?"))
        assert answer.out == ""
        return lines[0].removeprefix("Error: ")

    return check


UNKNOWN = [
    (["--method", "pls"], "Unknown method 'pls': did you mean 'pals'? Known: "),
    (["--set", "method.name=averge"], "Unknown method 'averge': did you mean 'average'? Known: "),
    (["--set", "data.name=digts"], "Unknown data set 'digts': did you mean 'digits'? Known: "),
    (["--set", "train.bathc_size=3"], "Unknown setting 'train.bathc_size': did you mean 'train.batch_size'? Known: "),
    (["--set", "method.neighbours=3"], "Unknown setting 'method.neighbours': did you mean 'method.neighbors'? Known: "),
    (["--set", "trian.lr=3"], "Unknown section 'trian': did you mean 'train'? Known: "),
    (["--set", "method.preset=oficial"], "Unknown preset of pals 'oficial': did you mean 'official'? Known: "),
    (["--preset", "smal"], "Unknown preset of pals 'smal': did you mean 'small'? Known: official, paper, small."),
    (
        ["--set", "method.delta=al"],
        "Setting method.delta = 'al': Input should be a valid number, unable to parse string as a "
        "number, or: Input should be 'all'.",
    ),
    (["--set", "network.name=resnet81"], "Unknown network 'resnet81': did you mean 'resnet18'? Known: "),
    (["--device", "cdua"], "Unknown device 'cdua': did you mean 'cuda'? Known: auto, cpu, cuda, "),
    (["--device", "meta"], "Unknown device 'meta': "),
    (["--protocol", "g7"], "Setting data.protocol = 'g7': Input should be 'g1', 'g2', 'g3' or 'g4'."),
    (["--precision", "fp8"], "Setting engine.precision = 'fp8': Input should be 'auto', 'fp32', 'tf32', 'bf16' or 'fp16'."),
]


@pytest.mark.parametrize(("flags", "message"), UNKNOWN, ids=lambda value: value[-1] if isinstance(value, list) else "")
def test_unknown_words_name_the_nearest_known_one(flags: list[str], message: str, refused: Callable[..., str]) -> None:
    assert refused(*TRAIN, *flags, "--out", "run").startswith(message)


VALUES = [
    (["--set", "train.lr=0"], "Setting train.lr = 0: Input should be greater than 0."),
    (["--set", "train.lr=.inf"], "Setting train.lr = inf: Input should be a finite number."),
    (["--set", "train.lr=nan"], "Setting train.lr = nan: Input should be a finite number."),
    (["--set", "train.lr=fast"], "Setting train.lr = 'fast': "),
    (["--set", "train.lr"], "Cannot read the setting 'train.lr'; write it as section.key=value"),
    (["--set", "train=5"], "Setting train = 5: this is a section; write train.key=value."),
    (["--set", "train.milestones=[1"], "Cannot read the setting 'train.milestones=[1', line 1: "),
    (["--set", "seed=-1"], "Setting seed = -1: a seed is a whole number from 0 to 4294967295."),
    (["--epochs", "0"], "Setting train.epochs = 0: "),
    (["--noise-rate", "1.5"], "Setting data.noise_rate = 1.5: "),
    (["--partial-rate", "-0.1"], "Setting data.partial_rate = -0.1: "),
    (["--protocol", "g3", "--partial-rate", "0"], "Protocol g3 puts at least one wrong label into every set, but "),
    (["--set", "data.draws=official", "--protocol", "g2"], "The official draws exist only for protocol g1; "),
    (["--set", "method.neighbors=90"], "90 neighbours are to vote, but each of the 90 items has only 89 others."),
    (["--set", "network.name=resnet18"], "Network 'resnet18' reads images, but one input has shape (6,)."),
    (["--precision", "fp16"], "Precision 'fp16' needs a CUDA device; on the CPU use fp32 or bf16."),
    (["--seeds", "1,x"], "--seeds '1,x': write how many (3: seeds 1, 2 and 3) or which (1,4); one seed alone is --seed 5."),
    (["--seeds", ""], "--seeds '': write how many "),
    (["--seeds", "1,,2"], "--seeds '1,,2': write how many "),
    (["--seeds", "5,"], "--seeds '5,': write how many "),
    (["--seeds", "1.5"], "--seeds '1.5': write how many "),
    (["--seeds", "3,1,3"], "--seeds '3,1,3' names a seed twice."),
    (["--seeds", "0"], "--seeds 0: how many seeds? At least 1; seed 0 alone is --seed 0."),
    (["--seeds", "2024"], "--seeds 2024 would be 2,024 runs, of seeds 1 to 2,024. Seed 2024 alone is --seed 2024."),
    (["--seeds", "1,4294967296"], "--seeds 4294967296: a seed is a whole number from 0 to 4294967295."),
    (["--seed", "-4"], "--seed -4: a seed is a whole number from 0 to 4294967295."),
    (["--seeds", "3", "--seed", "5"], "--seeds and --seed cannot be combined; write all seeds as --seeds 1,4,5."),
    (["--method", "[/bold]"], "Unknown method '[/bold]': Known: "),
]


@pytest.mark.parametrize(
    ("flags", "message"), VALUES, ids=lambda value: " ".join(value[-1:]) if isinstance(value, list) else ""
)
def test_impossible_values(flags: list[str], message: str, refused: Callable[..., str]) -> None:
    assert refused(*TRAIN, *flags, "--out", "run").startswith(message)


OPTIONS = [
    ("dividemix", ["label_seed=4294967296"], "Setting method.label_seed = 4294967296: "),
    ("irnet", ["tau_end=1"], "method.tau_end is where method.tau ends; give that one too, or leave both out."),
    ("pico+", ["delta=1", "noise_rate=0"], "method.delta and method.noise_rate both say how many items are reliable; set one"),
    ("alim-scale", ["lambda_step=0.1", "noise_rate=0"], "method.lambda_step and method.noise_rate both say how lambda is set;"),
]


@pytest.mark.parametrize(("method", "options", "message"), OPTIONS)
def test_options_that_do_not_go_together(method: str, options: list[str], message: str, refused: Callable[..., str]) -> None:
    flags = [word for option in options for word in ("--set", f"method.{option}")]
    assert refused("train", "digits", "--method", method, *flags, "--out", "run").startswith(message)


@pytest.mark.parametrize(("flag", "key"), [("--protocol=g3", "protocol"), ("--noise-rate=0.4", "noise_rate")])
def test_rates_for_what_people_answered(
    flag: str, key: str, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = toy_data()
    monkeypatch.setitem(DATASETS, "toy", lambda **_: replace(data, votes=toy_candidates(data)))
    said = refused(*TRAIN, flag, "--out", "run")
    assert said.startswith(f"Setting data.{key} = ")
    assert said.endswith("the candidates of toy are people's answers; leave this out.")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there(refused: Callable[..., str]) -> None:
    said = refused(*TRAIN, "--device", "cuda:1", "--out", "run")
    assert said == "Device 'cuda:1': this machine shows 0 CUDA devices. Use --device cpu or auto."


SETTINGS_FILES = [
    (b"train: [1", "Cannot read settings.yaml, line 1: "),
    (b"train:\n  lr: 0.1\n lr: 3\n", "Cannot read settings.yaml, line 3: "),
    (b"- train\n", "settings.yaml should hold sections such as `train:`; found list."),
    (b"trian:\n  lr: 1\n", "Unknown section 'trian': did you mean 'train'?"),
    (b"train:\n  lrr: 1\n", "Unknown setting 'train.lrr': did you mean 'train.lr'?"),
    (b"method: average\n", "Setting method = 'average': this is a section; write method.key=value."),
    (b"\xff\xfe\x00", "Cannot read the settings file settings.yaml: "),
]


@pytest.mark.parametrize(("text", "message"), SETTINGS_FILES)
def test_bad_settings_files(text: bytes, message: str, refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_bytes(text)
    assert refused("train", "--config", "settings.yaml", "--out", "run").startswith(message)


def test_no_settings_file(refused: Callable[..., str]) -> None:
    said = refused("train", "--config", "nowhere.yaml", "--out", "run")
    assert said.startswith("Cannot read the settings file nowhere.yaml: ")


def broken(**changes: Any) -> Callable[..., Dataset]:
    return lambda **_: replace(toy_data(), **changes)


def with_nan() -> Items:
    items = toy_data().train
    items.inputs[41, 3] = float("nan")
    return items


DATA: dict[str, tuple[Callable[..., Dataset], str]] = {
    "a label outside the classes": (
        lambda **_: replace(toy_data(), truth=Truth.of([0, 1, 3] * 30, toy_data().class_names)),
        "True label 3 of item 2 lies outside the 3 classes (0 to 2).",
    ),
    "NaN features": (broken(train=with_nan()), "1 of 90 items hold NaN or infinity; the first is 'train-41'."),
    "one class only": (
        lambda **_: replace(toy_data(), class_names=("cat",), truth=Truth.of([0] * 90, ("cat",))),
        "Only one class (cat): there is nothing to tell apart.",
    ),
    "fewer items than neighbours": (
        lambda **_: toy_data(items=5),
        "5 neighbours are to vote, but each of the 5 items has only 4 others.",
    ),
    "no items": (lambda **_: toy_data(items=0), "There are no items to make candidate sets for."),
    "more inputs than names": (
        broken(train=Items(torch.zeros(91, 6), toy_data().train.ids)),
        "There are 91 inputs but candidate sets for 90 items.",
    ),
}


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("case", DATA)
def test_bad_data(case: str, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    loader, message = DATA[case]
    monkeypatch.setitem(DATASETS, "toy", loader)
    assert refused(*TRAIN, "--out", "run").startswith(message)


def test_candidate_sets_that_mean_nothing() -> None:
    with pytest.raises(InputError, match=r"1 of 3 items have no candidate label; the first is 'b'\."):
        CandidateSets.from_matrix([[1, 0], [0, 0], [1, 1]], ids=["a", "b", "c"])
    with pytest.raises(InputError, match=r"Label 7 of item '1' lies outside the 3 classes"):
        CandidateSets.from_lists([[0], [7]], class_names=["a", "b", "c"])
    with pytest.raises(InputError, match=r"at least two classes"):
        build_network("mlp", (6,), 1)


def test_images_that_are_not_there(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    said = refused("train", "cifar10", "--data-dir", "data", "--device", "cpu", "--out", "run")
    assert "data" in said


def test_downloads_that_go_nowhere(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALS_DATA", raising=False)
    assert refused("data", "fetch", "cifar10") == "Name a folder for the data with --data-dir, or set PALS_DATA."
    assert "did you mean 'cifar10'?" in refused("data", "fetch", "cifar1", "--data-dir", "data")


def test_folders_that_hold_something_else(pals: Pals, refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    (tmp_path / "[x]").mkdir()
    (tmp_path / "[x]" / "notes.txt").write_text("mine")
    other = "exists, but does not hold a PALS run. Choose another --out, or empty it first."
    assert refused(*TRAIN, "--out", "file") == f"file {other}"
    assert refused(*TRAIN, "--out", "folder") == f"folder {other}"
    assert refused(*TRAIN, "--seeds", "1,2", "--out", "folder") == f"folder {other}"
    assert refused("demo", "--out", "folder", "--device", "cpu") == f"folder {other}"
    assert refused("demo", "--fresh", "--out", "folder", "--device", "cpu") == f"folder {other}"
    assert refused(*TRAIN, "--out", "[x]") == f"[x] {other}"  # a name, not markup
    assert "Could not write" in refused(*TRAIN, "--out", "file/inside")
    (tmp_path / "empty").mkdir()
    assert pals(*TRAIN, "--out", "empty").code == 0


def test_folders_that_hold_another_run(pals: Pals, refused: Callable[..., str]) -> None:
    assert pals(*TRAIN, "--out", "run").code == 0
    other = "belongs to a run with other settings: "
    assert refused(*TRAIN, "--noise-rate", "0.1", "--out", "run").startswith(
        f"run/config.yaml {other}data.noise_rate is 0.3 there and 0.1 here. Choose another output folder, or "
    )
    assert f"{other}seed is 1 there and 5 here" in refused(*TRAIN, "--seed", "5", "--out", "run")
    assert f"{other}method.name is 'pals' there and 'average' here" in refused(
        "train", "toy", "--method", "average", "--set", "network.name=mlp", "--device", "cpu", "--out", "run"
    )
    single = "run is the folder of a single run. Choose another --out for several."
    assert refused(*TRAIN, "--seeds", "1,2", "--out", "run") == single
    assert refused("demo", "--out", "run", "--device", "cpu") == single
    assert refused("demo", "--fresh", "--out", "run", "--device", "cpu") == single


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 16
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


@pytest.mark.parametrize("damage", [flip, truncate, lambda path: path.write_text("hello"), lambda path: path.write_bytes(b"")])
def test_damaged_checkpoints(damage: Callable[[Path], None], pals: Pals, refused: Callable[..., str], tmp_path: Path) -> None:
    pals(*TRAIN, "--out", "run", "--stop-after", "1")
    damage(tmp_path / "run" / "checkpoint.pt")
    message = "The checkpoint run/checkpoint.pt cannot be read (its checksum is wrong). It is truncated, damaged or not a "
    assert refused(*TRAIN, "--out", "run").startswith(message)
    assert refused("evaluate", "run", "--device", "cpu").startswith(message)


def test_a_checkpoint_of_another_run(pals: Pals, refused: Callable[..., str], tmp_path: Path) -> None:
    pals(*TRAIN, "--out", "one")
    pals(*TRAIN, "--seed", "2", "--out", "two")
    shutil.copy(tmp_path / "two" / "checkpoint.pt", tmp_path / "one" / "checkpoint.pt")
    message = "one/checkpoint.pt belongs to a run with other settings: seed is 2 there and 1 here."
    assert refused(*TRAIN, "--out", "one").startswith(message)
    assert refused("evaluate", "one").startswith(message)


def test_a_checkpoint_of_other_data(pals: Pals, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same settings, but the data set has grown since."""
    pals(*TRAIN, "--out", "run", "--stop-after", "1")
    monkeypatch.setitem(DATASETS, "toy", lambda **_: toy_data(items=120))
    assert refused(*TRAIN, "--out", "run").startswith("run holds a run on different items or candidate sets.")
    message = "The checkpoint run/checkpoint.pt does not fit this data, device or version ("
    assert refused("evaluate", "run", "--device", "cpu").startswith(message)


def test_run_folders_changed_by_hand(pals: Pals, refused: Callable[..., str], tmp_path: Path) -> None:
    pals(*TRAIN, "--out", "run", "--stop-after", "1")
    log = (tmp_path / "run" / "log.jsonl").read_text()
    (tmp_path / "run" / "log.jsonl").write_text("hello\n" + log)
    assert refused(*TRAIN, "--out", "run").startswith("run/log.jsonl, line 1 is not JSON.")
    (tmp_path / "run" / "log.jsonl").write_text(log)
    (tmp_path / "run" / "config.yaml").write_text("train: [")
    assert refused(*TRAIN, "--out", "run").startswith("Cannot read run/config.yaml, line 1: ")
    assert refused("evaluate", "run").startswith("Cannot read run/config.yaml, line 1: ")


def test_nothing_to_evaluate(pals: Pals, refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        assert refused("evaluate", name).startswith(f"{name} is not a run folder: it has no config.yaml.")
    pals(*TRAIN, "--out", "run", "--stop-after", "1")
    (tmp_path / "run" / "checkpoint.pt").unlink()
    assert refused("evaluate", "run") == "There is no checkpoint run/checkpoint.pt."


@pytest.mark.parametrize("arguments", [["trian"], ["train", "--metod", "pals"], ["train", "--epochs", "x"], ["evaluate"],
                                       ["train", "toy", "--stop-after", "0"]])  # fmt: skip
def test_commands_that_do_not_exist(arguments: Sequence[str], pals: Pals, tmp_path: Path) -> None:
    answer = pals(*arguments)
    assert answer.code == 2
    assert "Traceback" not in answer.err
    assert "Usage" in answer.err
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
def test_no_room_left_while_saving(pals: Pals, tmp_path: Path) -> None:
    """A real failure: the system lets no file grow beyond 100 kB. The last checkpoint stays, and with room the run goes on."""
    command = ("train", "digits", "--epochs", "3", "--device", "cpu")
    command += ("--set", "train.batch_size=256", "--set", "method.consistency=false")
    assert pals(*command, "--out", "run", "--stop-after", "1").code == 0
    before = contents(tmp_path / "run")

    def little_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    failed = command_line(*command, "--out", "run", folder=tmp_path, preexec_fn=little_room)
    assert failed.returncode == 2
    (line,) = failed.stderr.splitlines()
    assert line.startswith("Error: Could not write run/checkpoint.pt (")
    assert line.endswith(
        "bytes): File too large. What was there before is intact; make room or choose another folder, then run the same "
        "command again to continue."
    )
    after = contents(tmp_path / "run")
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {"log.jsonl"}
    assert load_checkpoint(tmp_path / "run" / "checkpoint.pt")["progress"]["total"] == 1

    assert pals(*command, "--out", "run").code == 0
    assert pals(*command, "--out", "whole").code == 0
    assert_same(*(load_checkpoint(tmp_path / name / "checkpoint.pt") for name in ("run", "whole")))


@pytest.mark.slow
def test_from_a_real_process(tmp_path: Path) -> None:
    answer = command_line("train", "digits", "--method", "[bold]pls", "--out", "run", folder=tmp_path)
    assert answer.returncode == 2
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("Error: Unknown method '[bold]pls': ")
    assert contents(tmp_path) == {}


SLIPS = [
    ("votes.csv", "Name a folder for the results"),
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
