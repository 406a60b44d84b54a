#include "evaluate/video_evaluation.h"

#include "base/fs.h"
#include "base/log.h"
#include "curate/source_kind.h"
#include "evaluate/frame_encoder.h"
#include "evaluate/frechet.h"
#include "evaluate/video_metrics.h"
#include "format/tensors/npy.h"
#include "format/tensors/tensors.h"
#include "prompt/pooled_encoder.h"
#include "video/reader.h"

#include <math.h>
#include <string.h>

enum { FLICKER, MOTION, CLIP_SCORE, BACKGROUND, SUBJECT, FIGURES };
static const char *const figure[FIGURES] = {"flicker", "motion_smoothness", "clip_score",
                                            "background_consistency", "subject_consistency"};

typedef struct video_eval {
    const weft_video_eval_options *o;
    weft_frame_encoder *clip, *dino; /* NULL: not asked for */
    weft_pooled_encoder *text;       /* with `clip` */
    weft_frame_interpolation *amt;   /* NULL: not asked for */
    weft_names names;                /* paths of the videos */
    const char **line; /* [names.count] of the prompts; borrowed from `text_file` or the options */
    char *text_file;
    json_t *each;
    double sum[FIGURES], weight[FIGURES];
    int64_t without_prompt;
} video_eval;

/* The figures of one video while its frames arrive. */
typedef struct video_figures {
    weft_flicker flicker;
    weft_smoothness motion;
    weft_consistency background, subject;
    float *prompt; /* unit vector, owned; NULL: none */
    double clip;   /* sum over frames */
    int64_t frames;
} video_figures;

/* ---- one video ------------------------------------------------------------------------------ */

static weft_status add_frame(video_eval *e, video_figures *v, const weft_video_frame *frame,
                             const uint8_t *rgb)
{
    const float *unit;
    int64_t width;
    WEFT_TRY(weft_flicker_add(&v->flicker, rgb, frame->width * frame->height * 3));
    if (e->amt)
        WEFT_TRY(weft_smoothness_add(&v->motion, e->amt, rgb, frame->height, frame->width));
    if (e->dino) {
        WEFT_TRY(weft_frame_encoder_run(e->dino, WEFT_FRAME_WHOLE, rgb, frame->width, frame->height,
                                        &unit, &width));
        WEFT_TRY(weft_consistency_add(&v->subject, unit, width));
    }
    if (e->clip) {
        WEFT_TRY(weft_frame_encoder_run(e->clip, WEFT_FRAME_CENTRE, rgb, frame->width,
                                        frame->height, &unit, &width));
        WEFT_TRY(weft_consistency_add(&v->background, unit, width));
    }
    if (v->prompt) { /* the preprocessing of CLIP, not of VBench */
        WEFT_TRY(weft_frame_encoder_run(e->clip, WEFT_FRAME_PROCESSED, rgb, frame->width,
                                        frame->height, &unit, &width));
        v->clip += 100 * weft_cosine(unit, v->prompt, width);
    }
    v->frames++;
    return WEFT_OK;
}

/* Copies the rows of a frame without the bytes between them. */
static weft_status pack_frame(const weft_video_frame *frame, uint8_t **rgb)
{
    const int64_t row = frame->width * 3;
    if (!*rgb)
        WEFT_TRY(WEFT_NEW(*rgb, frame->height * row, "a frame"));
    for (int64_t y = 0; y < frame->height; y++)
        memcpy(*rgb + y * row, frame->plane[0] + y * frame->stride[0], (size_t)row);
    return WEFT_OK;
}

static weft_status read_frames(video_eval *e, const char *path, weft_video_reader *reader,
                               video_figures *v)
{
    weft_video_frame frame;
    uint8_t *rgb = NULL;
    bool got = true;
    weft_status_code status = WEFT_OK;
    while (got) {
        WEFT_GO(weft_video_reader_next(reader, &frame, &got));
        if (!got)
            break;
        WEFT_GO(pack_frame(&frame, &rgb));
        WEFT_GO(add_frame(e, v, &frame, rgb));
    }
    if (!v->frames)
        status = weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = path), "it has no frames");
out:
    weft_free(rgb);
    return status;
}

