"""One quantization in a process of its own: `python -m localspec.engine.llama.quantize REQUEST`.

libllama cannot stop quantizing and reports only by log lines. So it runs alone: progress leaves as JSON lines
on what was standard output; when standard input ends (the parent stopped or is gone) the process removes what
it was writing and ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any, TextIO

FILE_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k_s": 11,
    "q3_k_m": 12, "q3_k_l": 13, "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18,
    "iq4_nl": 25, "iq4_xs": 30, "bf16": 32,
}  # fmt: skip
"""libllama's numbers of the types that need no importance matrix."""

PURE = "-pure"
"""Behind a type's name: the output and embedding matrices get it too, which libllama else keeps finer."""

_TENSOR = re.compile(r"\[\s*(\d+)/\s*(\d+)\]")
_SIZE = re.compile(r"quant size\s*=\s*([\d.]+) MiB")


def main() -> None:
    """The child process: a JSON request as the only argument, answers a line each on stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.loads(sys.argv[1])
    threading.Thread(target=_end_with_parent, args=(Path(request["out"]),), daemon=True).start()
    _say(answers, **_quantize(request, answers))
    os._exit(0)


def _end_with_parent(unfinished: Path) -> None:
    while os.read(0, 4096):
        pass
    unfinished.unlink(missing_ok=True)
    os._exit(1)


def _quantize(request: dict[str, Any], answers: TextIO) -> dict[str, Any]:
    from localspec.engine.llama.binding import library

    lib = library()
    lines: deque[str] = deque(maxlen=200)

    def on_log(level: int, text: bytes | None, _: object) -> None:
        line = (text or b"").decode("utf-8", "replace")
        lines.append(line)
        found = _TENSOR.search(line)
        if found and not request["dry_run"]:
            _say(answers, done=int(found[1]), of=int(found[2]))

    callback = lib.llama_log_callback(on_log)
    lib.llama_log_set(callback, ctypes.c_void_p(0))
    params = lib.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[request["type"].removesuffix(PURE)]
    params.pure = request["type"].endswith(PURE)
    params.nthread = request["threads"]
    params.allow_requantize = True
    params.dry_run = request["dry_run"]
    source, out = os.fsencode(request["source"]), os.fsencode(request["out"])
    code = lib.llama_model_quantize(source, out, ctypes.byref(params))
    text = "".join(lines)
    size = _SIZE.search(text)
    return {
        "finished": code == 0,
        "weight_bytes": int(float(size[1]) * (1 << 20)) if size else None,
        "last_lines": [line for line in text.splitlines() if line.strip()][-3:],
    }


def _say(answers: TextIO, **values: Any) -> None:
    answers.write(json.dumps(values) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
