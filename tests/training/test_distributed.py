"""Several processes for one run: what they share, what they refuse, how they end. (Every method: tests/methods.)"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from _ranks import by_several, free_port, variables, weighted_sum
from _toy import Answer, assert_same, run_all, toy_data, toy_trainer, without_seconds
from pals.data.row_source import TensorRows
from pals.runs import torchrun as processes
from pals.training.distributed import ALONE, PeerError, Ranks, joined, ranks_from_environment
from pals.training.engine import EngineConfig
from pals.util.errors import InputError
from pals.util.files import read_json, read_json_lines
from pals.vision.networks import build_network

SHARED = EngineConfig(device="cpu", sync_norms=True)


class CountingRows(TensorRows):
    """Counts the rows that are read."""

    read = 0

    def take(self, index: Tensor) -> Tensor:
        self.read += len(index)
        return super().take(index)


def said(work: Callable[[], Any]) -> tuple[str, str]:
    """The kind of error, and its words."""
    with pytest.raises(InputError) as caught:
        work()
    return type(caught.value).__name__, str(caught.value)


def gradients(ranks: Ranks = ALONE) -> Tensor:
    """Of a loss that is no mean over items, by a network with norms and a head beside it, for two views of an odd number of
    items; and the running statistics. In float64, so that nothing but a mistake makes a difference."""
    torch.manual_seed(3)
    network, head = build_network("small-resnet", (1, 8, 8), 4).double(), torch.nn.Linear(4, 2).double()
    parts = torch.nn.ModuleList([network, head])
    optimizer = torch.optim.SGD(parts.parameters())
    ranks = replace(ranks, sync_norms=True)
    with ranks.sharded():
        outputs = network.each(list(torch.randn(2, 7, 1, 8, 8, dtype=torch.float64)))
        logits = torch.cat([output.logits for output in outputs])
        (logits.logsumexp(dim=0).square().mean() * head(logits).exp().sum().log()).backward()
        ranks.average_gradients(optimizer)
    found = [parameter.grad for parameter in parts.parameters() if parameter.grad is not None]
    return torch.cat([value.flatten() for value in [*found, *network.buffers()]])


def settled(ranks: Ranks) -> dict[str, Any]:
    """What two processes have that had different numbers, and the bytes of the longest row that they were copied into."""
    torch.manual_seed(ranks.rank)
    module = torch.nn.Conv2d(100, 300, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for name, value in {"table": torch.rand(60_000, 5), "some": torch.rand(600_000, 2) < 0.5, "few": torch.rand(7)}.items():
        module.register_buffer(name, value)
    copied, cat = list[int](), torch.cat

    def spy(parts: Any, *arguments: Any) -> Tensor:
        copied.append(sum(part.nbytes for part in parts))
        return cat(parts, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "cat", spy)
        ranks.sync_module(module)
    return {
        "state": {name: weighted_sum(value) for name, value in module.state_dict().items()},
        "copied": max(copied, default=0),
    }


def everything(ranks: Ranks) -> dict[str, Any]:
    """What two processes do, in one go."""
    found: dict[str, Any] = {"any": (ranks.any(ranks.rank == 1), ranks.any(False)), "told": ranks.broadcast(ranks.rank + 5)}
    found["rows"] = ranks.rows(torch.arange(7)).tolist()
    found["gathered"] = ranks.gathered(ranks.rows(torch.arange(7)), 7).tolist()
    found["same"] = ranks.broadcast_tensors({"x": torch.full((3 - ranks.rank,), ranks.rank == 0)})["x"].tolist()

    with joined() as again:  # of those who have met already
        found["met"] = again == ranks
    marks = {"code": "a", "data": "b" if ranks.is_first else "c"}
    found["other data"] = said(lambda: ranks.refuse_differences(marks))

    def fail() -> None:
        with ranks.raise_together():
            if ranks.rank == 1:
                raise InputError("Disk full.")

    found["one fails"] = said(fail)
    found["first fails"] = said(lambda: ranks.once(lambda: toy_trainer("nonsense")))

    found["settled"] = settled(ranks)
    found["gradients"] = gradients(ranks)
    rows = CountingRows(toy_data().train.inputs)
    data = replace(toy_data(), train=replace(toy_data().train, inputs=rows))
    found["streamed"] = [record["loss"] for record in run_all(toy_trainer("average", data, engine=SHARED, ranks=ranks), 1)]
    found["read"] = rows.read

    folder = Path(sys.argv[-1])
    begun = toy_trainer("pico", engine=SHARED, ranks=ranks, folder=folder / "by two" if ranks.is_first else None)
    found["begun"] = without_seconds(run_all(begun, 2))
    taken = toy_trainer("pico", engine=SHARED, ranks=ranks, folder=folder / "by one" if ranks.is_first else None)
    found["resumed"] = taken.resume()
    found["taken over"] = without_seconds(run_all(taken))
    return found


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """The folder of two runs, one begun by a single process, and what both processes say. They are started once."""
    folder = tmp_path_factory.mktemp("runs")
    run_all(toy_trainer("pico", engine=SHARED, folder=folder / "by one"), 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [sys.argv[0], str(folder)])  # which a new process is given
        first, second = by_several(2, everything)
    return folder, first, second


Asked = tuple[Path, dict[str, Any], dict[str, Any]]


def test_rows_are_shared_and_values_broadcast_as_by_one(asked: Asked) -> None:
    _, first, second = asked
    assert (first["rows"], second["rows"]) == ([0, 1, 2], [3, 4, 5, 6])
    for found in (first, second):
        assert found["gathered"] == list(range(7))
        assert (found["any"], found["told"], found["same"]) == ((True, False), 5, [True, True, True]) and found["met"]
    _, first, second = asked
    torch.testing.assert_close(first["gradients"], gradients(), rtol=1e-9, atol=1e-12)
    assert torch.equal(first["gradients"], second["gradients"])
    _, first, second = asked
    assert first["settled"] == second["settled"] and first["settled"]["state"] == settled(ALONE)["state"]
    assert first["settled"]["copied"] < 10_000  # bias and `few`; the tables have 1.2 MB each
    _, first, second = asked
    assert (first["read"], second["read"]) == (45, 45)
    alone = run_all(toy_trainer("average", engine=SHARED), 1)
    assert first["streamed"] == pytest.approx([alone[0]["loss"]], abs=1e-5)


def test_what_goes_wrong_is_said_once(asked: Asked) -> None:
    _, first, second = asked
    need = "All processes of a run need the same code, settings and data."
    assert first["other data"] == ("InputError", f"Processes 0 and 1 of 2 have different data. {need}")
    assert first["one fails"] == ("InputError", "Process 1 of 2: Disk full.")
    assert first["first fails"][1].startswith("Unknown method 'nonsense'")
    assert {second[what][0] for what in ("other data", "one fails", "first fails")} == {PeerError.__name__}


def test_a_run_goes_on_with_another_number_of_processes(asked: Asked) -> None:
    """Begun by two and ended by one, or the other way round: the same losses as by one alone, in one log."""
    folder, first, second = asked
    whole = run_all(toy_trainer("pico", engine=SHARED))
    ended = toy_trainer("pico", engine=SHARED, folder=folder / "by two")
    assert ended.resume()
    run_all(ended)
    assert (first["resumed"], second["resumed"]) == (True, True)
    assert_same(first["taken over"], second["taken over"])
    for name in ("by one", "by two"):
        logged = [event["loss"] for event in read_json_lines(folder / name / "log.jsonl")]
        assert logged == pytest.approx([record["loss"] for record in whole], abs=1e-5)


def test_one_process_is_alone_and_devices_and_norms_are_checked() -> None:
    x = torch.arange(3)
    assert ALONE.rows(x) is not None and ALONE.gathered(x, 3) is x
    assert ALONE.broadcast(x) is x and ALONE.once(lambda: 4) == 4 and not ALONE.any(False)
    with pytest.raises(InputError, match="as it is"), ALONE.raise_together():
        raise InputError("as it is")
    from pals.training.engine import _shared_device

    with pytest.raises(InputError, match="Device 'cuda:1' is one, but 2 processes"):
        _shared_device(torch.device("cuda:1"), Ranks(0, 2))
    assert _shared_device(torch.device("cpu"), Ranks(0, 2)) == torch.device("cpu")
    parts = torch.nn.Sequential(build_network("small-cnn", (1, 8, 8), 4), torch.nn.BatchNorm1d(3))
    Ranks(0, 2).check_norms(parts)
    Ranks(0, 2, sync_norms=True).check_norms(parts[0])
    Ranks(0, 1, sync_norms=True).check_norms(parts)
    with pytest.raises(InputError, match="The norm 1 is torch's own"):
        Ranks(0, 2, sync_norms=True).check_norms(parts)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [({}, Ranks(1, 4, 1)), ({"MASTER_PORT": None}, ALONE), ({"RANK": "4"}, None), ({"RANK": "-1"}, None),
     ({"WORLD_SIZE": "0"}, None)],
)  # fmt: skip
def test_ranks_from_the_environment(
    changed: dict[str, str | None], expected: Ranks | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Impossible ones are refused: the processes would wait for each other for hours."""
    for name, value in (variables(1, 4, 29500) | changed).items():
        monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name, raising=False)
    if expected is not None:
        assert ranks_from_environment() == expected
    else:
        with pytest.raises(InputError, match=r"RANK .*, WORLD_SIZE .* and LOCAL_RANK 1 do not go together"):
            ranks_from_environment()


