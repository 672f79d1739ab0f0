# framejit: commands for contributors. 'make help' lists them; 'make demo' and 'make test' need no other step first.
#
#   PYTHON=python3.11   the interpreter to build for; a version (3.12) also finds pyenv's
#   JOBS=2              compile jobs
#   ALL=1               'make test' runs slow tests too (in C++: suites Slow...), all cases of each test instead of two,
#                       and parts on the other CPythons; CI=1 implies it
#   JOIN=ON             several files are compiled at a time; OFF in a new build folder: one by one, to work on code
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON ?= python3.11
JOBS ?= 2
JOIN ?= ON
TOOLS := tools
PY := $(shell $(TOOLS)/find_python $(PYTHON))
VERSION := $(if $(PY),$(shell $(PY) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null))
VENV := .venv$(if $(filter 3.11,$(VERSION)),,-$(VERSION))
RUN := $(VENV)/bin/python
BUILD := build/$(VERSION)
STAMP := $(BUILD)/.setup
SEED ?= 0
ALL ?= $(CI)
export QUICK := $(if $(ALL),,--quick)
# Without a home to write to, ccache keeps its files in the build folder.
ifeq ($(shell mkdir -p "$${CCACHE_DIR:-$${XDG_CACHE_HOME:-$$HOME/.cache}}/ccache" 2>/dev/null && echo yes),)
export CCACHE_DIR := $(CURDIR)/build/ccache
endif

# The parts of the tests, the longest first: the short ones keep all cores busy until the end.
OTHER_PYTHONS := $(addprefix without-torch-,$(filter-out $(VERSION),3.11 3.12 3.13))
OWN_PARTS := $(addprefix tests/e2e/,training test_op_sweep.py test_levels.py recorder test_own_kernels.py \
  test_threads.py hook test_models.py)
DEALT_PARTS := dealt-0 dealt-1 dealt-2 dealt-3
PYTHON_PARTS := $(DEALT_PARTS) $(OWN_PARTS)

.DEFAULT_GOAL := help
.PHONY: setup early early-build core build build-tests demo-file demo demo-train-file demo-train test test-cpp \
  test-python $(PYTHON_PARTS) test-without-torch $(OTHER_PYTHONS) test-gpu sanitize levels bench wild \
  trace-all sweep ulp fuzz lint format golden-update wheel clean help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## the virtual environment, and Debian and Python packages by name

# Setup makes the interpreter. If it is missing, the stamp counts as old.
$(RUN): ;

$(STAMP): requirements.txt $(TOOLS)/setup $(TOOLS)/find_python $(RUN)
	@$(TOOLS)/setup "$(PYTHON)" "$(PY)" "$(VENV)"
	@mkdir -p $(BUILD) && touch $@

CONFIGURE = $(TOOLS)/quietly "configure" cmake -G Ninja -S . -B $(BUILD) -DPython_EXECUTABLE=$(CURDIR)/$(RUN) \
  -DFRAMEJIT_JOIN=$(JOIN)
PARTS = $(foreach part,LLVM TORCH TESTS,-DFRAMEJIT_WITH_$(part)=$(1))
$(BUILD)/build.ninja: $(STAMP)
	@$(CONFIGURE) $(call PARTS,ON)

# What a new checkout compiles while LLVM and torch are being installed.
early:
	@$(TOOLS)/setup --first "$(PYTHON)" "$(PY)" "$(VENV)"
	@+$(MAKE) -j 2 setup early-build
early-build:
	@$(CONFIGURE) $(call PARTS,OFF)
	@$(TOOLS)/quietly "build what needs neither LLVM nor torch" \
	  nice ninja -C $(BUILD) -j $(JOBS) framejit_core framejit_hook

# The library that is the same for every Python: the builds for the others take it from here.
core:
	@+[ -e $(STAMP) ] || $(MAKE) early
	@grep -qs '^FRAMEJIT_WITH_TORCH:.*=ON' $(BUILD)/CMakeCache.txt || rm -f $(BUILD)/build.ninja  # an early one
	@+$(MAKE) $(BUILD)/build.ninja
	@$(TOOLS)/quietly "build the core" nice ninja -C $(BUILD) -j $(JOBS) framejit_core