/* Sets the vector of the video's prompt, if it has one. */
static weft_status encode_prompt(video_eval *e, const char *path, const char *prompt,
                                 video_figures *v)
{
    const float *vector;
    int64_t width, cut;
    if (!prompt || !*prompt) {
        e->without_prompt++;
        return WEFT_OK;
    }
    WEFT_TRY(weft_pooled_encoder_text(e->text, prompt, &vector, &width, &cut));
    if (cut)
        weft_warning(WEFT_MSG_PROMPT_TRUNCATED, WEFT_AT(.file = path, WEFT_NUMBER(cut)),
                     "the last %" PRId64 " tokens of its prompt do not fit CLIP's text encoder",
                     cut);
    WEFT_TRY(WEFT_NEW(v->prompt, width, "a prompt"));
    return weft_unit_vector(vector, width, v->prompt);
}

static double score_of(const video_figures *v, int which)
{
    switch (which) {
    case FLICKER: return weft_flicker_score(&v->flicker);
    case MOTION: return weft_smoothness_score(&v->motion);
    case BACKGROUND: return weft_consistency_score(&v->background);
    case SUBJECT: return weft_consistency_score(&v->subject);
    default: return v->prompt ? fmax(0, v->clip / (double)v->frames) : (double)NAN;
    }
}

static bool is_asked(const video_eval *e, int which)
{
    switch (which) {
    case FLICKER: return true;
    case MOTION: return e->amt != NULL;
    case SUBJECT: return e->dino != NULL;
    default: return e->clip != NULL;
    }
}

/* Adds the figures of a video to the sums and to the list. */
static void count_video(video_eval *e, const char *path, const char *prompt, const video_figures *v)
{
    json_t *one =
        json_pack("{s:s, s:I}", "file", weft_path_base(path), "frames", (json_int_t)v->frames);
    for (int k = 0; k < FIGURES; k++) {
        const double score = score_of(v, k);
        /* VBench weights consistencies by their pairs of frames */
        const double weight = k == BACKGROUND || k == SUBJECT ? (double)(v->frames - 1) : 1;
        if (!is_asked(e, k))
            continue;
        json_object_set_new(one, figure[k], weft_json_finite(score));
        e->sum[k] += isfinite(score) ? weight * score : 0;
        e->weight[k] += isfinite(score) ? weight : 0;
    }
    if (prompt)
        json_object_set_new(one, "prompt", json_string(prompt));
    json_array_append_new(e->each, one);
}

static weft_status evaluate_video(video_eval *e, int64_t index)
{
    const char *path = e->names.name[index];
    weft_video_reader *reader = NULL;
    video_figures v = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_video_reader_open(path, NULL, &reader));
    const char *prompt = e->line ? e->line[index] : weft_video_reader_tag(reader, "prompt");
    if (e->clip)
        WEFT_GO(encode_prompt(e, path, prompt, &v));
    WEFT_GO(read_frames(e, path, reader, &v));
    count_video(e, path, prompt, &v);
out:
    weft_video_reader_close(reader);
    weft_flicker_free(&v.flicker);
    weft_smoothness_free(&v.motion);
    weft_consistency_free(&v.background);
    weft_consistency_free(&v.subject);
    weft_free(v.prompt);
    return status;
}

/* ---- all videos ----------------------------------------------------------------------------- */

static bool is_video(const char *name)
{
    return name[0] != '.' && weft_source_kind_of(name) == WEFT_SOURCE_KIND_VIDEO;
}

/* Takes the videos and prompts of the options. */
static weft_status copy_paths(video_eval *e)
{
    WEFT_TRY(WEFT_NEW(e->names.name, e->o->count, "the videos"));
    WEFT_TRY(WEFT_NEW(e->line, e->o->count, "the prompts"));
    for (; e->names.count < e->o->count; e->names.count++) {
        const int64_t i = e->names.count;
        e->names.name[i] = weft_strdup(e->o->path[i]);
        WEFT_TRY(WEFT_ALLOCATED(e->names.name[i], "the videos"));
        e->line[i] = e->o->prompt[i];
    }
    return WEFT_OK;
}

