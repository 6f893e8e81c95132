"""MkDocs hook: pages from all over the tree, with links that fit.

A page lies where its subject lies: a family's README.md in its folder, ARCHITECTURE.md at the top. Links in it are
relative to that place, as people who read the tree need them. On the site they lead to the page of the same file. If it
has none, they lead into the repository; as long as `repo_url` is not set, only their text is left. A link to nothing is
an error.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import contracts

ROOT = Path(__file__).parents[2]

# Page of the site: file of the tree. All files of docs/ are pages under their own names.
ELSEWHERE = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
    "contributing/index.md": "CONTRIBUTING.md",
    "contributing/architecture.md": "ARCHITECTURE.md",
    "contributing/fuzzing.md": "fuzz/README.md",
    "api/c.md": "raggrad/capi/README.md",
    **{f"operators/{p.parent.name}.md": str(p.relative_to(ROOT)) for p in ROOT.glob("raggrad/ops/*/README.md")},
    **{f"examples/{p.parent.name}.md": str(p.relative_to(ROOT)) for p in ROOT.glob("examples/*/README.md")},
    **{f"notebooks/{p.stem}.md": str(p.relative_to(ROOT)) for p in ROOT.glob("examples/notebooks/*.ipynb")},
}
_FENCED = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_LOADED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="?https?://[^>]*>|(?:url\(|@import )["\']?https?://')
_SOURCE = re.compile(r"^(\S.*)\n<!-- end of measurement -->$", re.MULTILINE)
_LIST_IN_PARAGRAPH = re.compile(r"^(?![-*|#>]|\d+\.|\s|<).+\n(?=[-*] )", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    for page, file in {**ELSEWHERE, "site.css": "tools/site/site.css"}.items():
        added = File(page, str(ROOT), config["site_dir"], config["use_directory_urls"])
        added.abs_src_path = str(ROOT / file)
        files.append(added)
    return files


def on_page_read_source(page: Any, config: Any) -> str | None:
    """The cells of a notebook, one after the other. Other pages are read as they are."""
    file = ELSEWHERE.get(page.file.src_uri, "")
    if not file.endswith(".ipynb"):
        return None
    cells = json.loads((ROOT / file).read_text())["cells"]
    texts = [("".join(cell["source"]), cell["cell_type"]) for cell in cells]
    return "\n\n".join(f"```python\n{text}\n```" if kind == "code" else text for text, kind in texts)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    here = ELSEWHERE.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = _FENCED.split(contracts.fill(markdown, ROOT))
    for i in range(0, len(parts), 2):  # the others are fenced
        if found := _LIST_IN_PARAGRAPH.search(parts[i]):
            raise SystemExit(f"{here}: a list needs an empty line before it: {found[0].strip()!r}")
        parts[i] = _SOURCE.sub(r"\1\n{ .source }", parts[i])
        parts[i] = _LINK.sub(lambda found: _link(*found.groups(), here, page, config), parts[i])
    return "".join(parts)


def on_post_build(config: Any) -> None:
    """Refuses a site that loads anything from elsewhere, and pages of several titles, whose contents are not shown."""
    for file in Path(config["site_dir"]).rglob("*"):
        if file.suffix in (".html", ".css") and (found := _LOADED.search(file.read_text())):
            raise SystemExit(f"{file.relative_to(config['site_dir'])} loads {found[0]}")
        if file.suffix == ".html" and file.read_text().count("<h1") > 1:
            raise SystemExit(f"{file.relative_to(config['site_dir'])} has several headings of the first level")


def _link(picture: str, text: str, target: str, here: str, page: Any, config: Any) -> str:
    """A link of the file `here`, as the page has to write it."""
    target = _target(target, here, page, config)
    return f"{picture}[{text}]({target})" if target else text


def _target(link: str, here: str, page: Any, config: Any) -> str:
    repository = config["repo_url"]
    file, mark, anchor = link.partition("#")
    if repository and file.startswith(repository):
        kind, _, path = file.removeprefix(repository).strip("/").partition("/main/")
        if kind not in ("blob", "tree", "raw"):
            return link
    elif not file or "://" in file or file.startswith("mailto:"):
        return link
    else:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), file))
    if not (ROOT / path).exists():
        raise SystemExit(f"{here}: a link to {link}, which is not there")
    pages = {file: page for page, file in ELSEWHERE.items()}
    readme = posixpath.join(path, "README.md")
    name = pages.get(path) or pages.get(readme) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if name is None and not repository:
        return ""
    if name is None:
        return f"{repository}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}{mark}{anchor}"
    return posixpath.relpath(name, os.path.dirname(page.file.src_uri) or ".") + mark + anchor
