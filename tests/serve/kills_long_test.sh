#!/bin/bash
# Kills of the server, of its worker and of both at random moments: every job is finished once, with the bytes of an
# undisturbed run. Only with WEFT_TEST_LONG. WEFT_KILLS: kills of each kind (67). WEFT_TEST_SEED: of the moments.
. "$SRC/tests/serve/common.sh"
[ -n "${WEFT_TEST_LONG-}" ] || skip "takes minutes: make test-long"
cases kills_cases.py the_server_is_killed the_worker_is_killed both_are_killed
finish
