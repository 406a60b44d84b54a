#include "generate/jobs/generation_run.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "estimate/generation/generation_layouts.h"
#include "format/tensors/npy.h"
#include "generate/generator/decode.h"
#include "generate/generator/generator_denoise.h"
#include "generate/generator/generator_read.h"
#include "generate/generator/generator_save.h"
#include "generate/jobs/video_continuation.h"
#include "generate/jobs/video_outputs.h"
#include "video/clip.h"
#include "video/image.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct making {
    const weft_generation_run *o;
    weft_video_outputs_item *items; /* [jobs] */
    bool *done;                     /* [jobs] the video exists */
    weft_job_batches batches;
    weft_comm *comm; /* communicator of this team; NULL: each rank works alone */
    int team;
    bool writes;   /* first rank of its team */
    bool is_rank0; /* rank 0 of the job */
    bool foretold; /* the first video's time was predicted */
    bool met;      /* the outputs are open on all ranks */
    weft_video_outputs *outputs;
    weft_generator *generator;
    char model[17]; /* identity of the model; "": not computed */
    weft_progress progress;
    int64_t steps_before; /* steps of this team's finished batches */
    int64_t videos, made; /* videos of this team to generate, and those written so far */
    double longest;       /* maximum decoding seconds of a video so far; 0: none */
    double each;          /* seconds per denoising step of the current batch; 0: unknown */
    /* current batch */
    const weft_job_batch *batch;
    int64_t begun_at;               /* step that it resumes from */
    bool unseen;                    /* warned about a failed preview */
    double began, decoded;          /* time of its begin; end of the last decoding */
    double stepping;                /* time when the denoising steps began */
    double predicted;               /* seconds of texts and steps; 0: unknown */
    double denoising, decoding;     /* measured seconds, except the current window */
    double saved_at, keeping;       /* time of the last save, and its seconds */
    double first_step;              /* seconds of the first step */
    int64_t tokens;                 /* tokens of a video or a window */
    weft_continuation continuation; /* windows of a continued video */
} making;

static int64_t job_of(const making *m, int64_t prompt)
{
    return m->batches.order[m->batch->first + prompt];
}

static weft_status sibling_path(const making *m, int64_t job, const char *ending, weft_buf *path)
{
    return weft_video_outputs_sibling(m->o->out, &m->items[job], job, ending, path);
}

/* Path of a file to be written next to a video; creates its folder. */
static weft_status new_sibling(const making *m, int64_t job, const char *ending, weft_buf *path)
{
    WEFT_TRY(sibling_path(m, job, ending, path));
    return weft_make_parent(path->data);
}

static const char *const state_ending = "sampling.safetensors";
/* earlier name, also read and removed */
static const char *const earlier_walk_ending = "walk.safetensors";
static const char *const latents_ending = "latents.safetensors";

static void remove_sibling(const making *m, int64_t job, const char *ending)
{
    weft_buf path = {0};
    if (sibling_path(m, job, ending, &path) == WEFT_OK)
        (void)unlink(path.data);
    weft_buf_free(&path);
}

static void remove_walk_named(const making *m, int64_t job, const char *ending)
{
    weft_buf path = {0};
    if (sibling_path(m, job, ending, &path) == WEFT_OK && weft_path_exists(path.data))
        weft_generator_remove_saved(path.data);
    weft_buf_free(&path);
}

static void remove_state(const making *m, int64_t job)
{
    remove_walk_named(m, job, state_ending);
    remove_walk_named(m, job, earlier_walk_ending);
}

static weft_status sibling_exists(const making *m, int64_t job, const char *ending, bool *is)
{
    weft_buf path = {0};
    const weft_status_code status = sibling_path(m, job, ending, &path);
    *is = status == WEFT_OK && weft_path_exists(path.data);
    weft_buf_free(&path);
    return status;
}

/* Finds the saved sampler state of a job; the earlier name if only that file exists. */
static weft_status find_walk(const making *m, int64_t job, const char **ending, bool *is)
{
    *ending = state_ending;
    WEFT_TRY(sibling_exists(m, job, state_ending, is));
    if (*is)
        return WEFT_OK;
    WEFT_TRY(sibling_exists(m, job, earlier_walk_ending, is));
    *ending = *is ? earlier_walk_ending : state_ending;
    return WEFT_OK;
}

/* Ending of the saved latents of one window, kept until the video is finished. */
static const char *window_ending(int64_t window, char ending[64])
{
    snprintf(ending, 64, "window%04" PRId64 ".latents.safetensors", window);
    return ending;
}

/* Removes the last window first: if the run is killed, the remaining windows have all earlier
 * ones. */
static void remove_windows(const making *m, int64_t job)
{
    char ending[64];
    bool there = true;
    int64_t count = 0;
    while (sibling_exists(m, job, window_ending(count, ending), &there) == WEFT_OK && there)
        count++;
    while (count-- > 0)
        remove_sibling(m, job, window_ending(count, ending));
}

/* Removes the saved latents of a video. */
static void remove_latents(const making *m, int64_t job)
{
    remove_sibling(m, job, latents_ending);
    remove_windows(m, job);
}

static bool in_windows(const making *m)
{
    return m->continuation.count > 1;
}

/* Sets *is if the file exists and its checksum is correct. A file damaged by a full or failed disk
 * counts as missing, and its content is generated again. The result is the same on all ranks. */
static weft_status verify_sibling(const making *m, int64_t job, const char *ending, bool *is)
{
    weft_buf path = {0};
    weft_status_code status = sibling_path(m, job, ending, &path);
    *is = status == WEFT_OK && weft_path_exists(path.data);
    const bool there = *is;
    if (there)
        status = weft_saved_latents_verify(path.data, is);
    if (status == WEFT_OK && there && !*is && m->writes)
        weft_warn_error(WEFT_MSG_LATENTS_REBUILT, "its content is generated again");
    weft_buf_free(&path);
    return status;
}

static bool is_left(const making *m, const weft_job_batch *b)
{
    for (int64_t i = 0; i < b->count && b->team == m->team; i++)
        if (!m->done[m->batches.order[b->first + i]])
            return true;
    return false;
}

static bool is_alone(const making *m)
{
    return !m->comm || weft_comm_ranks(m->comm) == 1;
}

/* ---- denoising ------------------------------------------------------------------------------ */

/* Saves the sampler state after a step, unless saving would take more than a fiftieth of the time
 * since the last save. `must`: always saves. */
