#!/bin/bash
# The process that forks the server's children: descriptors and priority of a child, and kills and stops of this process.
. "$SRC/tests/serve/common.sh"
cases starter_cases.py children_are_forked a_killed_starter_is_replaced a_stopped_starter_stops_no_job children_end_with_the_server \
    a_starter_without_a_server_refuses
finish
