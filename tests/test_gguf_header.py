"""The header reader: what it says about good files, how it refuses all others, and what that costs."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localspec.ground.errors import UnreadableFile
from localspec.pairs.gguf.ggml_types import BLOCKS, FILE_TYPES
from localspec.pairs.gguf.header import NeedMoreBytes, join_split, parse_header, read_header
from tests.gguf_samples import model_bytes, split_bytes
from tests.header_writer import header

HUGE = 1 << 63

# Peak memory of a child in MB. ru_maxrss would start at the parent's, which is copied when a process is made.
PEAK = "int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) // 1024"


def key(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


def gguf(*keys: bytes, tensors: bytes = b"", tensor_count: int = 0, key_count: int | None = None) -> bytes:
    count = len(keys) if key_count is None else key_count
    return b"GGUF" + struct.pack("<IQQ", 3, tensor_count, count) + b"".join(keys) + tensors


def tensor(dims: int, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    name = struct.pack("<Q", 1) + b"t"
    return (
        name
        + struct.pack("<I", dims)
        + struct.pack(f"<{len(shape)}Q", *shape)
        + struct.pack("<IQ", kind, offset)
    )


ARCH = key("general.architecture", 8, struct.pack("<Q", 5) + b"llama")

HOSTILE = {
    "tensor count": gguf(ARCH, tensor_count=HUGE),
    "key count": gguf(ARCH, key_count=HUGE),
    "key length": gguf(struct.pack("<Q", HUGE) + b"k"),
    "text length": gguf(key("k", 8, struct.pack("<Q", HUGE))),
    "array length": gguf(key("k", 9, struct.pack("<IQ", 4, HUGE))),
    "array of texts": gguf(key("k", 9, struct.pack("<IQ", 8, HUGE))),
    "length in an array of texts": gguf(key("k", 9, struct.pack("<IQQ", 8, 2, HUGE))),
    "nested array": gguf(key("k", 9, struct.pack("<IQIQ", 9, 1 << 62, 9, 1 << 62))),
    "value type": gguf(key("k", 99, b"")),
    "dimensions": gguf(ARCH, tensors=tensor(0xFFFFFFFF, (1,)), tensor_count=1),
    "a million dimensions": gguf(ARCH, tensors=tensor(1_000_000, (1,)), tensor_count=1),
    "overflowing shape": gguf(ARCH, tensors=tensor(4, (1 << 62, 4, 1, 1)), tensor_count=1),
    "product that wraps to 32": gguf(ARCH, tensors=tensor(2, (1 << 33, (1 << 31) + 1)), tensor_count=1),
    "zero dimension": gguf(ARCH, tensors=tensor(1, (0,)), tensor_count=1),
    "tensor name length": gguf(ARCH, tensors=struct.pack("<Q", HUGE), tensor_count=1),
    "offset": gguf(ARCH, tensors=tensor(1, (32,), offset=HUGE), tensor_count=1),
    "alignment": gguf(ARCH, key("general.alignment", 4, struct.pack("<I", 3))),
    "alignment as text": gguf(ARCH, key("general.alignment", 8, struct.pack("<Q", 1) + b"x")),
    "key twice": gguf(ARCH, ARCH),
    "tensor twice": gguf(ARCH, tensors=tensor(1, (32,)) * 2, tensor_count=2),
    "no architecture": gguf(),
    "architecture a number": gguf(key("general.architecture", 4, struct.pack("<I", 1))),
    "part of a row": gguf(ARCH, tensors=tensor(1, (31,), kind=2), tensor_count=1),
    "unknown tensor type": gguf(ARCH, tensors=tensor(1, (32,), kind=250), tensor_count=1),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_header_is_one_clean_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(data + b"\0" * 4096)
    start = time.process_time()
    with pytest.raises(UnreadableFile) as caught:
        read_header(path)
    assert time.process_time() - start < 10
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert str(path) in caught.value.message


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_hostile_headers_cost_little_memory(tmp_path: Path) -> None:
    """The worst ones in a fresh process: under 200 MB each, and no hang, padded to a plausible size."""
    path = tmp_path / "hostile.gguf"
    script = (
        "import sys, time\n"
        "from localspec.pairs.gguf.header import read_header\n"
        "from localspec.ground.errors import UnreadableFile\n"
        "start = time.process_time()\n"
        "try: read_header(sys.argv[1])\n"
        "except UnreadableFile as error: print(error.message[-60:])\n"
        "print(time.process_time() - start, PEAK)\n"
    ).replace("PEAK", PEAK)
    many_texts = gguf(ARCH, key("k", 9, struct.pack("<IQ", 8, 4_000_000))) + b"\0" * 40_000_000
    long_text = gguf(ARCH, key("k", 8, struct.pack("<Q", 4 << 20) + "😀".encode() + b"a" * ((4 << 20) - 4)))
    many_keys = gguf(*(key(f"{n}", 7, b"\1") for n in range(60_000)), key_count=70_000) + b"\0" * 1_000_000
    for data in (many_texts, long_text, many_keys, HOSTILE["nested array"] + b"\0" * 70_000_000):
        path.write_bytes(data)
        ran = subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60
        )
        seconds, megabytes = map(float, ran.stdout.split("\n")[-2].split())
        assert (ran.returncode, ran.stderr) == (0, "")
        assert seconds < 10 and megabytes < 200


OTHER_FORMATS = {
    "empty": (b"", "is empty"),
    "zip": (b"PK\x03\x04" + b"\0" * 60, "zip archive"),
    "safetensors": (struct.pack("<Q", 60) + b'{"__metadata__":{}}' + b" " * 60, "safetensors"),
    "old GGML": (b"tjgg" + b"\x03\0\0\0" * 9, "old GGML file"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 1, 1), "big-endian"),
    "version 1": (b"GGUF" + struct.pack("<III", 1, 1, 1) + b"\0" * 30, "GGUF version 1"),
    "version 9": (b"GGUF" + struct.pack("<IQQ", 9, 1, 1) + b"\0" * 30, "GGUF version 9"),
    "text": (b"Hello, this is a text file.\n", "text file"),
    "web page": (b"<!DOCTYPE html><html><body>Log in</body>", "web page"),
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
    "noise": (bytes(range(0, 32)) * 4, "unknown format (it begins 00 01 02 03)"),
    "short": (b"GG", "cut short"),
}


@pytest.mark.parametrize(("data", "says"), OTHER_FORMATS.values(), ids=OTHER_FORMATS.keys())
def test_every_other_format_has_its_own_answer(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "file.gguf"
    path.write_bytes(data)
    with pytest.raises(UnreadableFile, match=r"file\.gguf") as caught:
        read_header(path)
    assert says in caught.value.message
    assert caught.value.hint


def test_answers_differ() -> None:
    assert len({says for _, says in OTHER_FORMATS.values()}) == len(OTHER_FORMATS)


def test_no_file_a_folder_a_pipe_and_a_locked_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="no file at"):
        read_header(tmp_path / "absent.gguf")
    with pytest.raises(UnreadableFile, match="is a folder"):
        read_header(tmp_path)
    with pytest.raises(UnreadableFile, match="cannot read"):
        read_header("nul\0.gguf")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(UnreadableFile, match="not an ordinary file"):
            read_header(tmp_path / "pipe")


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    data = model_bytes()
    path = tmp_path / "cut.gguf"
    for length in range(1, len(data), 1000):
        path.write_bytes(data[:length])
        with pytest.raises(UnreadableFile, match=rf"the file has {length:,}\."):
            read_header(path)
    path.write_bytes(data)
    assert read_header(path).expected_size == len(data)


def test_a_prefix_asks_for_more_until_the_header_is_whole() -> None:
    data = model_bytes()
    have, steps = 8, 0
    while True:
        try:
            info = parse_header(data[:have], source="remote", file_size=len(data))
            break
        except NeedMoreBytes as more:
            assert have < more.need <= len(data)
            have, steps = more.need, steps + 1
    assert have <= info.data_offset and steps > 10
    assert info == parse_header(data, source="remote", file_size=len(data))


def test_record_of_a_small_model() -> None:
    info = parse_header(model_bytes(name="Tiny", chat_template="{{ x }}"), source="a")
    assert (info.architecture, info.name, info.file_type) == ("llama", "Tiny", "Q8_0")
    assert (info.layers, info.context_length, info.heads, info.kv_heads) == (2, 512, 2, (2, 2))
    assert (info.key_length, info.value_length) == (32, 32)
    assert info.parameters == 402 * 64 + 2 * 64 * 64
    assert info.layer_bytes == (64 * 64 // 32 * 34,) * 2
    assert info.weight_bytes == (402 * 64 + 2 * 64 * 64) // 32 * 34
    assert (info.vocabulary_size, info.tokens[0], info.tokens[401]) == (402, b"w0", b"<eos>")
    assert (info.bos_id, info.eos_id, info.eog_ids, info.add_bos) == (400, 401, frozenset({401}), None)
    assert info.chat_template == "{{ x }}"
    assert info.token_types[400] == 3
    assert pickle.loads(pickle.dumps(info)) == info


def test_odd_token_types_count_as_none() -> None:
    assert parse_header(header(["a", "b", "c"], [3, -1, 300]), source="odd").token_types == b"\3\0\0"


def test_experts_and_their_active_share() -> None:
    experts = [("blk.0.ffn_up_exps.weight", (32, 32, 8), 8), ("blk.0.attn_q.weight", (32, 32), 8)]
    data = header(["a"], [1], experts, arch="qwen3moe", arch__expert_count=8, arch__expert_used_count=2)
    info = parse_header(data, source="moe")
    assert (info.parameters, info.active_parameters) == (9 * 1024, 3 * 1024)


def test_recurrent_and_windowed_models_say_so() -> None:
    hybrid = parse_header(header(["a"], [1], arch="qwen35", **{"arch__ssm__state_size": 128}), source="h")
    window = parse_header(
        header(["a"], [1], arch="gemma3", **{"arch__attention__sliding_window": 512}), source="w"
    )
    assert (hybrid.recurrent, hybrid.sliding_window) == (True, 0)
    assert (window.recurrent, window.sliding_window) == (False, 512)


def test_split_model_is_put_together_and_a_wrong_set_refused() -> None:
    parts = [parse_header(data, source=f"part {n}") for n, data in enumerate(split_bytes(1, 3))]
    whole = join_split(list(reversed(parts)))
    assert (len(whole.tensors), whole.parameters, whole.vocabulary_size) == (3, 3 * 65536, 402)
    for wrong in ([parts[0], parts[1]], [parts[0], parts[1], parts[1]], [parts[1], parts[2], parts[2]]):
        with pytest.raises(UnreadableFile, match="file"):
            join_split(wrong)


def test_tokenizers_compare_as_bytes() -> None:
    first, second = (parse_header(model_bytes(seed), source=str(seed)) for seed in (1, 2))
    other = parse_header(model_bytes(words=401), source="other")
    assert first.tokens == second.tokens and first.tokenizer_digest == second.tokenizer_digest
    assert first.tokens != other.tokens and first.tokenizer_digest != other.tokenizer_digest


def test_type_tables_equal_the_package() -> None:
    from gguf.constants import GGML_QUANT_SIZES, LlamaFileType

    ours = {number: (elements, size) for number, (_, elements, size) in BLOCKS.items()}
    assert {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}.items() <= ours.items()
    names = {int(kind): kind.name.removeprefix("ALL_").removeprefix("MOSTLY_") for kind in LlamaFileType}
    names[38] = "MXFP4"  # as files are named
    assert {n: name for n, name in names.items() if n < 1024}.items() <= FILE_TYPES.items()


def test_written_by_the_package_and_read_alike(tmp_path: Path) -> None:
    import gguf
    import numpy as np

    path = tmp_path / "package.gguf"
    writer = gguf.GGUFWriter(str(path), "gemma3")
    writer.add_name("Paket \N{SNOWMAN}")
    writer.add_block_count(3)
    writer.add_context_length(2048)
    writer.add_head_count(8)
    writer.add_head_count_kv([4, 0, 2])
    writer.add_sliding_window(512)
    writer.add_custom_alignment(64)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<pad>", b"\xff", "é".encode(), b""])
    writer.add_token_types([3, 6, 1, 5])
    writer.add_token_scores([0.0, -1.0, -2.5, 0.5])
    writer.add_bos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_float64("test.f64", 0.5)
    writer.add_array("test.flags", [True, False])
    writer.add_tensor("token_embd.weight", np.ones((4, 64), np.float32))
    writer.add_tensor("blk.1.ffn_up.weight", np.ones((5, 64), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    info = read_header(path)
    assert_equals_package_reader(path)
    assert (info.name, info.kv_heads, info.tokens.texts) == (
        "Paket \N{SNOWMAN}", (4, 0, 2), (b"<pad>", b"\xff", "é".encode(), b""),
    )  # fmt: skip
    assert (info.metadata["test.f64"], info.metadata["test.flags"]) == (0.5, (True, False))
    assert (info.add_bos, info.bos_id, info.token_types) == (True, 2, b"\3\6\1\5")
    assert info.data_offset % 64 == 0


def assert_equals_package_reader(path: Path) -> None:
    """Every scalar, every tensor and the vocabulary equal those of `gguf.GGUFReader`."""
    from gguf import GGUFReader

    info, reader = read_header(path), GGUFReader(path)
    for name, field in reader.fields.items():
        if name in info.metadata and not isinstance(info.metadata[name], tuple):
            assert info.metadata[name] == pytest.approx(field.contents()), name
    assert [t.name for t in info.tensors] == [t.name for t in reader.tensors]
    for ours, theirs in zip(info.tensors, reader.tensors, strict=True):
        assert ours.shape == tuple(map(int, theirs.shape))
        assert (ours.type, ours.size) == (int(theirs.tensor_type), int(theirs.n_bytes))
        assert info.data_offset + ours.offset == int(theirs.data_offset)
    tokens = reader.fields["tokenizer.ggml.tokens"]
    assert list(info.tokens.texts) == [bytes(tokens.parts[index]) for index in tokens.data]


@pytest.mark.model
@pytest.mark.parametrize("which", [0, 1])
def test_real_header_is_fast_and_small(real_pair: tuple[Path, Path], which: int) -> None:
    """A 152k vocabulary in a fresh process: no walk over every string (that takes seconds), and under 80 MB."""
    path = str(real_pair[which])
    script = (
        "import sys, time\n"
        "from localspec.pairs.gguf.header import read_header\n"
        "best = 9.0\n"
        "for _ in range(5):\n"
        "    start = time.perf_counter(); info = read_header(sys.argv[1])\n"
        "    best = min(best, time.perf_counter() - start)\n"
        "print(best, PEAK, info.vocabulary_size)\n"
    ).replace("PEAK", PEAK)
    ran = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, timeout=60, check=True
    )
    seconds, megabytes, rows = map(float, ran.stdout.split())
    assert rows > 40_000
    assert seconds < 0.5 and megabytes < 80


@pytest.mark.model
@pytest.mark.long
@pytest.mark.parametrize("which", [0, 1])
def test_real_header_equals_the_package(real_pair: tuple[Path, Path], which: int) -> None:
    assert_equals_package_reader(real_pair[which])


def test_header_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'gguf', 'llama_cpp', 'huggingface_hub'}"
    script = f"import sys, localspec.pairs.gguf.header; print(*{heavy} & set(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == ""
