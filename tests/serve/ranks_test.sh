#!/bin/bash
# `weft serve --ranks N`: the files are bitwise equal to files of `weft generate` on the same layout. A kill of a rank, of the server or
# of mpirun leaves no process, and the job resumes at its step. Signals are sent by events (tests/signal_at.sh).
. "$SRC/tests/serve/common.sh"
. "$SRC/tests/signal_at.sh"
command -v mpirun >/dev/null || skip "no mpirun"
cases ranks_cases.py files_are_those_of_generate a_killed_rank_ends_the_worker a_killed_server_leaves_no_rank \
    a_killed_launcher_leaves_no_rank a_rank_killed_twice_parks pause_cancel_and_sigterm_stop_all_ranks a_long_step_does_not_delay_the_stop idle_weights_are_unloaded \
    a_refused_job_names_its_reason a_batch_is_the_one_of_generate jobs_have_the_layout_of_their_price prices_are_of_the_layout
finish
