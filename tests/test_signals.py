"""Ctrl-C and SIGTERM count wherever in the interpreter they arrive."""

import signal
import subprocess
import sys
import textwrap

import pytest

PROGRAM = textwrap.dedent(
    """
    import signal, sys, time
    from localspec.cli.signals import Terminated, end_politely_on_sigterm, send_lost_signals_again

    class Struck:
        def __del__(self):
            signal.raise_signal(int(sys.argv[1]))

    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_politely_on_sigterm()
    send_lost_signals_again()
    try:
        Struck()
        time.sleep(20)
    except (KeyboardInterrupt, Terminated) as error:
        print(type(error).__name__)
    """
)


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("signum", "name"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "Terminated")])
def test_a_signal_inside_a_finalizer_is_not_lost(signum: int, name: str) -> None:
    ended = run_python(PROGRAM, str(int(signum)))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{name}\n", "")


def test_other_exceptions_in_a_finalizer_are_still_told() -> None:
    program = PROGRAM.replace("signal.raise_signal(int(sys.argv[1]))", "1 / 0").replace("sleep(20)", "sleep(0)")
    ended = run_python(program)
    assert ended.stdout == "" and "ZeroDivisionError" in ended.stderr
