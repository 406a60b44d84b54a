# weft: `make` builds build/weft, `make test` runs the tests, `make demo` the main job from nothing.
# A front end of CMake: CMakeLists.txt and cmake/ define the targets and their flags.
# Variables: O=DIR another build folder, SAN=1 address and undefined-behaviour sanitizers,
#            TSAN=1 data races, CC="ccache gcc", CFLAGS="-O2 -g", PREFIX=/usr/local, DESTDIR=,
#            MPI=mpicc.openmpi.
.PHONY: all lib test test-bin check quick test-long demo deps test-deps clean
all:

# `make test` is the whole thing from a fresh machine; `make check` runs what is built: T=pattern a
# part, F=suite/case single cases (both with *). `make quick` runs the programs that take seconds,
# without the sweeps over all families.
SWEEPS := family/*|shard/every*
QUICK := base format/log format/tar format/tensors graph kernel kernel/virtual transform \
         transform/memory transform/numeric transform/sharding
quick:
	WEFT_TEST_CASE='$(or $(F),!($(SWEEPS)|kernel/conv3d|kernel_rules/threads*|narrow/linear))' \
		tests/run.sh --programs $(O) $(QUICK)
test: test-deps
	+$(MAKE) --no-print-directory format-check
	+$(MAKE) --no-print-directory check
check:
	WEFT_TEST_CASE='$(F)' tests/run.sh $(O) $(T)
# Sweeps that take minutes: every schedule of a pipeline with every axis, and random kills of a server.
# The page in a browser, packages in empty systems, clusters of Slurm and Ray, other programs' servers
# of objects and of captions, and published weights.
test-long:
	WEFT_TEST_LONG=1 WEFT_TEST_TIMEOUT=$${WEFT_TEST_TIMEOUT-10800} tests/run.sh $(O) train/pipeline \
		parity/gpu_long serve/page_long serve/kills_long dist/packages slurm_long ray_long peers_long \
		model_server_long real_weights_long

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

include mk/check.mk mk/bench.mk mk/install.mk mk/dist.mk mk/build.mk
