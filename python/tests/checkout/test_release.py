"""A release agrees with itself: one version everywhere, and a description without links into a tree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import package_metadata  # noqa: E402
import record_abi  # noqa: E402

README = (ROOT / "README.md").read_text()


def read(name: str) -> str:
    return (ROOT / name).read_text()


def test_one_version_everywhere() -> None:
    version = package_metadata.version()
    named = {
        "package": metadata.version("raggrad"),
        "changelog": re.search(r"^## ([0-9.]+)", read("CHANGELOG.md"), re.MULTILINE)[1],
        "citation": re.search(r"^version: (.*)$", read("CITATION.cff"), re.MULTILINE)[1],
        "conda": re.search(r'^  version: "(.*)"$', read("packaging/conda/recipe.yaml"), re.MULTILINE)[1],
        "vcpkg": json.loads(read("packaging/vcpkg/raggrad/vcpkg.json"))["version"],
    }
    assert set(named.values()) == {version}, named
    minor = version.rpartition(".")[0]
    for language in ("c", "cpp"):
        assert f"find_package(raggrad {minor} CONFIG" in read(f"examples/{language}/CMakeLists.txt")


def test_the_recipe_needs_what_the_package_needs() -> None:
    recipe, project = read("packaging/conda/recipe.yaml"), read("pyproject.toml")
    lists = [re.search(rf"^{key} = \[(.*)\]", project, re.MULTILINE)[1] for key in ("requires", "dependencies")]
    for requirement in re.findall(r'"([^"]+)"', ", ".join(lists)):
        name, versions = re.match(r"([\w-]+)(.*)", requirement).groups()
        assert f"- {name} {versions}\n" in recipe


def test_links_of_the_readme_lead_to_files() -> None:
    links = package_metadata.LINK.findall(README)
    assert len(links) > 20
    assert [path for _, _, path in links if not (ROOT / path).exists()] == []


def test_the_installed_description_has_no_link_into_the_tree() -> None:
    # As it lies there: packages that replace importlib.metadata's finder move the text into a header.
    text = metadata.distribution("raggrad").read_text("METADATA").partition("\n\n")[2]
    assert text.startswith("# raggrad")
    assert not package_metadata.LINK.search(text)


@pytest.mark.parametrize(
    ("text", "without", "absolute"),
    [
        ("[`a`](LICENSE)", "`a`", "[`a`](https://forge.test/us/blob/vVERSION/LICENSE)"),
        ("[a](examples/c)", "a", "[a](https://forge.test/us/tree/vVERSION/examples/c)"),
        ("![a](docs/speed.svg)", "", "![a](https://forge.test/us/raw/vVERSION/docs/speed.svg)"),
        ("[a](https://else.test) [b](#c)", "[a](https://else.test) [b](#c)", "[a](https://else.test) [b](#c)"),
        ("```\n[a](b)\n```", "```\n[a](b)\n```", "```\n[a](b)\n```"),
    ],
)
def test_links_become_absolute_or_plain_text(text: str, without: str, absolute: str) -> None:
    assert package_metadata.description(text, None) == without
    absolute = absolute.replace("VERSION", package_metadata.version())
    assert package_metadata.description(text, "https://forge.test/us/") == absolute


def test_the_recorded_abi_is_that_of_its_version() -> None:
    recorded = record_abi.RECORD.read_text()
    version = re.match(r"// The C ABI of raggrad ([0-9.]+),", recorded)[1]
    if version == package_metadata.version():  # later versions may add to it
        assert recorded == record_abi.record(version)


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("RG_MEAN = 1", "RG_MEAN = 3", "RG_MEAN"),
        ("typedef int32_t rg_status", "typedef int64_t rg_status", "rg_status"),
        ("  const char* isa;", "  const char* isa;\n  int64_t later;", ""),
        ("  int32_t num_workers;", "  int64_t later;\n  int32_t num_workers;", "rg_context.num_workers"),
        ("rg_dtype_size(int32_t", "rg_dtype_size(int64_t", "abi_rg_dtype_size"),
    ],
)
def test_a_break_of_the_abi_is_found(tmp_path: Path, before: str, after: str, fault: str) -> None:
    capi = tmp_path / "raggrad" / "capi"
    capi.mkdir(parents=True)
    found = 0
    for header in (ROOT / "raggrad/capi").glob("raggrad_c*.h"):
        text = header.read_text()
        found += text.count(before)
        (capi / header.name).write_text(text.replace(before, after))
    assert found == 1
    check = ["cc", "-std=c11", "-Werror", "-fsyntax-only", f"-I{tmp_path}", str(record_abi.RECORD)]
    result = subprocess.run(check, capture_output=True, text=True)
    assert (result.returncode == 0) == (fault == "")
    assert fault in result.stderr
