# Checks beside the test suite: style, sanitizers, data races, fuzzing, and another processor.

.PHONY: format format-check asan asan-fast asan-fast-check tsan tsan-check fuzz fuzz-needs fuzz-links check-arm64 test-arm64 arm64-needs

# ---- style ------------------------------------------------------------------------------------
CLANG_FORMAT ?= $(firstword $(shell command -v clang-format-14 clang-format 2>/dev/null) clang-format-14)
FORMATTED     = $(shell git ls-files '*.c' '*.h' 2>/dev/null)
format:
	$(CLANG_FORMAT) -i $(FORMATTED)
format-check:
	@command -v $(CLANG_FORMAT) >/dev/null || { echo "format-check needs clang-format: make test-deps"; exit 1; }
	@$(CLANG_FORMAT) --dry-run -Werror $(FORMATTED) && echo "format: $(words $(FORMATTED)) files as clang-format leaves them"

# ---- mutants: errors planted in a copy of the tree, which the tests must detect (docs/testing.md); M=pattern a part
.PHONY: mutants
mutants:
	tools/mutants.py $(M:%=--only %)

# ---- sanitizers: addresses and undefined behaviour, data races ---------------------------------
# asan runs everything; asan-fast, which `make test` includes, the programs of tests that take seconds.
ASAN_FAST ?= base diffusion format fuzz graph pass
asan:
	+$(MAKE) --no-print-directory SAN=1 check
asan-fast:
	+$(MAKE) --no-print-directory SAN=1 asan-fast-check
asan-fast-check: $(ASAN_FAST:%=$(O)/test/%)
	tests/run.sh --programs $(O) $(ASAN_FAST)

# What runs on several threads (communicator, loader, checkpoints) under ThreadSanitizer; T=pattern runs others.
# libgomp is not instrumented, its barriers would look like races: kernels run on one thread.
TSAN_TESTS ?= runtime data train
tsan:
	+$(MAKE) --no-print-directory TSAN=1 tsan-check
tsan-check: test-bin
	@for t in $(if $(T),$(T),$(TSAN_TESTS)); do OMP_NUM_THREADS=1 WEFT_TEST_TIMEOUT=1200 TSAN_OPTIONS=exitcode=66 \
		tests/run.sh $(O) $$t || exit 1; done