static weft_status save_state(making *m, bool must)
{
    weft_buf path = {0};
    const double now = weft_now();
    const bool together = m->comm && weft_generator_keeps_caches(m->generator);
    bool save = must || now - m->saved_at >= 50 * m->keeping;
    if (together) /* each rank saves its caches after the same step */
        WEFT_TRY(weft_comm_broadcast(m->comm, &save, sizeof save, 0));
    if (!save || (!m->writes && !together))
        return WEFT_OK;
    WEFT_TRY(sibling_path(m, job_of(m, 0), state_ending, &path));
    const weft_status_code status = weft_generator_save(m->generator, path.data);
    weft_buf_free(&path);
    if (status == WEFT_OK && m->writes)
        remove_walk_named(m, job_of(m, 0), earlier_walk_ending);
    m->saved_at = weft_now();
    m->keeping = m->saved_at - now;
    if (status == WEFT_OK || must)
        return status;
    weft_warn_error(WEFT_MSG_SAVE_FAILED, "the denoising continues without being saved");
    m->keeping = 60; /* retry later: the disk may be full */
    return WEFT_OK;
}

static weft_status check_interrupt(const making *m)
{
    return m->comm ? weft_comm_interrupt_check(m->comm) : weft_interrupt_check();
}

/* Updates the progress. `steps`: finished denoising steps of all batches. `decoding`: predicted
 * decoding seconds of the next video (0: unknown). Each written video counts as a step, so that 100
 * % is the end. Loading and text encoding are not predicted. */
static void update_progress(making *m, int64_t steps, const char *detail, double decoding)
{
    const int64_t to_step = m->progress.total - m->videos - steps, to_decode = m->videos - m->made;
    double left = m->each * (double)to_step + decoding;
    if (to_decode > 1)
        left += m->longest * (double)(to_decode - 1);
    weft_progress_update_left(&m->progress, steps + m->made, detail, left > 0 ? left : -1);
}

static weft_status_code on_step(void *user, int64_t first_prompt, int64_t done, int64_t steps)
{
    making *m = user;
    char detail[128], each[32];
    (void)first_prompt;
    weft_status_code stop = check_interrupt(m);
    if (done < steps || stop != WEFT_OK)
        WEFT_TRY(save_state(m, stop == WEFT_E_CANCELLED));
    if (stop == WEFT_E_CANCELLED && m->writes)
        weft_notice(WEFT_MSG_RUN_FINISHED, WEFT_AT(WEFT_NUMBER(done)),
                    "stopped after step %" PRId64 " of %" PRId64 " of prompt %" PRId64
                    ". The state is saved; the same "
                    "command with --resume continues with bitwise identical results.",
                    done, steps, job_of(m, 0) + 1);
    WEFT_TRY(stop);
    const double taken = (weft_now() - m->stepping) / (double)(done - m->begun_at);
    if (!m->is_rank0)
        return WEFT_OK;
    if (done - m->begun_at == 1)
        m->first_step = taken;
    if (!m->foretold && done - m->begun_at == 2) { /* the first step includes one-time work */
        m->foretold = true;
        weft_notice(WEFT_MSG_ESTIMATE, WEFT_NOWHERE,
                    "predicted from the first two steps: %s for the denoising of %" PRId64 " steps",
                    weft_format_seconds(m->first_step + (2 * taken - m->first_step) *
                                                            (double)(steps - m->begun_at - 1),
                                        each),
                    steps - m->begun_at);
    }
    snprintf(detail, sizeof detail,
             "prompt %" PRId64 ", denoising step %" PRId64 "/%" PRId64 ", %s each, %.4g tokens/s",
             job_of(m, 0) + 1, done, steps, weft_format_seconds(taken, each),
             (double)(m->tokens * m->batch->count) / taken);
    m->each = taken;
    update_progress(m, m->steps_before + done, detail, m->longest);
    return WEFT_OK;
}

static void on_begin(void *user, int64_t first_prompt)
{
    making *m = user;
    (void)first_prompt;
    m->stepping = weft_now();
}

/* Writes latents for other programs: f32 (frames, rows, columns, channels), .npy. */
static weft_status write_array(const making *m, int64_t job, const int64_t dim[4], const float *x)
{
    weft_buf data = {0}, path = {0};
    weft_npy_format(WEFT_F32, 4, dim, x, &data);
    weft_status_code status = weft_buf_check(&data);
    if (status == WEFT_OK)
        status = new_sibling(m, job, "latents.npy", &path);
    if (status == WEFT_OK)
        status = weft_file_write_atomic(path.data, data.data, data.len);
    weft_buf_free(&data);
    weft_buf_free(&path);
    return status;
}

static weft_status save_latents(const making *m, int64_t prompt, bool tries)
{
    weft_buf path = {0};
    weft_status_code status = new_sibling(m, job_of(m, prompt), latents_ending, &path);
    if (status == WEFT_OK)
        status = weft_generator_save_latents(m->generator, prompt, tries, path.data);
    weft_buf_free(&path);
    return status;
}

/* Saves the latents of the current window, from which a resumed run decodes. */
static weft_status save_window(making *m)
{
    char ending[64];
    weft_buf path = {0};
    if (m->begun_at == weft_generator_steps(m->generator))
        return WEFT_OK; /* it was resumed from this file */
    weft_status_code status =
        sibling_path(m, job_of(m, 0), window_ending(m->continuation.at, ending), &path);
    if (status == WEFT_OK)
        status = weft_generator_save(m->generator, path.data);
    weft_buf_free(&path);
    return status;
}

/* Updates the progress after `frames` written frames of the video. */
static void update_decoding(making *m, int64_t job, int64_t frames)
{
    char detail[96];
    const int64_t all = m->continuation.frames, steps = weft_generator_steps(m->generator);
    const double taken = weft_now() - m->decoded;
    const double left = frames ? taken * (double)(all - frames) / (double)frames
                               : (m->longest > taken ? m->longest - taken : 0);
    snprintf(detail, sizeof detail, "prompt %" PRId64 ", decoding frame %" PRId64 "/%" PRId64,
             job + 1, frames, all);
    if (!frames)
        weft_progress_turn(&m->progress);
    update_progress(m, m->steps_before + steps, detail, left);
}

