"""The pictures of documents: none is taken without a page, and few colours are enough."""

from __future__ import annotations

import struct
import zlib

import pytest

from toban_testing.screenshots import IMAGES, PICTURES, main, with_palette


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def chunks(png: bytes) -> dict[bytes, bytes]:
    found, at = {}, 8
    while at < len(png):
        [length] = struct.unpack(">I", png[at : at + 4])
        found[png[at + 4 : at + 8]] = png[at + 8 : at + 8 + length]
        at += length + 12
    return found


def test_a_palette_keeps_the_pixels_of_each_filter() -> None:
    pixels = [[(200, 0, 0), (0, 100, 0), (16, 16, 16)]] * 5
    # A row for each filter of PNG, as bytes of one image of 3 × 5: none, sub, up, average, paeth.
    rows = (
        b"\0" + bytes([200, 0, 0, 0, 100, 0, 16, 16, 16]),
        b"\1" + bytes([200, 0, 0, 56, 100, 0, 16, 172, 16]),
        b"\2" + bytes(9),
        b"\3" + bytes([100, 0, 0, 156, 50, 0, 8, 214, 8]),
        b"\4" + bytes(9),
    )
    header = struct.pack(">IIBBBBB", 3, 5, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    reduced = chunks(with_palette(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in parts)))
    palette = [tuple(reduced[b"PLTE"][n : n + 3]) for n in range(0, len(reduced[b"PLTE"]), 3)]
    data = zlib.decompress(reduced[b"IDAT"])
    assert [[palette[n] for n in data[at + 1 : at + 4]] for at in range(0, len(data), 4)] == pixels


def test_each_picture_is_there_and_no_other() -> None:
    assert {one.stem for one in IMAGES.glob("*.png")} == set(PICTURES)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "no picture nothing; there are: dashboard" in capsys.readouterr().err
    monkeypatch.setattr("toban_testing.screenshots.find_browser", lambda: "")
    assert main([]) == 1
    assert "apt install chromium" in capsys.readouterr().err