def test_an_address_in_use_is_a_sentence(pals: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for name, value in variables(0, 2, port).items():
            monkeypatch.setenv(name, value)
        answer = pals("train", "toy", "--out", "run")
        wrong = pals("train", "toy", "--out", "run", "--processes", "3")
        monkeypatch.setenv("MASTER_PORT", "99999")
        nowhere = pals("train", "toy", "--out", "run")
    assert answer.code == wrong.code == nowhere.code == 2
    assert f"cannot meet at 127.0.0.1:{port}: it is in use." in answer.err
    assert "cannot meet at 127.0.0.1:99999: port must have value from 0 to 65535 but was 99999. Choose" in nowhere.err
    assert "--processes 3, but torchrun has started 2." in wrong.err


def test_the_report_of_torchrun_has_the_sentence(
    pals: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    assert pals("train", "nonsense", "--out", "run").code == 2
    said = read_json(tmp_path / "error.json")["message"]["extraInfo"]["py_callstack"]
    assert said.startswith("pals.util.errors.InputError: Unknown data set 'nonsense'")
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({0: 2, 1: 75}, 2),
        ({1: 75, 0: 2}, 2),
        ({0: 130, 1: 130}, 130),
        ({0: 75, 1: -signal.SIGKILL}, "Process 1 of 2 was killed by SIGKILL"),
        ({0: -signal.SIGTERM, 1: 1}, "Process 1 of 2 failed with exit code 1"),
    ],
)
def test_the_process_that_failed_first_is_named(codes: dict[int, int], expected: int | str) -> None:
    with nullcontext() if isinstance(expected, int) else pytest.raises(InputError, match=expected):
        assert processes._explain(codes, 2) == expected


