#!/bin/bash
# Webhooks: signed messages to a receiver, repetition also by the next server, stored outcomes, legal URLs.
. "$SRC/tests/serve/common.sh"
cases webhooks_cases.py failures_are_repeated only_urls_of_the_operator
finish
