# `make tsan`: what runs on several threads (communicator, loader, checkpoints) under ThreadSanitizer; T=pattern runs others.
# libgomp is not instrumented, its barriers would look like races: kernels run on one thread.
TSAN_TESTS ?= runtime data train
tsan:
	+$(MAKE) TSAN=1 tsan-check
tsan-check: test-bin
	@for t in $(if $(T),$(T),$(TSAN_TESTS)); do OMP_NUM_THREADS=1 WEFT_TEST_TIMEOUT=1200 TSAN_OPTIONS=exitcode=66 \
		tests/run.sh $(O) $$t || exit 1; done
.PHONY: tsan tsan-check