static weft_status_code on_latents(void *user, int64_t prompt, const int64_t dim[4], const float *x)
{
    making *m = user;
    m->denoising += prompt ? 0 : weft_now() - m->began;
    if (m->is_rank0 && !prompt && m->predicted > 0 && m->begun_at == 0) {
        const double took = weft_now() - m->began;
        char text[32];
        weft_notice(WEFT_MSG_ESTIMATE, WEFT_AT(WEFT_NUMBER(took)),
                    "denoised in %s, %+.0f %% of the prediction", weft_format_seconds(took, text),
                    100 * (took / m->predicted - 1));
    }
    if (m->o->latents)
        WEFT_TRY(write_array(m, job_of(m, prompt), dim, x));
    WEFT_TRY(in_windows(m) ? save_window(m) : save_latents(m, prompt, true));
    if (prompt == m->batch->count - 1)
        remove_state(m, job_of(m, 0));
    m->decoded = weft_now();
    if (m->is_rank0 && prompt == m->batch->count - 1)
        update_decoding(m, job_of(m, 0), 0);
    return WEFT_OK;
}

/* Writes the preview next to the video, in place of the previous one. A failed write is reported
 * once and does not stop denoising. */
static weft_status_code on_preview(void *user, int64_t prompt, const float *image)
{
    making *m = user;
    const int64_t job = job_of(m, prompt), height = m->items[job].height,
                  width = m->items[job].width;
    weft_buf path = {0};
    uint8_t *rgb = weft_alloc(height * width * 3);
    weft_status_code status;
    WEFT_GO(rgb ? new_sibling(m, job, "preview.png", &path) : weft_no_memory("a preview image"));
    weft_clip_to_u8(image, 1, height, width, false, rgb);
    WEFT_GO(weft_png_write(path.data, rgb, width, height));
out:
    weft_buf_free(&path);
    weft_free(rgb);
    if (status == WEFT_OK || status == WEFT_E_MEMORY)
        return status;
    if (!m->unseen)
        weft_warn_error(WEFT_MSG_PREVIEW_FAILED,
                        "denoising continues without the images of --preview-interval");
    m->unseen = true;
    return WEFT_OK;
}

/* ---- decoding ------------------------------------------------------------------------------- */

static void record_facts(const making *m)
{
    json_t *facts =
        json_pack("{s:{s:f, s:f}, s:I, s:i, s:i}", "seconds", "denoise", m->denoising, "decode",
                  m->decoding + weft_now() - m->decoded, "batch", (json_int_t)m->batch->count,
                  "team", m->team, "ranks", m->comm ? weft_comm_ranks(m->comm) : 1);
    if (facts && in_windows(m))
        json_object_set_new(facts, "windows", json_integer(m->continuation.count));
    if (facts && m->begun_at)
        json_object_set_new(facts, "from_step", json_integer(m->begun_at));
    weft_video_outputs_facts(m->outputs, facts);
}

static weft_status_code on_frames(void *user, int64_t prompt, int64_t first, int64_t count,
                                  const float *frames)
{
    making *m = user;
    const int64_t job = job_of(m, prompt);
    int64_t from, fresh;
    if (is_alone(m) && weft_interrupted()) {
        if (!in_windows(m))
            WEFT_TRY(save_latents(m, prompt, false)); /* the decoder did not fail */
        weft_notice(WEFT_MSG_RUN_FINISHED, WEFT_NOWHERE,
                    "stopped while prompt %lld was decoded. Its latents are saved; the same "
                    "command with --resume continues.",
                    (long long)job + 1);
        return weft_interrupt_check();
    }
    weft_continuation_push(&m->continuation, first, count, frames, &from, &fresh);
    const bool last = m->continuation.written == m->continuation.frames;
    if (!fresh)
        return WEFT_OK;
    if (last)
        record_facts(m);
    WEFT_TRY(weft_video_outputs_frames(m->outputs, job, m->continuation.written - fresh, fresh,
                                       frames + from * m->continuation.frame));
    m->made += last;
    if (m->is_rank0 && !last)
        update_decoding(m, job, m->continuation.written);
    if (!last)
        return WEFT_OK;
    m->longest = fmax(m->longest, weft_now() - m->decoded);
    m->decoded = weft_now();
    if (in_windows(m)) {
        if (!m->o->keep_latents)
            remove_windows(m, job);
        return WEFT_OK;
    }
    if (m->o->keep_latents)
        return save_latents(m, prompt, false); /* decoding is finished */
    remove_sibling(m, job, latents_ending);
    return WEFT_OK;
}

/* Decoding of saved latents. */
typedef struct redecoding {
    making *making;
    int64_t item;
} redecoding;

static weft_status_code on_saved_frames(void *user, int64_t first, int64_t count,
                                        const float *frames)
{
    const redecoding *r = user;
    return weft_video_outputs_frames(r->making->outputs, r->item, first, count, frames);
}

static weft_status check_latents(making *m, int64_t job, const char *path,
                                 const weft_saved_latents *k)
{
    const weft_video_outputs_item *item = &m->items[job];
    char vae[17];
    if (!m->model[0])
        WEFT_TRY(weft_model_identity(m->o->model, m->model, vae));
    json_t *is = json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "model", m->model, "frames",
                           (json_int_t)item->frames, "height", (json_int_t)item->height, "width",
                           (json_int_t)item->width, "steps", (json_int_t)item->steps, "guidance",
                           item->guidance),
           *was = is ? json_object() : NULL, *value;
    const char *key;
    json_object_foreach(is, key, value) if (json_object_get(k->settings, key))
        json_object_set(was, key, json_object_get(k->settings, key));
    json_t *prompt =
        json_pack("{s:s, s:s, s:I}", "prompt", item->prompt, "negative",
                  item->negative ? item->negative : "", "seed", (json_int_t)item->seed);
    weft_status_code status = WEFT_ALLOCATED(was && is && prompt, "the generation");
    if (status == WEFT_OK)
        status = weft_saved_latents_compare(path, was, is, NULL);
    if (status == WEFT_OK)
        status = weft_saved_latents_compare(path, json_array_get(k->prompts, 0), prompt, NULL);
    json_decref(was);
    json_decref(is);
    json_decref(prompt);
    return status;
}

static weft_status redecode(making *m, int64_t job, const char *path)
{
    const weft_generator_options *g = m->o->options;
    const weft_decode_options o = {m->o->model, g->tile, g->memory, m->comm};
    weft_decoded_size size;
    weft_saved_latents saved;
    redecoding r = {m, job};
    weft_status_code status =
        weft_saved_latents_damaged(weft_decode_open(path, m->o->model, &saved, &size));
    WEFT_TRY(status);
    status = check_latents(m, job, path, &saved);
    if (status == WEFT_OK && m->writes) {
        weft_notice(WEFT_MSG_RUN_RESUMED, WEFT_AT(.file = path), "decoding these latents");
        weft_video_outputs_facts(m->outputs,
                                 json_pack("{s:I}", "from_step", (json_int_t)saved.steps));
        m->items[job].sampler = json_string_value(json_object_get(saved.settings, "sampler"));
        m->items[job].fps = saved.fps;
    }
    if (status == WEFT_OK && m->writes && !m->items[job].sampler)
        status = weft_error(WEFT_MSG_LATENTS_INVALID, WEFT_AT(.file = path, .key = "sampler"),
                            "the settings of the latents name no sampler");
    if (status == WEFT_OK)
        status = weft_decode_run(&o, path, &saved, 0, on_saved_frames, &r);
    m->items[job].sampler = NULL;
    weft_saved_latents_close(&saved);
    if (status == WEFT_OK && m->writes && !m->o->keep_latents)
        remove_sibling(m, job, latents_ending);
    m->done[job] = true;
    return status;
}

