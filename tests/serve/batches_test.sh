#!/bin/bash
# Equal jobs are generated together with --batch N: where the predicted seconds are fewer and the memory suffices. Members are
# cancelled and paused alone, a killed worker loses none, and each member has its own state.
. "$SRC/tests/serve/common.sh"
source "$SRC/tests/signal_at.sh"
cases batches_cases.py two_jobs_are_a_batch other_jobs_are_not_batched a_member_is_cancelled a_member_is_paused a_batch_is_not_stopped_for_its_member \
    a_killed_worker_loses_no_member a_batch_that_does_not_fit_is_not_made a_refused_member_fails_alone a_stopped_server_resumes_the_batch
finish
