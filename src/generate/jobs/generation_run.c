#include "generate/production.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "format/npy.h"
#include "generate/decode.h"
#include "generate/gallery.h"
#include "generate/layouts_priced.h"
#include "generate/relay.h"
#include "video/clip.h"
#include "video/image.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct making {
    const weft_production *o;
    weft_gallery_item *items; /* [jobs] */
    bool *done;               /* [jobs] its video is there */
    weft_batches batches;
    weft_comm *comm; /* of this team: NULL where each rank works for itself */
    int team;
    bool writes;   /* the first rank of its team */
    bool tells;    /* the first of all */
    bool foretold; /* what the first video takes */
    bool met;      /* all ranks: the gallery is open */
    weft_gallery *gallery;
    weft_generator *generator;
    char model[17]; /* its identity; "": not asked for yet */
    weft_progress progress;
    int64_t steps_before; /* of this team's batches that are over */
    int64_t videos, made; /* of this team that are to be made, and that are written */
    double longest; /* seconds of a video's decoding, the longest so far; 0: none was decoded */
    double each;    /* seconds of a denoising step of the batch at work; 0: unknown */
    /* the batch at work */
    const weft_batch *batch;
    int64_t begun_at;           /* step that it goes on from */
    bool unseen;                /* a picture of --preview could not be written: told */
    double began, decoded;      /* at; the last of the videos before */
    double stepping;            /* when the denoising steps began, after the texts */
    double predicted;           /* seconds of a batch's texts and steps; 0: nobody knows */
    double denoising, decoding; /* what that took, of all windows but the one at work */
    double kept, keeping;       /* when the walk was kept, and what that took */
    double first_step;          /* seconds of the first that was made */
    int64_t tokens;             /* of a video, or a window of it */
    weft_relay relay;           /* windows of a video, one behind the other */
} making;

static int64_t job_of(const making *m, int64_t prompt)
{
    return m->batches.order[m->batch->first + prompt];
}

static weft_status path_beside(const making *m, int64_t job, const char *ending, weft_buf *path)
{
    return weft_gallery_beside(m->o->out, &m->items[job], job, ending, path);
}

/* Where one will be written: its folder is there. */
static weft_status new_beside(const making *m, int64_t job, const char *ending, weft_buf *path)
{
    WEFT_TRY(path_beside(m, job, ending, path));
    return weft_make_parent(path->data);
}

static const char *const walk_ending = "walk.safetensors";
static const char *const latents_ending = "latents.safetensors";

static void remove_beside(const making *m, int64_t job, const char *ending)
{
    weft_buf path = {0};
    if (path_beside(m, job, ending, &path) == WEFT_OK)
        (void)unlink(path.data);
    weft_buf_free(&path);
}

static void remove_walk(const making *m, int64_t job)
{
    weft_buf path = {0};
    if (path_beside(m, job, walk_ending, &path) == WEFT_OK && weft_path_exists(path.data))
        weft_generator_unkeep(path.data);
    weft_buf_free(&path);
}

static weft_status exists_beside(const making *m, int64_t job, const char *ending, bool *is)
{
    weft_buf path = {0};
    const weft_status_code status = path_beside(m, job, ending, &path);
    *is = status == WEFT_OK && weft_path_exists(path.data);
    weft_buf_free(&path);
    return status;
}

/* Of a video in several windows: what was denoised of each, till the video is whole. */
static const char *window_ending(int64_t window, char ending[64])
{
    snprintf(ending, 64, "window%04lld.latents.safetensors", (long long)window);
    return ending;
}

/* The last first: whenever it is killed, those that are there have all before them. */
static void remove_windows(const making *m, int64_t job)
{
    char ending[64];
    bool there = true;
    int64_t count = 0;
    while (exists_beside(m, job, window_ending(count, ending), &there) == WEFT_OK && there)
        count++;
    while (count-- > 0)
        remove_beside(m, job, window_ending(count, ending));
}

/* What was denoised of a video. */
static void remove_latents(const making *m, int64_t job)
{
    remove_beside(m, job, latents_ending);
    remove_windows(m, job);
}

static bool in_windows(const making *m)
{
    return m->relay.count > 1;
}

/* There, and its bytes as they were written; one that is damaged, by a disk that was full or died,
 * counts as none, and what it holds is made again in its place. All ranks see the same. */
static weft_status whole_beside(const making *m, int64_t job, const char *ending, bool *is)
{
    weft_buf path = {0};
    weft_status_code status = path_beside(m, job, ending, &path);
    *is = status == WEFT_OK && weft_path_exists(path.data);
    const bool there = *is;
    if (there)
        status = weft_walk_file_whole(path.data, is);
    if (status == WEFT_OK && there && !*is && m->writes)
        weft_warn("%s; what it holds is made again", weft_error_message());
    weft_buf_free(&path);
    return status;
}

static bool is_left(const making *m, const weft_batch *b)
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

