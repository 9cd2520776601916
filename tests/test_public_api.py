"""Who may import whom, as a table; what the public names are; what `import lifecycle` costs; what the wheel holds.

The rules, read off the source with `ast`:

* An import at run time goes to a lower floor, or stays in its own room. An import inside a function is one at run time.
* An import under `TYPE_CHECKING` may also go sideways, to another room of the same floor, and never up.
* No circle of run-time imports between modules, not even within a room.
* Each library is touched only by the rooms (or the one module) that the table gives it.
* `lifecycle` never names `lifecycle_adapters`, for types neither: a host chooses its adapters.
"""

from __future__ import annotations

import ast
import inspect
import pickle
import pydoc
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

import lifecycle
from lifecycle import errors

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {
    "lifecycle": ROOT / "lifecycle",
    "lifecycle_adapters": ROOT / "adapters" / "lifecycle_adapters",
}

FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("vocabulary",),
    ("definition",),
    ("pictures", "session", "services"),
    ("driver",),
    ("policies", "proof"),
    ("face",),  # lifecycle/__init__.py: reads everything below it, and is read by what stands above
    ("testing",),
    ("commands", "lifecycle_adapters"),
    ("__main__",),
)
"""The rooms of the house, floor by floor, the lowest first."""

READS_ONLY: Mapping[str, frozenset[str]] = {
    "pictures": frozenset({"errors", "definition"}),  # so that a picture cannot show what is not declared
}
"""Rooms that may read less than the floors below them."""

FOR_TYPES_UPWARD = {("lifecycle.errors", "lifecycle.vocabulary.failures")}
"""The exceptions to "never up", for types only: an error carries the failure or the cause that it reports."""

_pydantic = frozenset({"vocabulary", "session", "services", "driver", "policies", "proof"}) | {
    "testing", "commands", "lifecycle_adapters",
}  # fmt: skip
LIBRARIES: Mapping[str, frozenset[str]] = {
    "pydantic": _pydantic,
    "pydantic_core": _pydantic,  # its other half
    "anyio": frozenset({"session", "services", "driver", "policies", "proof"})
    | {"testing", "commands", "lifecycle_adapters"},
    "httpx": frozenset({"commands", "lifecycle_adapters"}),
    "psycopg": frozenset({"lifecycle_adapters"}),
    "h11": frozenset({"lifecycle_adapters"}),  # comes with httpx; the demo provider's half of the conversation
    "hypothesis": frozenset({"testing"}),
    "pytest": frozenset({"testing", "lifecycle_adapters.pytest_plugin"}),
    "trio": frozenset({"lifecycle.proof.virtual_trio"}),  # all others go through anyio
    "statemachine": frozenset({"lifecycle.definition.machine"}),
    "sqlite3": frozenset(f"lifecycle.session.sqlite{part}" for part in ("", "_file", "_slot")),
    "mcp": frozenset(f"lifecycle_adapters.mcp_{part}" for part in ("server", "tools", "results")),
    "jsonschema": frozenset({"lifecycle_adapters.mcp_tools"}),  # comes with mcp
    "referencing": frozenset({"lifecycle_adapters.mcp_tools"}),  # comes with jsonschema
    "xllamacpp": frozenset({"commands", "lifecycle_adapters"}),
    "merman": frozenset({"lifecycle.commands.rendering"}),
    "mmdr": frozenset({"lifecycle.commands.rendering"}),
    "novasvg": frozenset({"lifecycle.commands.rendering"}),  # comes with mmdr
}
"""Who may import which library: rooms, or single modules. What is neither here nor in the standard library, nobody."""

IN_AND_OUT = frozenset((
    "asyncio", "ctypes", "ftplib", "http", "io", "logging", "mmap", "multiprocessing", "os", "pathlib", "random",
    "sched", "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver", "sqlite3", "ssl",
    "subprocess", "tempfile", "threading", "time", "urllib",
))  # fmt: skip
WITHOUT_IN_AND_OUT = frozenset({"errors", "vocabulary", "definition", "pictures"})
"""Rooms of plain values: no files, no network, no clock, no chance, no thread."""

