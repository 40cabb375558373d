"""The style sheets: one file for each layer, and one scale for space, type and corners. The scripts: how many lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

STATIC = Path(__file__).resolve().parents[3] / "web" / "static"
LAYERS = ("tokens", "base", "components", "pages")
# What only some pages load, in the layer of the pages.
MORE = ("log",)
SPACE = re.compile(r"(?:padding|margin)(?:-\w+)*|(?:row-|column-)?gap")
SCALES = {"space": "s[1-8]", "font-size": "t[1-6]", "border-radius": "(?:r[12]|round)"}
# The size of the root, which the scale of type counts from.
ROOT = "100%"
CONTRAST = 4.5
MAX_SCRIPT_LINES = 1500


def text_of(layer: str) -> str:
    return re.sub(r"/\*.*?\*/", "", (STATIC / f"{layer}.css").read_text(encoding="utf-8"), flags=re.DOTALL)


def outside_of_the_scale(layer: str) -> list[str]:
    found = []
    for name, value in re.findall(r"([a-z-]+):\s*([^;{}]+);", text_of(layer)):
        kind = "space" if SPACE.fullmatch(name) else name
        if name == "font" and value != "inherit":
            # Weight, size and height of the line, family.
            kind, (value,) = "font-size", re.findall(r"(\S+?)(?:/[\d.]+)? (?=var\(--(?:sans|mono)\))", value)
        if kind not in SCALES:
            continue
        step = rf"var\(--{SCALES[kind]}\)"
        allowed = rf"{step}|0|1px|auto|inherit|calc\(-1 \* {step}\)|{ROOT}"
        if not re.fullmatch(rf"(?:{allowed})(?: (?:{allowed}))*", value):
            found.append(f"{name}: {value}")
    return found


@pytest.mark.parametrize("layer", LAYERS + MORE)
def test_space_type_and_corners_are_those_of_the_scale(layer: str) -> None:
    assert outside_of_the_scale(layer) == []
    assert f"@layer {'pages' if layer in MORE else layer} {{" in text_of(layer)


def test_lines_are_short() -> None:
    for layer in LAYERS + MORE:
        lines = (STATIC / f"{layer}.css").read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if len(line) >= 150] == []


def test_each_name_of_a_token_exists() -> None:
    texts = "".join(text_of(layer) for layer in LAYERS)
    defined = set(re.findall(r"(--[\w-]+):", texts))
    assert set(re.findall(r"var\((--[\w-]+)", texts)) - defined == set()


def luminance(colour: str) -> float:
    digits = colour.strip("#")
    digits = "".join(one * 2 for one in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_can_be_read(theme: int) -> None:
    tokens = text_of("tokens")
    colours = {name: pair[theme] for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", tokens)}
    grounds = ("ground", "surface", "raised")
    pairs = [(text, on) for text in ("text", "muted", "accent") for on in grounds]
    states = ("good", "bad", "warn", "busy", "neutral")
    pairs += [(state, f"{state}-soft") for state in states] + [(state, "surface") for state in states]
    pairs += [("text", "bad-soft"), ("text", "warn-soft"), ("muted", "warn-soft"), ("accent", "accent-soft")]
    pairs += [("on-primary", "primary"), ("text", "neutral-soft"), ("muted", "log-ground"), ("found-text", "found")]
    low = {pair: round(contrast(*(colours[name] for name in pair)), 2) for pair in pairs}
    assert {pair: ratio for pair, ratio in low.items() if ratio < CONTRAST} == {}
    marks = {state: contrast(colours[f"{state}-mark"], colours["surface"]) for state in states}
    assert {state: ratio for state, ratio in marks.items() if ratio < 3} == {}


def test_a_page_links_each_layer_in_order_and_each_icon_exists(web: Any) -> None:
    page = web.page("/")
    linked = re.findall(r'<link rel="stylesheet" href="/static/(\w[\w-]*)\.css\?v=', page)
    assert tuple(linked[: len(LAYERS)]) == LAYERS
    sprite = (STATIC / "vendor" / "icons.svg").read_text(encoding="utf-8")
    icons = set(re.findall(r'icons\.svg\?v=\w+#([\w-]+)"', page))
    assert icons and icons <= set(re.findall(r'<symbol id="([\w-]+)"', sprite))


def test_the_scripts_stay_few() -> None:
    lines = {one.name: len(one.read_text(encoding="utf-8").splitlines()) for one in STATIC.glob("*.js")}
    assert sum(lines.values()) < MAX_SCRIPT_LINES, (
        f"web/static has {sum(lines.values())} lines of own scripts: {lines}; the limit is {MAX_SCRIPT_LINES}. "
        "Let the server render it, or remove what a platform feature does"
    )
