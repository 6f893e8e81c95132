# Targets for users, contributors and CI. All output goes into build/.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
MINUTES ?= 10
SECONDS ?= 60
SEED ?=
CMAKE_OPTIONS ?=
WERROR ?= OFF
BENCH ?=
WHEELS ?=
SWEEP ?=
FILTER ?= -(ids|entries):100000000
COMMIT ?= HEAD
# Whether the Python package of build/venv has the kernels for GPUs, which take minutes to compile: ON or OFF.
RAGGRAD_CUDA ?= OFF
# What build/venv gets as its Python package: tree, compiled there, or wheel, the one in build/wheels/.
RAGGRAD_PACKAGE ?= tree

VENV := build/venv
VENV_LINT := build/venv-lint
VENV_TF := build/venv-tf
VENV_TF_OLDEST := build/venv-tf-oldest
VENV_TORCH := build/venv-torch
VENV_TORCH_OLDEST := build/venv-torch-oldest
VENV_JAX := build/venv-jax
VENV_OLD_JAX := build/venv-jax-oldest
VENV_CUDA := build/venv-cuda
VENV_WHEEL := build/venv-wheel
VENV_DOCS := build/venv-docs
PIP_INSTALL := bin/python -m pip install --disable-pip-version-check

export PYTHON
# The environment brings a CMake if the system's is too old.
export PATH := $(CURDIR)/$(VENV)/cmake:$(PATH)

CPP_FOLDERS := raggrad python/bindings doors benchmarks examples
CPP_FILES := $(shell find $(CPP_FOLDERS) -name '*.h' -o -name '*.cc' -o -name '*.c' -o -name '*.cu' -o -name '*.cuh')
MODULE_FILES := CMakeLists.txt README.md pyproject.toml tools/package_metadata.py $(shell find cmake raggrad doors \
  python/CMakeLists.txt python/bindings python/raggrad -type f -not -path '*/test/*' -not -path 'raggrad/testing/*' \
  -not -name '*.md' -not -name '*.pyc')
# Tests, fuzzers and benchmarks would take two thirds of clang-tidy's time; -Werror of two compilers is enough for them.
TIDY_FILES := '^(?!.*/test/|.*/raggrad/testing/)'
TREE_TESTS := python/tests/checkout
# These take half of the time, and their results do not depend on the interpreter.
PROGRAM_TESTS := python/tests/programs
# Cases that need a framework have its name in theirs: that selects them.
ARRAY_TESTS := $(addprefix python/tests/,arrays operators ragged batching)
# test-torch, test-jax, test-tf and test-dist run these, with the versions of the frameworks that count.
DOOR_TESTS := $(addprefix python/tests/,torch_door jax_door tf_door dist)
TEST_PACKAGES := g++ ninja-build libgtest-dev libgmock-dev nlohmann-json3-dev pkg-config

.PHONY: help
help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.raggrad  ## train a small recommender with these gradients and draw build/demo/recommender.png
	@mkdir -p build/demo
	$(VENV)/bin/python examples/recommender/train.py --plot build/demo/recommender.png

.PHONY: demo-torch
demo-torch: beside-torch  ## train a recommendation model with torch and raggrad, draw build/demo/torch_dlrm.png
	@mkdir -p build/demo
	$(VENV_TORCH)/bin/python examples/torch_dlrm/train.py --plot build/demo/torch_dlrm.png

# Fails if two processes have another loss or another weight than one.
.PHONY: demo-dist
demo-dist: beside-torch  ## train that model with 1 and with 2 processes, and compare their bits
	$(VENV_TORCH)/bin/python examples/torch_dlrm/train.py --ranks 2

.PHONY: demo-tf
demo-tf: beside-tf  ## train unchanged Keras models with and without raggrad.tf.install()
	$(VENV_TF)/bin/python examples/tf_unchanged/compare.py

.PHONY: demo-jax
demo-jax: beside-jax  ## train a small recommender in JAX, twice, with the same weights
	$(VENV_JAX)/bin/python examples/jax_recommender/train.py