ALONE_LOADS = frozenset((
    "lifecycle", "anyio", "pydantic", "pydantic_core", "annotated_types", "statemachine", "typing_extensions",
    "typing_inspection", "idna", "sniffio", "exceptiongroup",
))  # fmt: skip
"""What the public names may load that is not in the standard library."""

NEVER_LOADS = (
    "httpx", "hypothesis", "pytest", "trio", "sqlite3", "http.server", "lifecycle_adapters",
    "lifecycle.commands", "lifecycle.pictures", "lifecycle.testing",
)  # fmt: skip
"""What no public name loads."""

FACE_LOADS = {"lifecycle", "lifecycle.definition", "lifecycle.definition.formats"}
"""All of ours that `import lifecycle` loads."""


class Import(NamedTuple):
    module: str
    imports: str
    line: int
    for_types: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.imports}{' (for types)' if self.for_types else ''}"


# -- reading -----------------------------------------------------------------------------------------------------


def modules(sources: Mapping[str, Path] = SOURCES) -> dict[str, Path]:
    """Every module of the two packages by its dotted name."""
    found: dict[str, Path] = {}
    for package, folder in sources.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str) -> str:
    top, _, rest = module.partition(".")
    if top != "lifecycle":
        return top
    return rest.partition(".")[0] or "face"


def imports_of(module: str, source: str, is_package: bool, known: Mapping[str, object]) -> Iterator[Import]:
    """The imports of one module, each with the module it reaches."""
    for_types = {
        inner
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in node.body
        for inner in _lines(statement)
    }
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, node.lineno in for_types)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"  # `from .session import log` reaches a module, `import Session` does not
                yield Import(module, inner if inner in known else base, node.lineno, node.lineno in for_types)


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def all_imports() -> list[Import]:
    known = modules()
    return [
        found
        for module, path in known.items()
        for found in imports_of(module, path.read_text(encoding="utf-8"), path.name == "__init__.py", known)
    ]


# -- judging -----------------------------------------------------------------------------------------------------


def objection(found: Import) -> str | None:
    """Why the table forbids an import within the house; None if it does not."""
    here, there = room_of(found.module), room_of(found.imports)
    floor = {room: n for n, rooms in enumerate(FLOORS) for room in rooms}
    for room in (here, there):
        if room not in floor:
            return f"{found}: there is no room {room!r} in the table; add it to a floor"
    if found.module.startswith("lifecycle.") and there == "lifecycle_adapters":
        return f"{found}: lifecycle does not know its adapters"
    if here == there:
        return None
    if (found.module, found.imports) in FOR_TYPES_UPWARD and found.for_types:
        return None
    if here in READS_ONLY and there not in READS_ONLY[here]:
        return f"{found}: {here} reads only {', '.join(sorted(READS_ONLY[here]))}"
    if floor[there] > floor[here]:
        return f"{found}: up, from {here} to {there}"
    if floor[there] == floor[here] and not found.for_types:
        return f"{found}: sideways at run time, from {here} to {there}; for types it may"
    return None


def library_objection(found: Import) -> str | None:
    """Why the table forbids an import from outside the house; None if it does not."""
    library, room = found.imports.partition(".")[0], room_of(found.module)
    if room in WITHOUT_IN_AND_OUT and library in IN_AND_OUT and not found.for_types:
        return f"{found}: {room} has no input and no output"
    allowed = LIBRARIES.get(library)
    if allowed is None:
        return None if library in sys.stdlib_module_names else f"{found}: a library that the table gives to nobody"
    if room in allowed or found.module in allowed:
        return None
    return f"{found}: only {', '.join(sorted(allowed))} may"


def circle(imports: list[Import]) -> list[str] | None:
    """Modules that import one another at run time in a circle; None if there are none."""
    graph: dict[str, set[str]] = {}
    for found in imports:
        if not found.for_types and found.imports != found.module:
            graph.setdefault(found.module, set()).add(found.imports)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def inside(found: Import) -> bool:
    return found.imports.partition(".")[0] in SOURCES


