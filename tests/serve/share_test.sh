#!/bin/bash
# `weft serve --policy share`: jobs run at the same time on ranks of their own. The files are bitwise equal to files of `weft generate`
# with the layout of the job, also after a crash of one worker and a restart; --elastic changes the ranks between two steps.
. "$SRC/tests/serve/common.sh"
. "$SRC/tests/signal_at.sh"
command -v mpirun >/dev/null || skip "no mpirun"
cases share_cases.py refusals jobs_share_the_ranks files_are_those_of_generate a_crash_ends_one_job groups_of_two_ranks jobs_resume_with_their_ranks \
    a_job_that_fits_many_ranks_only learned_seconds_survive_a_restart ranks_change_between_steps
finish
