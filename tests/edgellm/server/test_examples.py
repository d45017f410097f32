"""docs/examples: units of systemd and launchd that their readers take, with command lines that ours takes."""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from configparser import ConfigParser
from pathlib import Path

import pytest

from edgellm.cli.dispatch import make_parser
from edgellm.cli.options import engine_config
from edgellm.cli.serve import server_settings

ROOT = Path(__file__).parents[3]


def parse(words: list[str]) -> Namespace:
    assert Path(words[0]).name == "edgellm" and words[1] == "serve"
    parser, command = make_parser("serve")
    args: Namespace = command.read_words(parser, words[2:])  # type: ignore[attr-defined]
    engine_config(args)
    return args


def test_the_unit_of_systemd() -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "docs/examples/edgellm.service", "utf-8")
    settings = server_settings(parse(shlex.split(unit["Service"]["ExecStart"])))
    assert float(unit["Service"]["TimeoutStopSec"]) >= settings.stop_timeout + 10


def test_systemd_takes_it(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("no systemd-analyze here")
    text = (ROOT / "docs/examples/edgellm.service").read_text("utf-8")
    copy = tmp_path / "edgellm.service"
    copy.write_text(text.replace("%h/.local/bin/edgellm", sys.executable), "utf-8")
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([tool, "--user", "verify", str(copy)], capture_output=True, text=True, env=environment)
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd-analyze does not run here: {done.stderr.strip()}")
    assert done.returncode == 0 and "edgellm.service" not in done.stderr, done.stderr


def test_the_agent_of_launchd() -> None:
    agent = plistlib.loads((ROOT / "docs/examples/edgellm.plist").read_bytes())
    settings = server_settings(parse(agent["ProgramArguments"]))
    assert agent["ExitTimeOut"] >= settings.stop_timeout + 10
    assert agent["Label"] == "edgellm" and agent["RunAtLoad"] is True