/* ---- while it is denoised ------------------------------------------------------------------- */

/* The state of the walk is written after a step, unless that would take more than a fiftieth of the
 * time since it was written before. */
static weft_status keep_walk(making *m, bool must)
{
    weft_buf path = {0};
    const double now = weft_now();
    const bool together = m->comm && weft_generator_keeps_caches(m->generator);
    bool keeps = must || now - m->kept >= 50 * m->keeping;
    if (together) /* each rank keeps its own, behind the same step */
        WEFT_TRY(weft_comm_broadcast(m->comm, &keeps, sizeof keeps, 0));
    if (!keeps || (!m->writes && !together))
        return WEFT_OK;
    WEFT_TRY(path_beside(m, job_of(m, 0), walk_ending, &path));
    const weft_status_code status = weft_generator_keep(m->generator, path.data);
    weft_buf_free(&path);
    m->kept = weft_now();
    m->keeping = m->kept - now;
    if (status == WEFT_OK || must)
        return status;
    weft_warn("%s; the walk goes on without being kept", weft_error_message());
    m->keeping = 60; /* till the disk may have room again */
    return WEFT_OK;
}

static weft_status check_interrupt(const making *m)
{
    return m->comm ? weft_comm_interrupt_check(m->comm) : weft_interrupt_check();
}

/* `steps` denoising steps of all are done; the next video is decoded in `decoding` seconds (0:
 * unknown). Each written video counts as a step, so that 100 % is the end. Loading and the encoding
 * of texts are in no prediction. */
static void tell_progress(making *m, int64_t steps, const char *detail, double decoding)
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
        WEFT_TRY(keep_walk(m, stop == WEFT_E_CANCELLED));
    if (stop == WEFT_E_CANCELLED && m->writes)
        weft_info("stopped after step %lld of %lld of prompt %lld: what is there is kept; the same "
                  "command with --resume goes on, to the same bits",
                  (long long)done, (long long)steps, (long long)job_of(m, 0) + 1);
    WEFT_TRY(stop);
    const double taken = (weft_now() - m->stepping) / (double)(done - m->begun_at);
    if (!m->tells)
        return WEFT_OK;
    if (done - m->begun_at == 1)
        m->first_step = taken;
    if (!m->foretold && done - m->begun_at == 2) { /* the first has what is done once, too */
        m->foretold = true;
        weft_info("predicted from the first two steps: %s for the denoising of %lld steps",
                  weft_format_seconds(m->first_step + (2 * taken - m->first_step) *
                                                          (double)(steps - m->begun_at - 1),
                                      each),
                  (long long)(steps - m->begun_at));
    }
    snprintf(detail, sizeof detail, "prompt %lld, denoising step %lld/%lld, %s each, %.4g tokens/s",
             (long long)job_of(m, 0) + 1, (long long)done, (long long)steps,
             weft_format_seconds(taken, each), (double)(m->tokens * m->batch->count) / taken);
    m->each = taken;
    tell_progress(m, m->steps_before + done, detail, m->longest);
    return WEFT_OK;
}

static void on_begin(void *user, int64_t first_prompt)
{
    making *m = user;
    (void)first_prompt;
    m->stepping = weft_now();
}

/* For other programs: f32 (frames, rows, columns, channels). */
static weft_status write_array(const making *m, int64_t job, const int64_t dim[4], const float *x)
{
    weft_buf data = {0}, path = {0};
    weft_npy_format(WEFT_F32, 4, dim, x, &data);
    weft_status_code status = weft_buf_check(&data);
    if (status == WEFT_OK)
        status = new_beside(m, job, "latents.npy", &path);
    if (status == WEFT_OK)
        status = weft_file_write_atomic(path.data, data.data, data.len);
    weft_buf_free(&data);
    weft_buf_free(&path);
    return status;
}

static weft_status keep_latents(const making *m, int64_t prompt, bool tries)
{
    weft_buf path = {0};
    weft_status_code status = new_beside(m, job_of(m, prompt), latents_ending, &path);
    if (status == WEFT_OK)
        status = weft_generator_keep_video(m->generator, prompt, tries, path.data);
    weft_buf_free(&path);
    return status;
}

/* What the window at work was denoised to, from which going on decodes it. */
static weft_status keep_window(making *m)
{
    char ending[64];
    weft_buf path = {0};
    if (m->begun_at == weft_generator_steps(m->generator))
        return WEFT_OK; /* it comes from there */
    weft_status_code status =
        path_beside(m, job_of(m, 0), window_ending(m->relay.at, ending), &path);
    if (status == WEFT_OK)
        status = weft_generator_keep(m->generator, path.data);
    weft_buf_free(&path);
    return status;
}