/* Replaces the names in a folder by paths of its videos. */
static weft_status list_videos(video_eval *e)
{
    const char *folder = e->o->videos;
    weft_names all = {0};
    weft_status_code status = WEFT_OK;
    if (!weft_path_is_dir(folder)) {
        WEFT_GO(WEFT_NEW(e->names.name, 1, "the videos"));
        e->names.name[0] = weft_strdup(folder);
        e->names.count = 1;
        return WEFT_ALLOCATED(e->names.name[0], "the videos");
    }
    WEFT_GO(weft_list_dir(folder, false, &all));
    WEFT_GO(WEFT_NEW(e->names.name, all.count + 1, "the videos"));
    for (int64_t i = 0; i < all.count; i++) {
        if (!is_video(all.name[i]))
            continue;
        char *path = weft_path_join(folder, all.name[i]);
        WEFT_GO(WEFT_ALLOCATED(path, "the videos"));
        if (weft_path_is_dir(path))
            weft_free(path);
        else
            e->names.name[e->names.count++] = path;
    }
    if (!e->names.count)
        status =
            weft_error(WEFT_MSG_SAMPLES_NONE, WEFT_AT(.file = folder), "the folder has no videos");
out:
    weft_names_free(&all);
    return status;
}

/* Splits the file of prompts into lines, one per video. */
static weft_status read_prompts(video_eval *e)
{
    int64_t bytes, lines = 0;
    WEFT_TRY(weft_file_read(e->o->prompts, 1 << 26, &e->text_file, &bytes));
    WEFT_TRY(WEFT_NEW(e->line, e->names.count, "the prompts"));
    for (char *rest = e->text_file, *line; (line = strsep(&rest, "\n"));) {
        const size_t length = strlen(line);
        if (length && line[length - 1] == '\r')
            line[length - 1] = '\0';
        if (!*line && !rest)
            break; /* the end of the last line */
        if (lines < e->names.count)
            e->line[lines] = line;
        lines++;
    }
    return lines == e->names.count
               ? WEFT_OK
               : weft_error(WEFT_MSG_PROMPT_INVALID,
                            WEFT_AT(.file = e->o->prompts, WEFT_NUMBER(lines)),
                            "%" PRId64 " lines for %" PRId64 " videos of %s; write one line per "
                            "video in the order of names",
                            lines, e->names.count, e->o->videos);
}

static weft_status evaluate_all(video_eval *e)
{
    weft_progress progress;
    WEFT_TRY(e->o->path ? copy_paths(e) : list_videos(e));
    if (e->o->prompts && !e->o->path)
        WEFT_TRY(read_prompts(e));
    if (e->o->clip) {
        WEFT_TRY(weft_frame_encoder_open(e->o->clip, false, &e->clip));
        WEFT_TRY(weft_pooled_encoder_open(e->o->clip, WEFT_ROLE_TEXT_ENCODER, &e->text));
    }
    if (e->o->dino)
        WEFT_TRY(weft_frame_encoder_open(e->o->dino, true, &e->dino));
    if (e->o->amt)
        WEFT_TRY(weft_frame_interpolation_open(e->o->amt, &e->amt));
    weft_progress_begin(&progress, "eval videos", e->names.count, 0);
    for (int64_t i = 0; i < e->names.count; i++) {
        WEFT_TRY(evaluate_video(e, i));
        weft_progress_update(&progress, i + 1, weft_path_base(e->names.name[i]));
    }
    weft_progress_end(&progress, e->names.count, "");
    return WEFT_OK;
}

static json_t *means_of(const video_eval *e)
{
    json_t *r = json_pack("{s:I}", "videos", (json_int_t)e->names.count);
    for (int k = 0; k < FIGURES; k++)
        if (is_asked(e, k))
            json_object_set_new(
                r, figure[k],
                weft_json_finite(e->weight[k] > 0 ? e->sum[k] / e->weight[k] : (double)NAN));
    if (e->clip)
        json_object_set_new(r, "without_prompt", json_integer(e->without_prompt));
    json_object_set(r, "each", e->each);
    return r;
}

/* ---- features of files ---------------------------------------------------------------------- */

