#include "curate/reject_examples.h"

#include "base/fs.h"
#include "base/memory.h"
#include "curate/analyse.h"
#include "curate/operators/shot_frames.h"
#include "curate/worker_pool.h"
#include "draw/html.h"
#include "video/lossy_image.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OPERATORS = 48, EACH = 4, SIDE = 180, WORKERS = 4 };

/* A rejected shot; `shot` NULL: a complete video. */
typedef struct example {
    const weft_curate_source *source;
    const json_t *shot, *reject;
} example;

typedef struct examples {
    const weft_curate_plan *plan;
    const char *folder;
    const char *name[OPERATORS]; /* of operators, in order of appearance */
    example of[OPERATORS][EACH];
    int count[OPERATORS], operators;
    int job[OPERATORS * EACH][2], jobs; /* operator and number of each example */
} examples;

static void add_example(examples *e, const weft_curate_source *s, const json_t *shot,
                        const json_t *reject)
{
    const char *name = json_string_value(json_object_get(reject, "operator"));
    int i = 0;
    while (i < e->operators && name && strcmp(e->name[i], name) != 0)
        i++;
    if (!name || i == OPERATORS || e->count[i] == EACH)
        return;
    e->operators += i == e->operators;
    e->name[i] = name;
    e->job[e->jobs][0] = i;
    e->job[e->jobs++][1] = e->count[i];
    e->of[i][e->count[i]++] = (example){s, shot, reject};
}

static void collect(examples *e)
{
    for (int64_t i = 0; i < e->plan->sources; i++) {
        const weft_curate_source *s = &e->plan->source[i];
        const json_t *reject = json_object_get(s->record, "reject");
        size_t k;
        json_t *shot;
        if (reject)
            add_example(e, s, NULL, reject);
        json_array_foreach(json_object_get(s->record, "shots"), k,
                           shot) if (!reject && json_object_get(shot, "reject"))
            add_example(e, s, shot, json_object_get(shot, "reject"));
    }
}

static weft_status path_of(const examples *e, int64_t job, weft_buf *path)
{
    weft_buf_printf(path, "%s/%" PRId64 ".jpg", e->folder, job);
    return weft_buf_check(path);
}

static const example *example_of(const examples *e, int64_t job)
{
    return &e->of[e->job[job][0]][e->job[job][1]];
}

static weft_status write_frame(const examples *e, int64_t job, const weft_shot_frames *f)
{
    weft_buf jpeg = {0}, path = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_jpeg_encode(f->rgb, f->width, f->height, &jpeg));
    WEFT_GO(path_of(e, job, &path));
    WEFT_GO(weft_file_write_atomic(path.data, jpeg.data, jpeg.len));
out:
    weft_buf_free(&jpeg);
    weft_buf_free(&path);
    return status;
}

static void beat(void *heart)
{
    weft_heartbeat_beat(heart);
}

static weft_status_code decode_job(void *context, int64_t job, int threads,
                                   const weft_heartbeat *heart)
{
    const examples *e = context;
    const example *x = example_of(e, job);
    weft_shot_decoder *decoder = NULL;
    const weft_shot_frames *f;
    json_t *first = json_pack("{s:i,s:i}", "start", 0, "end", 0);
    weft_footage_video v = {0};
    weft_status_code status = WEFT_OK;
    (void)threads;
    WEFT_TRY(WEFT_ALLOCATED(first, "an example"));
    WEFT_GO(weft_footage_video_open(e->plan->footage, x->source->path, beat, (void *)heart, &v));
    WEFT_GO(weft_shot_decoder_open(v.path, e->plan->config->stall_seconds, beat, (void *)heart,
                                   &decoder));
    WEFT_GO(weft_shot_decoder_get(decoder, x->shot ? x->shot : first, 1, SIDE, &f));
    WEFT_GO(write_frame(e, job, f));
out:
    weft_shot_decoder_close(decoder);
    json_decref(first);
    return weft_footage_video_close(&v, status);
}

/* An example without a frame has its text. */
static weft_status_code job_done(void *context, int64_t job, const weft_pool_outcome *o)
{
    (void)context;
    (void)job;
    (void)o;
    return WEFT_OK;
}

static void describe(const example *x, weft_buf *text)
{
    const json_t *limit = json_object_get(x->reject, "threshold"),
                 *value = json_object_get(x->reject, "value");
    weft_buf_printf(text, "%s", x->source->name);
    if (x->shot)
        weft_buf_printf(text, ", %.1f to %.1f s",
                        json_number_value(json_object_get(x->shot, "start_seconds")),
                        json_number_value(json_object_get(x->shot, "end_seconds")));
    weft_buf_printf(text, ": %.160s", json_string_value(json_object_get(x->reject, "reason")));
    weft_buf_printf(text, " (%.4g, limit %.4g)", json_number_value(value),
                    json_number_value(limit));
}

static weft_status put_example(const examples *e, int64_t job, weft_buf *page)
{
    weft_buf path = {0}, text = {0};
    describe(example_of(e, job), &text);
    weft_status_code status = WEFT_OK;
    WEFT_GO(path_of(e, job, &path));
    WEFT_GO(weft_buf_check(&text));
    if (weft_path_exists(path.data)) {
        WEFT_GO(weft_html_file(page, path.data, 0, text.data));
    } else {
        const char *const cell[] = {text.data};
        weft_html_table(page, NULL, cell, 1, 1);
    }
out:
    weft_buf_free(&path);
    weft_buf_free(&text);
    return status;
}

static weft_status put_examples(const examples *e, weft_buf *page)
{
    for (int i = 0; i < e->operators; i++) {
        char title[96];
        snprintf(title, sizeof title, "Rejected by %.60s", e->name[i]);
        weft_html_heading(page, title);
        weft_html_figures_begin(page);
        for (int64_t job = 0; job < e->jobs; job++)
            if (e->job[job][0] == i)
                WEFT_TRY(put_example(e, job, page));
        weft_html_figures_end(page);
    }
    return WEFT_OK;
}

/* Writes the frames into e->folder, which exists, and puts them into the page. */
static weft_status make_examples(examples *e, weft_buf *page)
{
    const weft_pool pool = {.count = e->jobs,
                            .workers = e->jobs < WORKERS ? e->jobs : WORKERS,
                            .memory = e->plan->config->worker_memory,
                            .stall_seconds = e->plan->config->stall_seconds,
                            .context = e,
                            .job = decode_job,
                            .done = job_done,
                            .threads = 1};
    WEFT_TRY(weft_pool_run(&pool));
    return put_examples(e, page);
}

weft_status weft_reject_examples_add(const weft_curate_plan *p, weft_buf *page)
{
    examples *e;
    weft_buf folder = {0};
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(e, 1, "examples"));
    e->plan = p;
    collect(e);
    if (e->jobs == 0)
        goto out;
    weft_buf_printf(&folder, "%s/state/examples", p->out);
    WEFT_GO(weft_buf_check(&folder));
    e->folder = folder.data;
    if (weft_path_exists(folder.data)) /* of a killed run */
        WEFT_GO(weft_remove_tree(folder.data));
    WEFT_GO(weft_make_dirs(folder.data));
    status = make_examples(e, page);
    const weft_status_code removed = weft_remove_tree(folder.data);
    WEFT_GO(status);
    WEFT_GO(removed);
out:
    weft_buf_free(&folder);
    weft_free(e);
    return status;
}
