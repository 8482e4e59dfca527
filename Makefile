# The same commands for people and CI. Needs Python 3.10+, make and a package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := demo

# Tests run in so many processes at once; what is left over is taken by whoever is free.
PROCESSES ?= 2
PYTEST := $(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal

.PHONY: test-tools demo docs wheel wheels test test-all test-rest test-formats check bench bench-quick bench-page simulate soak clean

demo: $(VENV)/.installed
	@$(BIN)/python examples/demo.py $(DEMO)

# The documentation as a site in site/, which needs no server and no network: open site/index.html.
docs: $(VENV)/.installed-docs
	$(BIN)/zensical build --strict --clean

# A wheel in dist/ for this Python (from 3.12 on: for all of them) and other machines of this kind.
wheel: $(VENV)/.wheel-tools
	$(BIN)/python tools/wheels.py build $(BIN)/python

# Wheels for every Python that is found (or PYTHONS="python3.10 ..."), each tried in an empty environment.
wheels: $(VENV)/.wheel-tools
	$(BIN)/python tools/wheels.py build $(PYTHONS)
	$(BIN)/python tools/wheels.py test $(PYTHONS)

# A part of every layer, in ten minutes on two cores.
test: check
	$(PYTEST) -m "not thorough"

# Every test, and more examples for the laws.
test-all: check $(VENV)/.installed-docs
	$(MAKE) test-formats FAMILIES="shared olmo"
	PENSTOK_TEST_THOROUGH=1 $(PYTEST)

# What `test` leaves out of `test-all`.
test-rest: $(VENV)/.installed-dev $(VENV)/.installed-docs
	$(MAKE) test-formats FAMILIES="shared olmo"
	PENSTOK_TEST_THOROUGH=1 $(PYTEST) -m "thorough or sampled or hypothesis"

# Output formats, opened by their owners' own readers; FAMILIES="shared mosaicml olmo" or some of them.
test-formats: $(VENV)/.installed-dev
	$(BIN)/python tools/format_readers.py $(FAMILIES)

# Debian's packages that some tests need: a browser, and a compiler and an emulator for ARM. As root.
TEST_TOOLS := chromium chromium-driver g++-aarch64-linux-gnu qemu-user
test-tools:
	@dpkg -s $(TEST_TOOLS) >/dev/null 2>&1 || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $(TEST_TOOLS); } || \
	  echo "$(TEST_TOOLS): not installed; tests that need them are skipped" >&2

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Everything that has a mark, in 20 minutes on two cores that do nothing else.
bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/run.py

# In two minutes: fails if something became slower than in the last committed result of `bench`.
bench-quick: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/run.py --quick

# The tables and the chart of docs/benchmarks.md from the newest result.
bench-page: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/report.py

# The driver of a job of ten million units, real but for the work: half an hour or more, 10 GB of disk.
simulate: $(VENV)/.installed
	$(BIN)/python benchmarks/simulate.py

# Long runs that prove what a test can only sample: GB of text through one worker, MINUTES of fuzzing
# against tiktoken, then under AddressSanitizer, then the memory of the whole command over 8 GB.
MINUTES ?= 10
GB ?= 10
soak: $(VENV)/.installed-dev $(VENV)/.installed-bench
	$(BIN)/python tests/soak/stream_worker.py --gb $(GB)
	$(BIN)/python tests/soak/fuzz_kernel.py --minutes $(MINUTES)
	$(BIN)/cmake -S . -B build/sanitized -DPENSTOK_KERNEL_TESTS=ON -DPENSTOK_KERNEL_SANITIZE=ON \
	  -DPENSTOK_KERNEL_PYTHON=OFF -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -G Ninja
	$(BIN)/cmake --build build/sanitized
	build/sanitized/src/penstok/kernel/tests/fuzz_kernel src/penstok/tokenizers/vocab/gpt2.tiktoken --rounds 20000
	build/sanitized/src/penstok/kernel/tests/fuzz_characters --rounds 2000
	build/sanitized/src/penstok/kernel/tests/fuzz_json --rounds 2000000
	build/sanitized/src/penstok/kernel/tests/fuzz_csv --rounds 2000000
	build/sanitized/src/penstok/kernel/tests/fuzz_parquet --rounds 1000000
	PENSTOK_TEST_KILLS=2000 $(BIN)/python -m pytest tests/crash -k kills_at_random
	PENSTOK_TEST_THOROUGH=1 $(BIN)/python -m pytest tests/crash tests/parity/test_kernel_sanitized.py
	$(BIN)/python benchmarks/run.py --section memory --gb 8

clean:
	rm -rf $(VENV) .venv-formats $(DEMO) build dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.wheel-tools: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --group wheel
	touch $@

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --group wheel
	touch $@

$(VENV)/.installed-docs: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --group docs
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/tokenizers-1.0 \
	  tokenizers==1.0.0rc3 || echo "tokenizers 1.0 cannot be installed here: it is left out"
	touch $@