/* `frames` of the video are written. */
static void tell_decoding(making *m, int64_t job, int64_t frames)
{
    char detail[96];
    const int64_t all = m->relay.frames, steps = weft_generator_steps(m->generator);
    const double taken = weft_now() - m->decoded;
    const double left = frames ? taken * (double)(all - frames) / (double)frames
                               : (m->longest > taken ? m->longest - taken : 0);
    snprintf(detail, sizeof detail, "prompt %lld, decoding frame %lld/%lld", (long long)job + 1,
             (long long)frames, (long long)all);
    if (!frames)
        weft_progress_turn(&m->progress);
    tell_progress(m, m->steps_before + steps, detail, left);
}

static weft_status_code on_latents(void *user, int64_t prompt, const int64_t dim[4], const float *x)
{
    making *m = user;
    m->denoising += prompt ? 0 : weft_now() - m->began;
    if (m->tells && !prompt && m->predicted > 0 && m->begun_at == 0) {
        const double took = weft_now() - m->began;
        char text[32];
        weft_info("denoised in %s, %+.0f %% of what was predicted", weft_format_seconds(took, text),
                  100 * (took / m->predicted - 1));
    }
    if (m->o->latents)
        WEFT_TRY(write_array(m, job_of(m, prompt), dim, x));
    WEFT_TRY(in_windows(m) ? keep_window(m) : keep_latents(m, prompt, true));
    if (prompt == m->batch->count - 1)
        remove_walk(m, job_of(m, 0));
    m->decoded = weft_now();
    if (m->tells && prompt == m->batch->count - 1)
        tell_decoding(m, job_of(m, 0), 0);
    return WEFT_OK;
}

/* Beside the video, in the place of the one before. One that cannot be written is told once, and
 * is no reason to lose what was denoised. */
static weft_status_code on_preview(void *user, int64_t prompt, const float *picture)
{
    making *m = user;
    const int64_t job = job_of(m, prompt), height = m->items[job].height,
                  width = m->items[job].width;
    weft_buf path = {0};
    uint8_t *rgb = weft_alloc(height * width * 3);
    weft_status_code status = rgb ? new_beside(m, job, "preview.png", &path)
                                  : weft_fail(WEFT_E_MEMORY, "out of memory for a picture");
    if (status == WEFT_OK) {
        weft_clip_to_u8(picture, 1, height, width, false, rgb);
        status = weft_png_write(path.data, rgb, width, height);
    }
    weft_buf_free(&path);
    weft_free(rgb);
    if (status == WEFT_OK || status == WEFT_E_MEMORY)
        return status;
    if (!m->unseen)
        weft_warn("%s; denoising goes on without --preview's pictures", weft_error_message());
    m->unseen = true;
    return WEFT_OK;
}

/* ---- decoding ------------------------------------------------------------------------------- */

static void tell_facts(const making *m)
{
    json_t *facts =
        json_pack("{s:{s:f, s:f}, s:I, s:i, s:i}", "seconds", "denoise", m->denoising, "decode",
                  m->decoding + weft_now() - m->decoded, "batch", (json_int_t)m->batch->count,
                  "team", m->team, "ranks", m->comm ? weft_comm_ranks(m->comm) : 1);
    if (facts && in_windows(m))
        json_object_set_new(facts, "windows", json_integer(m->relay.count));
    if (facts && m->begun_at)
        json_object_set_new(facts, "from_step", json_integer(m->begun_at));
    weft_gallery_facts(m->gallery, facts);
}

static weft_status_code on_frames(void *user, int64_t prompt, int64_t first, int64_t count,
                                  const float *frames)
{
    making *m = user;
    const int64_t job = job_of(m, prompt);
    int64_t from, fresh;
    if (is_alone(m) && weft_interrupted()) {
        if (!in_windows(m))
            WEFT_TRY(keep_latents(m, prompt, false)); /* no fault of the decoder's */
        weft_info("stopped while prompt %lld was decoded: its latents are kept; the same command "
                  "with --resume goes on",
                  (long long)job + 1);
        return weft_interrupt_check();
    }
    weft_relay_take(&m->relay, first, count, frames, &from, &fresh);
    const bool last = m->relay.written == m->relay.frames;
    if (!fresh)
        return WEFT_OK;
    if (last)
        tell_facts(m);
    WEFT_TRY(weft_gallery_frames(m->gallery, job, m->relay.written - fresh, fresh,
                                 frames + from * m->relay.frame));
    m->made += last;
    if (m->tells && !last)
        tell_decoding(m, job, m->relay.written);
    if (!last)
        return WEFT_OK;
    m->longest = fmax(m->longest, weft_now() - m->decoded);
    m->decoded = weft_now();
    if (in_windows(m)) {
        if (!m->o->keep)
            remove_windows(m, job);
        return WEFT_OK;
    }
    if (m->o->keep)
        return keep_latents(m, prompt, false); /* this decoding came to an end */
    remove_beside(m, job, latents_ending);
    return WEFT_OK;
}

/* Of latents that were kept. */
typedef struct redecoding {
    making *making;
    int64_t item;
} redecoding;

