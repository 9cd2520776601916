"""Pictures as images, and their text as Mermaid itself shows it."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lifecycle.commands.rendering import png, svg
from lifecycle.definition.agent import Agent
from lifecycle.definition.effects import Note, Participant
from lifecycle.definition.family import family
from lifecycle.pictures.blocks import effects_of
from lifecycle.pictures.catalogue import Catalogue
from lifecycle.pictures.mermaid import sequence_text
from lifecycle.pictures.sequence import VIEWS
from lifecycle.pictures.states import Chart, states

from .hard import HARD, NAMES
from .judge import normal
from .test_labels import everywhere


def flat(text: str) -> str:
    """Text without blanks: a renderer wraps lines as it likes."""
    return re.sub(r"\s+", "", text)


def test_the_overview_as_an_svg_shows_every_caption() -> None:
    pytest.importorskip("merman", reason="the `render` extra is not installed")
    picture = VIEWS["overview"](Agent)

    root = ElementTree.fromstring(svg(str(picture), "overview"))

    assert root.get("id") == "overview"
    seen = flat("".join(root.itertext()))
    for effect in effects_of(picture.blocks):
        assert flat((effect.text if isinstance(effect, Note) else effect.caption).replace("`", "")) in seen


def test_the_overview_as_a_png_is_a_picture_with_something_on_it() -> None:
    pytest.importorskip("mmdr", reason="the `render` extra is not installed")

    made = png(str(VIEWS["overview"](Agent)))

    assert made.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", made[16:24])
    assert width > 1000
    assert height > 1000
    assert len(set(rows(made, height))) > 100  # a blank page has one or two


def rows(image: bytes, height: int) -> Iterator[bytes]:
    """The rows of a PNG as they are kept."""
    kept, at = b"", 8
    while at < len(image):
        (length,) = struct.unpack(">I", image[at : at + 4])
        kept += image[at + 8 : at + 8 + length] if image[at + 4 : at + 8] == b"IDAT" else b""
        at += length + 12
    plain = zlib.decompress(kept)
    stride = len(plain) // height
    return (plain[row * stride : (row + 1) * stride] for row in range(height))


# -- as Mermaid shows it -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Node finds Mermaid and a document without a browser."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("there is no Node here to run Mermaid itself")
    folder = tmp_path_factory.mktemp("node")
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "mermaid@11.17.2", "jsdom@29.1.1"]
    try:
        done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=240)
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not answer in time")
    if done.returncode:
        pytest.skip(f"npm cannot install Mermaid here: {done.stderr.strip().splitlines()[-1:]}")
    shutil.copy(Path(__file__).with_name("node_mermaid.mjs"), folder)
    return folder


def shown_by_mermaid(node: Path, texts: list[str]) -> list[str]:
    """The text of each picture, without blanks."""
    command = ["node", "node_mermaid.mjs"]
    done = subprocess.run(
        command, cwd=node, input=json.dumps(texts), capture_output=True, text=True, timeout=600, check=True
    )
    drawn = json.loads(done.stdout)
    for text, one in zip(texts, drawn, strict=True):
        assert "error" not in one, f"{one['error']}\n{text}"
    return [flat("".join(one["texts"])) for one in drawn]


@pytest.mark.slow
def test_mermaid_itself_shows_hard_labels_as_they_were_written(node: Path) -> None:
    people = [(Participant("A"), Participant("B", label=text)) for text in HARD]
    sequences = [sequence_text(everywhere(text, *pair)) for text, pair in zip(HARD, people, strict=True)]
    charts = [str(Chart({"here": Chart({text: None}, (), text), text: None}, (("here", text, text),), "here"))
              for text in HARD]  # fmt: skip

    shown = shown_by_mermaid(node, [*sequences, *charts])

    for text, sequence, chart in zip(HARD, shown[: len(HARD)], shown[len(HARD) :], strict=True):
        wanted = flat(normal(text))
        assert sequence.count(wanted) >= 10, text
        assert chart.count(wanted) >= 3, text


@pytest.mark.slow
def test_mermaid_itself_draws_participants_and_states_of_any_name(node: Path) -> None:
    sequences = [sequence_text(everywhere("x", Participant(name), Participant("B"))) for name in NAMES]
    chart = str(Chart(dict.fromkeys(NAMES), tuple((name, "a", "go") for name in NAMES), "a"))

    *shown, states = shown_by_mermaid(node, [*sequences, chart])

    for name, sequence in zip(NAMES, shown, strict=True):
        assert sequence.count(flat(name)) >= 2, name
        assert flat(name) in states, name


@pytest.mark.slow
def test_mermaid_itself_shows_every_caption_of_our_pictures(node: Path) -> None:
    pictures = [VIEWS[view](one) for one in family(Agent) for view in VIEWS]
    words = Catalogue(Agent)
    texts = [str(picture) for picture in pictures] + [picture.text(words) for picture in pictures]
    texts += [states(one) for one in family(Agent)]

    shown = shown_by_mermaid(node, texts)

    for picture, english, chinese in zip(pictures, shown, shown[len(pictures) :], strict=False):
        for effect in effects_of(picture.blocks):
            parts = (effect.text,) if isinstance(effect, Note) else (effect.text, effect.detail)
            assert flat(parts[0].replace("`", "")) in english
            assert all(flat(words(part).replace("`", "")) in chinese for part in parts[:1])