# -- the house ---------------------------------------------------------------------------------------------------


def test_imports_go_down_or_stay() -> None:
    assert [said for found in all_imports() if inside(found) and (said := objection(found))] == []


def test_no_circle_of_imports() -> None:
    assert circle([found for found in all_imports() if inside(found)]) is None


def test_each_library_is_touched_by_its_own_rooms_only() -> None:
    assert [said for found in all_imports() if not inside(found) and (said := library_objection(found))] == []


@pytest.mark.parametrize(
    ("module", "source", "objected"),
    [
        ("lifecycle.services.hooks", "from lifecycle.driver.agent import Agent", "up, from services to driver"),
        ("lifecycle.services.hooks", "from ..driver import agent", "up, from services to driver"),
        ("lifecycle.services.hooks", "def f():\n    import lifecycle.driver.agent", "up, from services to driver"),
        ("lifecycle.services.hooks", "import lifecycle", "up, from services to face"),
        ("lifecycle.services.hooks", "from lifecycle.session.log import Session", "sideways at run time"),
        ("lifecycle.services.hooks", "if TYPE_CHECKING:\n    from lifecycle.session.log import Session", None),
        ("lifecycle.services.hooks", "if TYPE_CHECKING:\n    from lifecycle.driver.agent import Agent", "up, from"),
        ("lifecycle.services.hooks", "from .points import POINTS", None),
        ("lifecycle.services.hooks", "from lifecycle.errors import HookError", None),
        ("lifecycle.pictures.states", "from lifecycle.vocabulary.events import Event", "pictures reads only"),
        ("lifecycle.commands.run", "if TYPE_CHECKING:\n    import lifecycle_adapters", "does not know its adapters"),
        ("lifecycle.commands.run", "from lifecycle import Agent", None),
        ("lifecycle_adapters.openai_chat", "from lifecycle.services.model import PreparedCall", None),
        ("lifecycle.attic.old", "from lifecycle.errors import HookError", "no room 'attic'"),
    ],
)
def test_the_table_judges_an_import(module: str, source: str, objected: str | None) -> None:
    known = {"lifecycle": 0, "lifecycle.driver.agent": 0, "lifecycle.session.log": 0, module: 0}

    (found,) = imports_of(module, source, False, known)
    said = objection(found)

    assert (said is None) if objected is None else (said is not None and objected in said)


@pytest.mark.parametrize(
    ("module", "source", "objected"),
    [
        ("lifecycle.definition.table", "import statemachine", "only lifecycle.definition.machine may"),
        ("lifecycle.definition.machine", "from statemachine import StateMachine", None),
        ("lifecycle.driver.driver", "def f():\n    import httpx", "only commands, lifecycle_adapters may"),
        ("lifecycle.definition.step", "import asyncio", "no input and no output"),
        ("lifecycle.driver.driver", "import networkx", "gives to nobody"),
        ("lifecycle.driver.driver", "import functools", None),
    ],
)
def test_the_table_judges_a_library(module: str, source: str, objected: str | None) -> None:
    (found,) = imports_of(module, source, False, {})
    said = library_objection(found)

    assert (said is None) if objected is None else (said is not None and objected in said)


def test_a_circle_is_found_but_not_one_for_types() -> None:
    there, back = Import("a", "b", 1, False), Import("b", "a", 1, False)

    assert circle([there, back]) is not None
    assert circle([there, back._replace(for_types=True)]) is None


# -- the face ----------------------------------------------------------------------------------------------------


