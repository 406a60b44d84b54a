#!/bin/bash
# /v1/videos and the state of the server: create, retrieve, list, content, delete, remix; the Python client `openai`; legal
# values are checked before a job is queued; the video is the one of `weft generate`.
. "$SRC/tests/serve/common.sh"
cases videos_cases.py a_video_is_that_of_weft_generate lists_pages_and_deletes illegal_requests_are_refused \
    refused_texts_name_the_values an_image_is_a_file forms_and_images frames_videos_and_masks a_character_is_moved images_of_an_identity a_coarse_video_is_refined refined_videos_have_the_rate_of_their_file inputs_of_sections_and_edits further_options loras_are_chosen distilled_loras_bring_their_settings previews_fit_the_steps_that_run \
    ranges_of_the_content thumbnail_and_sprite_sheet precision_and_weights a_video_is_varied state_of_the_server the_openai_client
finish
