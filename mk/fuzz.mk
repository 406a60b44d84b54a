# `make fuzz`: every fuzz target for FUZZ_SECONDS under libFuzzer with address and undefined-behaviour
# sanitizers (clang). Finds are written to build/fuzz/found; a find ends the run with a failure.
FUZZ_TARGETS := safetensors tar npy config json metrics
FUZZ_SECONDS ?= 60
FUZZ_CC      ?= $(firstword $(shell command -v clang-14 clang 2>/dev/null) clang)
FUZZ_SRC     := $(wildcard src/base/*.c) $(wildcard src/format/*.c) src/data/dataset.c tests/fuzz/targets.c
FUZZ_OBJ     := $(FUZZ_SRC:%.c=build/fuzz/%.o)
FUZZ_FLAGS   := $(CSTD) -O1 -g -Isrc -fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined \
                $(shell pkg-config --cflags jansson yaml-0.1 libxxhash 2>/dev/null)
FUZZ_LIBS    := $(shell pkg-config --libs jansson yaml-0.1 libxxhash 2>/dev/null) -lm

build/fuzz/%.o: %.c
	@mkdir -p $(@D)
	@echo "  FUZZ $<"; $(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c -o $@ $<
build/fuzz/fuzz_%: $(FUZZ_OBJ) tests/fuzz/libfuzzer.c
	@echo "  LINK $@"; $(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer -DFUZZ_TARGET=fuzz_$* -o $@ $(FUZZ_OBJ) \
		tests/fuzz/libfuzzer.c $(FUZZ_LIBS)

.PHONY: fuzz-needs
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