def constants_then_classes_then_functions(name: str) -> tuple[int, str]:
    """The order that ruff wants of `__all__` (RUF022)."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


def test_the_public_names_are_sorted_and_are_all_there_is() -> None:
    declared = list(getattr(lifecycle, "__all__", []))
    submodules = {name.split(".")[1] for name in modules() if name.startswith("lifecycle.")}
    names = [name for name in dir(lifecycle) if not name.startswith("_") and name != "annotations"]

    public = [name for name in declared if not name.startswith("_")]

    assert declared == sorted(declared, key=constants_then_classes_then_functions)
    assert set(names) - (submodules - set(declared)) == set(public)
    assert [name for name in declared if not hasattr(lifecycle, name)] == []


def test_what_a_public_name_loads_is_what_a_type_checker_is_told() -> None:
    face = ast.parse(inspect.getsource(lifecycle))
    (told,) = [node.body for node in face.body if isinstance(node, ast.If)]
    (places,) = [node for node in face.body if ast.unparse(node).startswith("_PLACES =")]
    imported = {
        statement.module: [one.name for one in statement.names]
        for statement in told
        if isinstance(statement, ast.ImportFrom)
    }

    assert isinstance(places, ast.Assign)
    declared: dict[str, str] = ast.literal_eval(places.value)

    assert {place: names.split() for place, names in declared.items()} == imported
    assert sorted(name for names in imported.values() for name in names) == sorted(lifecycle.__all__)
    for place, names in imported.items():
        assert place is not None
        assert [getattr(lifecycle, name) for name in names] == [getattr(import_module(place), name) for name in names]


def test_a_public_class_is_pickled_and_documented_by_where_it_stands() -> None:
    assert pickle.loads(pickle.dumps(lifecycle.Allow("x"))) == lifecycle.Allow("x")
    assert "One agent on one session." in pydoc.render_doc("lifecycle.Agent")


def test_a_name_that_is_not_public_is_missed_as_usual() -> None:
    with pytest.raises(AttributeError, match="module 'lifecycle' has no attribute 'Agnet'"):
        _ = getattr(lifecycle, "Agnet")  # noqa: B009  # a type checker would see it at once
    with pytest.raises(ImportError, match="cannot import name 'Agnet' from 'lifecycle'"):
        exec("from lifecycle import Agnet")


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter loads for it."""
    script = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def foreign(loaded: set[str]) -> set[str]:
    tops = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    return {name for name in tops if not name.startswith("_sysconfigdata")}  # stdlib, named by platform


def test_import_lifecycle_loads_next_to_nothing() -> None:
    loaded = loaded_by("import lifecycle")

    assert {name for name in loaded if name.startswith("lifecycle")} == FACE_LOADS
    assert foreign(loaded) == {"lifecycle"}


@pytest.mark.parametrize("statement", ["from lifecycle import *", "from lifecycle import Agent"])
def test_no_public_name_loads_anything_heavy(statement: str) -> None:
    loaded = loaded_by(statement)

    assert [name for name in NEVER_LOADS if name in loaded] == []
    assert foreign(loaded) <= ALONE_LOADS


@pytest.mark.parametrize(
    ("statement", "never"),
    [
        ("from lifecycle import tool, Hooks, user_message", "lifecycle.driver.agent"),
        ("import lifecycle.definition.turn", "anyio"),
    ],
)
def test_a_part_does_not_load_what_it_does_not_need(statement: str, never: str) -> None:
    assert never not in loaded_by(statement)


def test_a_part_of_the_package_is_there_without_an_import_of_its_own() -> None:
    assert "lifecycle.errors" in loaded_by("import lifecycle; lifecycle.errors.LifecycleError")


# -- errors ------------------------------------------------------------------------------------------------------


def test_every_error_that_a_host_may_meet_stands_in_the_one_tree() -> None:
    told = errors.__doc__ or ""
    declared = {
        name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)
    }

    assert [name for name in declared if name not in told] == []
    elsewhere = [
        f"{module}.{node.name}"
        for module, path in modules().items()
        if module.startswith("lifecycle.") and module != "lifecycle.errors"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) in declared for base in node.bases)
    ]
    assert elsewhere == []


# -- the wheel ---------------------------------------------------------------------------------------------------


def test_the_wheel_holds_the_packages_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    names = ZipFile(wheel).namelist()
    code = {f"{package}/{path.relative_to(folder).as_posix()}"
            for package, folder in SOURCES.items() for path in folder.rglob("*.py")}  # fmt: skip

    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(SOURCES)
    assert {name for name in names if name.endswith(".py")} == code
    assert {f"{package}/py.typed" for package in SOURCES} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