DIGITS = ("train", "digits", "--method", "average", "--device", "cpu", "--set", "engine.sync_norms=true")


@pytest.mark.slow
def test_a_killed_process_ends_all_and_the_run_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "pals", *DIGITS, "--epochs", "400", "--out", str(folder), "--processes", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        while run.poll() is None and not (folder / "checkpoint.pt").exists():
            time.sleep(0.1)
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(run.pid)], capture_output=True, text=True, check=True)
        victim = max(map(int, children.stdout.split()))
        subprocess.run(["kill", "-9", str(victim)], check=True)
        _, error = run.communicate(timeout=60)
    assert run.returncode == 2
    assert error.strip().startswith("Error: Process 1 of 2 was killed by SIGKILL, so all of them have ended.")
    assert len(error.strip().splitlines()) == 1
    again = subprocess.run([*command, "--stop-after", "1"], capture_output=True, text=True, check=True)
    assert "continuing after epoch" in again.stdout


@pytest.mark.slow
def test_torchrun_and_one_process_write_the_same(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    for name, start in (("one", [sys.executable]), ("two", torchrun)):
        command = [*start, "-m", "pals", *DIGITS, "--epochs", "2", "--out", str(tmp_path / name)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert said.count("Test accuracy") == 1
    one, two = ([e["loss"] for e in read_json_lines(tmp_path / n / "log.jsonl") if "loss" in e] for n in ("one", "two"))
    assert two == pytest.approx(one, rel=1e-4)  # 1.3e-5 apart by the order of sums: one process with one or two threads is too
