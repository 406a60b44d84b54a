# weft: `make` builds build/weft, `make test` runs the tests, `make demo` the main job from nothing.
# Variables: O=DIR another build folder, SAN=1 address and undefined-behaviour sanitizers, TSAN=1 data races,
#            CC=..., PREFIX=/usr/local, MPI=mpicc.openmpi.

comma   := ,
VERSION := $(shell cat VERSION)
O       ?= build$(if $(SAN),/asan)$(if $(TSAN),/tsan)
PREFIX  ?= /usr/local
MPICC   ?= $(or $(shell command -v mpicc.openmpi 2>/dev/null),mpicc)
PKG     := libavformat libavcodec libswscale libavutil jansson yaml-0.1 hwloc \
           libxxhash libpng gsl
BLAS_INCLUDE := $(firstword $(wildcard /usr/include/*-linux-gnu/openblas-openmp) /usr/include)
BLAS_LIB     := $(firstword $(wildcard /usr/lib/*-linux-gnu/openblas-openmp))

NEEDS_LIBS := $(if $(MAKECMDGOALS),$(filter-out clean deps test-deps demo help,$(MAKECMDGOALS)),all)
ifneq ($(NEEDS_LIBS),)
MISSING := $(foreach p,$(PKG),$(shell pkg-config --exists $(p) 2>/dev/null || echo $(p)))
MISSING += $(if $(wildcard $(BLAS_INCLUDE)/cblas.h),,openblas-openmp)
MISSING += $(if $(shell command -v $(firstword $(MPICC)) 2>/dev/null),,openmpi)
MISSING += $(if $(wildcard /usr/include/dnnl.h /usr/local/include/dnnl.h),,dnnl)
MISSING += $(if $(wildcard /usr/include/xgboost/c_api.h),,xgboost)
ifneq ($(strip $(MISSING)),)
$(error not found: $(strip $(MISSING)). On Debian 12, `make deps` installs every package that weft needs (tools/install-deps.sh lists them))
endif
endif

WARN   := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla \
          -Wno-missing-field-initializers -Werror
CSTD   := -std=c17 -D_GNU_SOURCE
CFLAGS ?= -O2 -g
CRITERION := $(if $(TSAN),$(O)/tests/plain/criterion/runner.o,-lcriterion)
INC    := $(if $(TSAN),-Itests/plain) -Isrc -Iinclude -I$(BLAS_INCLUDE) $(shell pkg-config --cflags $(PKG) 2>/dev/null) \
          $(addprefix -isystem ,$(shell $(MPICC) --showme:incdirs 2>/dev/null))
LIBS   := $(if $(BLAS_LIB),-L$(BLAS_LIB) -Wl$(comma)-rpath$(comma)$(BLAS_LIB)) -lopenblas -ldnnl \
          $(shell pkg-config --libs $(PKG) 2>/dev/null) \
          $(addprefix -L,$(shell $(MPICC) --showme:libdirs 2>/dev/null)) -lmpi \
          -lxgboost -ldl -lpthread -lm
SANFLAGS := $(if $(SAN),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer) \
            $(if $(TSAN),-fsanitize=thread -fno-omit-frame-pointer)
ALLFLAGS = $(CSTD) $(CFLAGS) $(WARN) $(SANFLAGS) -fopenmp -fPIC -MMD -MP -DWEFT_VERSION='"$(VERSION)"' $(INC)

# Kernels are compiled harder; the clones for wider vectors are chosen inside the files.
$(O)/src/kernel/cpu/%.o: CFLAGS += -O3 -fno-math-errno -fno-trapping-math
$(O)/src/video/convert.o $(O)/src/curate/shots_match.o: CFLAGS += -O3

SRC     := $(sort $(shell find src -name '*.c'))
LIBSRC  := $(filter-out src/cli/main.c,$(SRC))
OBJ     := $(SRC:%.c=$(O)/%.o)
LIBOBJ  := $(LIBSRC:%.c=$(O)/%.o)
# tests/<folder>/*.c make one Criterion binary $(O)/test/<folder>; tests/cli/*.sh run the program.
TESTDIRS := $(sort $(patsubst tests/%/,%,$(dir $(wildcard tests/*/*.c))))
TESTBIN  := $(TESTDIRS:%=$(O)/test/%)

.PHONY: all lib test test-bin check demo bench install asan tsan fuzz deps test-deps docs format clean help
.SECONDARY:
all: $(O)/weft

$(O)/weft: $(O)/src/cli/main.o $(O)/libweft.a
	@echo "  LINK $@"; $(MPICC) $(SANFLAGS) -fopenmp -rdynamic -o $@ $< $(O)/libweft.a $(LIBS)

lib: $(O)/libweft.a
$(O)/libweft.a: $(LIBOBJ)
	@rm -f $@
	@echo "  AR   $@"; ar rcs $@ $^

$(O)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC   $<"; $(CC) $(ALLFLAGS) -c -o $@ $<

define test_binary
$(O)/test/$(1): $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tests/$(1)/*.c))) $(filter %.o,$(CRITERION)) $(O)/libweft.a
	@mkdir -p $$(@D)
	@echo "  LINK $$@"; $(CC) $(SANFLAGS) -fopenmp -o $$@ $$^ $(LIBS) $(filter-out %.o,$(CRITERION)) $$(EXTRA_$(1))
endef
$(foreach d,$(TESTDIRS),$(eval $(call test_binary,$(d))))

test-bin: $(O)/weft $(TESTBIN)

# `make test` is the whole thing from a fresh machine; `make check` runs what is built, T=pattern a part.
test: test-deps
	+$(MAKE) --no-print-directory check
check: test-bin
	tests/run.sh $(O) $(T)

deps:
	tools/install-deps.sh
test-deps:
	tools/install-deps.sh --tests

asan:
	+$(MAKE) SAN=1 check

format:
	clang-format -i $$(git ls-files '*.c' '*.h')
clean:
	rm -rf build

-include $(shell find $(O) -name '*.d' -type f 2>/dev/null)
-include mk/*.mk