# ---- fuzzing ----------------------------------------------------------------------------------
# `make fuzz`: every fuzz target for FUZZ_SECONDS under libFuzzer with address and undefined-behaviour
# sanitizers (clang). Finds are written to build/fuzz/found; a find ends the run with a failure.
FUZZ_TARGETS := safetensors gguf torch tar index npy config json metrics tokenizer spiece
FUZZ_SECONDS ?= 60
FUZZ_CC      ?= $(firstword $(shell command -v clang-14 clang 2>/dev/null) clang)
FUZZ_SRC     := $(wildcard src/base/*.c src/format/*.c src/text/*.c src/video/*.c src/data/storage*.c) src/data/id_table.c src/data/index.c \
                src/data/dataset.c tests/fuzz/targets.c
FUZZ_OBJ     := $(FUZZ_SRC:%.c=build/fuzz/%.o)
FUZZ_FLAGS   := $(CSTD) -O1 -g -Isrc -fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined \
                $(shell pkg-config --cflags $(PKG) 2>/dev/null)
FUZZ_LIBS    := $(shell pkg-config --libs $(PKG) 2>/dev/null) -lm

build/fuzz/%.o: %.c
	@mkdir -p $(@D)
	@echo "  FUZZ $<"; $(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c -o $@ $<
build/fuzz/fuzz_%: $(FUZZ_OBJ) tests/fuzz/libfuzzer.c
	@echo "  LINK $@"; $(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer -DFUZZ_TARGET=fuzz_$* -o $@ $(FUZZ_OBJ) \
		tests/fuzz/libfuzzer.c $(FUZZ_LIBS)

# Whether the sources above are all that the targets need, told without clang: tests/fuzz/links_test.sh.
fuzz-links: $(FUZZ_SRC:%.c=$(O)/%.o)
	@$(CC) -shared -fopenmp -Wl,-z,defs -o $(O)/fuzz-links.so $^ $(FUZZ_LIBS)

fuzz-needs:
	@command -v $(FUZZ_CC) >/dev/null || { echo "make fuzz needs clang: apt-get install clang-14 libclang-rt-14-dev"; exit 1; }
$(FUZZ_OBJ): | fuzz-needs
fuzz: $(FUZZ_TARGETS:%=build/fuzz/fuzz_%)
	@mkdir -p build/fuzz/found
	@for t in $(FUZZ_TARGETS); do \
		mkdir -p build/fuzz/corpus/$$t; \
		echo "fuzz $$t for $(FUZZ_SECONDS) s"; \
		WEFT_LOG=error build/fuzz/fuzz_$$t -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
			-artifact_prefix=build/fuzz/found/$$t- build/fuzz/corpus/$$t tests/fuzz/corpus/$$t \
			>build/fuzz/$$t.log 2>&1 || { tail -40 build/fuzz/$$t.log; echo "fuzz $$t: a find"; exit 1; }; \
		tail -1 build/fuzz/$$t.log; done
-include $(shell find build/fuzz -name '*.d' -type f 2>/dev/null)

# ---- arm64 ------------------------------------------------------------------------------------
# `make check-arm64`: compiles every source for arm64 with Debian's cross compiler (gcc-aarch64-linux-gnu), warnings as errors. The
# libraries' headers are this machine's; nothing is linked or run.
# `make test-arm64`: the tests of kernels, graph, passes and diffusion as arm64 programs under qemu-aarch64-static, with Debian's
# arm64 libraries, which tools/arm64-root.sh unpacks into build/arm64/root (nothing is installed).
ARM64_CC    ?= aarch64-linux-gnu-gcc
ARM64_OBJ   := $(SRC:src/%.c=build/arm64/%.o)
ARM64_ROOT  := build/arm64/root
ARM64_LIB   := $(ARM64_ROOT)/usr/lib/aarch64-linux-gnu
ARM64_TESTS ?= kernel graph pass diffusion
ARM64_INC   := $(INC) -idirafter /usr/include -idirafter /usr/include/$(shell $(CC) -print-multiarch 2>/dev/null)
ARM64_FLAGS  = $(CSTD) -O2 $(WARN) $(COMMON)

build/arm64/kernel/cpu/%.o: ARM64_FLAGS += $(KERNEL_CFLAGS)
build/arm64/%.o: src/%.c
	@mkdir -p $(@D)
	@echo "  ARM64 $<"; $(ARM64_CC) $(ARM64_FLAGS) $(ARM64_INC) -c -o $@ $<
build/arm64/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	@echo "  ARM64 $<"; $(ARM64_CC) $(ARM64_FLAGS) -Itests/plain $(ARM64_INC) -c -o $@ $<
arm64-needs:
	@command -v $(ARM64_CC) >/dev/null || { echo "make check-arm64 needs the cross compiler: apt-get install gcc-aarch64-linux-gnu"; exit 1; }
$(ARM64_OBJ): | arm64-needs
check-arm64: $(ARM64_OBJ)
	@echo "$(words $(ARM64_OBJ)) files compile for arm64"

$(ARM64_LIB)/libdnnl.so:
	tools/arm64-root.sh $(ARM64_ROOT)
build/arm64/libweft.a: $(filter-out build/arm64/cli/main.o,$(ARM64_OBJ))
	@rm -f $@
	@echo "  ARM64 $@"; aarch64-linux-gnu-ar rcs $@ $^
define arm64_test
build/arm64/test/$(1): $(patsubst %.c,build/arm64/%.o,$(sort $(wildcard tests/$(1)/*.c)) tests/plain/criterion/runner.c) build/arm64/libweft.a $(ARM64_LIB)/libdnnl.so
	@mkdir -p $$(@D)
	@echo "  ARM64 $$@"; $(ARM64_CC) --sysroot=$(ARM64_ROOT) -fopenmp -o $$@ $$(filter %.o %.a,$$^) -L$(ARM64_LIB) -L$(ARM64_LIB)/openblas-openmp \
		-Wl,-rpath,/usr/lib/aarch64-linux-gnu/openblas-openmp -lopenblas -ldnnl -ljansson -lyaml -lxxhash -lpthread -lm
endef
$(foreach d,$(ARM64_TESTS),$(eval $(call arm64_test,$(d))))
test-arm64: $(ARM64_TESTS:%=build/arm64/test/%)
	@for t in $^; do echo "== $$t"; qemu-aarch64-static -L $(ARM64_ROOT) $$t 2>$$t.log || { cat $$t.log; exit 1; }; done