.PHONY: test
test test-pythons test-sdist test-tf test-torch test-jax test-dist wheel: WERROR := ON
test: build/release/.built $(VENV)/.raggrad $(VENV)/.interop  ## all tests of C++, C and Python but those of the doors
	ctest --preset release -j $(JOBS)
	$(VENV)/bin/python -m pytest -rs -n $(JOBS) $(addprefix --ignore=,$(DOOR_TESTS))

.PHONY: wheel
wheel: $(VENV_WHEEL)/.packages  ## one wheel for this machine type in build/wheels/; WHEEL_ARCHS=90-real builds faster
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) WERROR=$(WERROR) \
	  $(if $(filter OFF,$(WHEEL_CUDA)),,tools/setup/with_nvcc.sh) tools/wheel.sh $(VENV_WHEEL)/bin/python

# Takes three builds of the library, and of the kernels two; a commit must be made first.
.PHONY: release-check
release-check: $(VENV_WHEEL)/.packages build/torch-headers/.complete build/tf-headers/.complete build/jax-headers/.complete
release-check:  ## build the release twice, compare the bytes, use it in empty environments; WHEEL_CUDA=OFF DOORS=jax is quicker
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(if $(filter OFF,$(WHEEL_CUDA)),,tools/setup/with_nvcc.sh) \
	  tools/release_check.sh $(VENV_WHEEL)/bin/python

# Tests the wheel in build/wheels/, or makes one, on the oldest and the newest CPython of this machine, without any other
# framework: its report, the golden cases, and the tests unless `make test` runs them on the same minor version (2 minutes).
MINOR := import sys; print(sys.version_info[:2])
.PHONY: test-pythons
test-pythons: any-wheel  ## the Python tests on the oldest and the newest CPython of this machine
	tools/setup/find_pythons.sh | while read -r python; do \
	  "$$python" --version; \
	  rm -rf build/venv-other; \
	  "$$python" -m venv build/venv-other; \
	  tools/setup/install_wheel.sh build/venv-other demo,test; \
	  build/venv-other/bin/python -m raggrad doctor </dev/null; \
	  build/venv-other/bin/python -m raggrad conformance goldens </dev/null; \
	  [ "$$("$$python" -c '$(MINOR)')" != "$$($(PYTHON) -c '$(MINOR)')" ] || { echo 'make test runs the tests on it'; continue; }; \
	  build/venv-other/bin/python -m pytest -rs -n $(JOBS) $(addprefix --ignore=,$(TREE_TESTS) $(PROGRAM_TESTS) $(DOOR_TESTS)) </dev/null; \
	done

# Unpacks the source distribution, configures it, builds two programs and runs the tests that read the tree's files. A
# compiler cache that takes its folder for the base knows its files from the checkout's.
.PHONY: test-sdist
test-sdist: $(VENV)/.raggrad  ## build and test the source distribution where it is unpacked
	rm -rf build/sdist
	$(VENV)/$(PIP_INSTALL) --quiet build
	$(VENV)/bin/python -m build --sdist --outdir build/sdist .
	mkdir build/sdist/tree
	tar -xf build/sdist/raggrad-*.tar.gz -C build/sdist/tree --strip-components 1
	cd build/sdist/tree && export CCACHE_BASEDIR=$$PWD && cmake --preset release -DRAGGRAD_CUDA=OFF && \
	  cmake --build --preset release -j $(JOBS) --target readme_example core_test && \
	  ctest --preset release -R 'readme_example|core_test'
	cd build/sdist/tree && $(CURDIR)/$(VENV)/bin/python -m pytest -rs $(TREE_TESTS)

# The tests below need a framework. They run beside the wheel in build/wheels/, or beside one that is made here.

.PHONY: any-wheel
any-wheel: | $(VENV)/.created
	ls build/wheels/raggrad-*.whl >/dev/null 2>&1 || $(MAKE) wheel WHEEL_CUDA=OFF

