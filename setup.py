"""Builds what the wheel has beside the module: the command, the C library, its compiler wrappers.

All of it is what `make prefix` gives, so an environment of Python has what PREFIX has. A wheel has
no links: a link is a copy here, or a script.

SETUPTOOLS_RUST_CARGO_PROFILE=dev builds quickly, for tests.
"""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

from setuptools import setup  # before distutils, which it stands in for
from distutils.command.install_data import install_data  # isort: skip

ROOT = Path(__file__).resolve().parent
CARGO = os.environ.get("CARGO", "cargo")
PROFILE = os.environ.get("SETUPTOOLS_RUST_CARGO_PROFILE", "release")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()

OSHRUN = """#!/bin/sh
exec "$(dirname "$(readlink -f -- "$0")")/memonet" oshrun "$@"
"""


def version():
    with open(ROOT / "Cargo.toml", "rb") as file:
        return tomllib.load(file)["workspace"]["package"]["version"]


def prefix():
    """Builds the command and the C library; gives the folder in which they are installed."""
    build = [CARGO, "build", "--profile", PROFILE, "-p", "memonet-cli", "-p", "memonet-shmem"]
    subprocess.run(build, cwd=ROOT, check=True)
    built = TARGET / ("debug" if PROFILE == "dev" else PROFILE)
    made = TARGET / "wheel"
    subprocess.run([ROOT / "crates/shmem/tools/prefix", built, made], check=True)
    oshrun = made / "bin/oshrun"
    oshrun.unlink()
    oshrun.write_text(OSHRUN)
    oshrun.chmod(0o755)
    library = made / "lib"
    for name in ("libmemonet.so", "libmemonet.so.0"):
        (library / name).unlink()
        shutil.copy(library / f"libmemonet.so.{version()}", library / name)
    (library / f"libmemonet.so.{version()}").unlink()
    return made


class Install(install_data):
    """Adds the files of the prefix, which are not known before they are built."""

    def run(self):
        made = prefix()
        for path in sorted(path for path in made.rglob("*") if path.is_file()):
            folder = path.parent.relative_to(made)
            self.data_files.append((str(folder), [os.path.relpath(path, ROOT)]))
        super().run()


# `bdist_wheel` asks for data only where there are any.
setup(version=version(), data_files=[("share/doc/memonet", ["README.md"])], cmdclass={"install_data": Install})
