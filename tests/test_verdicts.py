"""What is known about a pair holds for these files, this build and this device, and for nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from localspec.engine.settings import LoadSettings
from localspec.session import verdicts

BENCH = {
    "speedup": 1.4, "low": 1.3, "high": 1.5, "verdict": "pays", "recommended": "on",
    "kinds": {
        "code": {"verdict": "pays"}, "chat": {"verdict": "does not pay"}, "edit": {"verdict": "no measurable gain"},
    },
}  # fmt: skip


HERE = verdicts.conditions(LoadSettings(Path()))


@pytest.fixture(autouse=True)
def processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "cpu_name", lambda: "a CPU")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    files = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    for path in files:
        path.write_bytes(b"GGUF" + path.name.encode() * 1000)
    return files


def test_nothing_is_known_at_first(pair: tuple[Path, Path]) -> None:
    assert verdicts.read(*pair) is None and verdicts.stale_reason(*pair) == ""


def test_what_was_stored_is_read(pair: tuple[Path, Path]) -> None:
    verdicts.store(*pair, "a CPU", bench=BENCH)
    known = verdicts.read(*pair, "a CPU")
    assert known is not None
    assert known.speedup == 1.4 and known.bench["kinds"] == BENCH["kinds"]
    assert not known.audit and known.bench["when"].endswith("+00:00")


def test_parts_are_kept_apart(pair: tuple[Path, Path]) -> None:
    verdicts.store(*pair, "a CPU", bench=BENCH)
    verdicts.store(*pair, "a CPU", audit={"passed": True})
    known = verdicts.read(*pair)
    assert known is not None and known.audit["passed"] and known.speedup == 1.4
    assert verdicts.read(pair[0], None) is None


def test_changed_files_build_or_device_end_it(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts.store(*pair, "a CPU", bench=BENCH)
    assert verdicts.read(*pair, "another") is None
    assert verdicts.stale_reason(*pair, "another") == "it was measured on a CPU"
    monkeypatch.setattr(verdicts, "engine_build", lambda: "llama-cpp-python 9")
    assert "llama-cpp-python 9 now" in verdicts.stale_reason(*pair)
    monkeypatch.undo()


@pytest.mark.parametrize("part", [0, 1])
def test_a_changed_file_ends_it(pair: tuple[Path, Path], part: int) -> None:
    verdicts.store(*pair, "a CPU", bench=BENCH)
    before = pair[part].stat()
    data = bytearray(pair[part].read_bytes())
    data[100] ^= 1
    pair[part].write_bytes(bytes(data))
    os.utime(pair[part], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert verdicts.read(*pair) is None
    assert verdicts.stale_reason(*pair) == f"the {('target', 'draft')[part]} file has changed"
    pair[part].unlink()
    assert verdicts.stale_reason(*pair) == f"the {('target', 'draft')[part]} file is gone"


def test_listings_do_not_show_what_another_processor_did(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts.store(*pair, "a CPU; CUDA0 a GPU", bench=BENCH)
    assert verdicts.of_models([[pair[0]], [pair[1]]]) is not None
    monkeypatch.setattr(verdicts, "cpu_name", lambda: "another CPU")
    assert verdicts.of_models([[pair[0]], [pair[1]]]) is None
    assert verdicts.stale_reason_of([[pair[0]], [pair[1]]]) == "it was measured on a CPU"


LOSS = {"speedup": 0.96, "high": 0.98, "verdict": "does not pay", "kinds": {"chat": {"verdict": "does not pay"}}}
NOTHING = {"speedup": 1.0, "high": 1.02, "verdict": "no measurable gain", "kinds": {}}


@pytest.mark.parametrize(
    ("bench", "pays"),
    [
        ({}, True),  # one kind pays, another does not
        (LOSS, False),
        (NOTHING, False),
        (NOTHING | {"high": 1.3}, None),  # too noisy to rule a gain out
        (NOTHING | {"high": None}, None),  # one start only
        (LOSS | {"doubtful": True}, None),
        (NOTHING | {"kinds": {"code": {"verdict": "pays"}}}, True),
        (LOSS | {"conditions": HERE | {"threads": 7}}, None),  # on other threads
    ],
)
def test_auto_starts_from_what_the_bench_found(
    pair: tuple[Path, Path], bench: dict[str, Any], pays: bool | None
) -> None:
    verdicts.store(*pair, "a CPU", bench=BENCH | {"conditions": HERE} | bench)
    known = verdicts.read(*pair, "a CPU")
    assert known is not None
    expected = known.expectation(HERE)
    assert (expected.pays if expected is not None else None) is pays
    if expected is not None:
        assert expected.why == f"the bench of {known.bench['when'][:10]} found {known.speedup:.2f}x plain"


def test_a_new_measurement_does_not_revive_stale_parts(pair: tuple[Path, Path]) -> None:
    verdicts.store(*pair, "a CPU", audit={"passed": True})
    verdicts.store(*pair, "a GPU", bench=BENCH)
    known = verdicts.read(*pair, "a GPU")
    assert known is not None and not known.audit and known.speedup == 1.4


def test_a_damaged_store_is_no_store(pair: tuple[Path, Path]) -> None:
    path = verdicts.store(*pair, "a CPU", bench=BENCH)
    for text in ("", "[]", "{", '{"schema": 7}'):
        path.write_text(text)
        assert verdicts.read(*pair) is None


def test_listings_show_what_still_holds(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    from localspec.cli.main import main
    from localspec.pairs.store.store import LockedModel, PairLock, Store, local_file

    target, draft = (LockedModel(path.stem, (local_file(path),)) for path in pair)
    Store().save(PairLock(target, draft, verdict="identical", source="test"))
    headline = "Speculation pays here for every kind of text measured: 1.40x plain decoding over all kinds."
    verdicts.store(*pair, "a CPU", bench={**BENCH, "headline": headline})
    verdicts.store(*pair, "a CPU", audit={"passed": True, "headline": "The output is the target's own here."})

    assert main(["list"]) == 0
    assert "1.40x" in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    assert '"speedup": 1.4' in capsys.readouterr().out
    assert main(["show", "target"]) == 0
    shown = capsys.readouterr().out
    assert headline in shown and "The output is the target's own here." in shown

    os.utime(pair[1], ns=(1, 1))
    assert main(["list"]) == 0
    assert "1.40x" not in capsys.readouterr().out
    assert main(["show", "target"]) == 0
    shown = capsys.readouterr().out
    assert "Speculation pays" not in shown and "holds no more: the draft file has changed" in shown


def test_figures_are_what_pickers_show(pair: tuple[Path, Path]) -> None:
    assert verdicts.figures([[pair[0]], [pair[1]]]) == {}
    verdicts.store(*pair, "a CPU", bench={**BENCH, "kinds": {"code": {"speedup": 1.6, "verdict": "pays"}}})
    assert verdicts.figures([[pair[0]], [pair[1]]]) == {"speedup": 1.4, "kinds": {"code": 1.6}}
    assert verdicts.figures([]) == {}
