/* Curation: a folder of raw footage becomes clips with metadata, and a list of what was left out.
 *
 * Every video is analysed by a child process of its own (a decoder that crashes or hangs costs its
 * video only) into OUT/state/<video>.json; then the near-duplicates are chosen over all shots; then
 * the clips are written, one video at a time per worker. Each file appears under its final name
 * whole or not at all, and its name is a function of the source, so that a killed run goes on where
 * it was and ends with the same folder as one that was not. */
#ifndef WEFT_CURATE_CURATE_H
#define WEFT_CURATE_CURATE_H

#include "base/config.h"
#include "base/status.h"

typedef struct weft_curate_quality {
    double min_motion, max_motion;
    double min_sharpness, min_brightness, max_brightness;
} weft_curate_quality;

typedef struct weft_curate_config {
    int64_t workers; /* 0: one per processor */
    bool forget;     /* no key: clips of sources that cannot be reached are removed */
    double stall_seconds;
    int64_t worker_memory; /* bytes; 0: a share of the machine */
    struct {
        int64_t min_side;
        double min_fps, max_fps, min_seconds, min_aspect, max_aspect;
        double max_damaged;   /* share of packets */
        double max_concealed; /* share of frames */
        bool prove;           /* whether pictures that leap are damaged */
    } video;
    struct {
        int method;
        const char *weights; /* owned by the config */
        double threshold, mix;
        int64_t min_frames, trim;
    } shots;
    struct {
        int64_t min_frames;
        double min_seconds, max_seconds;
        int64_t max_side, crf, key_interval;
        const char *preset;
        bool crop_borders, require_caption;
    } clips;
    weft_curate_quality quality;
    struct {
        bool on, mirrored;
        double distance, share, parts;
        int64_t colour; /* levels */
    } duplicates;
} weft_curate_config;

extern const weft_section weft_curate_section;

typedef struct weft_curate_report {
    int64_t files, videos, sidecars, sidecars_unused, other_files, videos_rejected;
    int64_t shots, shots_rejected, clips, clips_without_caption;
    double seconds_in, seconds_out;
    char rejects[400]; /* "duplicate 3, length 12": lines of rejects.jsonl by operator */
} weft_curate_report;

/* `out` is made if missing. A second run with other settings than the folder was made with is
 * WEFT_E_CONFIG; two runs at once on one folder WEFT_E_ARG. */
weft_status weft_curate_run(const char *in, const char *out, const weft_curate_config *config,
                            weft_curate_report *report);

#endif
