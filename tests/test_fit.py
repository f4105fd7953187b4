
"""Memory plans: bytes against hand computations and libllama's own numbers, placements on simulated machines."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from localspec.engine.process import ask_libllama
from localspec.ground.errors import InvalidInput
from localspec.pairs.gguf.header import parse_header, read_header
from localspec.pairs.gguf.model_info import ModelInfo
from localspec.pairs.memory import sizes
from localspec.pairs.memory.fit import plan
from localspec.pairs.memory.fit_records import GIB, Device, FitPlan, Machine, Wish, lacking, size_text
from localspec.reports.pull import fit_lines
from localspec.session import memory_plan
from localspec.session.memory_plan import parse_size
from tests.header_writer import F16, info, vocabulary, write
from tests.qwen_shapes import SHAPES, qwen

MIB = 1 << 20


@cache
def model(size: str) -> ModelInfo:
    return parse_header(qwen(size), source=f"qwen2.5-{size}")


def gpu(size: float, **keys: object) -> Machine:
    memory = int(size * GIB)
    return Machine(64 * GIB, 60 * GIB, (Device("CUDA0", "simulated", memory, memory, **keys),))  # type: ignore[arg-type]


def cpu(size: float) -> Machine:
    return Machine(int(size * GIB), int(size * GIB))


def placed(chosen: FitPlan) -> tuple[int, int]:
    """Layers on the GPU: (target, draft)."""
    return chosen.target.gpu_layers, chosen.draft.gpu_layers if chosen.draft else 0


@pytest.mark.parametrize("size", SHAPES)
def test_the_shapes_are_as_large_as_the_published_files(size: str) -> None:
    assert model(size).weight_bytes == pytest.approx(SHAPES[size].published, rel=0.03)


# --- bytes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "context", "cache_type", "by_hand"),
    [
        ("1.5B", 8192, "f16", 28 * 2 * (128 + 128) * 8192 * 2),
        ("0.5B", 8192, "f16", 24 * 2 * (64 + 64) * 8192 * 2),
        ("7B", 32768, "f16", 28 * 4 * (128 + 128) * 32768 * 2),
        ("7B", 32768, "q8_0", 28 * 4 * (128 + 128) * 32768 // 32 * 34),
        ("32B", 2048, "q4_0", 64 * 8 * (128 + 128) * 2048 // 32 * 18),
        ("1.5B", 1000, "f16", 28 * 2 * (128 + 128) * 1024 * 2),
    ],
)
def test_cache_bytes_by_hand(size: str, context: int, cache_type: str, by_hand: int) -> None:
    assert sum(sizes.cache_bytes(model(size), context, cache_type)) == by_hand


def test_the_drafts_cache_has_the_real_context_not_the_trained_one() -> None:
    chosen = plan(model("7B"), model("1.5B"), cpu(64), Wish(context=8192))
    assert chosen.bytes_of("draft", "KV cache") == 28 * 2 * 256 * 8192 * 2


def hybrid(**keys: object) -> ModelInfo:
    tokens, types = vocabulary(9, "<|im_end|>")
    tensors = [(f"blk.{n}.x.weight", (64, 64), F16) for n in range(8)]
    return info(
        tokens, types, tensors, "qwen35", arch__block_count=8, arch__embedding_length=64,
        arch__attention__head_count=4, arch__attention__head_count_kv=2, arch__attention__key_length=16,
        arch__attention__value_length=16, arch__ssm__inner_size=128, arch__ssm__state_size=16,
        arch__ssm__conv_kernel=4, arch__ssm__group_count=2, arch__full_attention_interval=4, **keys,
    )  # fmt: skip


def test_a_hybrid_keeps_caches_in_every_fourth_layer_and_states_in_the_others() -> None:
    by_layer = sizes.cache_bytes(hybrid(), 256)
    assert by_layer == (0, 0, 0, 2 * 32 * 256 * 2) * 2
    one = 4 * 6 * (128 * 16 + 3 * (128 + 2 * 2 * 16))
    assert sizes.states_bytes(hybrid(), 0) == one
    assert sizes.states_bytes(hybrid(), 16) == 17 * one  # rewind slots


def test_latent_attention_keeps_one_row_for_key_and_value() -> None:
    tokens, types = vocabulary(9, "x")
    latent = info(
        tokens, types, [("blk.0.x.weight", (64, 64), F16)], "deepseek2", arch__block_count=1,
        arch__attention__head_count=16, arch__attention__head_count_kv=1, arch__attention__kv_lora_rank=512,
        arch__attention__key_length=576, arch__attention__value_length=512,
    )  # fmt: skip
    assert sizes.cache_bytes(latent, 1024) == (1024 * 576 * 2,)


def test_prediction_layers_are_not_loaded() -> None:
    whole, without = sizes.weights(hybrid()), sizes.weights(hybrid(arch__nextn_predict_layers=2))
    assert len(without.layers) == 6 and sum(without.layers) == sum(whole.layers) * 6 // 8


@pytest.mark.parametrize(("size", "rows"), [("0.5B", 1), ("1.5B", 17), ("7B", 3), ("14B", 17), ("32B", 65)])
def test_libllama_asks_for_what_the_headers_promise(tmp_path: Path, size: str, rows: int) -> None:
    path = write(tmp_path / "model.gguf", qwen(size, rows=1024))  # the weights are a hole: nobody reads them
    header = read_header(path)
    asked = [
        ask_libllama.ContextQuestion(context, rows, cache_type)
        for context, cache_type in ((2048, "f16"), (8192, "q8_0"), (32768, "f16"))
    ]
    for question, said in zip(asked, ask_libllama.sizes([(path, asked)])[0], strict=True):
        assert said is not None
        expected = sum(sizes.cache_bytes(header, question.context, question.cache_type))
        assert said.cache == pytest.approx(expected, abs=MIB // 10)
        promised = sizes.compute_bytes(header, question.context, rows)
        assert said.compute == pytest.approx(promised, rel=0.08)


# --- placements -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "draft", "memory", "fits_whole"),
    [
        ("7B", "1.5B", 8, True), ("7B", "1.5B", 12, True), ("7B", "1.5B", 16, True), ("7B", "1.5B", 24, True),
        ("14B", "0.5B", 8, False), ("14B", "0.5B", 12, True), ("14B", "0.5B", 16, True), ("14B", "0.5B", 24, True),
        ("32B", "1.5B", 8, False), ("32B", "1.5B", 12, False), ("32B", "1.5B", 16, False), ("32B", "1.5B", 24, True),
    ],
)  # fmt: skip
def test_the_draft_goes_to_the_gpu_first(target: str, draft: str, memory: int, fits_whole: bool) -> None:
    chosen = plan(model(target), model(draft), gpu(memory))
    assert chosen.fits and chosen.draft is not None
    assert chosen.draft.gpu_layers == chosen.draft.layers == SHAPES[draft].layers + 1
    assert (chosen.target.gpu_layers == chosen.target.layers) == fits_whole
    assert all(place.used + place.reserve <= place.free for place in chosen.places)
    if not fits_whole:
        assert chosen.steps[-1].name == "partial offload"
        assert "the draft takes" in chosen.notes[0] and "it goes first" in chosen.notes[0]
        # One layer more would not fit.
        card = chosen.places[1]
        assert card.free - card.used - card.reserve < max(model(target).layer_bytes) * 1.2


def test_a_large_target_leaves_room_for_a_large_draft() -> None:
    chosen = plan(model("32B"), model("7B"), gpu(16))  # 20 GB and 5 GB on a card of 16
    assert placed(chosen)[1] == 29 and 20 < placed(chosen)[0] < 45
    assert "room for about" in chosen.notes[0]


def test_the_steps_come_in_order_and_say_what_they_save() -> None:
    tight = {6.3: [], 6.2: ["context"], 5.9: ["context"], 5.7: ["context", "cache type"], 5.6: ["partial offload"]}
    for memory, names in tight.items():
        chosen = plan(model("7B"), model("1.5B"), gpu(memory))
        assert [step.name for step in chosen.steps] == names, memory
        assert all(step.saves > 0 for step in chosen.steps)
    context = plan(model("7B"), model("1.5B"), gpu(6.2)).steps[0]
    assert context.detail == "8,192 -> 4,096 tokens"
    assert context.saves == sum(sum(sizes.cache_bytes(model(size), 4096)) for size in ("7B", "1.5B"))


def test_an_order_for_the_context_is_obeyed() -> None:
    chosen = plan(model("7B"), model("1.5B"), gpu(6.2), Wish(context=8192))
    assert chosen.context == 8192
    assert [step.name for step in chosen.steps] == ["cache type"]


def test_a_smaller_draft_comes_before_partial_offload() -> None:
    wish = Wish(context=8192, cache_type="f16")
    chosen = plan(model("7B"), model("1.5B"), gpu(6.2), wish, smaller_drafts=[model("0.5B")])
    assert [(step.name, step.detail) for step in chosen.steps] == [("smaller draft", "qwen2.5-0.5B")]
    assert chosen.draft_source == "qwen2.5-0.5B" and chosen.fits


def test_no_draft_is_the_last_concession() -> None:
    chosen = plan(model("7B"), model("1.5B"), cpu(8.0), Wish(context=32768))
    assert chosen.fits and [step.name for step in chosen.steps] == ["cache type"]
    chosen = plan(model("7B"), model("1.5B"), cpu(7.5), Wish(context=32768))
    assert chosen.fits and chosen.draft is None
    assert chosen.steps[-1].name == "draft off" and chosen.steps[-1].saves > GIB
    # The proposal works when it is asked for.
    again = plan(model("7B"), None, cpu(7.5), Wish(context=32768, cache_type=chosen.cache_type))
    assert again.fits and again.used == chosen.used


def test_what_fits_nowhere_says_what_is_lacking() -> None:
    chosen = plan(model("32B"), model("1.5B"), Machine(8 * GIB, 6 * GIB, (Device("CUDA0", "", 4 * GIB, 4 * GIB),)))
    assert not chosen.fits
    assert lacking(chosen).startswith("RAM needs ") and "6.0 GiB free" in lacking(chosen)


def test_memory_shared_with_the_machine_is_counted_once_more() -> None:
    shared = plan(model("7B"), model("1.5B"), Machine(8 * GIB, 7 * GIB, (Device("Metal", "", 6 * GIB, 6 * GIB, True),)))
    ram, card = shared.places
    assert ram.used > card.used > 4 * GIB


def test_two_cards_share_a_target() -> None:
    cards = tuple(Device(f"CUDA{i}", "", 12 * GIB, 12 * GIB) for i in range(2))
    chosen = plan(model("32B"), model("0.5B"), Machine(64 * GIB, 60 * GIB, cards), Wish(context=4096))
    assert chosen.fits and chosen.target.gpu_layers == 65 and all(chosen.target.by_device)
    assert chosen.draft is not None and sorted(chosen.draft.by_device) == [0, 25]
    assert sum(part.bytes for part in chosen.parts) == sum(place.used for place in chosen.places)
    assert chosen.target.by_device[1] > chosen.target.by_device[0]  # the last card is filled first


def test_layers_can_be_ordered() -> None:
    chosen = plan(model("7B"), model("0.5B"), gpu(24), Wish(gpu_layers=10, draft_gpu_layers=0))
    assert placed(chosen) == (10, 0) and chosen.fits
    assert any("stays in RAM" in note for note in chosen.notes)
    impossible = plan(model("32B"), None, gpu(8), Wish(gpu_layers=-1))
    assert impossible.target.gpu_layers == 65 and not impossible.fits


def test_libllamas_numbers_win_over_the_formula() -> None:
    known = {("qwen2.5-7B", 8192, "f16"): sizes.Measured(compute=123 * MIB, cache=0)}
    chosen = plan(model("7B"), None, cpu(32), measured=known)
    assert chosen.bytes_of("target", "compute") == 123 * MIB


def test_a_split_model_is_judged_by_all_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    first = replace(model("32B"), split_count=5, tensors=model("32B").tensors[:50])
    whole = sizes.whole(first, SHAPES["32B"].published)
    assert sum(whole.layer_bytes) == pytest.approx(SHAPES["32B"].published, rel=1e-6)
    assert sizes.whole(model("7B"), 5) is model("7B")
    for ram, fits in ((16, False), (32, True)):
        # What is free now does not matter: a download is for later.
        monkeypatch.setattr(memory_plan, "this_machine", lambda ram=ram: Machine(ram * GIB, GIB))
        chosen = memory_plan.plan_download(first, SHAPES["32B"].published, model("1.5B"), SHAPES["1.5B"].published)
        assert chosen.fits == fits
        assert ("does not fit this machine: RAM needs" in fit_lines(chosen)[0]) == (not fits)


@pytest.mark.parametrize(
    ("text", "size"), [("24GB", 24 << 30), ("24", 24 << 30), ("512MB", 512 << 20), ("1.5gib", 3 << 29), ("8g", 8 << 30)]
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1GB", "1PB", "nan", "1e99"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_size(text)


def test_sizes_for_people() -> None:
    assert [size_text(n) for n in (312 * MIB, GIB, int(9.84 * GIB))] == ["312 MiB", "1.0 GiB", "9.8 GiB"]


@pytest.mark.model
@pytest.mark.parametrize(
    ("context", "guesses"),
    [
        (8192, 16),
        *(pytest.param(c, k, marks=pytest.mark.long) for c in (2048, 8192, 32768) for k in (2, 16)),
    ],
)
def test_the_engine_takes_what_was_planned(context: int, guesses: int, tmp_path: Path) -> None:
    from localspec.engine.process.client import EngineClient
    from localspec.engine.settings import LoadSettings
    from localspec.ground.machine import physical_cores, resident_bytes
    from localspec.session.memory_plan import plan_pair

    names = [os.environ.get(f"LOCALSPEC_TEST_{role}") for role in ("TARGET", "DRAFT")]
    if not all(names):
        pytest.skip("LOCALSPEC_TEST_TARGET and LOCALSPEC_TEST_DRAFT name no files")
    target, draft = (Path(str(name)) for name in names)
    chosen = plan_pair(read_header(target), read_header(draft), cpu(64), Wish(context=context, draft_length=guesses))
    client = EngineClient(tmp_path)
    try:
        settings = LoadSettings(target=target, draft=draft, context=context, max_draft_length=guesses)
        client.load(settings, physical_cores())
        assert resident_bytes(client.pid) == pytest.approx(chosen.used, rel=0.10)
    finally:
        client.close()
