"""The catalog, names of models, quants, and what is chosen from a repository's listing."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.ground.errors import DownloadFailed, InvalidInput, UnknownName
from localspec.ground.locations import config_folder
from localspec.pairs.gguf.quants import search_order, split_quant
from localspec.pairs.names.catalog import Catalog, load_catalog, read_catalog
from localspec.pairs.names.names import CatalogRef, HubRef, PathRef, parse_draft, parse_target, split_pair
from localspec.pairs.store.listing import RepoFile, choose, choose_file, file_sets


@pytest.fixture
def catalog() -> Catalog:
    return load_catalog()


def names_of(*paths: str) -> list[RepoFile]:
    return [RepoFile(path, 1000 + n, "") for n, path in enumerate(paths)]


FAMILIES = {
    "qwen2.5", "qwen2.5-coder", "qwen3", "llama3.1", "llama3.2", "llama3.3", "gemma3", "smollm2", "mistral",
    "mistral-small3.2", "ministral3", "phi4", "phi4-mini", "deepseek-r1-qwen", "deepseek-r1-llama", "gpt-oss",
    "granite3.3", "exaone3.5", "falcon3",
}  # fmt: skip


def test_built_in_catalog_has_the_families_and_their_drafts(catalog: Catalog) -> None:
    families = {model.family for model in catalog.models.values()}
    assert families >= FAMILIES
    seven = catalog.models["qwen2.5-7b"]
    assert (seven.repos, seven.drafts) == (("Qwen/Qwen2.5-7B-Instruct-GGUF",), ("0.5b", "1.5b"))
    assert "Q4_K_M" in seven.split and seven.gb["Q4_K_M"] == 4.68
    for model in catalog.models.values():
        for name in model.drafts:
            draft = catalog.find_draft(name, model.family)
            assert draft is not None
            assert draft.model.tokenizer == model.tokenizer, f"{model.name} + {name}"
            assert draft.model.name != model.name
        assert model.licence and model.context and model.tokenizer and model.gb
        assert model.drafts or model.why or min(model.gb.values()) < 9, f"{model.name} says nothing about drafts"


NAMES = {
    "qwen2.5-7b": ("qwen2.5-7b", None),
    "Qwen2.5-7B": ("qwen2.5-7b", None),
    "qwen2.5-coder-14b-q8": ("qwen2.5-coder-14b", "q8"),
    "qwen2.5-7b-UD-Q4_K_XL": ("qwen2.5-7b", "UD-Q4_K_XL"),
    "llama-3.1-8b": ("llama3.1-8b", None),
    "gemma-3-27b-q4_0": ("gemma3-27b", "q4_0"),
    "qwen3-30b-a3b": ("qwen3-30b-a3b", None),
    "gpt-oss-20b-mxfp4": ("gpt-oss-20b", "mxfp4"),
}


@pytest.mark.parametrize(("text", "means"), NAMES.items())
def test_names(catalog: Catalog, text: str, means: tuple[str, str | None]) -> None:
    ref = parse_target(text, catalog)
    assert isinstance(ref, CatalogRef)
    assert (ref.model.name, ref.quant) == means


def test_draft_names_may_leave_out_the_family(catalog: Catalog) -> None:
    ref = parse_draft("1.5b-q4", "qwen2.5", catalog)
    assert isinstance(ref, CatalogRef) and (ref.model.name, ref.quant) == ("qwen2.5-1.5b", "q4")
    ref = parse_draft("llama3.2-1b", "llama3.1", catalog)
    assert isinstance(ref, CatalogRef) and ref.model.name == "llama3.2-1b"
    with pytest.raises(UnknownName, match=r"0\.5b"):
        parse_draft("0.6b", "qwen2.5", catalog)


def test_quant_option_wins(catalog: Catalog) -> None:
    ref = parse_target("qwen2.5-7b-q8", catalog, "q4_0")
    assert isinstance(ref, CatalogRef) and ref.quant == "q4_0"
    assert parse_target("hf:a/b:Q8_0", catalog, "q4") == HubRef("a/b", "q4", None)
    with pytest.raises(InvalidInput, match="makes no sense"):
        parse_target("./model.gguf", catalog, "q4")


HUB_NAMES = {
    "hf:acme/Tiny-GGUF": HubRef("acme/Tiny-GGUF", None, None),
    "hf:acme/Tiny-GGUF:q4_k_m": HubRef("acme/Tiny-GGUF", "q4_k_m", None),
    "hf:acme/Tiny-GGUF:sub/tiny.gguf": HubRef("acme/Tiny-GGUF", None, "sub/tiny.gguf"),
    "hf:acme/Tiny-GGUF/sub/tiny.gguf": HubRef("acme/Tiny-GGUF", None, "sub/tiny.gguf"),
    "https://huggingface.co/acme/Tiny-GGUF": HubRef("acme/Tiny-GGUF", None, None),
    "https://huggingface.co/acme/T/blob/main/t.gguf?x=1": HubRef("acme/T", None, "t.gguf"),
}


@pytest.mark.parametrize(("text", "ref"), HUB_NAMES.items())
def test_hub_names(catalog: Catalog, text: str, ref: HubRef) -> None:
    assert parse_target(text, catalog) == ref


@pytest.mark.parametrize("text", ["hf:", "hf:acme", "hf:a/b:nonsense", "hf:../../etc:q4", "hf:a/..:q4", "", "a\0b"])
def test_bad_names_are_usage_errors(catalog: Catalog, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_target(text, catalog)
    assert caught.value.exit_code == 2


def test_paths(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain-name").write_bytes(b"x")
    for text in ("./a.gguf", "a.gguf", "models/a", "/m/a.bin", "plain-name"):
        assert parse_target(text, catalog) == PathRef(Path(text))
    assert parse_target("~/a.gguf", catalog) == PathRef(Path.home() / "a.gguf")


def test_unknown_names_get_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(UnknownName, match=r"no model named 'qwen2\.5-77b'\. Close: qwen2\.5-7b"):
        parse_target("qwen2.5-77b", catalog)
    with pytest.raises(UnknownName, match=r"qwen2\.5-7b has no quant 'q99'\. It has: Q4_0, Q4_K_M, Q8_0, F16"):
        parse_target("qwen2.5-7b-q99", catalog)


def test_pair_names() -> None:
    assert split_pair("qwen2.5-7b+1.5b-q4") == ("qwen2.5-7b", "1.5b-q4")
    assert split_pair("qwen2.5-7b") == ("qwen2.5-7b", None)
    assert split_pair("+x") == ("+x", None)


# --- the reader


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "models.toml"
    path.write_text(text)
    return path


FAULTS = {
    "unknown key": ('["f"."1b"]\nrepo = "a/b"\nlicense = "mit"', ["'f-1b'", "'license'", "Nearest: licence"]),
    "wrong type": (
        '["f"]\ncontext = "many"\n["f"."1b"]\nrepo = "a/b"',
        ["'f'", "'context'", "a whole number"],
    ),
    "no repository": ('["f"."1b"]\ngb = { Q8_0 = 1 }', ["'f-1b'", "'repo'", "is missing"]),
    "no owner": ('["f"."1b"]\nrepo = "b"', ["'f-1b'", "'repo'", "owner/name"]),
    "no quant": ('["f"."1b"]\nrepo = "a/b"\ngb = { Q4KM0 = 1 }', ["'f-1b'", "'gb'", "'Q4KM0'"]),
    "size as text": ('["f"."1b"]\nrepo = "a/b"\ngb = { Q8_0 = "1" }', ["'f-1b'", "'gb'"]),
    "unknown draft": (
        '["f"]\nrepo = "a/b"\n["f"."7b"]\ndrafts = ["0.6b"]\n["f"."0.5b"]\n',
        ["'f-7b'", "'drafts'", "'0.6b'", "Nearest: 0.5b"],
    ),
    "no table": ("f = 3", ["'f'", "must be a table"]),
    "no TOML": ("[[[", ["models.toml", "Mend"]),
    "a later schema": ("schema = 2", ["schema 2", "Update"]),
    "odd family": ('["F x"]\n', ["'F x'", "a-z"]),
}


@pytest.mark.parametrize(("text", "says"), FAULTS.values(), ids=FAULTS.keys())
def test_faulty_files_name_file_entry_key_and_nearest(tmp_path: Path, text: str, says: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InvalidInput) as caught:
        read_catalog(path)
    for part in [str(path), *says]:
        assert part in str(caught.value)


def test_own_file_adds_and_overrides(catalog: Catalog) -> None:
    config_folder().mkdir(parents=True)
    (config_folder() / "models.toml").write_text(
        '["qwen2.5"."7b"]\ndrafts = ["1.5b-q8"]\n["mine"]\nrepo = "me/Mine-{SIZE}-GGUF"\n["mine"."3b"]\n'
    )
    own = load_catalog()
    assert own.models["qwen2.5-7b"].drafts == ("1.5b-q8",)
    assert own.models["qwen2.5-7b"].repos == catalog.models["qwen2.5-7b"].repos
    assert own.models["mine-3b"].repos == ("me/Mine-3B-GGUF",)
    assert len(own.models) == len(catalog.models) + 1


# --- quants and listings

SPELLINGS = {
    "qwen2.5-7b-instruct-q4_k_m": ("qwen2.5-7b-instruct", "Q4_K_M"),
    "Phi-4-mini-instruct.Q8_0": ("Phi-4-mini-instruct", "Q8_0"),
    "Qwen3.6-35B-A3B-UD-Q4_K_M": ("Qwen3.6-35B-A3B", "UD-Q4_K_M"),
    "Qwen3.6-27B-PRISM-EAGLE3_Q4_K_M": ("Qwen3.6-27B-PRISM-EAGLE3", "Q4_K_M"),
    "qwen2.5-0.5b-instruct-fp16": ("qwen2.5-0.5b-instruct", "F16"),
    "gpt-oss-20b-mxfp4": ("gpt-oss-20b", "MXFP4"),
    "gemma-4-E2B_q4_0-it": ("gemma-4-E2B-it", "Q4_0"),
    "SmolLM2-1.7B-Instruct": ("SmolLM2-1.7B-Instruct", ""),
    "m-IQ4_XS": ("m", "IQ4_XS"),
    "m-Q4_0_4_4": ("m", "Q4_0_4_4"),
}


@pytest.mark.parametrize(("stem", "parts"), SPELLINGS.items())
def test_spellings_of_quants(stem: str, parts: tuple[str, str]) -> None:
    assert split_quant(stem) == parts


def test_shorthands() -> None:
    assert search_order(None, "target")[0] == "Q4_K_M"
    assert search_order(None, "draft")[0] == "Q4_0"
    assert search_order("int4", "target") == ("Q4_K_M", "UD-Q4_K_M", "Q4_K", "Q4_0", "MXFP4")
    assert search_order("Q4", "draft")[-1] == "Q8_0"
    assert search_order("half", "target") == ("F16",)
    assert search_order("iq4_xs", "target") == ("IQ4_XS",)
    with pytest.raises(UnknownName, match="no longer reads Q4_0_4_4"):
        search_order("q4_0_4_4", "target")
    with pytest.raises(UnknownName, match="Close: q4"):
        search_order("q44", "target")


MESSY = names_of(
    "README.md", "mmproj-model-f16.gguf", "imatrix.gguf", "eagle3-m-Q4_K_M.gguf", "MTP/mtp-m-Q4_K_M.gguf",
    "m-DFlash-Q4_K_M.gguf", "m-Q4_0_4_4.gguf", "m-Q4_0_8_8.gguf", "m-UD-Q4_K_M.gguf", "m-iq4_xs.gguf",
    "BF16/m-BF16-00002-of-00002.gguf", "BF16/m-BF16-00001-of-00002.gguf", "m-q8_0.gguf", "m-4b-lora-f16.gguf",
    "m-I-Compact-Q4_K_M.gguf", "m-Q4_K_M.gguf",
)  # fmt: skip


def chosen(files: list[RepoFile], quant: str | None) -> list[str]:
    return [file.path for file in choose(files, search_order(quant, "target"), repo="a/b").files.files]


def test_only_models_are_chosen() -> None:
    assert chosen(MESSY, "q4") == ["m-Q4_K_M.gguf"]
    assert chosen(MESSY, None) == ["m-Q4_K_M.gguf"]
    assert chosen(MESSY, "UD-q4_k_m") == ["m-UD-Q4_K_M.gguf"]
    assert chosen(MESSY, "q8") == ["m-q8_0.gguf"]
    assert chosen(MESSY, "bf16") == ["BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf"]
    with pytest.raises(UnknownName, match=r"a/b has no Q4_0 file\. It has: BF16, IQ4_XS, Q4_K_M, Q8_0, UD-Q4_K_M"):
        chosen(MESSY, "q4_0")
    with pytest.raises(UnknownName):
        chosen(MESSY, "f16")


@pytest.mark.parametrize(
    "path", ["../m-Q8_0.gguf", "/m-Q8_0.gguf", "a/../../m-Q8_0.gguf", "a\\m-Q8_0.gguf", "c:m-Q8_0.gguf"]
)
def test_names_that_lead_out_of_the_folder_are_no_models(path: str) -> None:
    for pick in (lambda: chosen(names_of(path), "q8"), lambda: choose_file(names_of(path), path, repo="a/b")):
        with pytest.raises(UnknownName, match="no GGUF model"):
            pick()


def test_a_hole_is_filled_and_said() -> None:
    choice = choose(names_of("phi-4-Q4_K.gguf"), search_order("q4_k_m", "target"), repo="a/b")
    assert (choice.files.quant, choice.note) == ("Q4_K", "no Q4_K_M in a/b: took Q4_K")


def test_pattern_decides_between_models_of_one_repository() -> None:
    files = names_of("other-model-Q8_0.gguf", "Mine-1B-Q8_0.gguf", "x-Q8_0.gguf")
    assert choose(files, ("Q8_0",), repo="a/b", pattern="mine-1b-{quant}.gguf").files.stem == "Mine-1B"
    assert choose(files, ("Q8_0",), repo="a/b").files.stem == "x"


def test_a_set_that_lacks_files_is_refused() -> None:
    files = names_of("m-Q4_K_M-00001-of-00003.gguf", "m-Q4_K_M-00003-of-00003.gguf")
    with pytest.raises(DownloadFailed, match="lists 2 of the 3 files"):
        chosen(files, "q4")


def test_named_files_and_their_shards() -> None:
    files = names_of("sub/m-Q4_K_M.split-00001-of-00002.gguf", "sub/m-Q4_K_M.split-00002-of-00002.gguf")
    found = choose_file(files, "m-q4_k_m.split-00002-of-00002.gguf", repo="a/b").files
    assert [file.path for file in found.files] == [file.path for file in files]
    assert choose_file(MESSY, "eagle3-m-q4_k_m.gguf", repo="a/b").files.stem == "eagle3-m"
    with pytest.raises(UnknownName, match=r"a/b has no file no\.gguf"):
        choose_file(MESSY, "no.gguf", repo="a/b")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("model.gguf.part1of2", "byte parts"),
        ("m.Q4_K_M.gguf-split-aa", "byte parts"),
        ("model.safetensors", "no GGUF"),
    ],
)
def test_repositories_without_a_model_say_why(path: str, says: str) -> None:
    with pytest.raises(UnknownName, match=says):
        chosen(names_of(path), "q4")


def test_one_file_without_a_quant_in_its_name_is_the_model() -> None:
    assert chosen(names_of("README.md", "ggml-model.gguf"), None) == ["ggml-model.gguf"]
    assert [one.quant for one in file_sets(names_of("BF16/model.gguf"))] == ["BF16"]
