/* Writes generated videos: video files (video/writer.h), arrays, and a contact sheet. */
#ifndef WEFT_GENERATE_JOBS_VIDEO_OUTPUTS_H
#define WEFT_GENERATE_JOBS_VIDEO_OUTPUTS_H

#include "base/json.h"
#include "generate/generator/generator.h"

typedef struct weft_video_outputs weft_video_outputs;

/* One video of the output; strings are borrowed. */
typedef struct weft_video_outputs_item {
    const char *file; /* path below the folder; NULL: 0000.mp4 by the video's number */
    const char *prompt, *negative;
    uint64_t seed;
    int64_t frames, height, width, steps;
    double guidance;
    const char *sampler; /* sampler and fps are set when the video begins */
    double fps;
} weft_video_outputs_item;

typedef struct weft_video_outputs_options {
    const char *out;   /* a video file (for one video), else a folder */
    const char *sheet; /* contact sheet of videos of one size, .png; NULL: none */
    bool raw;          /* writes each video as f32 (frames, height, width, 3) .npy, too */
    const weft_video_outputs_item *items; /* [count], borrowed */
    int64_t count;
    bool goes_on; /* append to prompts.jsonl; false: replace it */
    bool second;  /* another rank has opened the same output: skip checks and removal */
} weft_video_outputs_options;

/* WEFT_E_ARG: the name `sheet` does not end in .png. */
weft_status weft_video_outputs_check_sheet(const char *sheet);
/* Whether `out` is the file of one video, by its extension. */
bool weft_video_outputs_is_file(const char *out);
/* Checks before any work that `out` is a folder or a file in a supported format. */
weft_status weft_video_outputs_check_out(const char *out);
/* Checks `out`, the sheet, and the name, size and rate of each video. */
weft_status weft_video_outputs_check(const weft_video_outputs_options *options);
/* Returns `file`, or 0003.mp4 for video 3 if `file` is NULL. */
const char *weft_video_outputs_name(const char *file, int64_t number, char own[32]);
/* Appends the path of a file next to a video. For the ending "sampling.safetensors":
 * "dog.sampling.safetensors" of dog.mp4, "OUT/0003.sampling.safetensors" of video 3 of a folder. */
weft_status weft_video_outputs_sibling(const char *out, const weft_video_outputs_item *item,
                                       int64_t number, const char *ending, weft_buf *path);
/* Whether `path` is a video with the item's prompt, seed, size, steps and guidance, by the file's
 * tags. */
bool weft_video_outputs_exists(const char *path, const weft_video_outputs_item *item);
/* Opens an output. In a folder, each finished video adds one line of JSON to prompts.jsonl. */
weft_status weft_video_outputs_open(const weft_video_outputs_options *options,
                                    weft_video_outputs **outputs);
/* Additional JSON members for the line of the current video. Takes ownership of `facts`. */
void weft_video_outputs_facts(weft_video_outputs *outputs, json_t *facts);
/* Sets the sound of a video, before its frames; copied. In an output with `raw` it is also written
 * as f32 (channels, samples), NAME.sound.npy. */
weft_status weft_video_outputs_sound(weft_video_outputs *outputs, int64_t prompt,
                                     const weft_sound *sound);
/* Writes frames; the arguments are those of weft_generator_sink.frames. */
weft_status weft_video_outputs_frames(weft_video_outputs *outputs, int64_t prompt,
                                      int64_t first_frame, int64_t count, const float *frames);
/* Writes the contact sheet. */
weft_status weft_video_outputs_finish(weft_video_outputs *outputs);
void weft_video_outputs_free(
    weft_video_outputs *outputs); /* accepts NULL; removes an unfinished file */

#endif
