#!/bin/bash
# /v1/jobs: prices, order, cancel, pause and resume of queued and running jobs, events, request ids.
. "$SRC/tests/serve/common.sh"
. "$SRC/tests/signal_at.sh"
cases jobs_cases.py prices_are_predicted a_refused_price_is_asked_again a_locked_worker_stops_no_request a_video_that_never_fits_is_refused \
    a_request_id_has_one_job queued_jobs_change a_running_job_is_cancelled a_cancelled_job_is_not_saved a_cancel_that_is_not_stored \
    a_running_job_is_paused_and_resumed a_running_job_is_deleted events_show_the_steps queued_jobs_are_edited previews_are_images priorities_come_first \
    a_shorter_job_goes_first a_deadline_goes_first
finish
