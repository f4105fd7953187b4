"""Settings that stay: what config.toml may hold, where it acts, and that nobody's lines get lost."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import click
import pytest

from localspec.cli import main as cli_main
from localspec.cli import settings_file
from localspec.cli.main import COMMANDS, cli, main
from localspec.cli.setting import EVERYWHERE, Setting
from localspec.cli.settings import KNOWN, THEMES, known
from localspec.cli.settings_file import file_values
from localspec.cli.value_types import AutoNumber
from localspec.ground.config_file import change, path, read
from localspec.ground.errors import InvalidInput, UnreadableFile
from tests.bigram import BigramPair


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one process read is not what the next one reads."""
    monkeypatch.setattr(settings_file, "_read", {})
    monkeypatch.setattr(cli_main, "_invoked", [])


def write(text: str) -> Path:
    """The config file of this test."""
    path().parent.mkdir(parents=True, exist_ok=True)
    path().write_bytes(text.encode())
    settings_file._read.clear()
    return path()


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Standard output of a command that works."""
    settings_file._read.clear()
    capsys.readouterr()
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The line of a command that ends with 2."""
    settings_file._read.clear()
    capsys.readouterr()
    assert main(list(arguments)) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and said.count("error: ") == 1
    return said


def test_each_value_comes_from_the_nearest_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("temp = 0.5\ntop-k = 5\nmin_p = 0.1\n[serve]\nport = 9000\n")
    monkeypatch.setenv("LOCALSPEC_TOP_K", "7")
    shown = json.loads(output(capsys, "config", "show", "--json", "--min-p", "0.2"))
    values = {key: (one["value"], one["origin"]) for key, one in shown["settings"].items()}
    assert values["temp"] == (0.5, "file") and values["top-k"] == (7, "environment (LOCALSPEC_TOP_K)")
    assert values["min-p"] == (0.2, "option") and values["serve.port"] == (9000, "file")
    assert values["top-p"] == (0.95, "default") and values["draft-length"] == ("auto", "default")
    assert list(values) == list(KNOWN) and shown["file"] == str(path())
    assert output(capsys, "config", "show", "temp") == "0.5\n"
    table = output(capsys, "config", "show", "--origin").splitlines()
    assert [line.split()[-1] for line in table if line.startswith("temp ")] == ["file"]


def test_set_keeps_comments_order_and_everything_else(capsys: pytest.CaptureFixture[str]) -> None:
    before = "# mine\ntemp = 0.9   # warm\n\nmystery = [1,\n  2]  # of a later version\n\n[serve]\nport = 1 # low\n"
    file = write(before)
    file.chmod(0o640)
    output(capsys, "config", "set", "temp", "0.25")
    output(capsys, "config", "set", "serve.host", "::1")
    output(capsys, "config", "set", "draft_length", "8")
    text = file.read_text()
    assert text.startswith("# mine\ntemp = 0.25   # warm\n\nmystery = [1,\n  2]  # of a later version\n")
    assert "port = 1 # low\n" in text and stat.S_IMODE(file.stat().st_mode) == 0o640
    assert read(file) == {
        "temp": 0.25, "mystery": [1, 2], "draft-length": 8, "serve": {"port": 1, "host": "::1"},
    }  # fmt: skip
    output(capsys, "config", "unset", "mystery")
    output(capsys, "config", "unset", "temp")
    assert "# mine" in file.read_text() and list(read(file)) == ["draft-length", "serve"]