build: core  ## compile the package; afterwards 'import framejit' works in the virtual environment
	@$(TOOLS)/quietly "build" nice ninja -C $(BUILD) -j $(JOBS) framejit_package
	@$(TOOLS)/link_package "$(RUN)" "$(CURDIR)/$(BUILD)/package"

build-tests: core  ## compile the package and the tests: 'make test' does
	@$(TOOLS)/quietly "build, with the tests" nice ninja -C $(BUILD) -j $(JOBS)
	@$(TOOLS)/link_package "$(RUN)" "$(CURDIR)/$(BUILD)/package"

# $(call readable,FILE,what it is): asked before a build that takes minutes.
readable = [ "$($(1))" = - ] || { [ -r "$($(1))" ] && [ ! -d "$($(1))" ]; } || \
  { echo "framejit: $(1)=$($(1)) is no file that can be read; $(1) names $(2)" >&2; exit 1; }
# '-' is standard input. The file of pairs has a tab in each line. COMPARE=1 adds torch.compile.
FILE ?= benchmarks/data/sentences.txt
demo-file:
	@$(call readable,FILE,a text with one sentence a line (- is standard input))
demo: demo-file  ## sentence similarities of a text file, plain and compiled: FILE=... COMPARE=1
	@+$(MAKE) build
	@HF_HUB_OFFLINE=1 $(RUN) benchmarks/demo.py $(if $(COMPARE),--compare) "$(FILE)"

PAIRS ?= benchmarks/data/pairs.txt
demo-train-file:
	@$(call readable,PAIRS,a text with two sentences a line and a tab between them)
demo-train: demo-train-file  ## trains the demo's model on pairs of sentences, plain and compiled: PAIRS=... COMPARE=1
	@+$(MAKE) build
	@HF_HUB_OFFLINE=1 $(RUN) benchmarks/demo_train.py $(if $(COMPARE),--compare) "$(PAIRS)"

# Parts run side by side, JOBS at a time. Each shows its output when it ends; descriptor 9 announces its start at once.
# After one has failed, no other starts.
SIDE_BY_SIDE = $(MAKE) -j $(JOBS) --output-sync=target
begin = { echo "$@ ..." >&9; } 2>/dev/null || true

LEFT_OUT := framejit: left out: slow tests, most cases of the others, other CPythons; make test ALL=1 runs them
test: core lint build-tests  ## lint, C++ unit and golden tests, pytest; ALL=1 adds slow tests, all cases, other Pythons
	@+$(SIDE_BY_SIDE) $(if $(QUICK),,$(OTHER_PYTHONS)) test-cpp $(PYTHON_PARTS) 9>&2
	@$(if $(QUICK),echo "$(LEFT_OUT)" >&2)

NOT_EMBEDDED := the C++ tests that embed Python: Python $(VERSION) has no shared library (libpython$(VERSION).so)
test-cpp: build-tests
	@$(begin)
	@$(if $(QUICK),GTEST_FILTER='-Slow*') ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) --no-tests=error
	@grep -s '^framejit: not tested: ' $(BUILD)/Testing/Temporary/LastTest.log >&2 || true
	@grep -q '^build frame_hook_test:' $(BUILD)/build.ninja || $(TOOLS)/not_tested "$(NOT_EMBEDDED)"

test-python: build-tests
	@+$(SIDE_BY_SIDE) $(PYTHON_PARTS) 9>&2

# One process for each part, because the hook's tests install their own handlers in their process. The other files are
# distributed. Waiting threads release their cores, which other parts need.
PYTEST = OMP_WAIT_POLICY=passive FRAMEJIT_STRICT=1 HF_HUB_OFFLINE=1 \
  HOOKTEST_DIR=$(CURDIR)/$(BUILD)/package/framejit $(RUN) -m pytest -q $(QUICK)
$(OWN_PARTS): build-tests
	@$(begin)
	@$(PYTEST) $@

$(DEALT_PARTS): dealt-%: build-tests
	@$(begin)
	@$(PYTEST) $$(find tests -name 'test_*.py' | grep -v $(OWN_PARTS:%=-e '^%') | sort | \
	  awk 'NR % $(words $(DEALT_PARTS)) == $*')

