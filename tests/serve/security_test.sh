#!/bin/bash
# Limits of requests, tokens, and prompts as data. No answer has a path of the machine.
. "$SRC/tests/serve/common.sh"
cases security_cases.py tokens_are_needed tokens_have_limits deleted_jobs_count jobs_of_other_tokens_are_hidden limits_are_kept idle_connections_leave_descriptors paths_are_hidden ambiguous_requests_are_refused foreign_pages_are_refused \
    tls_protects_the_connection options_are_checked
finish
