"""`lifecycle diagrams`: our pages, somebody's own lifecycle, formats, and wrong calls."""

from __future__ import annotations

import builtins
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lifecycle.commands import pages
from lifecycle.commands.diagrams import FORMATS
from lifecycle.commands.pages import LANGUAGES, MARK, PAGES, our_pages
from lifecycle.commands.policy_texts import POLICIES
from lifecycle.commands.targets import OURS
from lifecycle.definition.turn import Turn
from lifecycle.pictures.document import CAPTIONS
from lifecycle.pictures.sequence import sequence
from lifecycle.pictures.states import states
from lifecycle.pictures.tables import table

from .child import LIFECYCLE, here, run

ROOT = Path(__file__).resolve().parents[2]

FLOW = '''
from dataclasses import dataclass

from lifecycle.definition.effects import Participant, ask, hook
from lifecycle.definition.machine import Phase
from lifecycle.definition.turn import Turn, TurnFacts

print("imported")
EDITOR = Participant("end", "the editor; #1")


@dataclass(frozen=True, slots=True)
class Facts(TurnFacts):
    accepted: bool = False


class ReviewedTurn(Turn):
    """A turn whose answer is reviewed.

    It takes longer.
    """

    facts = Facts
    reviewing = Phase(hook("review/draft", "serial"), ask(EDITOR, "read {it}; <50%%>"), loops="the reviews")
    stop = Turn.stopping.to(reviewing)
    accept = reviewing.to(Turn.settled, cond="accepted", when="the review accepts")
    repeat = reviewing.to(Turn.stopping, unless="accepted", when="the review asks for more")
'''

