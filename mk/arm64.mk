# `make check-arm64`: compiles every source for arm64 with Debian's cross compiler (gcc-aarch64-linux-gnu), warnings as errors. The
# libraries' headers are this machine's; nothing is linked or run.
# `make test-arm64`: the tests of kernels, graph, passes and diffusion as arm64 programs under qemu-aarch64-static, with Debian's
# arm64 libraries, which tools/arm64-root.sh unpacks into build/arm64/root (nothing is installed).
ARM64_CC    ?= aarch64-linux-gnu-gcc
ARM64_SRC   := $(shell find src -name '*.c')
ARM64_OBJ   := $(ARM64_SRC:src/%.c=build/arm64/%.o)
ARM64_ROOT  := build/arm64/root
ARM64_LIB   := $(ARM64_ROOT)/usr/lib/aarch64-linux-gnu
ARM64_TESTS ?= kernel graph pass diffusion
ARM64_INC   := $(INC) -idirafter /usr/include -idirafter /usr/include/$(shell $(CC) -print-multiarch 2>/dev/null)
ARM64_FLAGS = $(CSTD) -O2 $(WARN) -fopenmp -fPIC -MMD -MP -DWEFT_VERSION='"$(VERSION)"'

build/arm64/kernel/cpu/%.o: ARM64_FLAGS += -O3 -fno-math-errno -fno-trapping-math
build/arm64/%.o: src/%.c
	@mkdir -p $(@D)
	@echo "  ARM64 $<"; $(ARM64_CC) $(ARM64_FLAGS) $(ARM64_INC) -c -o $@ $<
build/arm64/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	@echo "  ARM64 $<"; $(ARM64_CC) $(ARM64_FLAGS) -Itests/plain $(ARM64_INC) -c -o $@ $<
.PHONY: check-arm64 test-arm64 arm64-needs
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
