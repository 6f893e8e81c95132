#!/usr/bin/env bash
# Builds the release of the last commit twice, compares the bytes, and uses it as strangers would:
#
#   tools/release_check.sh PYTHON        a Python with the packages of tools/setup/requirements-wheel.txt
#
# The options of tools/wheel.sh hold here, too. DOORS='torch jax tf' are the frameworks to install for the programs of
# docs/start.md; DOORS= leaves them out. All is in build/release-check/, the release itself in its dist/.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
tree=$PWD
work=$tree/build/release-check
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# A cache would hand the objects of the first build to the second.
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER CMAKE_CUDA_COMPILER_LAUNCHER

say() { printf 'release-check: %s\n' "$*"; }

quietly() {  # NAME COMMAND...: shows what the command says only if it fails
  "${@:2}" >"$work/$1.txt" 2>&1 || { tail -n 30 "$work/$1.txt"; say "failed: $1"; exit 1; }
}

same_bytes() {  # FILE FILE
  cmp "$1" "$2" || { say "the bytes differ: diffoscope $1 $2"; exit 1; }
  say "same bytes twice: $(basename "$1"), sha256 $(sha256sum "$1" | cut -d ' ' -f 1)"
}

expect_rows() {  # NAME, and what a program of docs/start.md printed as input
  diff <(sed -n 's/^    \(row .*\)$/\1/p' "$tree/docs/start.md") - && say "docs/start.md runs: $1"
}

build_wheel() {  # FOLDER
  mkdir -p "$work/$1/build"
  cp -r build/*-headers "$work/$1/build/"
  say "building a wheel in $1"
  quietly "wheel-in-$1" "$work/$1/tools/wheel.sh" "$python"
}

rm -rf "$work"
mkdir -p "$work/dist"
for copy in first second; do
  git clone --quiet --no-local . "$work/$copy"
  quietly "sdist-of-$copy" "$python" -m build --sdist --outdir "$work/$copy-dist" "$work/$copy"
done
same_bytes "$work"/first-dist/raggrad-*.tar.gz "$work"/second-dist/raggrad-*.tar.gz

# The second wheel comes from the source distribution. Its folder has another name, unless there are kernels: nvcc writes
# a hash of the path into their names.
build_wheel first
cp "$work"/first-dist/raggrad-*.tar.gz "$work"/first/build/wheels/raggrad-*.whl "$work/dist/"
folder=elsewhere
[ "${WHEEL_CUDA:-ON}" = OFF ] || folder=first
rm -rf "${work:?}/$folder"
mkdir "$work/$folder"
tar -xf "$work"/second-dist/raggrad-*.tar.gz -C "$work/$folder" --strip-components 1
build_wheel "$folder"
same_bytes "$work"/dist/raggrad-*.whl "$work/$folder"/build/wheels/raggrad-*.whl

cd "$work/$folder"
run_page='
import sys
sys.path.insert(0, "python/tests")
import pages
for code in pages.programs(sys.argv[1])["docs/start.md"]:
    exec(compile(code, "docs/start.md", "exec"), {})'
for door in '' ${DOORS-torch jax tf}; do
  environment=$work/venv-${door:-numpy}
  "$python" -m venv "$environment"
  "$environment/bin/python" -m pip install --disable-pip-version-check --quiet "$(echo "$work"/dist/raggrad-*.whl)${door:+[$door]}"
  "$environment/bin/python" -c "$run_page" "$door" | expect_rows "${door:-NumPy}"
done

quietly install make install PREFIX="$work/prefix" CMAKE_OPTIONS=-DRAGGRAD_CUDA=OFF
[ ! -e build/venv ] || { say 'make install made a virtual environment'; exit 1; }
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig LD_LIBRARY_PATH=$work/prefix/lib
read -ra flags <<<"$(pkg-config --cflags --libs raggrad)"
compile() {  # LANGUAGE COMPILER...
  sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/!p}" docs/start.md >"$work/start.$1"
  "${@:2}" "$work/start.$1" -o "$work/start-$1" "${flags[@]}"
  "$work/start-$1" | expect_rows "$1, with pkg-config"
}
compile c "${CC:-cc}" -std=c11
compile cpp "${CXX:-c++}" -std=c++20
say "done: $(cd "$work/dist" && echo *)"
