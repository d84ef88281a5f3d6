"""Draws static/icons/app-*.png from static/icons/mark.svg with Chromium: the app's icon on phones.

Run it after the mark has changed (`.venv/bin/python scripts/app_icons.py`); the files are
committed. A maskable icon fills its square, with the mark inside the circle (80 %) that every mask
leaves.
"""

from __future__ import annotations

import os
import shutil
from base64 import b64encode
from pathlib import Path

from playwright.sync_api import sync_playwright

ICONS = Path(__file__).resolve().parents[1] / "static" / "icons"
PAPER = "#faf7f3"
# (suffix, part of the square that the mark takes, corners)
KINDS = (("", 0.68, "22%"), ("maskable-", 0.54, "0"))


def page_of(size: int, part: float, corners: str) -> str:
    """The icon as a page; its body is the icon."""
    mark = b64encode((ICONS / "mark.svg").read_bytes()).decode()
    return f"""<style>
        html {{ background: transparent }}
        body {{ display: grid; place-items: center; width: {size}px; height: {size}px; margin: 0;
                border-radius: {corners}; background: {PAPER} }}
        img {{ width: {size * part}px }}
    </style><img src="data:image/svg+xml;base64,{mark}">"""


def main() -> None:
    """Writes the four files."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for suffix, part, corners in KINDS:
            for size in (192, 512):
                page = browser.new_page(viewport={"width": size, "height": size})
                page.set_content(page_of(size, part, corners))
                path = ICONS / f"app-{suffix}{size}.png"
                page.screenshot(path=path, omit_background=True)
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