/* Decodes saved latents first, before the transformer is loaded. */
static weft_status decode_saved(making *m)
{
    for (int64_t b = 0; b < m->batches.count; b++)
        for (int64_t i = 0; i < m->batches.at[b].count; i++) {
            const int64_t job = m->batches.order[m->batches.at[b].first + i];
            weft_buf path = {0};
            bool whole;
            if (m->done[job] || m->batches.at[b].team != m->team)
                continue;
            weft_status_code status = verify_sibling(m, job, latents_ending, &whole);
            if (status == WEFT_OK && whole)
                status = sibling_path(m, job, latents_ending, &path);
            if (status == WEFT_OK && whole)
                status = redecode(m, job, path.data);
            weft_buf_free(&path);
            WEFT_TRY(status);
            WEFT_TRY(check_interrupt(m));
        }
    return WEFT_OK;
}

/* Removes saved files of finished videos, left by a run killed after writing a video. A sampler
 * state belongs to a batch and stays until all its videos exist. */
static void remove_finished(const making *m)
{
    for (int64_t b = 0; b < m->batches.count; b++) {
        const weft_job_batch *batch = &m->batches.at[b];
        if (!m->writes || batch->team != m->team)
            continue;
        for (int64_t i = 0; i < batch->count && !m->o->keep_latents; i++)
            if (m->done[m->batches.order[batch->first + i]])
                remove_latents(m, m->batches.order[batch->first + i]);
        if (!is_left(m, batch))
            remove_state(m, m->batches.order[batch->first]);
    }
}

/* ---- batches -------------------------------------------------------------------------------- */

/* Maps the initial latents: of one job (frames, rows, columns, channels), or of all jobs with their
 * number as the first dim. Job i uses entry i. */
static weft_status read_noise(const making *m, const char *path, weft_map *map, const float **noise)
{
    weft_npy npy;
    int64_t dim[4], each = 1;
    weft_generator_latents(m->generator, dim);
    for (int i = 0; i < 4; i++)
        each *= dim[i];
    WEFT_TRY(weft_map_open(path, map));
    weft_status_code status = weft_npy_parse(map->data, map->bytes, path, &npy);
    if (status == WEFT_OK && (npy.dtype != WEFT_F32 || npy.count != m->o->jobs->count * each))
        status = weft_error(WEFT_MSG_LATENTS_INVALID, WEFT_AT(.file = path, WEFT_NUMBER(npy.count)),
                            "the file has %" PRId64 " numbers of type %s; f32 of %" PRId64
                            " x %" PRId64 " frames x "
                            "%" PRId64 " x %" PRId64 " x %" PRId64 " channels are needed",
                            npy.count, weft_dtype_name(npy.dtype), m->o->jobs->count, dim[0],
                            dim[1], dim[2], dim[3]);
    *noise = status == WEFT_OK ? (const float *)npy.data : NULL;
    return status;
}

typedef struct batch_lists {
    const char **prompt, **negative;
    uint64_t *seed;
    float *noise;
} batch_lists;

static weft_status list_batch(const making *m, const float *noise, batch_lists *l)
{
    const int64_t n = m->batch->count;
    int64_t dim[4], each = 1;
    weft_generator_latents(m->generator, dim);
    for (int i = 0; i < 4; i++)
        each *= dim[i];
    *l = (batch_lists){weft_calloc(n, sizeof *l->prompt), weft_calloc(n, sizeof *l->negative),
                       weft_calloc(n, sizeof *l->seed),
                       noise ? weft_calloc(n * each, sizeof *noise) : NULL};
    if (!l->prompt || !l->negative || !l->seed || (noise && !l->noise))
        return weft_no_memory("%" PRId64 " prompts", n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t job = job_of(m, i);
        l->prompt[i] = m->items[job].prompt;
        l->negative[i] = m->items[job].negative;
        l->seed[i] = m->items[job].seed;
        if (noise)
            memcpy(l->noise + i * each, noise + job * each, (size_t)each * sizeof *noise);
    }
    return WEFT_OK;
}

static void free_lists(batch_lists *l)
{
    weft_free(l->prompt);
    weft_free(l->negative);
    weft_free(l->seed);
    weft_free(l->noise);
}

/* Resumes from the saved latents of this window, else from the saved sampler state. If the latents
 * of this window are damaged, its sampling has finished. A saved sampler state is then another
 * window's and is not used. */
static weft_status go_on(making *m, const batch_lists *l, const uint64_t *seeds)
{
    char own[64];
    const char *ending = window_ending(m->continuation.at, own);
    weft_buf path = {0};
    bool there = false, whole = false;
    if (in_windows(m)) {
        WEFT_TRY(sibling_exists(m, job_of(m, 0), ending, &there));
        if (there)
            WEFT_TRY(verify_sibling(m, job_of(m, 0), ending, &whole));
    }
    if (!there) {
        WEFT_TRY(find_walk(m, job_of(m, 0), &ending, &whole));
        WEFT_TRY(verify_sibling(m, job_of(m, 0), ending, &whole));
    }
    if (!whole)
        return WEFT_OK;
    weft_status_code status = sibling_path(m, job_of(m, 0), ending, &path);
    if (status == WEFT_OK)
        status = weft_generator_resume(m->generator, path.data, l->prompt, seeds, m->batch->count,
                                       &m->begun_at);
    if (status == WEFT_OK && m->is_rank0)
        weft_notice(WEFT_MSG_RUN_RESUMED, WEFT_AT(.file = path.data, WEFT_NUMBER(m->begun_at)),
                    "resuming after step %" PRId64, m->begun_at);
    weft_buf_free(&path);
    return status;
}