BESIDE_FRAMEWORKS := $(addprefix beside-,tf tf-oldest torch torch-oldest jax jax-oldest)
.PHONY: $(BESIDE_FRAMEWORKS)
beside-tf: $(VENV_TF)/.tensorflow
beside-tf-oldest: $(VENV_TF_OLDEST)/.tensorflow
beside-torch: $(VENV_TORCH)/.torch
beside-torch-oldest: $(VENV_TORCH_OLDEST)/.torch
beside-jax: $(VENV_JAX)/.jax
beside-jax-oldest: $(VENV_OLD_JAX)/.jax
$(BESIDE_FRAMEWORKS): beside-%: any-wheel
	tools/setup/install_wheel.sh build/venv-$* demo,test

# One worker more than processors: TensorFlow waits 10 s before it refuses memory, and tests of that wait for a minute.
.PHONY: test-tf
test-tf: beside-tf beside-tf-oldest  ## the Python tests that need TensorFlow, those of raggrad.tf with two TensorFlows
	$(VENV_TF)/bin/python -m pytest -rs -n $(JOBS) -k tensorflow $(ARRAY_TESTS)
	XDG_CACHE_HOME=$(CURDIR)/build/cache $(VENV_TF)/bin/python -m pytest -rs -n $$(($(JOBS) + 1)) python/tests/tf_door
	XDG_CACHE_HOME=$(CURDIR)/build/cache $(VENV_TF_OLDEST)/bin/python -m pytest -rs -n $$(($(JOBS) + 1)) python/tests/tf_door

.PHONY: test-torch
test-torch: beside-torch  ## the Python tests that need torch, with the newest one, which it installs
	$(VENV_TORCH)/bin/python -m pytest -rs -n $(JOBS) -k torch $(ARRAY_TESTS)
	$(VENV_TORCH)/bin/python -m pytest -rs -n $(JOBS) python/tests/torch_door

.PHONY: test-torch-oldest
test-torch-oldest: beside-torch-oldest  ## the Python tests of raggrad.torch with the oldest torch, which it installs
	$(VENV_TORCH_OLDEST)/bin/python -m pytest -rs -n $(JOBS) python/tests/torch_door

# With one worker: worlds of up to 8 processes keep the processors busy enough.
.PHONY: test-dist
test-dist: beside-torch  ## the Python tests of raggrad.dist, in worlds of 1 to 8 processes
	$(VENV_TORCH)/bin/python -m pytest -rs python/tests/dist

# JAX 0.7 compiles for SVE on every Neoverse V1. Virtual machines may hide SVE, and JAX's own code dies of SIGILL there
# unless it is compiled without optimization.
OLD_JAX_FLAGS := $(if $(filter aarch64,$(shell uname -m)),XLA_FLAGS=--xla_backend_optimization_level=0)
.PHONY: test-jax
test-jax: beside-jax beside-jax-oldest  ## the Python tests of raggrad.jax, with the newest and the oldest JAX
	$(VENV_JAX)/bin/python -m pytest -rs -n $(JOBS) python/tests/jax_door
	$(OLD_JAX_FLAGS) $(VENV_OLD_JAX)/bin/python -m pytest -rs -n $(JOBS) python/tests/jax_door

.PHONY: test-oracle
test-oracle: $(VENV)/.raggrad $(VENV_TF)/.tensorflow  ## random cases against a live TensorFlow; MINUTES=10 SEED=
	$(VENV)/bin/python tools/oracle/oracle.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) \
	  --tf-python $(VENV_TF)/bin/python

.PHONY: goldens
goldens: $(VENV_TF)/.tensorflow  ## record goldens/ again from TensorFlow
	$(VENV_TF)/bin/python tools/goldens/record.py

.PHONY: ledger
ledger: $(VENV)/.raggrad  ## write docs/ledger.md and its cases in goldens/
	$(VENV)/bin/python tools/ledger/write.py

.PHONY: pictures
pictures: $(VENV)/.raggrad  ## draw docs/pictures/ again, and write the tables of docs/measurements/ into the pages
	$(VENV)/bin/python tools/pictures/draw.py

# Warnings and dead links are errors. Nothing is compiled: the reference is read from sources.
.PHONY: docs
docs: $(VENV_DOCS)/.packages  ## the site, in build/site
	NO_MKDOCS_2_WARNING=1 $(VENV_DOCS)/bin/mkdocs build --quiet --strict -f tools/site/mkdocs.yml
	@echo 'The site is in build/site. To read it: python3 -m http.server -d build/site'

