"""The documents: their snippets run, their links lead somewhere, the commands they name exist.

In README.md and docs/*.md the ```python blocks of a page run in order as one program, in a folder of
its own; `python file=NAME` and `toml file=NAME` are files by themselves, saved there; each line of a
`sh runnable` block is a command in that folder; a ```toml block is a settings file. Any other ```sh or
```python block needs the line `<!-- not run: REASON -->` before it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT, daemons_of, image_tree, make_image, wait_until
from helpers import tar_of
from lab.s3 import Bucket
from quiver_cache._programs import find_program

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ALL = [*ROOT.glob("*.md"), *(p for top in ("docs", "src", "python") for p in (ROOT / top).rglob("*.md"))]
KINDS = ("python", "sh runnable", "toml")
FILES = ("python file=", "toml file=")

# What the README leaves to the reader.
AUGMENT = """import torch
def augment(image):
    return torch.frombuffer(bytearray(image.resize((8, 8)).tobytes()), dtype=torch.uint8)
"""
SHORTENED = (("range(90)", "range(2)"),)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    kind: str  # what stands behind the fence
    text: str
    not_run: str  # the reason, or ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    fence = re.compile(r"(?:^<!-- not run: (.+) -->\n)?^```(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
    text = page.read_text()
    for found in fence.finditer(text):
        line = text.count("\n", 0, found.start(3)) + 1
        yield Block(page, line, found[2].strip(), found[3], found[1] or "")


def prose_of(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands_of(block: Block) -> list[str]:
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line.partition(" #")[0].strip() for line in lines if line.strip() and line[0] != "#"]


@pytest.fixture(scope="module")
def s3(server: Bucket) -> Bucket:
    """What the documents call s3://bucket/train and s3://bucket/shards."""
    bucket = Bucket(server.endpoint, "bucket", server.access_key, server.secret_key)
    bucket.create()
    bucket.put_all((f"train/{key}", data) for key, data in image_tree(40).items())
    files = [
        (f"{i:03d}.{ending}", body)
        for i in range(9)
        for ending, body in (("jpg", make_image(i)), ("cls", b"7"))
    ]
    bucket.put("shards/train-000.tar", tar_of(files))
    return bucket


