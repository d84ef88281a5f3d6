"""The demo model's GGUF as safetensors: vLLM has no loader for GGUF. Once, in about a minute.

    .venv-vllm/bin/python scripts/convert_demo_weights.py FILE.gguf SHA256 TARGET

Run with vLLM's environment (transformers, torch, gguf). TARGET is made whole or not at all: it is
written beside, its files' SHA-256 are noted, and then it is renamed. One that is whole is left.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

NOTE = "converted.json"


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 3:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    source, sha256, target = Path(arguments[0]), arguments[1], Path(arguments[2])
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_whole(target, sha256):
            return 0
        if digest(source) != sha256:
            sys.stderr.write(f"{source} is not the demo model: its SHA-256 differs.\n")
            return 1
        make(source, sha256, target)
    say(f"converted: {target}")
    return 0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def is_whole(target: Path, sha256: str) -> bool:
    """Whether what is there was made from these bytes and has the sizes that were noted.

    Quick, at each start; a change that keeps the size is the disk's business.
    """
    try:
        note = json.loads((target / NOTE).read_text())
        sizes = {name: entry["bytes"] for name, entry in note["files"].items()}
        return note["source_sha256"] == sha256 and all(
            (target / name).stat().st_size == size for name, size in sizes.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def make(source: Path, sha256: str, target: Path) -> None:
    fresh = target.with_name(f"{target.name}.partial")
    shutil.rmtree(fresh, ignore_errors=True)  # of one that was killed
    say("converting the demo model for vLLM (a minute or two)")
    convert(source, fresh)
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": digest(path)}
        for path in sorted(fresh.iterdir())
    }
    (fresh / NOTE).write_text(json.dumps({"source_sha256": sha256, "files": files}, indent=1))
    for path in fresh.iterdir():
        sync(path)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


def convert(source: Path, target: Path) -> None:
    """Weights as bfloat16, with the tokenizer and the chat template that the file holds."""
    os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    # Else they are saved as if still quantised, and vLLM looks for a loader that it has not.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(target)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """On disk before the rename: a name that is there must mean whole files."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
