#!/bin/bash
# The page in Chromium, at the widths 390 and 1440, light and dark. Needs chromium, chromium-driver and python3-selenium of
# Debian, and about three minutes of processor time: `make test-long`. WEFT_SHOTS names a folder for screenshots.
. "$SRC/tests/serve/common.sh"
. "$SRC/tests/signal_at.sh"
[ "${WEFT_TEST_LONG-}" ] || skip "make test-long runs it"
command -v chromium >/dev/null && command -v chromedriver >/dev/null || skip "no chromium"
python3 -c 'import selenium' 2>/dev/null || PATH=/usr/bin:$PATH # the package is for Debian's own Python
python3 -c 'import selenium' 2>/dev/null || skip "no selenium (python3-selenium)"
[ "${WEFT_SHOTS-}" ] && mkdir -p "$WEFT_SHOTS"
cases page_cases.py the_queue_is_used videos_are_shown running_videos_are_followed types_of_numbers_are_chosen further_options_and_hidden_tabs files_and_masks refinements_and_settings grids_and_adapters a_phone_is_enough five_hundred_results a_token_is_asked_for
finish
