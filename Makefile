# weft: `make` builds build/weft, `make test` runs the tests, `make demo` the main job from nothing.
# Variables: O=DIR another build folder, SAN=1 address and undefined-behaviour sanitizers, TSAN=1 data races,
#            CC=..., PREFIX=/usr/local, MPI=mpicc.openmpi.

comma   := ,
blank   := $(subst ,, )
VERSION := $(shell cat VERSION)
O       ?= build$(if $(SAN),/asan)$(if $(TSAN),/tsan)
PREFIX  ?= /usr/local
MPICC   ?= $(or $(shell command -v mpicc.openmpi 2>/dev/null),mpicc)
PKG     := libavformat libavcodec libswscale libavutil jansson yaml-0.1 hwloc \
           libxxhash libpng icu-uc
BLAS_INCLUDE := $(firstword $(wildcard /usr/include/*-linux-gnu/openblas-openmp) /usr/include)
BLAS_LIB     := $(firstword $(wildcard /usr/lib/*-linux-gnu/openblas-openmp))

NEEDS_LIBS := $(if $(MAKECMDGOALS),$(filter-out clean deps test-deps demo help,$(MAKECMDGOALS)),all)
ifneq ($(NEEDS_LIBS),)
MISSING := $(foreach p,$(PKG),$(shell pkg-config --exists $(p) 2>/dev/null || echo $(p)))
MISSING += $(if $(wildcard $(BLAS_INCLUDE)/cblas.h),,openblas-openmp)
MISSING += $(if $(shell command -v $(firstword $(MPICC)) 2>/dev/null),,openmpi)
MISSING += $(if $(wildcard /usr/include/dnnl.h /usr/local/include/dnnl.h),,dnnl)
TEST_GOALS := test test-bin check asan% tsan%
ifneq ($(filter $(TEST_GOALS),$(MAKECMDGOALS)),)
ifeq ($(wildcard /usr/include/criterion/criterion.h /usr/local/include/criterion/criterion.h),)
$(if $(filter test,$(MAKECMDGOALS)),,$(error the tests need Criterion: `make test-deps` installs it and what else they need))
endif
endif
ifneq ($(strip $(MISSING)),)
$(error not found: $(strip $(MISSING)). On Debian 12, `make deps` installs every package that weft needs (tools/install-deps.sh lists them))
endif
endif

# ---- flags: every target takes its own from here ------------------------------------------------
WARN   := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla \
          -Wno-missing-field-initializers -Werror
CSTD   := -std=c17 -D_GNU_SOURCE
CFLAGS ?= -O2 -g
COMMON := -fopenmp -fPIC -MMD -MP -DWEFT_VERSION='"$(VERSION)"'
INC    := $(if $(TSAN),-Itests/plain) -Isrc -Iinclude -I$(BLAS_INCLUDE) $(shell pkg-config --cflags $(PKG) 2>/dev/null) \
          $(addprefix -isystem ,$(shell $(MPICC) --showme:incdirs 2>/dev/null))
LIBS   := $(if $(BLAS_LIB),-L$(BLAS_LIB) -Wl$(comma)-rpath$(comma)$(BLAS_LIB)) -lopenblas -ldnnl \
          $(shell pkg-config --libs $(PKG) 2>/dev/null) \
          $(addprefix -L,$(shell $(MPICC) --showme:libdirs 2>/dev/null)) -lmpi \
          -ldl -lpthread -lm
SANFLAGS := $(if $(SAN),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer) \
            $(if $(TSAN),-fsanitize=thread -fno-omit-frame-pointer)
# Kernels are compiled harder (clones for wider vectors are chosen inside the files), and their multiply-adds become FMA where
# the processor has it, which -std=c17 alone forbids.
KERNEL_CFLAGS := -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast
$(O)/src/kernel/cpu/%.o: CFLAGS += $(KERNEL_CFLAGS)
$(O)/src/video/convert.o $(O)/src/curate/shots_match.o $(O)/src/model/adapter.o $(O)/src/format/packing.o: CFLAGS += -O3
ALLFLAGS = $(CSTD) $(CFLAGS) $(WARN) $(SANFLAGS) $(COMMON) $(INC)
# What was compiled with other flags, another compiler or as another version is compiled again.
FLAGS_NOW := $(CC) $(CSTD) $(CFLAGS) $(WARN) $(SANFLAGS) $(COMMON) $(INC) $(KERNEL_CFLAGS) $(LIBS)
ifeq ($(findstring n,$(firstword -$(MAKEFLAGS)))$(if $(NEEDS_LIBS),,x),)
$(shell mkdir -p $(O) && printf '%s\n' '$(subst ','\'',$(FLAGS_NOW))' | cmp -s - $(O)/flags || printf '%s\n' '$(subst ','\'',$(FLAGS_NOW))' >$(O)/flags)
endif
LINK = @mkdir -p $(@D); echo "  LINK $@"; $(MPICC) $(SANFLAGS) -fopenmp -o $@ $(filter %.o %.a,$^) $(LIBS)

# ---- program, library, test programs --------------------------------------------------------------
SRC     := $(sort $(shell find src -name '*.c'))
OBJ     := $(SRC:%.c=$(O)/%.o)
LIBOBJ  := $(filter-out $(O)/src/cli/main.o,$(OBJ))
# tests/<folder>/*.c make one Criterion program $(O)/test/<folder>; tests/cli/*.sh run the built program.
TESTDIRS  := $(sort $(patsubst tests/%/,%,$(dir $(wildcard tests/*/*.c))))
TESTBIN   := $(TESTDIRS:%=$(O)/test/%)
CRITERION := $(if $(TSAN),$(O)/tests/plain/criterion/runner.o,-lcriterion)
# CBC is the referee of the planners, SimGrid that of the simulator (without it its test is skipped); the product links neither.
EXTRA_pipeline := -lCbcSolver -lCbc
EXTRA_plan     := -lCbcSolver -lCbc $(if $(wildcard /usr/include/simgrid/engine.h),-lsimgrid)

