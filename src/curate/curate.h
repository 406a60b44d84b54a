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
#include "base/json.h"
#include "base/status.h"
#include "curate/captions/captions_config.h"
#include "curate/embeddings/embeddings_config.h"

/* Limits of shots whose shorter side, without borders, has at least `min_side` pixels. */
typedef struct weft_curate_quality_tier {
    int64_t min_side;
    double min_motion, max_motion; /* -1: as in weft_curate_quality, and so below */
    double min_sharpness, min_brightness, max_brightness;
} weft_curate_quality_tier;

typedef struct weft_curate_quality {
    double min_motion, max_motion;
    double min_sharpness, min_brightness, max_brightness;
    weft_section_list tiers; /* weft_curate_quality_tier */
} weft_curate_quality;

typedef enum weft_curate_operator_order {
    WEFT_OPERATOR_ORDER_PRICE,
    WEFT_OPERATOR_ORDER_FIXED,
} weft_curate_operator_order;

/* Borders of clips. */
typedef enum weft_curate_cut { WEFT_CUT_EXACT, WEFT_CUT_KEY_FRAMES } weft_curate_cut;

typedef struct weft_curate_config {
    int64_t workers; /* 0: one per processor */
    /* not keys */
    bool forget;           /* remove clips of sources that cannot be reached */
    int64_t shard, shards; /* works on shard 0 .. shards - 1 only; shards 0 (default): on all */
    bool worker;           /* of a session: other processes work on the folder */
    bool wait;             /* for another run that has the folder or the shard */
    const char *page;      /* path of the HTML page; NULL: none */
    const char *metrics;   /* address of /metrics; NULL: none */
    bool finish;           /* analyses nothing: selects from the records of all shards */
    /* keys */
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
        double min_seconds, max_seconds, sharpest_within;
        int cut; /* weft_curate_cut */
        int64_t max_side, crf, key_interval;
        const char *preset, *encoder;
        double fps; /* highest frame rate; 0: the source's */
        bool crop_borders, require_caption, sound;
    } clips;
    weft_curate_quality quality;
    struct {
        bool on, mirrored;
        double distance, share, parts;
        int64_t colour; /* chroma levels, 0 .. 255 */
    } duplicates;
    int operator_order;          /* weft_curate_operator_order */
    weft_section_list operators; /* weft_operator_config */
    weft_captions_config captions;
    weft_embeddings_config embeddings;
    /* the config with the locations of models in buckets, for the settings of the folder; NULL: no
     * model is in a bucket */
    const struct weft_curate_config *given;
} weft_curate_config;

/* Videos without a record, of all shards. */
typedef struct weft_curate_remaining {
    int64_t videos;
    char first[256];  /* name of one; "": none */
    char shards[256]; /* their shards, e.g. "1, 4, 6" or "1, 4, ..."; "": without shards */
} weft_curate_remaining;

typedef struct weft_curate_report {
    /* a run of a shard sets this and its own videos and clips only */
    weft_curate_remaining remaining;
    int64_t files, videos, sidecars, sidecars_unused, other_files, videos_rejected;
    int64_t shots, shots_rejected, clips, clips_without_caption;
    double seconds_in, seconds_out;
    char rejects[400]; /* e.g. "duplicate 3, length 12": lines of rejects.jsonl by filter */
    /* captions of this run; 0 (default): no caption server */
    int64_t captions_made, captions_failed, caption_requests, caption_tokens;
    json_t *operators; /* content of operators.json, owned by the caller; NULL: no operators */
} weft_curate_report;

/* Runs or resumes a curation, or one shard; creates `out` if missing. WEFT_E_CONFIG: the folder
 * was made with other settings; WEFT_E_ARG: another run uses the folder or the shard;
 * WEFT_E_NOT_FOUND: `finish` without the records of all videos. */
weft_status weft_curate_run(const char *in, const char *out, const weft_curate_config *config,
                            weft_curate_report *report);

/* The work of a curation in steps, for workers that get their tasks from elsewhere. Any number of
 * sessions, also on several machines, works on one folder; the last pass is a run with `finish`. */
typedef struct weft_curate_session weft_curate_session;
/* Lists the footage. `in` and `out` are borrowed. */
weft_status weft_curate_session_open(const char *in, const char *out,
                                     const weft_curate_config *config,
                                     weft_curate_session **session);
void weft_curate_session_close(weft_curate_session *session); /* accepts NULL */
/* Appends the names of videos that lack their record or scores, or with `clips` clips or captions,
 * large ones first.
 * `stages`: names of the tasks that such a video passes. */
weft_status weft_curate_session_list(weft_curate_session *session, bool clips, json_t *names,
                                     json_t *stages);
/* Analyses a video unless it has a record. *unscored: its shots need operators or embeddings. */
weft_status weft_curate_session_analyse(weft_curate_session *session, const char *video,
                                        bool *unscored);
/* Runs the operators, and computes the embeddings, of videos (array of names) with a record. Models
 * and processes stay loaded until the session is closed; *loaded: how many this call opened. */
weft_status weft_curate_session_score(weft_curate_session *session, const json_t *videos,
                                      int64_t *loaded);
/* Writes the missing ones of the video's *clips clips, and appends the ids of clips that need a
 * caption from the server. WEFT_E_NOT_FOUND: records are missing. */
weft_status weft_curate_session_write(weft_curate_session *session, const char *video,
                                      int64_t *clips, json_t *uncaptioned);
/* Requests the captions of written clips (array of ids). Counts are in the report. */
weft_status weft_curate_session_caption(weft_curate_session *session, const json_t *clips,
                                        weft_curate_report *report);

#endif