static weft_status_code on_kept_frames(void *user, int64_t first, int64_t count,
                                       const float *frames)
{
    const redecoding *r = user;
    return weft_gallery_frames(r->making->gallery, r->item, first, count, frames);
}

static weft_status check_latents(making *m, int64_t job, const char *path, const weft_walk_file *k)
{
    const weft_gallery_item *item = &m->items[job];
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
    weft_status_code status = was && is && prompt ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "no memory");
    if (status == WEFT_OK)
        status = weft_walk_file_compare(path, was, is, NULL);
    if (status == WEFT_OK)
        status = weft_walk_file_compare(path, json_array_get(k->prompts, 0), prompt, NULL);
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
    weft_walk_file kept;
    redecoding r = {m, job};
    weft_status_code status =
        weft_walk_file_damaged(weft_decode_open(path, m->o->model, &kept, &size));
    WEFT_TRY(status);
    status = check_latents(m, job, path, &kept);
    if (status == WEFT_OK && m->writes) {
        weft_info("%s: decoded from here", path);
        weft_gallery_facts(m->gallery, json_pack("{s:I}", "from_step", (json_int_t)kept.steps));
        m->items[job].sampler = json_string_value(json_object_get(kept.settings, "sampler"));
        m->items[job].fps = kept.fps;
    }
    if (status == WEFT_OK && m->writes && !m->items[job].sampler)
        status = weft_fail(WEFT_E_FORMAT, "%s: its settings name no sampler", path);
    if (status == WEFT_OK)
        status = weft_decode_run(&o, path, &kept, 0, on_kept_frames, &r);
    m->items[job].sampler = NULL;
    weft_walk_file_close(&kept);
    if (status == WEFT_OK && m->writes && !m->o->keep)
        remove_beside(m, job, latents_ending);
    m->done[job] = true;
    return status;
}

/* Before anything is denoised, and before the transformer takes its memory. */
static weft_status decode_what_is_kept(making *m)
{
    for (int64_t b = 0; b < m->batches.count; b++)
        for (int64_t i = 0; i < m->batches.at[b].count; i++) {
            const int64_t job = m->batches.order[m->batches.at[b].first + i];
            weft_buf path = {0};
            bool whole;
            if (m->done[job] || m->batches.at[b].team != m->team)
                continue;
            weft_status_code status = whole_beside(m, job, latents_ending, &whole);
            if (status == WEFT_OK && whole)
                status = path_beside(m, job, latents_ending, &path);
            if (status == WEFT_OK && whole)
                status = redecode(m, job, path.data);
            weft_buf_free(&path);
            WEFT_TRY(status);
            WEFT_TRY(check_interrupt(m));
        }
    return WEFT_OK;
}

/* What a run that was killed behind a video has left of it. A walk is of a batch, and the first of
 * its videos may be there while others are not. */
static void remove_finished(const making *m)
{
    for (int64_t b = 0; b < m->batches.count; b++) {
        const weft_batch *batch = &m->batches.at[b];
        if (!m->writes || batch->team != m->team)
            continue;
        for (int64_t i = 0; i < batch->count && !m->o->keep; i++)
            if (m->done[m->batches.order[batch->first + i]])
                remove_latents(m, m->batches.order[batch->first + i]);
        if (!is_left(m, batch))
            remove_walk(m, m->batches.order[batch->first]);
    }
}

/* ---- a batch, and all of one size ----------------------------------------------------------- */

/* The latents to begin with: of one prompt (frames, rows, columns, channels), or of several with
 * their number before. Those of job i are number i. */
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
        status = weft_fail(WEFT_E_FORMAT,
                           "%s: %lld numbers of type %s; f32 of %lld x %lld frames x %lld x %lld x "
                           "%lld channels are needed",
                           path, (long long)npy.count, weft_dtype_name(npy.dtype),
                           (long long)m->o->jobs->count, (long long)dim[0], (long long)dim[1],
                           (long long)dim[2], (long long)dim[3]);
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
    *l = (batch_lists){weft_alloc(n * (int64_t)sizeof *l->prompt),
                       weft_alloc(n * (int64_t)sizeof *l->negative),
                       weft_alloc(n * (int64_t)sizeof *l->seed),
                       noise ? weft_alloc(n * each * (int64_t)sizeof *noise) : NULL};
    if (!l->prompt || !l->negative || !l->seed || (noise && !l->noise))
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld prompts", (long long)n);
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

/* From what was denoised of this window, else from the walk to it. Of a window whose latents are
 * damaged that walk is over, and another window's may be there. */