.PHONY: all lib test test-bin check test-long demo asan deps test-deps clean
.SECONDARY:
all: $(O)/weft

$(O)/weft: $(O)/src/cli/main.o $(O)/libweft.a
	@echo "  LINK $@"; $(MPICC) $(SANFLAGS) -fopenmp -rdynamic -o $@ $^ $(LIBS)

lib: $(O)/libweft.a
$(O)/libweft.a: $(LIBOBJ)
	@rm -f $@
	@echo "  AR   $@"; ar rcs $@ $^

$(O)/%.o: %.c $(O)/flags
	@mkdir -p $(@D)
	@echo "  CC   $<"; $(CC) $(ALLFLAGS) -c -o $@ $<

define test_binary
$(O)/test/$(1): $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tests/$(1)/*.c))) $(filter %.o,$(CRITERION)) $(O)/libweft.a
	@mkdir -p $$(@D)
	@echo "  LINK $$@"; $(CC) $(SANFLAGS) -fopenmp -o $$@ $$^ $(LIBS) $(filter-out %.o,$(CRITERION)) $$(EXTRA_$(1))
endef
$(foreach d,$(TESTDIRS),$(eval $(call test_binary,$(d))))

# A small program for the tests that need mpirun (tests/runtime/*.sh).
$(O)/test-tools/ranks: $(O)/tests/runtime/tool/ranks.o $(O)/libweft.a
	$(LINK)
test-bin: $(O)/weft $(TESTBIN) $(O)/test-tools/ranks

# `make test` is the whole thing from a fresh machine; `make check` runs what is built, T=pattern a part.
test: test-deps
	+$(MAKE) --no-print-directory format-check
	+$(MAKE) --no-print-directory check
	+$(MAKE) --no-print-directory asan-fast
check: test-bin
	tests/run.sh $(O) $(T)
# Sweeps that take minutes: every schedule of a pipeline beside every axis.
test-long: test-bin
	WEFT_TEST_LONG=1 tests/run.sh $(O) parallel

# The main job from nothing, into ./demo: installs what it needs, builds, trains, generates, reports.
demo: deps
	+$(MAKE) --no-print-directory all
	tools/demo.sh $(O)/weft demo

deps:
	tools/install-deps.sh
test-deps:
	tools/install-deps.sh --tests
clean:
	rm -rf build

-include $(OBJ:%.o=%.d) $(shell find $(O)/tests $(O)/bench -name '*.d' -type f 2>/dev/null)
include mk/check.mk mk/bench.mk mk/install.mk