HOOKS = '''
from lifecycle import HookPoint, Hooks
from lifecycle.services.points import POINTS, Mode, OnFault

DRAFT = HookPoint("review/draft", Mode.SERIAL, on_fault=OnFault.FAILS_TURN, may_change="the draft")
hooks = Hooks(points={**POINTS, DRAFT.name: DRAFT})


@hooks.on("agent/pre-step")
async def redact(payload, next):
    return await next()


@hooks.on("agent/pre-step")
async def audit(payload, next):
    return await next()


@hooks.on("agent/created")
def greet(payload):
    """Nothing."""


def make():
    return hooks


def needy(what):
    return hooks


def failing():
    raise ValueError("no hooks today")
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Somebody's project, in which the command is called."""
    folder = tmp_path / "project" / "mypkg"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "flow.py").write_text(FLOW)
    (folder / "hooks.py").write_text(HOOKS)
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder.parent
    for name in [name for name in sys.modules if name.split(".")[0] == "mypkg"]:
        del sys.modules[name]


# -- our pages ---------------------------------------------------------------------------------------------------


def test_the_committed_pages_are_up_to_date() -> None:
    ended = here("diagrams", "--check", "--output", ROOT / "diagrams")

    assert (ended.code, ended.out) == (0, "")


def test_every_lifecycle_and_revision_of_ours_has_a_page_in_both_languages_and_all_words() -> None:
    made, complaints = our_pages()

    assert complaints == ()
    assert {OURS[page.target] for page in PAGES} == set(OURS.values())
    assert len(made) == (len(PAGES) + len(POLICIES) + 1) * len(LANGUAGES)
    assert all(page.startswith(f"{MARK}\n") for page in made.values())


def test_every_link_of_our_pages_leads_to_one_of_them() -> None:
    made, _ = our_pages()

    links = {link for page in made.values() for link in re.findall(r"\]\(([^)]*)\)", page)}

    assert links == set(made)


def test_the_command_on_a_page_draws_that_page() -> None:
    made, _ = our_pages()

    for page in PAGES:
        for name in (f"{page.file}.md", f"{page.file}.zh.md"):
            command = re.findall("`(lifecycle diagrams .*? --format markdown.*?)`", made[name])
            assert here(*shlex.split(command[0])[1:]).out == made[name]


def test_drawing_all_pages_takes_less_than_three_seconds(tmp_path: Path) -> None:
    before = os.times()
    ended = run(*LIFECYCLE, "diagrams", "--output", tmp_path / "pages")
    after = os.times()  # of the processor's time: a busy machine draws no slower
    took = after.children_user + after.children_system - before.children_user - before.children_system

    assert ended.code == 0, ended
    assert 0 < took < 3, f"{took:.2f} s"  # about 1 s, the start of Python included


def test_pages_are_written_checked_and_found_stale_missing_or_left_over(tmp_path: Path) -> None:
    folder = tmp_path / "diagrams"
    assert here("diagrams", "--output", folder).code == 0
    assert here("diagrams", "--output", folder, "--check") == (0, "", "")

    (folder / "turn-lifecycle.md").write_text(
        (folder / "turn-lifecycle.md").read_text().replace("turn/start", "turn/begin")
    )
    (folder / "step-lifecycle.zh.md").unlink()
    (folder / "revision-000.md").write_text(f"{MARK}\nan earlier name\n")
    (folder / "notes.md").write_text("mine\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    ended = here("diagrams", "--output", folder, "--check")

    assert ended.code == 1
    assert "-  Driver->>Session: turn/begin\n+  Driver->>Session: turn/start\n" in ended.out
    assert f"{folder}/step-lifecycle.zh.md: is missing" in ended.out
    assert f"{folder}/revision-000.md: left over" in ended.out
    assert "notes.md" not in ended.out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    assert here("diagrams", "--output", folder).code == 0
    assert here("diagrams", "--output", folder, "--check").code == 0
    assert (folder / "notes.md").exists()
    assert not (folder / "revision-000.md").exists()


def test_a_word_without_a_counterpart_fails_the_check_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = (PAGES[0]._replace(intro="Something new."), *PAGES[1:])
    monkeypatch.setattr(pages, "PAGES", changed)
    monkeypatch.setattr(pages, "_BY_TARGET", {page.target: page for page in changed})

    written = here("diagrams", "--output", tmp_path)
    checked = here("diagrams", "--output", tmp_path, "--check")

    assert (written.code, checked.code) == (1, 1)
    assert "no Chinese counterpart for 'Something new.'" in written.err
    assert "no Chinese counterpart for 'Something new.'" in checked.out
    assert "a Chinese counterpart for 'From a wake to the next rest" in checked.out


def test_one_language_alone_leaves_the_other_one_be(tmp_path: Path) -> None:
    assert here("diagrams", "--output", tmp_path, "--lang", "zh").code == 0
    assert {path.name.endswith(".zh.md") for path in tmp_path.iterdir()} == {True}
    assert here("diagrams", "--output", tmp_path, "--lang", "zh", "--check").code == 0


# -- one lifecycle -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("view", "made"), [
    ("overview", sequence(Turn)), ("full", sequence(Turn, "full")), ("state", states(Turn)), ("table", table(Turn)),
])  # fmt: skip
def test_a_view_goes_to_standard_output(view: str, made: str) -> None:
    ended = here("diagrams", "Turn", "--view", view)

    assert (ended.code, ended.err) == (0, "")
    assert ended.out == made if view != "table" else made in ended.out


def test_the_newest_revision_is_the_agent() -> None:
    assert here("diagrams", "000") == here("diagrams", "Agent")


def test_a_lifecycle_of_a_user_is_drawn_with_who_listens(project: Path) -> None:
    ended = run(*LIFECYCLE, "diagrams", "mypkg.flow:ReviewedTurn", "--hooks", "mypkg.hooks:hooks", cwd=project)

    assert ended.code == 0
    assert ended.out.startswith("# `ReviewedTurn`\n\nA turn whose answer is reviewed.\n\n")
    assert "Driver->>n_end: read {it}#59; #60;50#37;#37;#62;" in ended.out
    assert "participant n_end as the editor#59; #35;1" in ended.out
    assert "Note over Hooks: 1. mypkg.hooks.redact<br/>2. mypkg.hooks.audit" in ended.out
    assert "Here run, in this order: `mypkg.hooks.redact`, `mypkg.hooks.audit`, the default." in ended.out
    assert "`review/draft` (serial) in `ReviewedTurn.reviewing`." in ended.out
    assert "It may change the draft." in ended.out
    assert "lifecycle diagrams mypkg.flow:ReviewedTurn --hooks mypkg.hooks:hooks --format markdown" in ended.out
    assert ended.err == (
        "imported\n"
        "lifecycle diagrams: not drawn, because ReviewedTurn does not dispatch it: what listens at agent/created\n"
    )


def test_hooks_may_come_from_a_function(project: Path) -> None:
    made, named = (
        here("diagrams", "mypkg.flow:ReviewedTurn", "--view", "overview", "--hooks", f"mypkg.hooks:{name}")
        for name in ("make", "hooks")
    )

    assert made.out == named.out


def test_a_user_keeps_a_page_of_their_own_up_to_date(project: Path) -> None:
    target = ("diagrams", "mypkg.flow:ReviewedTurn", "--output", "turn.md")

    assert here(*target, "--check").code == 1
    assert here(*target).code == 0
    assert here(*target, "--check").code == 0
    Path("turn.md").write_text(Path("turn.md").read_text().replace("accepts", "agrees"))
    ended = here(*target, "--check")

    assert ended.code == 1
    assert "+++ turn.md as it would be drawn" in ended.out


def test_what_has_no_chinese_counterpart_stays_english_with_a_warning(project: Path) -> None:
    ended = here("diagrams", "mypkg.flow:ReviewedTurn", "--lang", "zh")

    assert ended.code == 0
    assert "## 概览" in ended.out
    assert "the review accepts" in ended.out
    assert re.search(r"\d+ texts have no Chinese counterpart and stay English: 'A turn whose", ended.err)


@pytest.mark.parametrize("format", FORMATS)
def test_each_format_is_written_and_chosen_by_the_ending_of_the_file(format: str, tmp_path: Path) -> None:
    named, ended = tmp_path / "named", tmp_path / f"turn{FORMATS[format]}"

    assert here("diagrams", "ToolCall", "--format", format, "--view", "full", "--output", named) == (0, "", "")
    assert here("diagrams", "ToolCall", "--view", "full", "--output", ended) == (0, "", "")

    assert named.read_bytes() == ended.read_bytes()
    beginning = {
        "mermaid": b"sequenceDiagram",
        "markdown": b"<!-- ",
        "svg": b"<svg ",
        "png": b"\x89PNG",
        "html": b"<!doctype",
    }
    assert ended.read_bytes().startswith(beginning[format])


@pytest.mark.parametrize(("format", "wanted", "written"), [
    ("svg", "merman", "turn.mmd"), ("png", "mmdr", "turn.mmd"), ("html", "merman", "turn.html"),
])  # fmt: skip
def test_without_a_renderer_it_says_what_to_install_and_writes_the_text(
    format: str, wanted: str, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name in ("merman", "mmdr", "novasvg"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)

    ended = here("diagrams", "Turn", "--format", format, "--view", "overview", "--output", tmp_path / f"turn.{format}")

    assert (ended.code, ended.out) == (2, "")
    assert f"needs {wanted}, which is not installed (pip install 'turn-lifecycle[render]')" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == [written]
    assert "sequenceDiagram\n  participant Agent" in (tmp_path / written).read_text()


# -- wrong calls -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "said"), [
    ("Trun", "there is no lifecycle 'Trun' (did you mean 'Turn'?); ours are Agent,"),
    ("Turn --view ful", "there is no view 'ful' (did you mean 'full'?); there are overview,"),
    ("Turn --format pdf", "there is no format 'pdf'; there are mermaid, markdown, svg, png, html"),
    ("Turn --lang de", "there is no language 'de'; there are en, zh"),
    ("Turn --view table --format svg", "a table is no picture"),
    ("Turn --format png", "a png goes into a file; name it with --output"),
    ("Turn --check", "--check needs --output"),
    ("ToolCall --view tools", "the view 'tools' of ToolCall shows nothing; overview,"),
    ("Turn --output nowhere/turn.md", "there is no folder nowhere"),
    ("--view full", "--view needs a TARGET"),
    ("--format svg", "--format needs a TARGET"),
    ("--hooks mypkg.hooks:hooks", "--hooks needs a TARGET"),
    ("--output mypkg/flow.py", "mypkg/flow.py is no folder"),
    ("nowhere.flow:Turn", "there is no module 'nowhere' here; the import path begins with "),
    ("mypkg.nothing:Turn", "there is no module 'mypkg.nothing' here"),
    ("mypkg/flow.py:ReviewedTurn", "names nothing; write module:Name, such as"),
    ("mypkg.flow:Reviewed", "mypkg.flow has no 'Reviewed' (did you mean 'ReviewedTurn'?)"),
    ("mypkg.flow:EDITOR", "mypkg.flow:EDITOR is a Participant, and no lifecycle"),
    ("mypkg.flow:Facts", "mypkg.flow:Facts is a type, and no lifecycle"),
    ("lifecycle.definition.machine:Lifecycle", "declares no phases"),
    ("Turn --hooks mypkg.hooks:DRAFT", "mypkg.hooks:DRAFT gives a HookPoint, and no Hooks"),
    ("Turn --hooks mypkg.hooks:needy", "mypkg.hooks:needy cannot be called without arguments"),
])  # fmt: skip
def test_a_wrong_call_is_one_sentence(words: str, said: str, project: Path) -> None:
    ended = here("diagrams", *words.split())

    sentence = ended.err.removeprefix("imported\n")
    assert (ended.code, ended.out) == (2, "")
    assert sentence.startswith("lifecycle diagrams: ")
    assert said in sentence
    assert sentence.count("\n") == 1


@pytest.mark.parametrize(("source", "said"), [
    ("x = Turn.opened.to(Turn.settled, cond='nope')", "Wrong.x: the guard reads 'nope', which is no field of"),
    ("lost = Phase()\n    y = lost.to(Turn.settled)", "lost"),
    ("x = Turn.opened.to(Turn.settled) | Turn.opened.to(Turn.closing)", "Wrong.x: "),
])  # fmt: skip
def test_a_mistake_of_a_definition_is_one_sentence(source: str, said: str, project: Path) -> None:
    head = "from lifecycle.definition.machine import Phase\nfrom lifecycle.definition.turn import Turn\n"
    (project / "mypkg" / "wrong.py").write_text(f"{head}class Wrong(Turn):\n    {source}\n")

    ended = here("diagrams", "mypkg.wrong:Wrong")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("lifecycle diagrams: ")
    assert said in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(("source", "last"), [
    ("def fail():\n    return 1 / 0\nfail()", "ZeroDivisionError: division by zero"),
    ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
    ("def broken(:", "SyntaxError: invalid syntax"),
    ("raise SystemExit(7)", "SystemExit: 7"),
])  # fmt: skip
def test_a_module_that_does_not_import_shows_its_own_traceback_and_none_of_ours(
    source: str, last: str, project: Path
) -> None:
    (project / "mypkg" / "wrong.py").write_text(source)

    ended = here("diagrams", "mypkg.wrong:Turn")

    assert (ended.code, ended.out) == (2, "")
    assert 'mypkg/wrong.py", line' in ended.err or "SystemExit" in last
    assert ended.err.endswith(
        f"{last}\nlifecycle diagrams: the module mypkg.wrong does not import; its own traceback stands above\n"
    )
    assert "lifecycle/commands" not in ended.err
    assert "importlib" not in ended.err


def test_hooks_that_fail_when_made_show_their_own_traceback(project: Path) -> None:
    ended = here("diagrams", "Turn", "--hooks", "mypkg.hooks:failing")

    assert ended.code == 2
    assert "ValueError: no hooks today\nlifecycle diagrams: mypkg.hooks:failing raised when it was called" in ended.err
    assert "lifecycle/commands" not in ended.err


def test_help_and_drawing_load_no_renderer_and_nothing_of_the_network() -> None:
    script = (
        "import sys, lifecycle.commands\n"
        "lifecycle.commands.main(['diagrams', 'Turn', '--view', 'overview'])\n"
        "heavy = ('httpx', 'h11', 'merman', 'mmdr', 'novasvg', 'sqlite3', 'trio', 'lifecycle_adapters')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )

    assert run(sys.executable, "-c", script).out.endswith("[]\n")


def test_every_view_and_format_is_named_by_the_help() -> None:
    said = " ".join(here("diagrams", "--help").out.split())

    assert ", ".join(CAPTIONS) in said
    assert ", ".join(FORMATS) in said