# AddressSanitizer and UndefinedBehaviorSanitizer for all of these tests, ThreadSanitizer for those of the runtime. Leak
# checks are off: LLVM and Python never free what they allocate once. Some tests ask for more memory than there is.
SANITIZED := base_test runtime_test graph_test golden_test inductor_test
SANITIZE_CONFIGURE = $(TOOLS)/quietly "configure" cmake -G Ninja -S . -B $(1) -DPython_EXECUTABLE=$(CURDIR)/$(RUN) \
  -DFRAMEJIT_WITH_TORCH=OFF
sanitize: $(STAMP)  ## the C++ tests that need neither torch nor Python, under the sanitizers (minutes to build)
	@$(call SANITIZE_CONFIGURE,build/sanitize) -DFRAMEJIT_SANITIZE=ON
	@$(TOOLS)/quietly "build" nice ninja -C build/sanitize -j $(JOBS) $(SANITIZED)
	@for t in $(SANITIZED); do \
	  FRAMEJIT_STRICT=1 ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
	  build/sanitize/tests/$$t --gtest_brief=1; \
	done
	@$(call SANITIZE_CONFIGURE,build/sanitize-threads) -DFRAMEJIT_WITH_LLVM=OFF -DFRAMEJIT_SANITIZE=thread
	@$(TOOLS)/quietly "build" nice ninja -C build/sanitize-threads -j $(JOBS) runtime_test
	@FRAMEJIT_STRICT=1 TSAN_OPTIONS=allocator_may_return_null=1 build/sanitize-threads/tests/runtime_test --gtest_brief=1

# All tests of models, own kernels, special values, scans and sums; 'make test' runs some.
levels: build-tests  ## the tests of kernels with the vector registers of other CPUs
	@LEVELS=all FRAMEJIT_STRICT=1 HF_HUB_OFFLINE=1 $(RUN) -m pytest -q tests/e2e/test_levels.py

# GPU_PYTHON: an interpreter that has a CUDA or ROCm torch; nothing is installed for it. Its torch may differ from the
# reference version.
GPU_PYTHON ?= python3
ATEN_TESTS := runtime_aten_test graph_aten_test guards_aten_test
GTEST_HEADER := $(firstword $(wildcard $(addsuffix /include/gtest/gtest.h,$(GTEST_ROOT) /usr /usr/local)))
NO_GTEST := GoogleTest is missing (libgtest-dev; or name its folder: GTEST_ROOT)
NO_GPU_UNITS = the unit tests of the aten folders: \
  $(if $(GTEST_HEADER),$(GPU_PYTHON) has no shared library,$(NO_GTEST))
GPU_PYTESTS = echo tests/gpu/test_training.py; echo tests/gpu/test_sanitizer.py; \
  grep -l '^from check import.* check\b' tests/e2e/test_*.py;
GPU_PACKAGE = PYTHONPATH=build/gpu/package FRAMEJIT_STRICT=1
# Unit tests of the aten folders with that torch, kernels compared with eager, and their times.
test-gpu:  ## on a machine with a GPU: unit tests, kernels for CUDA tensors, end-to-end tests; GPU_PYTHON=python3
	@$(TOOLS)/quietly "configure" cmake -G Ninja -S . -B build/gpu \
	  -DPython_EXECUTABLE="$$(command -v $(GPU_PYTHON))" -DFRAMEJIT_WITH_LLVM=OFF -DFRAMEJIT_JOIN=OFF \
	  -DFRAMEJIT_WITH_TESTS=$(if $(GTEST_HEADER),ON,OFF)
	@$(TOOLS)/quietly "build" ninja -C build/gpu _framejit
	@if grep -q '^build graph_aten_test:' build/gpu/build.ninja; then \
	  $(TOOLS)/quietly "build the unit tests" ninja -C build/gpu $(ATEN_TESTS); \
	  ctest --test-dir build/gpu --output-on-failure --no-tests=error -R '_aten_test$$'; \
	else \
	  $(TOOLS)/not_tested "$(NO_GPU_UNITS)"; \
	fi
	@mkdir -p benchmarks/results
	@$(GPU_PACKAGE) $(GPU_PYTHON) tests/gpu/test_gpu.py | tee benchmarks/results/gpu.txt
	@if $(GPU_PYTHON) -c 'import pytest, transformers' 2>/dev/null; then \
	  { $(GPU_PYTESTS) } | \
	    TEST_DEVICE=cuda $(GPU_PACKAGE) HF_HUB_OFFLINE=1 xargs -P 8 -I{} \
	    $(TOOLS)/quietly {} $(GPU_PYTHON) -m pytest -q --tb=short {}; \
	else \
	  $(TOOLS)/not_tested "training and the end-to-end tests on the GPU: $(GPU_PYTHON) has no pytest or no transformers"; \
	fi