@pytest.fixture
def folder(place: Path, s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, from which `quiver`, `python` and `torchrun` can be called."""
    programs, work = place / "programs", place / "work"
    programs.mkdir()
    work.mkdir()
    os.symlink(find_program("quiver"), programs / "quiver")
    os.symlink(find_program("quiverd"), programs / "quiverd")
    for name, command in {"python": "", "torchrun": "-m torch.distributed.run"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        (programs / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return work


def run(command: list[str] | str, folder: Path, what: object) -> str:
    done = subprocess.run(
        command, shell=isinstance(command, str), cwd=folder, timeout=100, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"{what}: {command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def is_run(block: Block) -> bool:
    return not block.not_run and (block.kind in KINDS or block.kind.startswith(FILES))


def program_of(page: Path) -> str:
    """The python blocks of a page, each at the line where it stands: tracebacks name that."""
    program = AUGMENT if page.name == "README.md" else ""
    for block in blocks_of(page):
        if block.kind == "python" and is_run(block):
            program += "\n" * (block.line - 1 - program.count("\n")) + block.text
    for whole, part in SHORTENED:
        program = program.replace(whole, part)
    return program


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if program_of(p).strip()], ids=name_of)
def test_the_python_of_a_page_runs(page: Path, folder: Path) -> None:
    program = folder / page.name
    program.write_text(program_of(page))
    printed = run([sys.executable, str(program)], folder, page)
    assert "without a daemon" not in printed


@pytest.mark.parametrize("page", [p for p in PAGES if "```sh runnable" in p.read_text()], ids=name_of)
def test_the_commands_of_a_page_run(page: Path, folder: Path, place: Path) -> None:
    for block in filter(is_run, blocks_of(page)):
        if block.kind.startswith(FILES):
            (folder / block.kind.partition("=")[2]).write_text(block.text)
        elif block.kind == "sh runnable":
            for command in commands_of(block):
                run(command, folder, block)
    if "quiver stop" in page.read_text():
        wait_until(lambda: not daemons_of(place / "cache"))


def test_settings_files_are_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [b for page in PAGES for b in blocks_of(page) if b.kind == "toml" and is_run(b)]
    assert found
    for name in ("QUIVER_CACHE_DIR", "QUIVER_MANIFEST_DIR", "QUIVER_DISK_LIMIT", "QUIVER_IDLE_TIMEOUT"):
        monkeypatch.delenv(name)  # they would win over a file
    file = folder / "quiver.toml"
    monkeypatch.setenv("QUIVER_CONFIG", str(file))
    for block in found:
        file.write_text(block.text)
        explained = run("quiver explain", folder, block)
        assert explained.count(f"from: {file}") == len(re.findall(r"^\w+ =", block.text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_not_run_says_why(page: Path) -> None:
    text = page.read_text()
    assert text.count("```") == 2 * len(list(blocks_of(page)))
    for block in blocks_of(page):
        if block.kind.split(" ")[0] in ("python", "sh", "toml", "bash", "shell", ""):
            assert is_run(block) or block.not_run, f"{block} is neither run nor marked"


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    prose = prose_of(page)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"https?://", target):
            continue
        path, _, heading = target.partition("#")
        where = (page.parent / path).resolve() if path else page
        assert where.exists(), f"{name_of(page)} links to {target}"
        assert not heading or heading in headings_of(where), f"{name_of(page)} links to {target}"
    tops = "apps|bench|cmake|docs|examples|python|src|tests|tools"
    for path in re.findall(rf"`((?:{tops})/[\w./*-]+)`", prose):
        assert list(ROOT.glob(path.rstrip("/"))), f"{name_of(page)} names {path}"


def headings_of(page: Path) -> set[str]:
    """As GitHub makes anchors of them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_commands_exist() -> None:
    program = find_program("quiver")
    helped = subprocess.run([program, "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    commands = set(re.findall(r"^  ([a-z]+)\s", helped.partition("ubcommands:")[2], re.MULTILINE))
    assert {"status", "digest", "explain"} <= commands
    developers = set(re.findall(r"^  ([a-z-]+) ", (ROOT / "tools/dev").read_text(), re.MULTILINE))
    for page in [*PAGES, ROOT / "ARCHITECTURE.md"]:  # in formats `quiver …` are bytes
        code = re.findall(r"`([^`\n]+)`", page.read_text()) + [b.text for b in blocks_of(page)]
        for text in code:
            named = set(re.findall(r"(?<![\w.-])quiver ([a-z]+)", text))
            assert named <= commands, f"{name_of(page)} names {named - commands}"
            named = set(re.findall(r"tools/dev ([a-z-]+)", text))
            assert named <= developers, f"{name_of(page)} names {named - developers}"


def test_arguments_exist() -> None:
    import inspect

    import quiver_cache.torch as qt
    from quiver_cache import _core

    known = {"access_key", "secret_key", "session_token"}
    known |= set(re.findall(r"^(\w+) = ", _core.Settings.load().explain(), re.MULTILINE))
    for function in (qt.DataLoader, qt.Dataset, qt.ImageFolder):
        known |= set(inspect.signature(function).parameters)
    for page in PAGES:
        named = set(re.findall(r"\b([a-z_]+)=[`\"]", prose_of(page)))
        assert named <= known, f"{name_of(page)} names {named - known}"


def test_packages_are_those_of_the_setup() -> None:
    """What the README has a user install is a part of what CI installs."""
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    found = re.search(r"apt-get install (.+)", text)
    assert found
    known = set((ROOT / "tools/packages.txt").read_text().split()) | {"python3-dev"}
    assert set(found[1].split()) <= known