/* Features of videos, [count][width]; owned. */
typedef struct feature_rows {
    float *at;
    int64_t count, width;
} feature_rows;

static weft_status check_rows(const char *path, int rank, const int64_t *dim, feature_rows *rows)
{
    if (rank != 2 || dim[0] < 1 || dim[1] < 1)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = path, WEFT_NUMBER(rank)),
                          "the features have %d dimensions; a matrix [videos, features] is needed",
                          rank);
    rows->count = dim[0];
    rows->width = dim[1];
    return WEFT_NEW(rows->at, dim[0] * dim[1], "the features of %s", path);
}

static weft_status read_npy(const char *path, feature_rows *rows)
{
    char *data;
    int64_t bytes;
    weft_npy npy;
    WEFT_TRY(weft_file_read(path, INT64_MAX, &data, &bytes));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_npy_parse(data, bytes, path, &npy));
    WEFT_GO(check_rows(path, npy.rank, npy.dim, rows));
    weft_stored_tensor stored = {.name = path,
                                 .dtype = npy.dtype,
                                 .rank = npy.rank,
                                 .count = npy.count,
                                 .data = npy.data,
                                 .file = path};
    memcpy(stored.dim, npy.dim, 2 * sizeof *stored.dim);
    weft_tensor_to_f32(&stored, rows->at);
out:
    weft_free(data);
    return status;
}

/* Reads the only tensor of the file. */
static weft_status read_tensor(const char *path, feature_rows *rows)
{
    weft_tensors *file;
    WEFT_TRY(weft_tensors_open(path, &file));
    weft_status_code status = WEFT_OK;
    if (weft_tensors_count(file) != 1)
        WEFT_GO(weft_error(WEFT_MSG_TENSOR_NAMES,
                           WEFT_AT(.file = path, WEFT_NUMBER(weft_tensors_count(file))),
                           "the file has %" PRId64 " tensors; one matrix of features is needed",
                           weft_tensors_count(file)));
    const weft_stored_tensor *t = weft_tensors_at(file, 0);
    WEFT_GO(check_rows(path, t->rank, t->dim, rows));
    weft_tensor_to_f32(t, rows->at);
out:
    weft_tensors_close(file);
    return status;
}

static weft_status read_rows(const char *path, feature_rows *rows)
{
    return strcmp(weft_path_extension(path), "npy") ? read_tensor(path, rows)
                                                    : read_npy(path, rows);
}

static weft_status compare_features(const weft_video_eval_options *o, json_t *result)
{
    feature_rows a = {0}, b = {0};
    double distance;
    weft_status_code status = WEFT_OK;
    WEFT_GO(read_rows(o->features, &a));
    WEFT_GO(read_rows(o->reference_features, &b));
    if (a.width != b.width)
        WEFT_GO(weft_error(WEFT_MSG_TENSOR_SHAPE,
                           WEFT_AT(.file = o->reference_features, WEFT_NUMBER(b.width)),
                           "%" PRId64 " features here, and %" PRId64 " in %s; both need the same "
                           "network",
                           b.width, a.width, o->features));
    WEFT_GO(weft_frechet_distance(a.at, a.count, b.at, b.count, a.width, &distance));
    json_object_set_new(result, "frechet_distance", json_real(distance));
out:
    weft_free(a.at);
    weft_free(b.at);
    return status;
}

weft_status weft_evaluate_videos(const weft_video_eval_options *o, json_t **result)
{
    video_eval e = {.o = o, .each = json_array()};
    json_t *r = NULL;
    weft_status_code status = WEFT_OK;
    if (o->videos || o->path)
        WEFT_GO(evaluate_all(&e));
    r = o->videos || o->path ? means_of(&e) : json_object();
    if (o->features)
        WEFT_GO(compare_features(o, r));
    *result = json_incref(r);
out:
    json_decref(r);
    json_decref(e.each);
    weft_frame_encoder_close(e.clip);
    weft_frame_encoder_close(e.dino);
    weft_frame_interpolation_close(e.amt);
    weft_pooled_encoder_close(e.text);
    weft_names_free(&e.names);
    weft_free(e.line);
    weft_free(e.text_file);
    return status;
}
