"""The site of the documents: its links are checked, each page is in it, and it loads nothing from other machines."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\s\"'>]*)")
CODE = (".py", ".pyx", ".pxd", ".toml", ".yaml", ".service", ".html", ".js")
FROM_CSS = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\s\"')]*)")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The documents and what builds their site, to change."""
    for name in ("mkdocs.yml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "scripts"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, tmp_path / name)
    for page in ("benchmarks/README.md", "tests/histories/README.md"):
        (tmp_path / page).parent.mkdir(parents=True)
        shutil.copy2(ROOT / page, tmp_path / page)
    return tmp_path


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.long
def test_the_site_is_built_and_loads_nothing_from_elsewhere(copy: Path) -> None:
    built = build(copy)
    assert built.returncode == 0, built.stderr
    site = copy / "build" / "site"
    pages, styles = list(site.rglob("*.html")), list(site.rglob("*.css"))
    assert len(pages) > 30
    assert styles
    loaded = {link for page in pages for link in LOADED.findall(page.read_text(encoding="utf-8"))}
    loaded |= {link for style in styles for link in FROM_CSS.findall(style.read_text(encoding="utf-8"))}
    assert loaded == set()
    # The theme would fetch what draws these.
    assert not [page for page in pages if 'class="mermaid"' in page.read_text(encoding="utf-8")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[there](nowhere.md)", "'docs/nowhere.md' is not found"),
        ("[there](moving-keys.md#nowhere)", "does not contain an anchor '#nowhere'"),
        ("[there](../README.md#nowhere)", "does not contain an anchor '#nowhere'"),
        ("[there](/docs/moving-keys.md)", "absolute link"),
    ],
)
def test_a_link_that_leads_nowhere_fails(copy: Path, text: str, complaint: str) -> None:
    with (copy / "docs" / "pacing.md").open("a", encoding="utf-8") as page:
        page.write(f"\n{text}\n")
    built = build(copy)
    assert built.returncode != 0
    assert complaint in built.stderr


@pytest.mark.long
def test_a_page_that_is_in_no_menu_fails(copy: Path) -> None:
    (copy / "docs" / "unknown.md").write_text("# Unknown\n", encoding="utf-8")
    built = build(copy)
    assert built.returncode != 0
    assert "docs/unknown.md" in built.stderr


def test_pages_that_code_names_are_there() -> None:
    """What an operator is told to read, and what a comment sends a reader to."""
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for folder in ("topom", "proxy", "migrator", "slots", "sizing", "rdb", "slotferry", "configs", "deploy")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in CODE
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert [(path, name) for path, name in sorted(named) if not (ROOT / name).exists()] == []


def test_check_builds_the_site() -> None:
    assert "-m mkdocs build --strict\n" in (ROOT / "scripts" / "check").read_text(encoding="utf-8")
