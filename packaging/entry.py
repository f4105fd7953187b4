"""First code of the app folder: localspec's command line, and `python -m localspec...` for its own processes."""

import multiprocessing
import os
import runpy
import sys

from localspec.engine.process.subprocesses import MODULE_FLAG


def restore_library_path() -> None:
    """Programs that we start, nvidia-smi for one, must find the system's libraries and not the folder's."""
    original = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    if original:
        os.environ["LD_LIBRARY_PATH"] = original
    elif getattr(sys, "frozen", False):
        os.environ.pop("LD_LIBRARY_PATH", None)


def main() -> int:
    multiprocessing.freeze_support()
    restore_library_path()
    if len(sys.argv) > 2 and sys.argv[1] == MODULE_FLAG and sys.argv[2].split(".")[0] == "localspec":
        module = sys.argv[2]
        sys.argv[:] = [sys.argv[0], *sys.argv[3:]]
        runpy.run_module(module, run_name="__main__", alter_sys=False)
        return 0
    from localspec.cli.main import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