def test_what_set_wrote_is_read_again_for_every_setting(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret-key\n")
    samples = {"gpu-layers": "12", "cache-type": "q8_0", "serve.api-key-file": str(keys), "theme": "nord"}
    for key, setting in KNOWN.items():
        if key not in samples:
            text = setting.type.choices[-1] if isinstance(setting.type, click.Choice) else None
            samples[key] = str(text) if text else "true" if setting.type is click.BOOL else _number_or_name(setting)
        change(path(), key, setting.parse(samples[key]))
    kept = {key: str(value).lower() for key, value in file_values().items()}
    assert kept == {key: value.lower() for key, value in samples.items()}


def _number_or_name(setting: Setting) -> str:
    if isinstance(setting.type, type(click.FLOAT) | click.FloatRange):
        return "1.0"
    return "16" if isinstance(setting.type, type(click.INT) | click.IntRange | AutoNumber) else "a name"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("temprature", "1", "no setting named 'temprature'. Close: temp"),
        ("k", "1", "Close: draft-length"),
        ("temp", "hot", "temp cannot be 'hot'"),
        ("temp", "-1", "temperature -1.0 is outside 0..1e+06"),
        ("temp", "nan", "temperature nan is outside"),
        ("draft-length", "99", "draft length 99 is outside 0..64"),
        ("drafter", "tree", "'tree' is not one of 'auto', 'model', 'lookup', 'none'"),
        ("threads", "0", "0 threads. Use 1 to 512"),
        ("cache-type", "q9", "no cache type named 'q9'"),
        ("serve.port", "70000", "70000 is not in the range"),
        ("serve.api-key-file", "/no/such/file", "no file /no/such/file"),
        ("pair", "", "To have no value: localspec config unset pair"),
    ],
)
def test_wrong_settings_are_refused(
    capsys: pytest.CaptureFixture[str], key: str, value: str, words: str
) -> None:
    assert words in error(capsys, "config", "set", key, value)
    assert not path().exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("temp = [", "is not valid TOML"),
        ("temp = true", "temp cannot be True: not a number"),
        ("temp = 'x'", "localspec config unset temp"),
        ("tmp = 1", "no setting named 'tmp'. Close: temp"),
        ("top-k = 1\ntop_k = 2", "top-k is there twice"),
        ("[serve]\nprt = 1", "no setting named 'serve.prt'. Close: serve.port"),
        ("theme = 'mauve'", "'mauve' is not one of"),
        ("a = 1\n\xff", "is not UTF-8"),
        ("x" * (1 << 20) + "x", "larger than 1 MiB"),
    ],
    ids=lambda text: text[:12],
)
def test_a_damaged_file_is_named_and_left_alone(capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    file = write("")
    file.write_bytes(text.encode("latin-1"))
    said = error(capsys, "run", "no-such-pair", "hello")
    assert words in said and str(file) in said
    error(capsys, "config", "show")
    if "TOML" in words or "UTF-8" in words or "MiB" in words:
        error(capsys, "config", "set", "temp", "1")
    assert file.read_bytes() == text.encode("latin-1")
    assert "Usage" in output(capsys, "run", "--help") and output(capsys, "config", "path") == f"{file}\n"


def test_doctor_finds_a_damaged_file(capsys: pytest.CaptureFixture[str]) -> None:
    file = write("temp = [")
    assert main(["doctor", "--offline", "--json"]) == 7
    found = json.loads(capsys.readouterr().out)["findings"][-1]
    assert (found["area"], found["level"]) == ("settings", "problem") and str(file) in found["what"]


def test_a_link_to_ones_own_file_stays_a_link(tmp_path: Path) -> None:
    mine = tmp_path / "dotfiles.toml"
    mine.write_text("temp = 1\n")
    path().parent.mkdir(parents=True)
    path().symlink_to(mine)
    change(path(), "temp", 0.5)
    assert path().is_symlink() and tomllib.loads(mine.read_text()) == {"temp": 0.5}


def test_odd_but_valid_toml_survives(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    for text in ("serve.port = 1\ntemp=1", "serve = {port = 1} # in one line\n", "'temp' = 1\r\n\r\n[serve]\r\n", "\n"):
        file.write_bytes(text.encode())
        before = read(file)
        change(file, "serve.port", 2)
        change(file, "top-k", 3)
        assert read(file) == {**before, "top-k": 3, "serve": {**before.get("serve", {}), "port": 2}}
    file.write_text("serve = 3\n")
    with pytest.raises((InvalidInput, UnreadableFile)):
        change(file, "serve.port", 2)
    assert file.read_text() == "serve = 3\n"


def test_the_table_and_the_options_are_the_same() -> None:
    context = click.Context(cli)
    for setting in KNOWN.values():
        for command in setting.commands if setting.commands != EVERYWHERE else {"run", "pull", "doctor"}:
            loaded = cli.get_command(context, command)
            assert command in COMMANDS and loaded is not None
            named = {parameter.name: parameter for parameter in loaded.params}
            if command == "fit" and setting.parameter not in named:
                continue  # plans memory only: threads and the like are nothing to it
            if command == "bench" and setting.key == "pair":
                continue  # one of its words
            if command == "doctor" and setting.key not in ("offline", "cache-dir"):
                continue
            assert setting.parameter in named, (command, setting.key)
            assert named[setting.parameter].envvar == setting.variable


def test_a_wrong_variable_is_blamed_by_its_own_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALSPEC_TEMP", "hot")
    assert main(["run", "pair", "text"]) == 2
    assert "the environment variable LOCALSPEC_TEMP: 'hot' is not a valid float" in capsys.readouterr().err
    assert main(["run", "pair", "text", "--temp", "cold"]) == 2
    assert "'--temp': 'cold' is not a valid float" in capsys.readouterr().err


def test_unset_says_whether_there_was_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    write("temp = 0.3\n")
    for expected in ("temp has its default again", "temp was not set in "):
        assert main(["config", "unset", "temp"]) == 0
        assert expected in capsys.readouterr().err


def test_themes_are_those_of_the_interface() -> None:
    from textual.theme import BUILTIN_THEMES

    assert set(THEMES) == set(BUILTIN_THEMES)


def test_unknown_keys_suggest_what_was_meant() -> None:
    assert known("Top_K").key == "top-k"
    with pytest.raises(InvalidInput, match="max-tokens"):
        known("n")


def test_run_obeys_the_file(bigram: BigramPair, capfd: pytest.CaptureFixture[str]) -> None:
    write(
        f"pair = {str(bigram.target)!r}\ndraft = {str(bigram.draft)!r}\ntemp = 0\ndraft-length = 3\ndrafter = 'model'\n"
        "ctx = 300\nthreads = 1\nmax-tokens = 9\nseed = 4\ntop-k = 11\n"
    )
    assert main(["run", str(bigram.target), "The ", "--json", "--quiet", "--top-k", "12"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert len(answer["tokens"]) == 9 and answer["stats"]["rounds_by_drafter"]["model"] > 0
    chosen = answer["settings"]
    assert [chosen["sampler"][name] for name in ("temperature", "top_k", "seed")] == [0, 12, 4]
    assert chosen["speculation"] == {"drafter": "model", "k": 3}
    assert chosen["context"] == 300 and chosen["max_tokens"] == 9
    assert answer["engine"]["draft"]["path"] == str(bigram.draft)


def test_the_default_pair_takes_a_pipe(
    bigram: BigramPair, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(f"pair = {str(bigram.target)!r}\nctx = 300\nthreads = 1\nmax-tokens = 5\n")
    question = tmp_path / "question"
    question.write_text("The ")
    for arguments in ([], ["-"]):
        monkeypatch.setattr("sys.stdin", open(question))  # noqa: SIM115
        assert main(["run", *arguments, "--json", "--quiet"]) == 0
        assert len(json.loads(capfd.readouterr().out)["tokens"]) == 5


def test_several_places_for_the_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    write("pair = 'of-the-file'\n")
    assert settings_file.default_pair() == "of-the-file"
    monkeypatch.setenv("LOCALSPEC_PAIR", "of-the-environment")
    assert settings_file.default_pair() == "of-the-environment"


def test_the_interface_obeys_the_file(
    bigram: BigramPair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from localspec.engine.settings import SamplerSettings
    from localspec.pairs.hub.hf_cache import cache_folder
    from localspec.tui import app
    from localspec.ui.preferences import PreferenceFile, Preferences

    started: list[app.Start] = []
    monkeypatch.setattr("localspec.cli.chat.is_terminal", lambda stream: True)
    monkeypatch.setattr(app, "run_app", lambda start: started.append(start) or 0)
    monkeypatch.setenv("HF_HUB_CACHE", "elsewhere")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    PreferenceFile().write(Preferences(sampler=SamplerSettings(temperature=0.1, top_k=3), system="of the last time"))
    write(
        f"pair = {str(bigram.target)!r}\ntheme = 'nord'\ntemp = 0.7\ndrafter = 'lookup'\nsystem = 'be brief'\n"
        f"cache-dir = {str(tmp_path / 'models')!r}\noffline = true\nctx = 400\n"
    )
    assert main(["chat"]) == 0, capsys.readouterr().err
    (start,) = started
    assert (start.pair, start.theme, start.system) == (str(bigram.target), "nord", "be brief")
    assert start.options is not None and start.options.context == 400 and start.options.offline
    assert start.settings is not None and start.settings.speculation.drafter == "lookup"
    sampler = start.settings.sampler
    assert (sampler.temperature, sampler.top_k) == (0.7, 3)  # the file's, and what was used last
    assert cache_folder() == tmp_path / "models"
    assert main(["chat", "--url", "localhost:1", "--temp", "0.2"]) == 0
    assert started[1].pair == "http://localhost:1" and started[1].settings is not None
    assert started[1].settings.sampler.temperature == 0.2
