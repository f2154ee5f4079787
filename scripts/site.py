"""What mkdocs.yml asks of MkDocs: the pages of the site stand where they stand in the repository.

``docs/deploy.md`` is ``docs/deploy.md`` of the site too, and the pages outside ``docs/`` belong to it. So a relative
link leads to the same page in a checkout and on the site. The pages that are made from the code come to them.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from reference import pages

OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "tests/histories/README.md")
"""Pages that do not stand in ``docs/``."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All files of ``docs/`` with their folder, the pages outside, those made from code, and the theme's own files."""
    docs = Path(config.docs_dir)
    inside = [f"{docs.name}/{file.src_uri}" for file in files if file.src_dir == config.docs_dir]
    ours = (File(name, str(docs.parent), config.site_dir, config.use_directory_urls) for name in (*OUTSIDE, *inside))
    made = (File.generated(config, path, content=text) for path, text in pages().items())
    return Files([*(file for file in files if file.src_dir != config.docs_dir), *ours, *made])