/* Generates the windows of a video in sequence; a video without continuation has one. */
static weft_status make_windows(making *m, const batch_lists *l, const weft_generator_sink *sink)
{
    weft_continuation *c = &m->continuation;
    for (c->at = 0; c->at < c->count; c->at++) {
        const uint64_t own = weft_continuation_seed(c, l->seed[0]), *seeds = c->at ? &own : l->seed;
        m->begun_at = 0;
        m->keeping = 0;
        m->began = m->saved_at = weft_now();
        if (c->shared)
            WEFT_TRY(weft_generator_set_prefix_frames(m->generator, c->at, c->at ? c->tail : NULL));
        if (m->o->resume)
            WEFT_TRY(go_on(m, l, seeds));
        if (in_windows(m) && m->is_rank0)
            weft_notice(WEFT_MSG_JOB_REPORT, WEFT_AT(WEFT_NUMBER(c->at + 1)),
                        "window %" PRId64 " of %" PRId64, c->at + 1, c->count);
        WEFT_TRY(weft_generator_run(m->generator, l->prompt, seeds, m->batch->count, sink));
        m->decoding += weft_now() - m->decoded;
        m->steps_before += weft_generator_steps(m->generator);
        if (c->shared && m->comm)
            WEFT_TRY(weft_comm_broadcast(m->comm, c->tail,
                                         c->shared * c->frame * (int64_t)sizeof *c->tail, 0));
    }
    return WEFT_OK;
}

static weft_status make_batch(making *m, const weft_job_batch *batch, const float *noise)
{
    const weft_generator_sink sink = {.begin = on_begin,
                                      .step = on_step,
                                      .preview = on_preview,
                                      .latents = on_latents,
                                      .frames = on_frames,
                                      .user = m};
    batch_lists l;
    m->batch = batch;
    m->each = 0;
    m->denoising = m->decoding = 0;
    weft_status_code status = list_batch(m, noise, &l);
    if (status == WEFT_OK) {
        weft_generator_set_negative_prompts(m->generator, l.negative);
        weft_generator_set_initial_latents(m->generator, l.noise, l.noise ? batch->count : 0);
        status = make_windows(m, &l, &sink);
    }
    weft_generator_set_negative_prompts(m->generator, NULL);
    weft_generator_set_initial_latents(m->generator, NULL, 0);
    free_lists(&l);
    return status;
}

/* Checks all sizes of the list before the first video. */
static weft_status check_sizes(const making *m)
{
    for (int64_t i = 0; i < m->o->jobs->count; i++) {
        const weft_job *j = &m->o->jobs->at[i];
        const int64_t size[3] = {j->frames, j->height, j->width};
        const weft_status_code status =
            j->own ? weft_generator_check_size(m->generator, size) : WEFT_OK;
        if (status != WEFT_OK)
            return weft_error_at(status, WEFT_AT(.file = j->from, .line = j->number));
    }
    return WEFT_OK;
}