static weft_status go_on(making *m, const batch_lists *l, const uint64_t *seeds)
{
    char own[64];
    const char *ending = window_ending(m->relay.at, own);
    weft_buf path = {0};
    bool there = false, whole = false;
    if (in_windows(m)) {
        WEFT_TRY(exists_beside(m, job_of(m, 0), ending, &there));
        if (there)
            WEFT_TRY(whole_beside(m, job_of(m, 0), ending, &whole));
    }
    if (!there)
        WEFT_TRY(whole_beside(m, job_of(m, 0), ending = walk_ending, &whole));
    if (!whole)
        return WEFT_OK;
    weft_status_code status = path_beside(m, job_of(m, 0), ending, &path);
    if (status == WEFT_OK)
        status = weft_generator_go_on(m->generator, path.data, l->prompt, seeds, m->batch->count,
                                      &m->begun_at);
    if (status == WEFT_OK && m->tells)
        weft_info("%s: goes on after step %lld", path.data, (long long)m->begun_at);
    weft_buf_free(&path);
    return status;
}

/* The windows of a video one behind the other; of all else the only one. */
static weft_status make_windows(making *m, const batch_lists *l, const weft_generator_sink *sink)
{
    weft_relay *c = &m->relay;
    for (c->at = 0; c->at < c->count; c->at++) {
        const uint64_t own = weft_relay_seed(c, l->seed[0]), *seeds = c->at ? &own : l->seed;
        m->begun_at = 0;
        m->keeping = 0;
        m->began = m->kept = weft_now();
        if (c->shared)
            WEFT_TRY(weft_generator_continue(m->generator, c->at, c->at ? c->tail : NULL));
        if (m->o->resume)
            WEFT_TRY(go_on(m, l, seeds));
        if (in_windows(m) && m->tells)
            weft_info("window %lld of %lld", (long long)c->at + 1, (long long)c->count);
        WEFT_TRY(weft_generator_run(m->generator, l->prompt, seeds, m->batch->count, sink));
        m->decoding += weft_now() - m->decoded;
        m->steps_before += weft_generator_steps(m->generator);
        if (c->shared && m->comm)
            WEFT_TRY(weft_comm_broadcast(m->comm, c->tail,
                                         c->shared * c->frame * (int64_t)sizeof *c->tail, 0));
    }
    return WEFT_OK;
}

static weft_status make_batch(making *m, const weft_batch *batch, const float *noise)
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
        weft_generator_negatives(m->generator, l.negative);
        weft_generator_begin_with(m->generator, l.noise, l.noise ? batch->count : 0);
        status = make_windows(m, &l, &sink);
    }
    weft_generator_negatives(m->generator, NULL);
    weft_generator_begin_with(m->generator, NULL, 0);
    free_lists(&l);
    return status;
}

/* All sizes that lines of a list ask for, before the first is made. */
static weft_status check_sizes(const making *m)
{
    for (int64_t i = 0; i < m->o->jobs->count; i++) {
        const weft_job *j = &m->o->jobs->at[i];
        const int64_t size[3] = {j->frames, j->height, j->width};
        const weft_status_code status = j->own ? weft_generator_takes(m->generator, size) : WEFT_OK;
        if (status != WEFT_OK)
            return weft_fail(status, "%s:%lld: %s", j->from, (long long)j->place,
                             weft_error_message());
    }
    return WEFT_OK;
}

/* Seconds by the measured rates of kernels, before anything has run. */
static weft_status foretell(making *m)
{
    const weft_generator_options *s = weft_generator_settings(m->generator);
    weft_generation_price price;
    char text[3][32];
    m->predicted = 0;
    if (!m->o->cluster)
        return WEFT_OK;
    const weft_generation_pricer pricer = {.folder = m->o->model,
                                           .options = s,
                                           .cluster = m->o->cluster,
                                           .ranks = m->comm ? weft_comm_ranks(m->comm) : 1};
    WEFT_TRY(weft_generation_price_open(&pricer, m->generator, &price));
    const double steps = (double)weft_generator_steps(m->generator);
    m->predicted = price.text + price.first + steps * price.step;
    if (m->tells)
        weft_info("predicted: %s a step, %s for the denoising of %lld, %s for the decoding of a "
                  "video (%.0f %% of it by kernels that were measured at their shapes)",
                  weft_format_seconds(price.step, text[0]),
                  weft_format_seconds(m->predicted, text[1]), (long long)s->batch,
                  weft_format_seconds(price.decode, text[2]), 100 * price.exact);
    return WEFT_OK;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
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
        return job->own ? weft_fail(status, "%s:%lld: %s", job->from, (long long)job->place,
                                    weft_error_message())
                        : status;
    if (!m->met)
        WEFT_TRY(check_sizes(m));
    const weft_generator_options *s = weft_generator_settings(m->generator);
    int64_t videos = 0;
    const int texts = weft_generator_text_rank(m->generator);
    for (int64_t i = 0; i < m->o->jobs->count; i++)
        videos += !m->done[i] && weft_jobs_alike(job, &m->o->jobs->at[i]);
    if (m->tells)
        weft_info(
            "%lld x %lldx%lld, %lld frame%s, %lld step%s of %s, guidance %g; predicted peak %s "
            "a rank besides the program",
            (long long)videos, (long long)s->width, (long long)s->height, (long long)job->frames,
            plural(job->frames), (long long)weft_generator_steps(m->generator),
            plural(weft_generator_steps(m->generator)), s->sampler->name, s->guidance,
            weft_format_bytes(weft_generator_bytes_of(m->generator, texts <= 0), bytes));
    if (m->tells && texts > 0)
        weft_info("rank %d, which has the text encoders: predicted peak %s", texts,
                  weft_format_bytes(weft_generator_bytes_of(m->generator, true), bytes));
    const int64_t shared = s->given.carry;
    weft_relay_close(&m->relay);
    WEFT_TRY(weft_relay_open(job->frames, s->frames, shared, s->height * s->width, &m->relay));
    if (m->tells && in_windows(m))
        weft_info("in %lld windows of %lld frames, which share %lld with the one before",
                  (long long)m->relay.count, (long long)s->frames, (long long)shared);
    if (m->tells && weft_generator_tiles(m->generator, tiles)[0])
        weft_info("each picture is decoded in %s, which are blended where they overlap", tiles);
    weft_buf layout = {0};
    const weft_status_code told = weft_generator_tell_layout(m->generator, &layout);
    if (told == WEFT_OK && m->tells && layout.len)
        weft_info("%s", layout.data);
    weft_buf_free(&layout);
    WEFT_TRY(told);
    WEFT_TRY(foretell(m));
    m->tokens = weft_generator_tokens(m->generator);
    for (int64_t i = 0; i < m->o->jobs->count; i++)
        if (weft_jobs_alike(job, &m->o->jobs->at[i])) {
            m->items[i].sampler = s->sampler->name;
            m->items[i].fps = s->fps > 0 ? s->fps : weft_generator_fps(m->generator);
        }
    return WEFT_OK;
}

