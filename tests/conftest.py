"""Fixtures shared by all tests. Nothing here touches a person's own folders."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.bigram import BigramPair, make_pair

# Whoever starts the tests in the background may have told this process to ignore these; children would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

_FOLDERS = {
    "XDG_CONFIG_HOME": "config",
    "XDG_DATA_HOME": "data",
    "XDG_STATE_HOME": "state",
    "XDG_CACHE_HOME": "cache",
    "HF_HOME": "hf",
}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has its own config, data, state, cache and hub folders, and none of the person's
    variables."""
    for variable in list(os.environ):
        if variable.startswith(("LOCALSPEC_", "HF_")) and not variable.startswith("LOCALSPEC_TEST_"):
            monkeypatch.delenv(variable)
    for variable, folder in _FOLDERS.items():
        monkeypatch.setenv(variable, str(tmp_path / folder))
    for variable in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="session")
def bigram(tmp_path_factory: pytest.TempPathFactory) -> BigramPair:
    """Target and draft with exactly known distributions."""
    return make_pair(tmp_path_factory.mktemp("bigram"))


@pytest.fixture(scope="session")
def real_pair() -> tuple[Path, Path]:
    """A real target and draft; skips when there is none."""
    paths = [os.environ.get(f"LOCALSPEC_TEST_{part}", "") for part in ("TARGET", "DRAFT")]
    if not all(path and Path(path).exists() for path in paths):
        pytest.skip("LOCALSPEC_TEST_TARGET and LOCALSPEC_TEST_DRAFT do not point at files")
    return Path(paths[0]), Path(paths[1])