/* Predicts the seconds from measured kernel rates, before anything runs. */
static weft_status foretell(making *m)
{
    const weft_generator_options *s = weft_generator_settings(m->generator);
    weft_generation_estimate estimate;
    char text[3][32];
    m->predicted = 0;
    if (!m->o->cluster)
        return WEFT_OK;
    const weft_generation_estimator estimator = {.folder = m->o->model,
                                                 .options = s,
                                                 .cluster = m->o->cluster,
                                                 .ranks = m->comm ? weft_comm_ranks(m->comm) : 1};
    WEFT_TRY(weft_generation_estimate_open(&estimator, m->generator, &estimate));
    const double steps = (double)weft_generator_steps(m->generator);
    m->predicted = estimate.text + estimate.first + steps * estimate.step;
    if (m->is_rank0)
        weft_notice(
            WEFT_MSG_ESTIMATE, WEFT_AT(WEFT_NUMBER(m->predicted)),
            "predicted: %s a step, %s for the denoising of %" PRId64 ", %s for the decoding of a "
            "video (%.0f %% of it by kernels that were measured at their shapes)",
            weft_format_seconds(estimate.step, text[0]), weft_format_seconds(m->predicted, text[1]),
            s->batch, weft_format_seconds(estimate.decode, text[2]), 100 * estimate.exact);
    return WEFT_OK;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static weft_video_outputs_options outputs_options(const making *m)
{
    return (weft_video_outputs_options){.out = m->o->out,
                                        .sheet = m->o->sheet,
                                        .raw = m->o->raw,
                                        .items = m->items,
                                        .count = m->o->jobs->count,
                                        .goes_on = m->o->resume};
}

/* Checks the outputs; repeated when the model's frame rate is known. */
static weft_status check_outputs(const making *m)
{
    const weft_video_outputs_options g = outputs_options(m);
    return weft_video_outputs_check(&g);
}

static weft_status open_generator(making *m, const weft_job *job, int64_t batch)
{
    weft_generator_options o = *m->o->options;
    char bytes[32], tiles[64];
    o.frames = job->frames;
    o.height = job->height;
    o.width = job->width;
    o.steps = job->steps;
    o.guidance = job->guidance;
    o.batch = batch;
    const weft_status_code status = weft_generator_open(m->o->model, &o, m->comm, &m->generator);
    if (status != WEFT_OK)
        return job->own ? weft_error_at(status, WEFT_AT(.file = job->from, .line = job->number))
                        : status;
    if (!m->met)
        WEFT_TRY(check_sizes(m));
    const weft_generator_options *s = weft_generator_settings(m->generator);
    int64_t videos = 0;
    const int texts = weft_generator_text_rank(m->generator);
    for (int64_t i = 0; i < m->o->jobs->count; i++)
        videos += !m->done[i] && weft_jobs_alike(job, &m->o->jobs->at[i]);
    if (m->is_rank0)
        weft_notice(WEFT_MSG_JOB_REPORT,
                    WEFT_AT(WEFT_NUMBER(weft_generator_bytes_of(m->generator, texts <= 0))),
                    "%" PRId64 " x %" PRId64 "x%" PRId64 ", %" PRId64 " frame%s, %" PRId64
                    " step%s of %s, guidance %g; predicted "
                    "peak %s per rank in addition to the program",
                    videos, s->width, s->height, job->frames, plural(job->frames),
                    weft_generator_steps(m->generator), plural(weft_generator_steps(m->generator)),
                    s->sampler->name, s->guidance,
                    weft_format_bytes(weft_generator_bytes_of(m->generator, texts <= 0), bytes));
    if (m->is_rank0 && texts > 0)
        weft_notice(WEFT_MSG_JOB_REPORT, WEFT_AT(WEFT_RANK(texts)),
                    "rank %d, which has the text encoders: predicted peak %s", texts,
                    weft_format_bytes(weft_generator_bytes_of(m->generator, true), bytes));
    const int64_t shared = s->visual.prefix_frames;
    weft_continuation_close(&m->continuation);
    WEFT_TRY(weft_continuation_open(job->frames, s->frames, shared, s->height * s->width,
                                    &m->continuation));
    if (m->is_rank0 && in_windows(m))
        weft_notice(WEFT_MSG_JOB_REPORT, WEFT_AT(WEFT_NUMBER(m->continuation.count)),
                    "%" PRId64 " windows of %" PRId64 " frames; each shares %" PRId64
                    " with the previous window",
                    m->continuation.count, s->frames, shared);
    if (m->is_rank0 && weft_generator_tiles(m->generator, tiles)[0])
        weft_notice(WEFT_MSG_JOB_REPORT, WEFT_NOWHERE,
                    "each frame is decoded in %s, blended where they overlap", tiles);
    weft_buf layout = {0};
    const weft_status_code layout_status = weft_generator_format_layout(m->generator, &layout);
    if (layout_status == WEFT_OK && m->is_rank0 && layout.len)
        weft_notice(WEFT_MSG_JOB_REPORT, WEFT_NOWHERE, "%s", layout.data);
    weft_buf_free(&layout);
    WEFT_TRY(layout_status);
    WEFT_TRY(foretell(m));
    m->tokens = weft_generator_tokens(m->generator);
    for (int64_t i = 0; i < m->o->jobs->count; i++)
        if (weft_jobs_alike(job, &m->o->jobs->at[i])) {
            m->items[i].sampler = s->sampler->name;
            m->items[i].fps = s->fps > 0 ? s->fps : weft_generator_fps(m->generator);
        }
    return check_outputs(m);
}

/* Returns the end of the batches from `first` on that can use one generator. *left: one of the
 * batches is not finished. *most: their largest size. */
static int64_t count_alike(const making *m, int64_t first, bool *left, int64_t *most)
{
    const weft_job_batches *b = &m->batches;
    int64_t end = first;
    *left = false;
    *most = 1;
    for (; end < b->count && weft_jobs_alike(&m->o->jobs->at[b->order[b->at[first].first]],
                                             &m->o->jobs->at[b->order[b->at[end].first]]);
         end++) {
        const bool is = is_left(m, &b->at[end]);
        *left |= is;
        *most = b->at[end].count > *most ? b->at[end].count : *most;
    }
    return end;
}

/* Opens the outputs once per run. Collective. Without --resume, removes saved files of an earlier
 * run with the same names first. */
static weft_status open_outputs(making *m)
{
    const weft_generation_run *o = m->o;
    for (int64_t i = 0; i < o->jobs->count && m->is_rank0 && !o->resume; i++) {
        remove_state(m, i);
        remove_latents(m, i);
    }
    weft_video_outputs_options g = outputs_options(m);
    if (m->is_rank0)
        WEFT_TRY(weft_video_outputs_open(&g, &m->outputs));
    if (o->comm)
        WEFT_TRY(weft_comm_barrier(o->comm));
    g.second = m->met = true;
    if (!m->comm && o->comm)
        weft_comm_set_busy(o->comm, "generating its own videos");
    return m->writes && !m->outputs ? weft_video_outputs_open(&g, &m->outputs) : WEFT_OK;
}

/* Prints one line per denoiser. */
static void print_cache_stats(const making *m)
{
    weft_buf out = {0};
    if (m->is_rank0 && weft_generator_tell_cache(m->generator, &out) == WEFT_OK && out.len)
        for (char *line = out.data, *end; (end = strchr(line, '\n')); line = end + 1)
            weft_notice(WEFT_MSG_JOB_REPORT, WEFT_NOWHERE, "%.*s", (int)(end - line), line);
    weft_buf_free(&out);
}

static weft_status make_alike(making *m, int64_t first, int64_t end, int64_t most)
{
    const weft_job_batches *b = &m->batches;
    weft_map map = {0};
    const float *noise = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(open_generator(m, &m->o->jobs->at[b->order[b->at[first].first]], most));
    if (!m->met)
        WEFT_GO(open_outputs(m));
    WEFT_GO(weft_generator_bind(m->generator));
    if (m->o->noise)
        WEFT_GO(read_noise(m, m->o->noise, &map, &noise));
    for (int64_t i = first; i < end; i++)
        if (is_left(m, &b->at[i]))
            WEFT_GO(make_batch(m, &b->at[i], noise));
    print_cache_stats(m);
out:
    weft_map_close(&map);
    weft_generator_free(m->generator);
    m->generator = NULL;
    return status;
}

/* Denoising steps of a job, over all windows. */
static int64_t steps_of(const making *m, const weft_job *job)
{
    const weft_generator_options *g = m->o->options;
    const int64_t shared = g->window_overlap ? g->window_overlap : 1;
    return job->steps *
           (g->continues ? weft_continuation_windows(job->frames, g->window, shared) : 1);
}

/* Returns the remaining denoising steps, and adds the remaining videos to m->videos. */
static int64_t count_left(making *m)
{
    int64_t steps = 0;
    for (int64_t i = 0; i < m->batches.count; i++) {
        const weft_job_batch *b = &m->batches.at[i];
        if (!is_left(m, b))
            continue;
        steps += steps_of(m, &m->o->jobs->at[m->batches.order[b->first]]);
        m->videos += b->count;
    }
    return steps;
}

static weft_status make_all(making *m)
{
    if (m->o->resume) {
        WEFT_TRY(open_outputs(m));
        WEFT_TRY(decode_saved(m));
        remove_finished(m);
    }
    const int64_t steps = count_left(m), total = steps + m->videos;
    weft_progress_begin(&m->progress, "generate", total, 0);
    if (!m->is_rank0)
        m->progress.quiet = true;
    for (int64_t i = 0, end; i < m->batches.count; i = end) {
        bool left;
        int64_t most;
        end = count_alike(m, i, &left, &most);
        if (left)
            WEFT_TRY(make_alike(m, i, end, most));
    }
    if (total)
        weft_progress_end(&m->progress, total, "");
    return WEFT_OK;
}

/* ---- the list ------------------------------------------------------------------------------- */

/* Fills unset values of the jobs from the run's options and the model. */
static weft_status resolve_jobs(const weft_generation_run *o)
{
    const weft_generator_options *g = o->options;
    for (int64_t i = 0; i < o->jobs->count; i++) {
        weft_job *j = &o->jobs->at[i];
        int64_t size[3] = {j->frames ? j->frames : g->frames, j->height ? j->height : g->height,
                           j->width ? j->width : g->width};
        if (!i || !size[0] || !size[1] || !size[2])
            WEFT_TRY(weft_generator_size(o->model, size));
        j->own = j->frames || j->height || j->width || j->steps || j->guidance >= 0;
        j->frames = size[0];
        j->height = size[1];
        j->width = size[2];
        j->steps = j->steps ? j->steps : g->steps;
        j->guidance = j->guidance >= 0 ? j->guidance : g->guidance;
    }
    return WEFT_OK;
}

static weft_status list_items(making *m)
{
    const weft_jobs *jobs = m->o->jobs;
    m->items = weft_calloc(jobs->count, sizeof *m->items);
    m->done = weft_calloc(jobs->count, sizeof *m->done);
    WEFT_TRY(WEFT_ALLOCATED(m->items && m->done, "%" PRId64 " videos", jobs->count));
    for (int64_t i = 0; i < jobs->count; i++) {
        const weft_job *j = &jobs->at[i];
        m->items[i] = (weft_video_outputs_item){.file = j->out,
                                                .prompt = j->prompt,
                                                .negative = j->negative ? j->negative
                                                                        : m->o->options->negative,
                                                .seed = j->seed,
                                                .frames = j->frames,
                                                .height = j->height,
                                                .width = j->width,
                                                .steps = j->steps,
                                                .guidance = j->guidance,
                                                .fps = m->o->options->fps};
    }
    return check_outputs(m);
}

/* Lines of prompts.jsonl before a resumed run. */
typedef struct earlier {
    making *m;
    json_t *by_file; /* last line of each file */
} earlier;

static weft_status_code on_line(void *user, json_t *line)
{
    earlier *e = user;
    const char *file = json_string_value(json_object_get(line, "file"));
    if (file)
        json_object_set(e->by_file, file, line);
    return WEFT_OK;
}

static weft_status check_line(const making *m, int64_t job, const json_t *line, const char *file)
{
    static const char *const all[] = {"prompt", "negative", "seed",  "frames",
                                      "height", "width",    "steps", "guidance"};
    const weft_video_outputs_item *item = &m->items[job];
    json_t *was = json_object(),
           *is = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "prompt", item->prompt,
                           "negative", item->negative ? item->negative : "", "seed",
                           (json_int_t)item->seed, "frames", (json_int_t)item->frames, "height",
                           (json_int_t)item->height, "width", (json_int_t)item->width, "steps",
                           (json_int_t)item->steps, "guidance", item->guidance);
    weft_status_code status = WEFT_ALLOCATED(was && is, "the generation");
    for (int i = 0; i < WEFT_COUNT(all) && status == WEFT_OK; i++)
        json_object_set(was, all[i], json_object_get(line, all[i]));
    if (status == WEFT_OK)
        status = weft_saved_latents_compare(file, was, is, NULL);
    json_decref(was);
    json_decref(is);
    return status;
}

