#!/usr/bin/env bash
# Prints the paths of the oldest and the newest CPython on this machine that the package supports, one per line; one
# line if they are the same. Looks on the PATH and among pyenv's versions.
set -euo pipefail

candidates() {
  compgen -c python3. | grep -E '^python3\.[0-9]+$' | sort -u | while read -r name; do type -ap "$name"; done
  ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3 2>/dev/null || true
  type -ap "${PYTHON:-python3}" || true
}

# Final releases from 3.10 on that can make virtual environments and have the GIL: the module uses their ABI.
describe='
import platform, sys, sysconfig
import ensurepip, venv
version = sys.version_info
good = version >= (3, 10) and version.releaselevel == "final" and not sysconfig.get_config_var("Py_GIL_DISABLED")
if good and platform.python_implementation() == "CPython":
    print(version.minor, version.micro, sys.executable)
'

found=$(candidates | while read -r python; do "$python" -c "$describe" 2>/dev/null || true; done | sort -n -k 1 -k 2)
if [ -z "$found" ]; then
  echo 'find_pythons: found no CPython of at least 3.10 that can make virtual environments' >&2
  exit 1
fi
printf '%s\n' "$found" | sed -n '1p;$p' | cut -d ' ' -f 3- | uniq
