"""Checks what packagers read, without their network: the recipe for conda and the workflow for wheels.

    tools/lint_packaging.py        `make lint-packaging` does that
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import rattler_build

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "packaging/conda/recipe.yaml"
WORKFLOW = ROOT / ".github/workflows/wheels.yml"


def render_recipe() -> None:
    """Parses and renders the recipe as a build would. Whether the packages it names exist is not known here."""
    variants = rattler_build.VariantConfig({"c_stdlib": ["sysroot"], "c_stdlib_version": ["2.28"]})
    rendered = rattler_build.Stage0Recipe.from_file(RECIPE).render(variants, rattler_build.RenderConfig())
    assert [variant.recipe.to_dict()["package"]["name"] for variant in rendered] == ["raggrad"]


def check_workflow() -> None:
    """Against the schema of workflows; with actionlint, which finds more, where that is installed."""
    schema = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    subprocess.run([*schema, str(WORKFLOW)], check=True)
    if actionlint := shutil.which("actionlint"):
        subprocess.run([actionlint, str(WORKFLOW)], check=True)


if __name__ == "__main__":
    render_recipe()
    check_workflow()
