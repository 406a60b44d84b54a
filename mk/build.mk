# Configures $(O) by CMake when needed, and builds the targets of all goals in one run of ninja.
O      ?= build$(if $(SAN),/asan)$(if $(TSAN),/tsan)
CFLAGS ?= $(if $(SAN)$(TSAN),-O1,-O2) -g
MPI    ?= $(MPICC)
comma  := ,
blank  := $(subst ,, )
quote   = '$(subst ','\'',$(1))'

# ---- goals and the targets of CMake that they need ----------------------------------------------
GOALS  := $(or $(MAKECMDGOALS),all)
ROOMS   = $(addprefix test/,$(subst /,-,$(1)))
TARGETS_all             = weft
TARGETS_lib             = libweft.a libweft.so
TARGETS_test-bin        = test-bin
TARGETS_check           = test-bin
TARGETS_test-long       = test-bin
TARGETS_tsan-check      = test-bin
TARGETS_quick           = $(call ROOMS,$(QUICK))
TARGETS_asan-fast-check = $(call ROOMS,$(ASAN_FAST))
TARGETS_docs            = weft
TARGETS_install         = weft libweft.a libweft.so manual
TARGETS_dist-tar        = weft libweft.a libweft.so manual
TARGETS_dist-wheel      = weft libweft.a libweft.so manual
TARGETS_fuzz-links      = fuzz_links
FILES   = $(filter $(O)/%,$(GOALS))
TARGETS = $(sort $(foreach goal,$(GOALS),$(TARGETS_$(goal))) $(FILES:$(O)/%=%))
TEST_GOALS := test-bin check test-long quick asan-fast-check tsan-check $(O)/test/% \
              $(O)/test-tools/%

# ---- configuration ------------------------------------------------------------------------------
# The tests are part of a configuration where Criterion and CBC are installed or a goal needs them.
INSTALLED := $(and $(wildcard /usr/include/criterion),$(wildcard /usr/include/coin))
TESTS     := $(if $(filter $(TEST_GOALS),$(GOALS))$(INSTALLED),ON,OFF)
LAUNCHER := $(filter ccache sccache distcc,$(notdir $(firstword $(CC))))
COMPILER := $(if $(LAUNCHER),$(wordlist 2,99,$(CC)),$(CC))
CONFIGURE = -S $(call quote,$(CURDIR)) -B $(O) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
            -DCMAKE_C_FLAGS= -DCMAKE_C_FLAGS_RELWITHDEBINFO=$(call quote,$(CFLAGS)) \
            -DCMAKE_C_COMPILER=$(call quote,$(subst $(blank),;,$(COMPILER))) \
            -DCMAKE_C_COMPILER_LAUNCHER=$(LAUNCHER) \
            -DWEFT_SANITIZE=$(if $(SAN),address)$(if $(TSAN),thread) -DWEFT_TESTS=$(TESTS) \
            $(if $(MPI),-DMPI_C_COMPILER=$(call quote,$(MPI)))
CONFIGURED = $(if $(wildcard $(O)/build.ninja),$(file <$(O)/configured))
# ccache finds objects that another working tree compiled.
export CCACHE_BASEDIR ?= $(CURDIR)

JOBS  = $(or $(filter-out -j,$(filter -j%,$(MAKEFLAGS))),-j$(shell nproc))
QUIET = $(if $(findstring s,$(firstword -$(MAKEFLAGS))),--quiet)
NEEDS = @command -v $(1) >/dev/null || { echo "not found: $(1). On Debian 12, \`make deps\` \
installs every package that weft needs (tools/install-deps.sh lists them)"; exit 1; }

.PHONY: configure built
# One run at a time in a build folder, hence flock.
configure:
	$(call NEEDS,cmake)
	$(call NEEDS,ninja)
	$(call NEEDS,$(firstword $(COMPILER)))
ifneq ($(strip $(CONFIGURED)),$(strip $(CONFIGURE)))
	@mkdir -p $(O)
	@flock $(O) sh -c 'cd $(O) && rm -rf CMakeCache.txt CMakeFiles/[0-9]* configured'
	@flock $(O) cmake $(CONFIGURE) >$(O)/configure.log
	@printf '%s\n' $(call quote,$(CONFIGURE)) >$(O)/configured
endif
built: configure
	@flock $(O) ninja -C $(O) $(QUIET) $(JOBS) $(TARGETS)

$(patsubst TARGETS_%,%,$(filter TARGETS_%,$(.VARIABLES))) $(FILES): built
all lib test-bin fuzz-links $(FILES):
	@:
