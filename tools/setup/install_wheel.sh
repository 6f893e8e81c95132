#!/usr/bin/env bash
# Installs the wheel in build/wheels/ into a virtual environment, in place of the raggrad that is there:
#
#   tools/setup/install_wheel.sh ENVIRONMENT [EXTRAS]        EXTRAS: of pyproject.toml, e.g. demo,test
set -euo pipefail
cd "$(dirname "$0")/../.."

environment=$1
wheel=$(echo build/wheels/raggrad-*.whl)
# The version stays the same from build to build: pip would keep the old files.
rm -rf "$environment"/lib/python3.*/site-packages/raggrad*
"$environment/bin/python" -m pip install --disable-pip-version-check --quiet "$wheel${2:+[$2]}"