.PHONY: lint
lint: lint-format lint-python lint-packaging lint-tidy  ## clang-format, ruff, the recipes of packaging/, clang-tidy

.PHONY: lint-format
lint-format: $(VENV_LINT)/.packages
	@echo clang-format: $(words $(CPP_FILES)) files
	@$(VENV_LINT)/bin/clang-format --dry-run -Werror $(CPP_FILES)

.PHONY: lint-python
lint-python: $(VENV_LINT)/.packages
	$(VENV_LINT)/bin/ruff check --quiet .

.PHONY: lint-packaging
lint-packaging: $(VENV_LINT)/.packages
	$(VENV_LINT)/bin/python tools/lint_packaging.py

.PHONY: lint-tidy
lint-tidy: build/tidy/.clean

# The C compiler is enough: the record is a C file that compiles as long as programs of that release keep working.
.PHONY: abi-check
abi-check:  ## whether C programs compiled with the last recorded release keep working; `make test` links the record, too
	$(CC) -std=c11 -pedantic -Wall -Wextra -Werror -fsyntax-only -I. raggrad/capi/test/capi_abi_test.c

.PHONY: abi-record
abi-record:  ## record the C ABI of a release
	$(PYTHON) tools/record_abi.py "$$($(PYTHON) tools/package_metadata.py)"

.PHONY: format
format: $(VENV_LINT)/.packages  ## let clang-format and ruff mend what they can
	@$(VENV_LINT)/bin/clang-format -i $(CPP_FILES)
	$(VENV_LINT)/bin/ruff check --quiet --fix .

.PHONY: sanitize
sanitize: sanitize-asan sanitize-tsan  ## the C++ tests under ASan + UBSan, then TSan

.PHONY: sanitize-asan sanitize-tsan
sanitize-asan sanitize-tsan: sanitize-%: build/%/.built
	ctest --preset $* -j $(JOBS)

.PHONY: test-clang
test-clang: build/clang/.built  ## the C++ tests and benchmarks, compiled and optimised by clang
	ctest --preset clang -j $(JOBS)

.PHONY: test-gpu
test-gpu: build/gpu/.built  ## the tests that need a GPU, on this machine; needs nvcc; WHEELS=folder adds the Python tests
	tools/gpu_tests.sh gpu --all
	$(if $(WHEELS),tools/gpu_python_tests.sh $(PYTHON) $(WHEELS),@echo 'test-gpu: no WHEELS=folder: Python was not tested')

# The release build remembers where nvcc is: later builds have the kernels, too.
.PHONY: cuda
cuda: | $(VENV)/.created  ## compile the GPU kernels (installs nvcc if there is none); runs their tests where there is a GPU
	tools/setup/with_nvcc.sh $(MAKE) build/release/.built CMAKE_OPTIONS=-DRAGGRAD_CUDA=ON
	tools/gpu_tests.sh release

.PHONY: fuzz
fuzz: $(VENV)/.created  ## every fuzz target for SECONDS=60
	tools/setup/system_packages.sh $(TEST_PACKAGES) clang libclang-rt-dev libbenchmark-dev
	JOBS=$(JOBS) fuzz/run.sh $(SECONDS)

.PHONY: bench
bench: $(VENV)/.raggrad build/bench/cpp  ## time against TensorFlow, torch, JAX and FBGEMM, which it installs; BENCH=--quick
	$(VENV)/bin/python -m raggrad bench --envs build/bench --cpp build/bench/cpp/benchmarks \
	  --json docs/measurements/bench_$$(uname -m).json --png build/bench/bench.png $(BENCH)

