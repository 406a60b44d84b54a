#!/bin/bash
# Kills of the server, of the worker and of both at defined events: every job is finished once, and its file is that of an
# undisturbed run. A second crash parks a job. SIGTERM saves the running job. No machine's speed matters: signals are sent by
# events (tests/signal_at.sh).
. "$SRC/tests/serve/common.sh"
. "$SRC/tests/signal_at.sh"
cases faults_cases.py the_server_is_killed_at_every_commit the_worker_is_killed a_worker_is_killed_between_two_jobs both_are_killed a_second_crash_parks \
    sigterm_saves_the_running_job a_long_step_does_not_delay_the_stop changed_weights_are_named a_full_disk_loses_nothing uploads_and_images_need_space a_job_waits_for_space a_pause_without_space_names_the_disk \
    a_lost_queue_removes_no_video one_server_per_state two_kills_in_a_row
finish
