# `make check-arm64`: compiles every source for arm64 with Debian's cross compiler (gcc-aarch64-linux-gnu), warnings as errors. The
# libraries' headers are this machine's; nothing is linked or run.
ARM64_CC  ?= aarch64-linux-gnu-gcc
ARM64_SRC := $(shell find src -name '*.c')
ARM64_OBJ := $(ARM64_SRC:src/%.c=build/arm64/%.o)
ARM64_INC := $(INC) -idirafter /usr/include -idirafter /usr/include/$(shell $(CC) -print-multiarch 2>/dev/null)

build/arm64/%.o: src/%.c
	@mkdir -p $(@D)
	@echo "  ARM64 $<"; $(ARM64_CC) $(CSTD) -O2 $(WARN) -fopenmp -fPIC -MMD -MP -DWEFT_VERSION='"$(VERSION)"' $(ARM64_INC) -c -o $@ $<
.PHONY: check-arm64 arm64-needs
arm64-needs:
	@command -v $(ARM64_CC) >/dev/null || { echo "make check-arm64 needs the cross compiler: apt-get install gcc-aarch64-linux-gnu"; exit 1; }
$(ARM64_OBJ): | arm64-needs
check-arm64: $(ARM64_OBJ)
	@echo "$(words $(ARM64_OBJ)) files compile for arm64"
