# Checks in addition to the test suite: style, sanitizers, data races, fuzzing, and another processor.

.PHONY: format format-check asan asan-fast asan-fast-check tsan tsan-check fuzz fuzz-links check-arm64 test-arm64 arm64-needs gpu-budgets

# ---- style ------------------------------------------------------------------------------------
CLANG_FORMAT ?= $(firstword $(shell command -v clang-format-14 clang-format 2>/dev/null) clang-format-14)
FORMATTED     = $(shell git ls-files '*.c' '*.h' 2>/dev/null)
format:
	$(CLANG_FORMAT) -i $(FORMATTED)
format-check:
	@command -v $(CLANG_FORMAT) >/dev/null || { echo "format-check needs clang-format: make test-deps"; exit 1; }
	@$(CLANG_FORMAT) --dry-run -Werror $(FORMATTED) && echo "format: $(words $(FORMATTED)) files as clang-format leaves them"

# ---- words: phrases that a stranger must read twice; their number may only fall (tools/words.py explains) --------
.PHONY: words words-update
words:
	tools/words.py --check tools/words.txt
words-update:
	tools/words.py --update tools/words.txt

# ---- mutants: errors planted in a copy of the tree, which the tests must detect (docs/how-to/test.md); M=pattern a part
.PHONY: mutants
mutants:
	tools/mutants.py $(M:%=--only %)

# ---- sanitizers: addresses and undefined behaviour, data races ---------------------------------
# asan runs everything; asan-fast the programs of tests that take seconds, without the sweeps over
# all families. Neither is part of `make test`: an instrumented build alone takes 6 minutes of
# processor time.
ASAN_FAST ?= base diffusion format/log format/tar format/tensors fuzz graph transform transform/memory \
             transform/numeric transform/sharding
asan:
	+$(MAKE) --no-print-directory SAN=1 check
asan-fast:
	+$(MAKE) --no-print-directory SAN=1 asan-fast-check
asan-fast-check:
	WEFT_TEST_CASE='!($(SWEEPS))' tests/run.sh --programs $(O) $(ASAN_FAST)

# What runs on several threads (communicator, loader, checkpoints) under ThreadSanitizer; T=pattern runs others.
# libgomp is not instrumented, its barriers would look like races: kernels run on one thread.
TSAN_TESTS ?= comm exec data train
tsan:
	+$(MAKE) --no-print-directory TSAN=1 tsan-check
tsan-check:
	@for t in $(if $(T),$(T),$(TSAN_TESTS)); do OMP_NUM_THREADS=1 TSAN_OPTIONS=exitcode=66 \
		tests/run.sh $(O) $$t || exit 1; done

# ---- fuzzing ----------------------------------------------------------------------------------
# `make fuzz`: every fuzz target for FUZZ_SECONDS under libFuzzer with address and undefined-behaviour
# sanitizers (clang). Finds are written to build/fuzz/found; a find ends the run with a failure.
FUZZ_TARGETS := safetensors gguf torch tar index npy config json metrics tokenizer spiece
FUZZ_SECONDS ?= 60
FUZZ_CC      ?= $(firstword $(shell command -v clang-14 clang 2>/dev/null) clang)

fuzz:
	@command -v $(FUZZ_CC) >/dev/null || { echo "make fuzz needs clang: apt-get install clang-14 libclang-rt-14-dev"; exit 1; }
	@mkdir -p build
	@cmake -S . -B build/fuzz -G Ninja -DCMAKE_C_COMPILER=$(FUZZ_CC) -DWEFT_FUZZ='$(subst $(blank),;,$(strip $(FUZZ_TARGETS)))' \
		-DCMAKE_C_FLAGS_RELWITHDEBINFO='-O1 -g' >build/fuzz.log
	@ninja -C build/fuzz $(QUIET) $(JOBS)
	@mkdir -p build/fuzz/found
	@for t in $(FUZZ_TARGETS); do \
		mkdir -p build/fuzz/corpus/$$t; \
		echo "fuzz $$t for $(FUZZ_SECONDS) s"; \
		WEFT_LOG=error build/fuzz/fuzz_$$t -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
			-artifact_prefix=build/fuzz/found/$$t- build/fuzz/corpus/$$t tests/fuzz/corpus/$$t \
			>build/fuzz/$$t.log 2>&1 || { tail -40 build/fuzz/$$t.log; echo "fuzz $$t: a find"; exit 1; }; \
		tail -1 build/fuzz/$$t.log; done
# Whether the sources of the fuzz targets are all that they need: tests/fuzz/links_test.sh.
fuzz-links:

# ---- arm64 ------------------------------------------------------------------------------------
# `make check-arm64`: compiles every source for arm64 with Debian's cross compiler
# (gcc-aarch64-linux-gnu), warnings as errors. The libraries' headers are this machine's; nothing is
# linked or run.
# `make test-arm64`: the tests of kernels, graph, passes and diffusion as arm64 programs under
# qemu-aarch64-static, with Debian's arm64 libraries, which tools/arm64-root.sh unpacks into
# build/arm64/root (nothing is installed).
ARM64_CC    ?= aarch64-linux-gnu-gcc
ARM64_ROOT  := build/arm64/root
ARM64_TESTS ?= kernel graph transform transform/memory transform/numeric transform/sharding diffusion

arm64-needs:
	@command -v $(ARM64_CC) >/dev/null || { echo "make check-arm64 needs the cross compiler: apt-get install gcc-aarch64-linux-gnu"; exit 1; }
	@mkdir -p build
	@cmake --no-warn-unused-cli -S . -B build/arm64 -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/arm64.cmake -DCMAKE_C_COMPILER=$(ARM64_CC) \
		-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -DWEFT_TESTS=ON -DWEFT_CROSS_ROOT=$(CURDIR)/$(ARM64_ROOT) >build/arm64.log
check-arm64: arm64-needs
	@ninja -C build/arm64 $(QUIET) $(JOBS) weft_objects CMakeFiles/weft.dir/src/cli/main.c.o
	@echo "every source compiles for arm64"
$(ARM64_ROOT)/usr/lib/aarch64-linux-gnu/libdnnl.so:
	tools/arm64-root.sh $(ARM64_ROOT)
test-arm64: arm64-needs $(ARM64_ROOT)/usr/lib/aarch64-linux-gnu/libdnnl.so
	@ninja -C build/arm64 $(QUIET) $(JOBS) $(call ROOMS,$(ARM64_TESTS))
	@for t in $(call ROOMS,$(ARM64_TESTS)); do t=build/arm64/$$t; echo "== $$t"; \
		qemu-aarch64-static -L $(ARM64_ROOT) $$t 2>$$t.log || { cat $$t.log; exit 1; }; done

# ---- kernels of CUDA --------------------------------------------------------------------------
# Registers, stack, spills and shared memory of every kernel by real compilers, compared with
# tools/gpu_budgets.txt. Needs clang-14; ptxas from the Python package nvidia-cuda-nvcc-cu12 (or
# WEFT_PTXAS=PATH). A missing tool is skipped and counted.
gpu-budgets:
	tools/gpu_budgets.py
