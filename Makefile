# The commands of everyday work; CMake does the work. `make help` lists them.
BUILD ?= build
BUILD_TYPE ?= RelWithDebInfo
PREFIX ?= /usr/local
# Passed to CMake when it configures, for example CMAKE_FLAGS=-DWEFT_PERF=OFF.
CMAKE_FLAGS ?=
# How long `make fuzz` and `make soak` go on.
FUZZ_SECONDS ?= 600
SOAK_MINUTES ?= 60

configure = cmake -S . -B $(1) -G Ninja -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) $(CMAKE_FLAGS)

# Says nothing unless it fails.
configured = { $(call configure,$(BUILD)) > $(BUILD).log 2>&1 && mv $(BUILD).log $(BUILD)/configure.log; } || \
  { cat $(BUILD).log; exit 1; }

.DEFAULT_GOAL := build
.PHONY: help deps build demo test test-fabric check-threads test-asan test-tsan fuzz soak test-torch wheel interop bench bench-layers scale seeds validate docs install package format clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

deps: ## install what is missing to build (apt-get; nothing when nothing is missing)
	@BUILD=$(BUILD) scripts/deps.sh

build: ## libraries, tools, perf tools and tests, into build/
	@$(configured)
	@cmake --build $(BUILD)

demo: deps ## build what it takes, then three collectives over 4 ranks as 2 nodes with data checks, and train a small GPT
	@$(configured)
	@cmake --build $(BUILD) --target weft weft_run weft_info weft_sim all_reduce_perf all_gather_perf reduce_scatter_perf loom_command
	@scripts/demo.sh $(BUILD)

test: deps ## build, then every test
	@$(MAKE) --no-print-directory build CMAKE_FLAGS="$(CMAKE_FLAGS) -DWEFT_TESTS=ON"
	@scripts/test.sh $(BUILD)

test-fabric: deps ## build, then the tests over a network that behaves as EFA, with more seeds than make test has
	@$(MAKE) --no-print-directory build CMAKE_FLAGS="$(CMAKE_FLAGS) -DWEFT_TESTS=ON"
	@scripts/test.sh $(BUILD) -C fabric -L fabric

check-threads: deps ## have clang, if there is one, check the thread-safety annotations of src/
	@$(configured)
	@python3 -B scripts/check_threads.py $(BUILD)

test-asan: deps ## the tests under the address and undefined-behaviour sanitizers, in build-asan/
	@scripts/test_sanitized.sh address,undefined $(BUILD)-asan

test-tsan: deps ## the tests under the thread sanitizer, in build-tsan/
	@scripts/test_sanitized.sh thread $(BUILD)-tsan

fuzz: deps ## clang's libFuzzer on all that reads bytes from outside, in build-fuzz/: FUZZ_SECONDS=600 in all, FUZZ_TARGETS="links root"
	@BUILD=$(BUILD) scripts/deps.sh --fuzz
	@cmake -S . -B $(BUILD)-fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=clang \
	  -DCMAKE_CXX_COMPILER=clang++ -DWEFT_FUZZ=ON -DWEFT_TESTS=OFF -DWEFT_PERF=OFF -DWEFT_CUDA=OFF > $(BUILD)-fuzz.log 2>&1 || \
	  { cat $(BUILD)-fuzz.log; exit 1; }
	@cmake --build $(BUILD)-fuzz --target fuzzers
	@python3 -B scripts/fuzz.py $(BUILD)-fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)

soak: deps ## build, then random collectives with deaths, stops and aborts: SOAK_MINUTES=60, SOAK_SEED for the same again
	@$(configured)
	@cmake --build $(BUILD) --target weft_soak
	@mkdir -p $(BUILD)/soak
	@$(BUILD)/bin/weft_soak --minutes $(SOAK_MINUTES) --folder $(BUILD)/soak $(if $(SOAK_SEED),--seed $(SOAK_SEED))

test-torch: deps ## build Weft, then install torch and its backend weft_torch into build/torch-venv and run the backend's tests
	@BUILD=$(BUILD) scripts/deps.sh --torch
	@$(configured)
	@cmake --build $(BUILD) --target weft
	@scripts/test_torch.sh $(BUILD)

wheel: deps ## build Weft, then a wheel of weft_torch with it for the torch of PYTHON (or of make test-torch), and an sdist; in build/wheels
	@BUILD=$(BUILD) scripts/deps.sh --torch
	@$(configured)
	@cmake --build $(BUILD) --target weft
	@scripts/torch_wheel.sh $(BUILD)/wheels $(BUILD)

interop: deps ## build the test, then load what Loom saves with transformers, tokenizers and safetensors (installed into build/)
	@BUILD=$(BUILD) scripts/deps.sh --interop
	@$(configured)
	@cmake --build $(BUILD) --target test_loom_interop
	@scripts/interop.sh $(BUILD)

bench: deps ## build, then ten minutes of comparison with other libraries (installed if missing); charts in build/bench.html
	@$(MAKE) --no-print-directory build
	@scripts/bench.sh $(BUILD)

bench-layers: deps ## build, then the benchmarks of single layers
	@$(MAKE) --no-print-directory build
	@scripts/bench.sh --layers $(BUILD)

scale: deps ## build weft_sim, then simulate 2 to 512 nodes: the charts and tables of docs/results/scale.md and data/scale-tables.md
	@$(configured)
	@cmake --build $(BUILD) --target weft_sim
	@python3 -B perf/scale.py --build $(BUILD)

seeds: deps ## build loom and weft_sim, then predict published training speeds: the tables of docs/results/seeds.md and data/seeds.md, and the chart
	@$(configured)
	@cmake --build $(BUILD) --target weft_sim loom_command
	@python3 -B perf/seeds.py --build $(BUILD)

validate: deps ## build, then measure every scenario beside the simulator (root); the table in docs/results/data/predicted-and-measured.md
	@$(MAKE) --no-print-directory build
	@python3 -B perf/validate.py --build $(BUILD) --quick --rounds 1 --json $(BUILD)/validate.json --docs docs/results/data/predicted-and-measured.md

docs: deps ## build what it takes, then write the generated pages and pictures of docs/ anew
	@$(configured)
	@cmake --build $(BUILD) --target test_base test_loom_train
	@python3 -B scripts/api_doc.py
	@python3 -B scripts/draw_pictures.py
	@WRITE_DOCS=1 $(BUILD)/bin/test_base --gtest_brief=1 --gtest_filter=Settings.TheDocumentIsTheTable
	@WRITE_DOCS=1 $(BUILD)/bin/test_loom_train --gtest_brief=1 --gtest_filter=ConfigDocs.ThePageIsTheTable

install: build ## into PREFIX (/usr/local), under DESTDIR if that is set
	@cmake --install $(BUILD) --prefix $(PREFIX)

package: build ## a Debian package, in build/
	@cd $(BUILD) && cpack -G DEB

format: ## clang-format on every source
	@git ls-files '*.h' '*.cc' '*.c' | xargs clang-format -i

clean: ## forget everything that was built
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz
