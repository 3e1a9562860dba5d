"""Completion by the shell: a real bash asks the real program; zsh and fish get their scripts and answers."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from pals.cli import app

PROGRAM = "import sys; from pals.cli import main; sys.argv[0] = 'pals'; main()"
ASK = """
eval "$(_PALS_COMPLETE=source_bash pals)"
COMP_WORDS=({words}) COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
[ -n "$(complete -p pals)" ] && _pals_completion pals
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With a program `pals` on the path, as an installation has it."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "pals"
    program.write_text(f'#!/bin/sh\nexec \'{sys.executable}\' -c "{PROGRAM}" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    source = Path(__file__).parents[2] / "src"
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(source)}


def bash(environment: dict[str, str], *words: str) -> list[str]:
    """What bash offers when Tab is pressed at the end of the last of these words."""
    script = ASK.format(words=" ".join(f"'{word}'" for word in words))
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [(("pals", "re"), {"relabel", "review", "report", "recipes"}), (("pals", "data", "f"), {"fetch"}),
     (("pals", "demo", "--q"), {"--quick"}),
     pytest.param(("pals", "train", "--method", "srse", "--preset", "fa"), {"fast"}, marks=pytest.mark.slow)],
)  # fmt: skip
def test_bash_completes_commands_options_and_values(
    words: tuple[str, ...], expected: set[str], environment: dict[str, str]
) -> None:
    assert set(bash(environment, *words)) == expected


@pytest.mark.parametrize(
    ("command", "option", "incomplete", "expected"),
    [("train", "data", "cifar100", ["cifar100", "cifar100h"]),
     ("train", "method", "alim", ["alim-scale", "alim-onehot"]), ("train", "preset", "small", ["small"]),
     ("train", "encoder", "pat", ["patches"]), ("fit", "method", "closed", ["closed-form"]),
     ("fit", "encoder", "a", ["auto"]), ("methods", "name", "srs", ["srse"])],
)  # fmt: skip
def test_values_that_are_names(command: str, option: str, incomplete: str, expected: list[str]) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    (parameter,) = [found for found in group.commands[command].params if found.name == option]
    offered = parameter.shell_complete(typer.Context(group.commands[command]), incomplete)
    assert [item.value for item in offered] == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["pals"], env={**environment, "_PALS_COMPLETE": f"source_{shell}"}, capture_output=True, text=True, check=True
    )
    assert f"complete_{shell}" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


@pytest.mark.parametrize(("shell", "expected"), [("zsh", '"encoders"'), ("fish", "encoders")])
def test_zsh_and_fish_are_answered(shell: str, expected: str, environment: dict[str, str]) -> None:
    asked = {"_PALS_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "pals enc"}
    asked |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_WORD_TO_COMPLETE": "enc"}
    done = subprocess.run(["pals"], env={**environment, **asked}, capture_output=True, text=True, check=True)
    assert expected in done.stdout


def test_the_shell_is_asked_to_load_it(environment: dict[str, str], tmp_path: Path) -> None:
    """Into the files of a home that is not the user's."""
    home = {**environment, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    subprocess.run(["pals", "--install-completion", "bash"], env=home, capture_output=True, check=True)
    assert "_pals_completion" in (tmp_path / ".bash_completions" / "pals.sh").read_text()
    assert "pals.sh" in (tmp_path / ".bashrc").read_text()