/* Removes an incomplete last line left by a killed run. */
static weft_status mend_list(const char *path)
{
    char *data;
    int64_t bytes;
    WEFT_TRY(weft_file_read(path, 1 << 30, &data, &bytes));
    int64_t whole = bytes;
    while (whole && data[whole - 1] != '\n')
        whole--;
    const weft_status_code status =
        whole < bytes ? weft_file_write_atomic(path, data, whole) : WEFT_OK;
    weft_free(data);
    return status;
}

static weft_status mark_done(making *m)
{
    char own[32];
    char *list = weft_path_join(m->o->out, "prompts.jsonl");
    earlier e = {m, json_object()};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(list && e.by_file, "the generation"));
    if (weft_path_exists(list)) {
        WEFT_GO(mend_list(list));
        WEFT_GO(weft_json_lines(list, on_line, &e));
    }
    for (int64_t i = 0; i < m->o->jobs->count; i++) {
        weft_buf path = {0};
        const char *name = weft_video_outputs_name(m->items[i].file, i, own);
        const json_t *line = json_object_get(e.by_file, name);
        status = sibling_path(m, i, weft_path_extension(name), &path);
        if (status == WEFT_OK && line && weft_path_exists(path.data)) {
            status = check_line(m, i, line, path.data);
            m->done[i] = true;
        }
        weft_buf_free(&path);
        WEFT_GO(status);
    }
out:
    json_decref(e.by_file);
    weft_free(list);
    return status;
}

/* Marks the video of a single output file as finished, if no saved state exists (`begun`).
 * The file contains neither sheet frames nor arrays, so these options regenerate. */
static void mark_file(making *m, bool begun)
{
    m->done[0] = !begun && !m->o->sheet && !m->o->raw && !m->o->latents &&
                 weft_video_outputs_exists(m->o->out, m->items);
    if (m->done[0])
        weft_notice(WEFT_MSG_RUN_FINISHED, WEFT_AT(.file = m->o->out),
                    "the video exists already, with this prompt, seed, size, steps and guidance. "
                    "Remove it to generate it again.");
}

/* Finds the existing videos; the result is the same on all ranks. */
static weft_status find_done(making *m)
{
    const weft_generation_run *o = m->o;
    const int64_t count = o->jobs->count;
    int64_t done = 0;
    if (!o->resume)
        return WEFT_OK;
    const bool file = weft_video_outputs_is_file(o->out);
    bool state, latents, window;
    char ending[64];
    const char *walk_name;
    WEFT_TRY(sibling_exists(m, 0, window_ending(0, ending), &window));
    WEFT_TRY(find_walk(m, 0, &walk_name, &state));
    WEFT_TRY(sibling_exists(m, 0, latents_ending, &latents));
    const bool begun = state || window || (latents && !o->keep_latents);
    if (m->is_rank0 && file)
        mark_file(m, begun);
    else if (m->is_rank0)
        WEFT_TRY(mark_done(m));
    if (o->comm)
        WEFT_TRY(weft_comm_broadcast(o->comm, m->done, count * (int64_t)sizeof *m->done, 0));
    for (int64_t i = 0; i < count; i++)
        done += m->done[i];
    if (m->is_rank0 && !file)
        weft_notice(WEFT_MSG_RUN_RESUMED, WEFT_AT(.file = o->out, WEFT_NUMBER(done)),
                    "%" PRId64 " of %" PRId64 " videos exist already", done, count);
    if (m->is_rank0 && count == 1 && !done && !begun && !latents)
        weft_notice(WEFT_MSG_RUN_RESUMED, WEFT_AT(.file = o->out, WEFT_NUMBER(0)),
                    "no saved state to resume from; starting from scratch");
    return WEFT_OK;
}