.PHONY: bench-cpp
bench-cpp: build/bench/cpp  ## the C++ benchmarks, with a sweep over sizes; FILTER= is a regular expression
	for program in build/bench/cpp/benchmarks/*_bench; do $$program --benchmark_filter='$(FILTER)'; done

.PHONY: bench-sweep
bench-sweep: $(VENV)/.raggrad build/bench/cpp  ## the time per id at 10^4 to 10^8 ids, as a table; SWEEP='--largest 1e7' takes less memory
	$(VENV)/bin/python benchmarks/sweep.py build/bench/cpp/benchmarks $(SWEEP)

.PHONY: bench-profile
bench-profile: $(VENV)/.raggrad build/bench/cpp  ## where the time of each workload goes, as a table; needs perf
	$(VENV)/bin/python benchmarks/where_time_goes.py build/bench/cpp/benchmarks

.PHONY: bench-torch
bench-torch: beside-torch  ## a training step in torch and in raggrad.torch, in turns; BENCH='--steps 5'
	$(VENV_TORCH)/bin/python benchmarks/torch_step.py $(BENCH)

.PHONY: bench-dist
bench-dist: beside-torch  ## sums of sparse gradients over processes, raggrad.dist and torch; BENCH='--ranks 2 4 8'
	$(VENV_TORCH)/bin/python benchmarks/dist_exchange.py $(BENCH)

.PHONY: bench-jax
bench-jax: beside-jax  ## gradients and sums in JAX and in raggrad.jax, in turns; BENCH='--rounds 5'
	$(VENV_JAX)/bin/python benchmarks/jax_door.py $(BENCH)

.PHONY: perf-check
perf-check: $(VENV)/.raggrad  ## time the working tree against COMMIT=HEAD; fails on a loss of over 10 %
	tools/perf_check.sh $(VENV) $(COMMIT) $(BENCH)

.PHONY: install
install:  ## install the C and C++ library and headers into PREFIX=/usr/local; needs CMake 3.25 and a compiler
	cmake -S . -B build/install -DCMAKE_BUILD_TYPE=Release -DRAGGRAD_BUILD_TESTS=OFF $(CMAKE_OPTIONS)
	cmake --build build/install -j $(JOBS)
	cmake --install build/install --prefix $(PREFIX)

.PHONY: clean
clean:  ## remove build/
	rm -rf build

# Virtual environments. A stamp in the environment says that a step is done.

OTHER_VENVS := $(VENV_LINT) $(VENV_TF) $(VENV_TF_OLDEST) $(VENV_TORCH) $(VENV_TORCH_OLDEST) $(VENV_JAX) $(VENV_OLD_JAX) $(VENV_CUDA) \
  $(VENV_WHEEL) $(VENV_DOCS)
$(OTHER_VENVS:=/.created): | $(VENV)/.created
$(VENV)/.created $(OTHER_VENVS:=/.created): %/.created:
	tools/setup/make_venv.sh $*
	@touch $@

$(VENV)/.raggrad: $(MODULE_FILES) | $(VENV)/.created
ifeq ($(RAGGRAD_PACKAGE),wheel)
	tools/setup/install_wheel.sh $(VENV) demo,test
else
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(VENV)/$(PIP_INSTALL) --config-settings build-dir=build/wheel \
	  --config-settings cmake.define.RAGGRAD_WERROR=$(WERROR) \
	  --config-settings cmake.define.RAGGRAD_CUDA=$(RAGGRAD_CUDA) '.[demo,test]'
endif
	@touch $@

$(VENV)/.interop: tools/setup/requirements-interop.txt | $(VENV)/.created
	$(VENV)/$(PIP_INSTALL) --quiet -r $<
	@touch $@

$(VENV_LINT)/.packages: tools/setup/requirements-lint.txt | $(VENV_LINT)/.created
	$(VENV_LINT)/$(PIP_INSTALL) --quiet -r $<
	@touch $@

$(VENV_DOCS)/.packages: tools/setup/requirements-docs.txt | $(VENV_DOCS)/.created
	$(VENV_DOCS)/$(PIP_INSTALL) --quiet -r $<
	@touch $@

$(VENV_WHEEL)/.packages: tools/setup/requirements-wheel.txt | $(VENV_WHEEL)/.created
	$(VENV_WHEEL)/$(PIP_INSTALL) --quiet -r $<
	@touch $@

$(VENV_TF)/.tensorflow: tools/setup/requirements-tensorflow.txt | $(VENV_TF)/.created
	$(VENV_TF)/$(PIP_INSTALL) --quiet -r $<
	@touch $@

$(VENV_TF_OLDEST)/.tensorflow: tools/setup/requirements-tensorflow-oldest.txt | $(VENV_TF_OLDEST)/.created
	$(VENV_TF_OLDEST)/$(PIP_INSTALL) --quiet -r $<
	@touch $@

build/tf-headers/.complete: tools/setup/tf_headers.sh | $(VENV)/.created
	tools/setup/tf_headers.sh $(VENV)/bin/python

$(VENV_TORCH)/.torch: tools/setup/requirements-torch.txt | $(VENV_TORCH)/.created
$(VENV_TORCH_OLDEST)/.torch: tools/setup/requirements-torch-oldest.txt | $(VENV_TORCH_OLDEST)/.created
$(VENV_TORCH)/.torch $(VENV_TORCH_OLDEST)/.torch: %/.torch:
	$*/$(PIP_INSTALL) --quiet -r $<
	@touch $@

