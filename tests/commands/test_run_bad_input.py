"""`lifecycle run` with what cannot work: one sentence on standard error, the right exit code, nothing half written."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

import pytest

from .child import HOST, LIFECYCLE, Child, Ended, can_mount, here, in_namespace, run
from .provider import refusing, serving, streaming


def refused(ended: Ended, *parts: str, code: int = 2) -> None:
    """The run never began: one sentence, and nothing on standard output."""
    assert (ended.code, ended.out) == (code, "")
    (sentence,) = ended.err.splitlines()
    assert sentence.startswith("lifecycle run: ")
    for part in parts:
        assert part in sentence


def failed(ended: Ended, *parts: str) -> None:
    """The turn began and failed: it was closed, and standard error says once why."""
    assert (ended.code, ended.out) == (1, "")
    assert "Traceback" not in ended.err
    (sentence,) = (line for line in ended.err.splitlines() if line.startswith("The turn "))
    for part in parts:
        assert part in sentence
        assert ended.err.count(part) == 1


def kept(store: Path) -> list[tuple[str, str]]:
    """The sessions of a store: the first and the last line of the story of each, without the id."""
    listed = here("sessions", "list", "--json", "--store", store)
    assert listed.code == 0
    assert listed.err == ""
    stories: list[tuple[str, str]] = []
    for line in listed.out.splitlines():
        id = line.partition('"id":"')[2].partition('"')[0]
        story = here("sessions", "show", "--store", store, id).out.splitlines()
        stories.append((story[1], story[-1]))
    return stories


# -- providers ----------------------------------------------------------------------------------------------------


def test_a_model_that_the_server_does_not_know(store: Path) -> None:
    answer = refusing(
        404, message="The model `nix` does not exist", type="invalid_request_error", code="model_not_found"
    )
    with serving(answer) as url:
        ended = run(*LIFECYCLE, "run", "--base-url", url, "--model", "nix", "hi")

    failed(
        ended, "failed (INVALID_REQUEST)", f"{url.removesuffix('/v1')} does not serve the model 'nix'", "/models lists"
    )
    ((start, end),) = kept(store)
    assert start == "--- turn 1"
    assert end.startswith("--- turn 1 failed (INVALID_REQUEST): http://127.0.0.1:")


def test_a_connection_that_is_refused(store: Path) -> None:
    with closing(socket.socket()) as unused:  # bound and not listening: nobody else can take the port
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        ended = here("run", "--no-retry", "--base-url", url, "--model", "m", "hi")

    failed(ended, "failed (TRANSPORT)", f"cannot connect to {url.removesuffix('/v1')}", "is the server running?")
    assert "running?\n" in ended.err
    assert [end.startswith("--- turn 1 failed (TRANSPORT)") for _, end in kept(store)] == [True]


def test_a_server_that_never_answers_costs_no_more_than_the_patience_for_it(store: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        ended = here("run", "--patience", "0.2", "--no-retry", "--base-url", url, "--model", "m", "hi")

    host = url.removesuffix("/v1")
    failed(ended, "failed (TIMEOUT)", f"{host} timed out after 0.2 seconds without any answer", "--patience")


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "soon"])
def test_a_patience_that_is_none(given: str) -> None:
    ended = here("run", "--patience", given, "hi")

    assert ended.code == 2
    assert f"{given!r} is no number of seconds above 0" in ended.err


def test_the_embedded_provider_needs_no_patience(store: Path) -> None:
    ended = here("run", "--patience", "1", "hi")

    assert ended.code == 2
    assert "the demo provider takes no `timeouts`; leave out --patience" in ended.err


def test_a_wrong_key_is_never_shown(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(refusing(401, message="Incorrect API key provided: sk-secret-0815", code="invalid_api_key")) as url:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-0815")
        ended = here("run", "--base-url", url, "--model", "m", "hi")

    failed(ended, "failed (AUTH)", "the key in OPENAI_API_KEY was refused by http://127.0.0.1:")
    assert "0815" not in ended.err
    assert b"0815" not in b"".join(path.read_bytes() for path in store.parent.glob("sessions.db*"))


def test_a_failure_is_said_in_one_sentence_beside_json_too(store: Path) -> None:
    with serving(refusing(404, message="no", code="model_not_found")) as url:
        ended = here("run", "--json", "--base-url", url, "--model", "nix", "hi")

    assert ended.code == 1
    (sentence,) = ended.err.splitlines()
    assert sentence.startswith("The turn failed (INVALID_REQUEST): http://127.0.0.1:")


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--base-url", "http://127.0.0.1:1/v1"], ["--base-url needs", "--model NAME"]),
        (["--wire", "openai-chat"], ["--wire needs", "--model NAME"]),
        (["--model", "m", "--wire", "smoke"], ["no wire 'smoke'", "openai-chat"]),
        (["--local", "--base-url", "http://x"], ["--local runs its own server", "leave out --base-url"]),
        (["--model", "m", "--base-url", "nonsense"], ["http://", "name a host"]),
        (["--model", "m", "--base-url", "http://[::1"], ["the base URL is no URL"]),
    ],
)
def test_a_provider_that_cannot_be_meant(args: list[str], parts: list[str], store: Path) -> None:
    refused(here("run", "hi", *args), *parts)

    assert here("sessions", "list", "--json") == (0, "", "")


# -- prompts and workspaces -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["", " \n\t"])
def test_an_empty_prompt(prompt: str, store: Path) -> None:
    refused(here("run", prompt), "the prompt is empty")
    refused(run(*LIFECYCLE, "run", "-", input=prompt.encode()), "the prompt is empty")

    assert not store.exists()


def test_a_prompt_that_is_no_text(store: Path) -> None:
    refused(here("run", os.fsdecode(b"caf\xe9")), "no valid text", "use UTF-8")
    refused(run(*LIFECYCLE, "run", "-", input=b"caf\xe9", env={"PYTHONUTF8": "1"}), "no valid text", "use UTF-8")

    assert not store.exists()


def test_standard_input_that_is_closed_is_an_empty_prompt(store: Path) -> None:
    refused(run("sh", "-c", 'exec "$@" <&-', "sh", *LIFECYCLE, "run", "-"), "the prompt is empty")


def test_a_prompt_of_a_megabyte_is_asked_and_kept(store: Path, workspace: Path) -> None:
    prompt = "a megabyte " + "ü" * 1_000_000

    ended = run(*HOST, "plain", "run", "-", "--workspace", workspace, input=prompt.encode())

    assert ended.code == 0
    assert f"... ({len(prompt)} characters)" in ended.out
    assert len(ended.out + ended.err) < 10_000
    assert [start for start, _ in kept(store)] == ["--- turn 1"]
    assert here("sessions", "list").out.count("ü") < 80


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nowhere", "does not exist"),
        ("README.md", "is not a folder"),
        ("x" * 300, "cannot be used (File name too long)"),
    ],
)
def test_a_workspace_that_is_none(name: str, what: str, store: Path, workspace: Path) -> None:
    refused(here("run", "hi", "--workspace", workspace / name), f"the workspace {workspace / name} {what}", "name an")

    assert not store.exists()


@pytest.mark.parametrize("tokens", ["0", "-1", "many", "1.5", "9" * 5000, "²"])
def test_a_token_ceiling_that_is_none(tokens: str) -> None:
    ended = here("run", "hi", f"--max-tokens={tokens}")

    assert ended.code == 2
    assert "is no number of at least 1" in ended.err


# -- stores -----------------------------------------------------------------------------------------------------------


def test_a_store_that_is_a_folder_of_other_things(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()

    refused(
        here("run", "--store", tmp_path, "hi"), f"{tmp_path} is a folder, and holds other things", "name a file in it"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_store_in_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    store = tmp_path / "none" / "s.db"

    refused(here("run", "--store", store, "hi"), f"its folder {store.parent} does not exist", "make it")
    assert not store.parent.exists()


def test_a_store_that_is_not_ours(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("dear diary " * 1000, encoding="utf-8")
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE mine (x)")
    was = text.read_bytes(), other.read_bytes()

    for action in (("run", "hi"), ("sessions", "list"), ("sessions", "delete", "x")):
        assert "notes.txt is not a session store" in here(*action, "--store", text).err
        ended = here(*action, "--store", other)
        assert (ended.code, ended.out) == (2, "")
        assert "other.db is a database, but not one of sessions; name another file" in ended.err
    assert (text.read_bytes(), other.read_bytes()) == was


def test_a_store_that_another_process_locks(store: Path, workspace: Path) -> None:
    run(*HOST, "plain", "run", "the first", "--workspace", workspace)
    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ended = run(*HOST, "impatient", "run", "hi", "--workspace", workspace)
        other.execute("ROLLBACK")

    refused(ended, f"{store} is busy: another process is writing to it; try again")
    assert len(kept(store)) == 1


def test_a_store_that_is_locked_while_the_turn_runs(store: Path, workspace: Path) -> None:
    gate = Event()
    command = (*HOST, "impatient", "run", "hi", "--workspace", workspace)
    with serving(streaming(["one\n", gate])) as url, Child(*command, "--model", "m", "--base-url", url) as child:
        child.says("one")
        with closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            gate.set()
            ended = child.end()
            other.execute("ROLLBACK")

    assert ended.code == 2
    assert ended.err.splitlines()[-3:-2] == ["The turn completed."]
    assert ended.err.splitlines()[-1] == (
        f"lifecycle run: the session is not kept whole: {store} is busy: another process is writing to it; try again"
    )
    assert kept(store) == [("--- turn 1", "--- turn 1 was never ended: its process was lost")]  # up to the request


@contextmanager
def disk(at: Path, options: str) -> Generator[Callable[..., Ended]]:
    """Runs commands in a namespace where `at` is a file system of its own; then the store there is listed."""
    if not can_mount(at):
        pytest.skip("this user may not mount; the limit on the size of files stands in")
    script = (
        f'mount -t tmpfs -o {options} tmpfs "$1" && shift && "$@"; code=$?; '
        f"{' '.join(LIFECYCLE)} sessions list --json; exit $code"
    )
    yield lambda *args, **how: run(*in_namespace(script, at, *args), **how)


def test_a_disk_that_is_full_before_the_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIFECYCLE_STORE", str(tmp_path / "s.db"))
    with disk(tmp_path, "size=8k") as on_it:
        ended = on_it(*HOST, "plain", "run", "hi")

    refused(ended, f"{tmp_path / 's.db'} cannot be written: its disk is full", "free some space")


def test_a_disk_that_is_full_before_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIFECYCLE_STORE", str(tmp_path / "s.db"))
    with disk(tmp_path, "size=400k") as on_it:
        ended = on_it(*HOST, "plain", "run", "-", input=b"x" * 1_000_000)

    assert ended.code == 2
    assert "You asked: " not in ended.out  # what the store does not hold is asked of nobody
    assert '"id"' not in ended.out  # no row
    full_disk(ended, tmp_path)


def test_a_disk_that_is_full_at_the_end_of_the_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIFECYCLE_STORE", str(tmp_path / "s.db"))
    with disk(tmp_path, "size=400k") as on_it, serving(streaming(["x" * 1_000_000])) as url:
        ended = on_it(*HOST, "plain", "run", "hi", "--model", "m", "--base-url", url)

    assert ended.code == 2
    assert "x" * 1_000_000 in ended.out
    assert '"events":7' in ended.out  # the part up to the request is kept
    full_disk(ended, tmp_path)


def full_disk(ended: Ended, folder: Path) -> None:
    assert "Traceback" not in ended.err
    assert ended.err.splitlines()[-1] == (
        f"lifecycle run: the session is not kept whole: {folder / 's.db'} cannot be written: its disk is full; "
        "free some space and try again"
    )


def test_a_disk_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIFECYCLE_STORE", str(tmp_path / "s.db"))
    with disk(tmp_path, "ro") as on_it:
        ended = on_it(*HOST, "plain", "run", "hi")

    refused(ended, f"{tmp_path / 's.db'} cannot be", "name another file")


def test_a_file_that_may_not_grow(store: Path, workspace: Path) -> None:
    ended = run(*HOST, "small-files", "run", "-", "--workspace", workspace, input=b"x" * 300_000)

    assert ended.code == 2
    assert "Traceback" not in ended.err
    assert f"the session is not kept whole: {store} cannot be" in ended.err.splitlines()[-1]
    assert kept(store) == []
    assert run(*HOST, "plain", "run", "hi", "--workspace", workspace).code == 0