/* Forms teams of one rank, if there is a batch for each; else one team. */
static void form_teams(making *m, int *teams)
{
    const weft_generation_run *o = m->o;
    const int ranks = o->comm ? weft_comm_ranks(o->comm) : 1,
              rank = o->comm ? weft_comm_rank(o->comm) : 0;
    const int64_t most = o->options->batch, batches = (o->jobs->count + most - 1) / most;
    const bool apart = ranks > 1 && o->apart && !o->sheet && batches >= ranks;
    *teams = apart ? ranks : 1;
    m->team = apart ? rank : 0;
    m->comm = apart ? NULL : o->comm;
    m->writes = apart || rank == 0;
    m->is_rank0 = rank == 0;
}

/* Collective for teams of one rank: all ranks return an error if one failed. The failed rank has
 * printed its error. */
static weft_status meet(making *m, weft_status_code status)
{
    weft_comm *all = m->o->comm;
    if (m->comm || !all || weft_comm_ranks(all) == 1 || !m->met)
        return status;
    double failed[2] = {status != WEFT_OK && status != WEFT_E_CANCELLED,
                        status == WEFT_E_CANCELLED};
    if (failed[0] > 0) {
        (void)weft_error_at(status, WEFT_AT(WEFT_RANK(weft_comm_rank(all))));
        weft_warn_error(WEFT_MSG_RANK_FAILED, "rank %d generates no more videos",
                        weft_comm_rank(all));
    }
    weft_comm_set_busy(all, NULL);
    WEFT_TRY(weft_comm_sum(all, failed, 2));
    if (failed[0] > 0 && status == WEFT_OK)
        return weft_error(
            WEFT_MSG_RANK_FAILED, WEFT_AT(WEFT_NUMBER(failed[0])),
            "%g ranks failed. Run the same command with --resume to generate the missing videos.",
            failed[0]);
    return failed[1] > 0 && status == WEFT_OK
               ? weft_error(WEFT_MSG_INTERRUPTED, WEFT_NOWHERE, "interrupted on another rank")
               : status;
}

weft_status weft_generation_run_execute(const weft_generation_run *o)
{
    making m = {.o = o};
    int teams;
    weft_status_code status = resolve_jobs(o);
    form_teams(&m, &teams);
    WEFT_GO(status);
    if (!weft_video_outputs_is_file(o->out))
        WEFT_GO(weft_jobs_check_names(o->jobs));
    WEFT_GO(weft_jobs_cut(o->jobs, o->options->batch, teams, &m.batches));
    WEFT_GO(list_items(&m));
    WEFT_GO(find_done(&m));
    if (teams > 1) {
        if (m.is_rank0)
            weft_notice(WEFT_MSG_JOB_REPORT, WEFT_AT(WEFT_NUMBER(teams)),
                        "%d ranks generate videos separately, %" PRId64 " batches in total", teams,
                        m.batches.count);
    }
    status = meet(&m, make_all(&m));
    if (status == WEFT_OK && m.is_rank0)
        status = weft_video_outputs_finish(m.outputs);
out:
    weft_video_outputs_free(m.outputs);
    weft_generator_free(m.generator);
    weft_continuation_close(&m.continuation);
    weft_job_batches_free(&m.batches);
    weft_free(m.items);
    weft_free(m.done);
    return status;
}

/* ---- saved latents only --------------------------------------------------------------------- */

/* Returns dog.mp4 for dog.latents.safetensors; heap. */
static char *video_of(const char *path)
{
    static const char *const endings[] = {".latents.safetensors", ".safetensors"};
    const char *base = weft_path_base(path);
    size_t length = strlen(base);
    for (int i = 0; i < WEFT_COUNT(endings); i++) {
        const size_t end = strlen(endings[i]);
        if (length > end && !strcmp(base + length - end, endings[i])) {
            length -= end;
            break;
        }
    }
    char *name = weft_alloc((int64_t)length + 5);
    if (name)
        snprintf(name, length + 5, "%.*s.mp4", (int)length, base);
    return name;
}

static weft_status decode_file(making *m, const char *path, weft_saved_latents *k)
{
    const weft_generation_run *o = m->o;
    const weft_decode_options how = {o->model, o->options->tile, o->options->memory, o->comm};
    weft_decoded_size size;
    redecoding r = {.making = m};
    WEFT_TRY(weft_decode_open(path, o->model, k, &size));
    const json_t *prompt = json_array_get(k->prompts, 0);
    const char *text = json_string_value(json_object_get(prompt, "prompt")),
               *negative = json_string_value(json_object_get(prompt, "negative")),
               *sampler = json_string_value(json_object_get(k->settings, "sampler"));
    char *name = video_of(path);
    weft_video_outputs_item item = {
        .file = name,
        .prompt = text ? text : "",
        .negative = negative,
        .seed = (uint64_t)json_integer_value(json_object_get(prompt, "seed")),
        .frames = size.frames,
        .height = size.height,
        .width = size.width,
        .steps = k->steps,
        .guidance = json_number_value(json_object_get(k->settings, "guidance")),
        .sampler = sampler ? sampler : "",
        .fps = o->options->fps > 0 ? o->options->fps : k->fps};
    const weft_video_outputs_options g = {.out = o->out,
                                          .sheet = o->sheet,
                                          .raw = o->raw,
                                          .items = &item,
                                          .count = 1,
                                          .goes_on = true};
    weft_status_code status = WEFT_ALLOCATED(name, "the generation");
    if (status == WEFT_OK && m->writes)
        status = weft_video_outputs_open(&g, &m->outputs);
    if (status == WEFT_OK)
        status = weft_decode_run(&how, path, k, 0, on_saved_frames, &r);
    if (status == WEFT_OK && m->writes)
        status = weft_video_outputs_finish(m->outputs);
    weft_video_outputs_free(m->outputs);
    m->outputs = NULL;
    weft_free(name);
    return status;
}

weft_status weft_generation_run_decode(const weft_generation_run *o, const char *const *paths,
                                       int count)
{
    making m = {.o = o, .comm = o->comm};
    m.writes = m.is_rank0 = !o->comm || weft_comm_rank(o->comm) == 0;
    if (count > 1 && weft_video_outputs_is_file(o->out))
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.file = o->out, WEFT_NUMBER(count)),
                          "one file cannot hold the videos of %d files of latents. Name a folder.",
                          count);
    if (count > 1 && o->sheet)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--sheet", .value = o->sheet),
                          "a contact sheet takes one --decode-latents, not %d", count);
    for (int i = 0; i < count; i++) {
        weft_saved_latents saved = {0};
        const weft_status_code status = decode_file(&m, paths[i], &saved);
        weft_saved_latents_close(&saved);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}