test-without-torch: core  ## hook, evaluator, decoder, tracer and guards on the other CPythons that are found
	@+$(SIDE_BY_SIDE) $(OTHER_PYTHONS) 9>&2

$(OTHER_PYTHONS): without-torch-%: core
	@$(begin)
	@$(TOOLS)/test_without_torch $* $(JOBS) $(CURDIR)/$(BUILD)/package/framejit/libframejit_core.so $(JOIN)

# Continues where it was stopped. NAME="calls cold" reruns some rows, AGAIN=1 all; SHARE=1/4 runs a part, MERGE=FOLDER
# adds rows of another machine.
BENCH_ROWS = $(NAME) $(if $(AGAIN),--again) $(if $(SHARE),--share $(SHARE)) $(if $(COMMIT),--commit $(COMMIT))
bench: build  ## every figure of README, next to eager and torch.compile (hours): NAME="calls cold" AGAIN=1 SHARE=1/4
	@HF_HUB_OFFLINE=1 $(RUN) benchmarks/run.py $(if $(MERGE),--merge $(MERGE),$(BENCH_ROWS))

SWEEP ?= benchmarks/results/op_sweep.txt
SWEEP_DTYPES ?= float32 bfloat16 float16 float64 int64 int32 uint8 bool
SWEEPS = OMP_NUM_THREADS=1 FRAMEJIT_STRICT=1 $(RUN) tests/e2e/op_sweep.py --jobs $(JOBS) --summary $(SWEEP) \
  --journal $(BUILD)/sweep
TRACE_ALL = HOOKTEST_DIR=$(CURDIR)/$(BUILD)/package/framejit $(RUN) tests/e2e/hook/trace_all.py --jobs $(JOBS)
trace-all: build-tests  ## CPython's own tests with every frame traced: what differs, what segments replaced; FILES=...
	@$(TRACE_ALL) $(FILES)

sweep: build  ## every op of torch's op_db, compiled and compared; continues where it was stopped (build/.../sweep)
	@mkdir -p $(BUILD)/sweep; failed=0; \
	$(SWEEPS)/framejit.jsonl --at-least 90 || failed=1; \
	$(SWEEPS)/partly.jsonl --dtype float32 bfloat16 int64 --samples 40 --partly tests/e2e/op_partly.txt || failed=1; \
	$(SWEEPS)/eager.jsonl --at-least 90 --backend eager --dtype float32 || failed=1; \
	$(SWEEPS)/gradients.jsonl --gradients --at-least 90 --dtype float32 bfloat16 || failed=1; \
	$(SWEEPS)/forms.jsonl --forms all --samples 3 --dtype $(SWEEP_DTYPES) || failed=1; \
	$(SWEEPS)/first.jsonl --samples 1 --dtype $(SWEEP_DTYPES) --floors first || failed=1; \
	$(SWEEPS)/kernels.jsonl --samples 1 --of-class kernels --forms transposed broadcast stepped empty scalar one \
	  --dtype float32 bfloat16 int64 --floors kernels || failed=1; \
	exit $$failed

WILD := build/wild/$(VERSION)
WILD_COUNT ?= 192
WILD_PIP = $(WILD)/venv/bin/python -m pip install -q --disable-pip-version-check
$(WILD)/.setup: requirements.txt tests/wild/requirements.txt $(STAMP)
	@mkdir -p $(WILD) && "$(PY)" -m venv $(WILD)/venv
	@$(TOOLS)/quietly "installing torch and transformers" $(WILD_PIP) -r requirements.txt
	@$(TOOLS)/quietly "installing the packages to run" $(WILD_PIP) --no-deps -r tests/wild/requirements.txt
	@touch $@

