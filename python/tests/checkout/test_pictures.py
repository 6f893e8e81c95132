"""Pictures of docs/ and tables of pages are what tools/pictures makes today; words that cannot be read are refused."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

import pytest
from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from pictures.draw import files
from pictures.svg import WIDTH, Picture
from pictures.tables import pages

FILES = files()
PICTURES = [name for name in FILES if name.endswith(".svg")]


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_what_the_code_writes(name: str) -> None:
    assert (ROOT / name).read_text() == FILES[name], "make pictures"


def test_no_other_files_lie_there() -> None:
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "pictures").iterdir()}
    assert there == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_a_title_and_every_colour_twice(name: str) -> None:
    root = ElementTree.fromstring(FILES[name])
    title, style, *elements = root
    assert title.text
    light, dark = style.text.split("@media (prefers-color-scheme: dark)")
    for element in elements:
        for kind in set(element.get("class").split()) - {"mono"}:
            assert f".{kind} {{ fill" in light
            assert f".{kind} {{ fill" in dark


def test_every_picture_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in pages(ROOT))
    shown = set(re.findall(r"!\[[^\]]+\]\(\S*?(pictures/\w+\.svg)\)", text))
    assert shown == {name.removeprefix("docs/") for name in PICTURES}


def test_words_that_cannot_be_read_are_refused() -> None:
    picture = Picture(100, "a picture")
    picture.words(10, 50, "words")
    for x, y, text, what in [
        (WIDTH - 20, 20, "words", "leaves the picture"),
        (10, 99, "words", "leaves the picture"),
        (20, 55, "other", "meets 'words'"),
    ]:
        with pytest.raises(ValueError, match=what):
            picture.words(x, y, text)
    with pytest.raises(ValueError, match="leaves its cell"):
        picture.cells(200, 20, [["a long text"]])