$(VENV_JAX)/.jax: tools/setup/requirements-jax.txt | $(VENV_JAX)/.created
$(VENV_OLD_JAX)/.jax: tools/setup/requirements-jax-oldest.txt | $(VENV_OLD_JAX)/.created
$(VENV_JAX)/.jax $(VENV_OLD_JAX)/.jax: %/.jax:
	$*/$(PIP_INSTALL) --quiet -r $<
	@touch $@

build/jax-headers/.complete: tools/setup/jax_headers.sh | $(VENV)/.created
	tools/setup/jax_headers.sh $(VENV)/bin/python

build/torch-headers/.complete: tools/setup/torch_headers.sh | $(VENV)/.created
	tools/setup/torch_headers.sh $(VENV)/bin/python

$(VENV_CUDA)/.packages: tools/setup/requirements-cuda.txt | $(VENV_CUDA)/.created
	$(VENV_CUDA)/$(PIP_INSTALL) --quiet -r $<
	@touch $@

# C++ builds, one folder per preset. CMake decides what is out of date.

.PHONY: build/release/.built build/asan/.built build/tsan/.built build/clang/.built
build/release/.built build/asan/.built build/tsan/.built build/clang/.built: build/%/.built: | $(VENV)/.created
	tools/setup/system_packages.sh $(TEST_PACKAGES) $(if $(filter asan clang,$*),clang libclang-rt-dev) \
	  $(if $(filter asan clang,$*),libbenchmark-dev)
	cmake --preset $* $(CMAKE_OPTIONS)
	cmake --build --preset $* -j $(JOBS)

# Installs no system packages: machines with a GPU often have no network.
.PHONY: build/gpu/.built
build/gpu/.built:
	cmake --preset gpu
	cmake --build --preset gpu -j $(JOBS)

.PHONY: build/bench/cpp
build/bench/cpp: | $(VENV)/.created
	tools/setup/system_packages.sh g++ ninja-build libbenchmark-dev
	cmake --preset bench
	cmake --build --preset bench -j $(JOBS)

build/tidy/.clean: .clang-tidy CMakePresets.json $(CPP_FILES) $(VENV_LINT)/.packages build/torch-headers/.complete \
  build/tf-headers/.complete build/jax-headers/.complete
	tools/setup/system_packages.sh $(TEST_PACKAGES) clang
	cmake --preset tidy -DPython_EXECUTABLE=$(CURDIR)/$(VENV_LINT)/bin/python >/dev/null
	@tools/setup/one_command_per_file.py build/tidy/compile_commands.json
	@echo clang-tidy: all findings go into build/tidy/findings.txt
	@$(VENV_LINT)/bin/python $(VENV_LINT)/bin/run-clang-tidy.py -clang-tidy-binary $(VENV_LINT)/bin/clang-tidy \
	  -quiet -j $(JOBS) -p build/tidy $(TIDY_FILES) >build/tidy/findings.txt 2>build/tidy/log.txt || \
	  { sed 's/\x1b\[[0-9;]*m//g' build/tidy/findings.txt | grep -E ': (warning|error): ' | sort -u; exit 1; }
	@touch $@