/* Batches from `first` on that are alike, and whether one of them is left. */
static int64_t count_alike(const making *m, int64_t first, bool *left, int64_t *most)
{
    const weft_batches *b = &m->batches;
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

/* Once a run, by all ranks. What was kept of an earlier run of the same name goes before a new one
 * begins. */
static weft_status open_gallery(making *m)
{
    const weft_production *o = m->o;
    for (int64_t i = 0; i < o->jobs->count && m->tells && !o->resume; i++) {
        remove_walk(m, i);
        remove_latents(m, i);
    }
    weft_gallery_options g = {.out = o->out,
                              .sheet = o->sheet,
                              .raw = o->raw,
                              .items = m->items,
                              .count = o->jobs->count,
                              .goes_on = o->resume};
    if (m->tells)
        WEFT_TRY(weft_gallery_open(&g, &m->gallery));
    if (o->comm)
        WEFT_TRY(weft_comm_barrier(o->comm));
    g.second = m->met = true;
    if (!m->comm && o->comm)
        weft_comm_busy(o->comm, "making videos of its own");
    return m->writes && !m->gallery ? weft_gallery_open(&g, &m->gallery) : WEFT_OK;
}

/* A line for each denoiser. */
static void tell_cache(const making *m)
{
    weft_buf out = {0};
    if (m->tells && weft_generator_tell_cache(m->generator, &out) == WEFT_OK && out.len)
        for (char *line = out.data, *end; (end = strchr(line, '\n')); line = end + 1)
            weft_info("%.*s", (int)(end - line), line);
    weft_buf_free(&out);
}

static weft_status make_alike(making *m, int64_t first, int64_t end, int64_t most)
{
    const weft_batches *b = &m->batches;
    weft_map map = {0};
    const float *noise = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(open_generator(m, &m->o->jobs->at[b->order[b->at[first].first]], most));
    if (!m->met)
        WEFT_GO(open_gallery(m));
    WEFT_GO(weft_generator_bind(m->generator));
    if (m->o->noise)
        WEFT_GO(read_noise(m, m->o->noise, &map, &noise));
    for (int64_t i = first; i < end; i++)
        if (is_left(m, &b->at[i]))
            WEFT_GO(make_batch(m, &b->at[i], noise));
    tell_cache(m);
out:
    weft_map_close(&map);
    weft_generator_free(m->generator);
    m->generator = NULL;
    return status;
}

/* Of all windows. */
static int64_t steps_of(const making *m, const weft_job *job)
{
    const weft_generator_options *g = m->o->options;
    const int64_t shared = g->window_overlap ? g->window_overlap : 1;
    return job->steps * (g->continues ? weft_relay_windows(job->frames, g->window, shared) : 1);
}

/* Sets the number of videos that are left, too. */
static int64_t count_left(making *m)
{
    int64_t steps = 0;
    for (int64_t i = 0; i < m->batches.count; i++) {
        const weft_batch *b = &m->batches.at[i];
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
        WEFT_TRY(open_gallery(m));
        WEFT_TRY(decode_what_is_kept(m));
        remove_finished(m);
    }
    const int64_t steps = count_left(m), total = steps + m->videos;
    weft_progress_begin(&m->progress, "generate", total, 0);
    if (!m->tells)
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

/* What a job does not say is what the run says, or the model. */
static weft_status settle_jobs(const weft_production *o)
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
    m->items = weft_alloc(jobs->count * (int64_t)sizeof *m->items);
    m->done = weft_alloc(jobs->count * (int64_t)sizeof *m->done);
    if (!m->items || !m->done)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld videos", (long long)jobs->count);
    for (int64_t i = 0; i < jobs->count; i++) {
        const weft_job *j = &jobs->at[i];
        m->items[i] =
            (weft_gallery_item){.file = j->out,
                                .prompt = j->prompt,
                                .negative = j->negative ? j->negative : m->o->options->negative,
                                .seed = j->seed,
                                .frames = j->frames,
                                .height = j->height,
                                .width = j->width,
                                .steps = j->steps,
                                .guidance = j->guidance};
    }
    return WEFT_OK;
}

/* The lines of prompts.jsonl before the run goes on. */
typedef struct earlier {
    making *m;
    json_t *by_file; /* the last line of each */
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
    const weft_gallery_item *item = &m->items[job];
    json_t *was = json_object(),
           *is = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "prompt", item->prompt,
                           "negative", item->negative ? item->negative : "", "seed",
                           (json_int_t)item->seed, "frames", (json_int_t)item->frames, "height",
                           (json_int_t)item->height, "width", (json_int_t)item->width, "steps",
                           (json_int_t)item->steps, "guidance", item->guidance);
    weft_status_code status = was && is ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    for (int i = 0; i < WEFT_COUNT(all) && status == WEFT_OK; i++)
        json_object_set(was, all[i], json_object_get(line, all[i]));
    if (status == WEFT_OK)
        status = weft_walk_file_compare(file, was, is, NULL);
    json_decref(was);
    json_decref(is);
    return status;
}

