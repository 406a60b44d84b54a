/* Curation: turns a folder of source videos into clips with metadata and a list of rejects.
 *
 * A child process analyses each video (a crash or hang of the decoder loses only this video) into
 * OUT/state/<video>.json. Next, near-duplicates are selected over all shots. Then workers write the
 * clips, one video at a time each. Files are renamed into place when complete, and file names
 * depend only on the source. A killed run therefore resumes and ends with the same folder as an
 * uninterrupted one. */
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
    bool forget;     /* not a key: remove clips of sources that cannot be reached */
    double stall_seconds;
    int64_t worker_memory; /* bytes; 0: a share of the machine's memory */
    struct {
        int64_t min_side;
        double min_fps, max_fps, min_seconds, min_aspect, max_aspect;
        double max_damaged;   /* share of packets */
        double max_concealed; /* share of frames */
        bool prove;           /* check suspect frames for damage */
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
        int64_t colour; /* chroma levels, 0 .. 255 */
    } duplicates;
} weft_curate_config;

typedef struct weft_curate_report {
    int64_t files, videos, sidecars, sidecars_unused, other_files, videos_rejected;
    int64_t shots, shots_rejected, clips, clips_without_caption;
    double seconds_in, seconds_out;
    char rejects[400]; /* e.g. "duplicate 3, length 12": lines of rejects.jsonl by filter */
} weft_curate_report;

/* Runs or resumes a curation; creates `out` if missing. WEFT_E_CONFIG: the folder was made with
 * other settings; WEFT_E_ARG: another run uses the folder. */
weft_status weft_curate_run(const char *in, const char *out, const weft_curate_config *config,
                            weft_curate_report *report);

#endif