# Continues where it was stopped. MODES=training: only that.
wild: build $(WILD)/.setup  ## third-party packages' programs, plain and compiled (hours): SEED=0 PACKAGE="einops timm"
	@HF_HUB_OFFLINE=1 PYTHONPATH=$(CURDIR)/$(BUILD)/package $(WILD)/venv/bin/python -W ignore tests/wild/run_wild.py \
	  --journal $(WILD)/journal.jsonl --summary benchmarks/results/wild.txt --seed $(SEED) --count $(WILD_COUNT) \
	  --jobs $(JOBS) $(if $(PACKAGE),--package $(PACKAGE)) $(if $(MODES),--modes $(MODES))

STRIDE ?= 1
ULP_HEAD = $$ make ulp STRIDE=$(STRIDE)   $$(date +%F), $$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)
ulp: build-tests  ## worst errors of the elementary functions over all of float32 (hours); STRIDE=61 takes every 61st
	@{ echo "$(ULP_HEAD); worst error in units of the last place, and where"; \
	MATH_STRIDE=$(STRIDE) nice $(BUILD)/tests/inductor_test --gtest_filter='Math/*' --gtest_brief=1 | \
	grep -v '^Running\|^\['; } | tee benchmarks/results/ulp.txt

COUNT ?= 20000
fuzz: build-tests  ## the fuzzers, long: SEED=0 COUNT=20000; the standard library's own tests with every frame traced
	@for backend in eager framejit; do \
	  $(RUN) tests/fuzz/frames_fuzz.py --backend $$backend --seed $(SEED) --count $(COUNT); \
	done
	@$(RUN) tests/fuzz/graphs_fuzz.py --seed $(SEED) --count $(COUNT)
	@$(RUN) tests/fuzz/guards_fuzz.py --seed $(SEED) --count $(COUNT)
	@$(RUN) tests/fuzz/numbers_fuzz.py --seed $(SEED) --count $(COUNT)
	@$(RUN) tests/fuzz/training_fuzz.py --seed $(SEED) --count $(COUNT)
	@$(RUN) tests/fuzz/values_fuzz.py --seed $(SEED) --count $(COUNT)
	@$(RUN) tests/fuzz/weights_fuzz.py --seed $(SEED) --count $(COUNT)
	@FUZZ_SEED=$(SEED) FUZZ_ROUNDS=$(COUNT) $(BUILD)/tests/inductor_test --gtest_filter='*Fuzz.*'
	@$(TRACE_ALL) --table trace_stdlib.txt

LINTS := layering limits classes names reasons recognition targets docs_paths recipes
lint: $(STAMP)  ## layering, limits of files and classes, names, reasons of rows, numbers of machines, paths, recipes
	@for check in $(LINTS); do $(RUN) tests/lint/$$check.py; done

format: $(STAMP)  ## clang-format over the C++ lines that differ from the last commit
	@git diff -U0 --no-color HEAD -- '*.cpp' '*.h' | clang-format-diff-22 -p1 -i -binary clang-format-22

WRITES_PAGES := $(addprefix tests/e2e/,test_op_table.py test_reasons.py::test_the_page_of_reasons \
  $(addprefix test_readme.py::,test_the_page_of_settings test_the_list_of_channels test_the_list_of_totals \
    test_the_list_of_graph_refusals test_one_program) \
  test_op_sweep.py::test_no_op_falls_back_a_class \
  $(addprefix recorder/,test_shape_rules.py test_shape_rows.py test_library_shapes.py \
    test_python_shapes.py::test_what_is_not_recorded))
golden-update: build-tests  ## rewrite the expected parts of the golden tests
	@UPDATE_GOLDEN=1 $(BUILD)/tests/golden_test --gtest_brief=1
	@UPDATE_GOLDEN=1 $(RUN) -m pytest -q $(WRITES_PAGES)

wheel: $(STAMP)  ## a wheel in dist/, tested in a new virtual environment
	@$(TOOLS)/quietly "wheel" env CXX="$${CXX:-c++}" $(RUN) -m pip wheel --no-deps --no-build-isolation -w dist .
	@$(TOOLS)/check_wheel $(RUN) dist

clean:  ## remove build/ and dist/ (the virtual environment stays)
	@rm -rf build dist