/* Cuts off what a killed run left of a line. */
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
    if (!list || !e.by_file)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory"));
    if (weft_path_exists(list)) {
        WEFT_GO(mend_list(list));
        WEFT_GO(weft_json_lines(list, on_line, &e));
    }
    for (int64_t i = 0; i < m->o->jobs->count; i++) {
        weft_buf path = {0};
        const json_t *line =
            json_object_get(e.by_file, weft_gallery_name(m->items[i].file, i, own));
        status = path_beside(m, i, "mp4", &path);
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

/* One file: a video of this command that was finished, with nothing to go on from beside it. Frames
 * for a sheet, and arrays, are not in it. */
static void mark_file(making *m, bool begun)
{
    m->done[0] = !begun && !m->o->sheet && !m->o->raw && !m->o->latents &&
                 weft_gallery_is_there(m->o->out, m->items);
    if (m->done[0])
        weft_info("%s: is there already, of this prompt, seed, size, steps and guidance; remove it "
                  "to make it again",
                  m->o->out);
}

/* How much is there already, the same on all ranks. */
static weft_status find_done(making *m)
{
    const weft_production *o = m->o;
    const int64_t count = o->jobs->count;
    int64_t done = 0;
    if (!o->resume)
        return WEFT_OK;
    const bool file = !strcmp(weft_path_extension(o->out), "mp4");
    bool walk, latents, window;
    char ending[64];
    WEFT_TRY(exists_beside(m, 0, window_ending(0, ending), &window));
    WEFT_TRY(exists_beside(m, 0, walk_ending, &walk));
    WEFT_TRY(exists_beside(m, 0, latents_ending, &latents));
    const bool begun = walk || window || (latents && !o->keep);
    if (m->tells && file)
        mark_file(m, begun);
    else if (m->tells)
        WEFT_TRY(mark_done(m));
    if (o->comm)
        WEFT_TRY(weft_comm_broadcast(o->comm, m->done, count * (int64_t)sizeof *m->done, 0));
    for (int64_t i = 0; i < count; i++)
        done += m->done[i];
    if (m->tells && !file)
        weft_info("%s: %lld of %lld videos are there", o->out, (long long)done, (long long)count);
    if (m->tells && count == 1 && !done && !begun && !latents)
        weft_info("%s: nothing to go on from, so it begins", o->out);
    return WEFT_OK;
}

/* Teams of one rank, where there is a batch for each. */
static void form_teams(making *m, int *teams)
{
    const weft_production *o = m->o;
    const int ranks = o->comm ? weft_comm_ranks(o->comm) : 1,
              rank = o->comm ? weft_comm_rank(o->comm) : 0;
    const int64_t most = o->options->batch, batches = (o->jobs->count + most - 1) / most;
    const bool apart = ranks > 1 && o->apart && !o->sheet && batches >= ranks;
    *teams = apart ? ranks : 1;
    m->team = apart ? rank : 0;
    m->comm = apart ? NULL : o->comm;
    m->writes = apart || rank == 0;
    m->tells = rank == 0;
}

/* Ranks that work for themselves leave together; one that failed has said so. */
static weft_status meet(making *m, weft_status_code status)
{
    weft_comm *all = m->o->comm;
    if (m->comm || !all || weft_comm_ranks(all) == 1 || !m->met)
        return status;
    double failed[2] = {status != WEFT_OK && status != WEFT_E_CANCELLED,
                        status == WEFT_E_CANCELLED};
    if (failed[0] > 0)
        weft_log(WEFT_LOG_ERROR, "rank %d: %s", weft_comm_rank(all), weft_error_message());
    weft_comm_busy(all, NULL);
    WEFT_TRY(weft_comm_sum(all, failed, 2));
    if (failed[0] > 0 && status == WEFT_OK)
        return weft_fail(WEFT_E_COMM, "%g of the ranks failed; --resume makes what is missing",
                         failed[0]);
    return failed[1] > 0 && status == WEFT_OK
               ? weft_fail(WEFT_E_CANCELLED, "interrupted on another rank")
               : status;
}

weft_status weft_production_run(const weft_production *o)
{
    making m = {.o = o};
    int teams;
    weft_status_code status = settle_jobs(o);
    form_teams(&m, &teams);
    WEFT_GO(status);
    if (strcmp(weft_path_extension(o->out), "mp4"))
        WEFT_GO(weft_jobs_check_names(o->jobs));
    WEFT_GO(weft_jobs_cut(o->jobs, o->options->batch, teams, &m.batches));
    WEFT_GO(list_items(&m));
    WEFT_GO(find_done(&m));
    if (teams > 1) {
        if (m.tells)
            weft_info("%d ranks make videos each for itself, %lld batches in all", teams,
                      (long long)m.batches.count);
    }
    status = meet(&m, make_all(&m));
    if (status == WEFT_OK && m.tells)
        status = weft_gallery_finish(m.gallery);
out:
    weft_gallery_free(m.gallery);
    weft_generator_free(m.generator);
    weft_relay_close(&m.relay);
    weft_batches_free(&m.batches);
    weft_free(m.items);
    weft_free(m.done);
    return status;
}

/* ---- latents alone -------------------------------------------------------------------------- */

/* dog.mp4 of dog.latents.safetensors; heap. */
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

static weft_status decode_file(making *m, const char *path, weft_walk_file *k)
{
    const weft_production *o = m->o;
    const weft_decode_options how = {o->model, o->options->tile, o->options->memory, o->comm};
    weft_decoded_size size;
    redecoding r = {.making = m};
    WEFT_TRY(weft_decode_open(path, o->model, k, &size));
    const json_t *prompt = json_array_get(k->prompts, 0);
    const char *text = json_string_value(json_object_get(prompt, "prompt")),
               *negative = json_string_value(json_object_get(prompt, "negative")),
               *sampler = json_string_value(json_object_get(k->settings, "sampler"));
    char *name = video_of(path);
    weft_gallery_item item = {.file = name,
                              .prompt = text ? text : "",
                              .negative = negative,
                              .seed = (uint64_t)json_integer_value(json_object_get(prompt, "seed")),
                              .frames = size.frames,
                              .height = size.height,
                              .width = size.width,
                              .steps = k->steps,
                              .guidance =
                                  json_number_value(json_object_get(k->settings, "guidance")),
                              .sampler = sampler ? sampler : "",
                              .fps = o->options->fps > 0 ? o->options->fps : k->fps};
    const weft_gallery_options g = {.out = o->out,
                                    .sheet = o->sheet,
                                    .raw = o->raw,
                                    .items = &item,
                                    .count = 1,
                                    .goes_on = true};
    weft_status_code status = name ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status == WEFT_OK && m->writes)
        status = weft_gallery_open(&g, &m->gallery);
    if (status == WEFT_OK)
        status = weft_decode_run(&how, path, k, 0, on_kept_frames, &r);
    if (status == WEFT_OK && m->writes)
        status = weft_gallery_finish(m->gallery);
    weft_gallery_free(m->gallery);
    m->gallery = NULL;
    weft_free(name);
    return status;
}

weft_status weft_production_decode(const weft_production *o, const char *const *paths, int count)
{
    making m = {.o = o, .comm = o->comm};
    m.writes = m.tells = !o->comm || weft_comm_rank(o->comm) == 0;
    if (count > 1 && !strcmp(weft_path_extension(o->out), "mp4"))
        return weft_fail(WEFT_E_ARG, "%s is one file, but there are %d latents; name a folder",
                         o->out, count);
    if (count > 1 && o->sheet)
        return weft_fail(WEFT_E_ARG, "--sheet goes with one --decode");
    for (int i = 0; i < count; i++) {
        weft_walk_file kept = {0};
        const weft_status_code status = decode_file(&m, paths[i], &kept);
        weft_walk_file_close(&kept);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}
