#include "generate/jobs/decode_jobs.h"

#include "base/fs.h"
#include "base/hex.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "generate/generator/decode.h"

#include <stdio.h>
#include <string.h>

/* Output of decoded frames. */
typedef struct frames_to {
    weft_video_outputs *outputs; /* NULL: on ranks that write nothing */
    weft_comm *comm;             /* ranks that wait for the video; NULL: none */
    int64_t item;
} frames_to;

static weft_status_code on_frames(void *user, int64_t first, int64_t count, const float *frames)
{
    const frames_to *to = user;
    weft_comm_set_busy(to->comm, "writing a video");
    const weft_status_code status =
        weft_video_outputs_frames(to->outputs, to->item, first, count, frames);
    weft_comm_set_busy(to->comm, NULL);
    return status;
}

static weft_status_code on_sound(void *user, const weft_sound *sound)
{
    const frames_to *to = user;
    return to->outputs ? weft_video_outputs_sound(to->outputs, to->item, sound) : WEFT_OK;
}

/* ---- saved latents of jobs ------------------------------------------------------------------ */

/* Checks that the latents are of this model and job. */
static weft_status check_latents(weft_generation_context *c, int64_t job, const char *path,
                                 const weft_saved_latents *k)
{
    const weft_video_outputs_item *item = &c->items[job];
    char vae[WEFT_HEX_BYTES];
    if (!c->model[0])
        WEFT_TRY(weft_model_identity(c->run->model, c->model, vae));
    json_t *is = json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "model", c->model, "frames",
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
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(was && is && prompt, "the generation"));
    WEFT_GO(weft_saved_latents_compare(path, was, is, NULL));
    WEFT_GO(weft_saved_latents_compare(path, json_array_get(k->prompts, 0), prompt, NULL));
out:
    json_decref(was);
    json_decref(is);
    json_decref(prompt);
    return status;
}

/* Sets the facts of a video that are in its latents' settings. */
static weft_status take_settings(weft_generation_context *c, int64_t job, const char *path,
                                 const weft_saved_latents *saved)
{
    weft_video_outputs_item *item = &c->items[job];
    weft_notice(WEFT_MSG_RUN_RESUMED, WEFT_AT(.file = path), "decoding these latents");
    weft_video_outputs_facts(c->outputs, json_pack("{s:I}", "from_step", (json_int_t)saved->steps));
    item->sampler = json_string_value(json_object_get(saved->settings, "sampler"));
    item->fps = saved->fps;
    return item->sampler
               ? WEFT_OK
               : weft_error(WEFT_MSG_LATENTS_INVALID, WEFT_AT(.file = path, .key = "sampler"),
                            "the settings of the latents name no sampler");
}

static weft_status decode_opened(weft_generation_context *c, int64_t job, const char *path,
                                 weft_saved_latents *saved)
{
    const weft_generator_options *g = c->run->options;
    const weft_decode_options o = {g->backend,   c->run->model,   g->tile,  g->memory,
                                   c->team.comm, g->vae_products, on_sound, &c->sound};
    frames_to to = {c->outputs, c->team.comm, job};
    WEFT_TRY(check_latents(c, job, path, saved));
    if (c->team.writes)
        WEFT_TRY(take_settings(c, job, path, saved));
    return weft_decode_run(&o, path, saved, 0, on_frames, &to);
}

static weft_status decode_job(weft_generation_context *c, int64_t job, const char *path)
{
    weft_decoded_size size;
    weft_saved_latents saved;
    WEFT_TRY(weft_saved_latents_damaged(weft_decode_open(path, c->run->model, &saved, &size)));
    const weft_status_code status = decode_opened(c, job, path, &saved);
    c->items[job].sampler = NULL;
    weft_saved_latents_close(&saved);
    c->done[job] = true;
    WEFT_TRY(status);
    if (c->team.writes)
        weft_job_files_remove(&c->files, job,
                              weft_job_files_row(&c->files, WEFT_JOB_DECODED, WEFT_JOB_ANY_FORM));
    return WEFT_OK;
}

static weft_status decode_saved(weft_generation_context *c, int64_t job)
{
    const weft_job_row row = weft_job_files_row(&c->files, WEFT_JOB_UNFINISHED, WEFT_JOB_ANY_FORM);
    weft_job_lookup saved = {.files = &c->files, .job = job};
    weft_job_file source;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_job_search(row, weft_job_files_verify, &saved, &source));
    if (source != WEFT_JOB_FILES)
        WEFT_GO(decode_job(c, job, saved.path.data));
out:
    weft_buf_free(&saved.path);
    return status;
}

weft_status weft_decode_jobs(weft_generation_context *c)
{
    for (int64_t b = 0; b < c->batches.count; b++)
        for (int64_t i = 0; i < c->batches.at[b].count; i++) {
            const int64_t job = c->batches.order[c->batches.at[b].first + i];
            if (c->done[job] || c->batches.at[b].team != c->team.number)
                continue;
            WEFT_TRY(decode_saved(c, job));
            WEFT_TRY(weft_generation_context_check_interrupt(c));
        }
    return WEFT_OK;
}

/* ---- files of latents ----------------------------------------------------------------------- */

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

static weft_video_outputs_item item_of(const weft_generation_run *o, const weft_saved_latents *k,
                                       const weft_decoded_size *size)
{
    const json_t *prompt = json_array_get(k->prompts, 0);
    const char *text = json_string_value(json_object_get(prompt, "prompt")),
               *sampler = json_string_value(json_object_get(k->settings, "sampler"));
    return (weft_video_outputs_item){
        .prompt = text ? text : "",
        .negative = json_string_value(json_object_get(prompt, "negative")),
        .seed = (uint64_t)json_integer_value(json_object_get(prompt, "seed")),
        .frames = size->frames,
        .height = size->height,
        .width = size->width,
        .steps = k->steps,
        .guidance = json_number_value(json_object_get(k->settings, "guidance")),
        .sampler = sampler ? sampler : "",
        .fps = o->options->fps > 0 ? o->options->fps : k->fps};
}

static weft_status decode_file(const weft_generation_run *o, const char *path,
                               weft_kept_sound *sound, weft_saved_latents *k)
{
    const bool writes = !o->comm || weft_comm_rank(o->comm) == 0;
    const weft_decode_options how = {o->options->backend,
                                     o->model,
                                     o->options->tile,
                                     o->options->memory,
                                     o->comm,
                                     o->options->vae_products,
                                     on_sound,
                                     sound};
    weft_decoded_size size;
    frames_to to = {.comm = o->comm};
    WEFT_TRY(weft_decode_open(path, o->model, k, &size));
    char *name = video_of(path);
    weft_video_outputs_item item = item_of(o, k, &size);
    item.file = name;
    const weft_video_outputs_options g = {.out = o->out,
                                          .sheet = o->sheet,
                                          .raw = o->raw,
                                          .items = &item,
                                          .count = 1,
                                          .goes_on = true};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(name, "the generation"));
    if (writes)
        WEFT_GO(weft_video_outputs_open(&g, &to.outputs));
    WEFT_GO(weft_decode_run(&how, path, k, 0, on_frames, &to));
    if (writes)
        WEFT_GO(weft_video_outputs_finish(to.outputs));
out:
    weft_video_outputs_free(to.outputs);
    weft_free(name);
    return status;
}

weft_status weft_decode_jobs_files(const weft_generation_run *o, const char *const *paths,
                                   int count)
{
    if (count > 1 && weft_video_outputs_is_file(o->out))
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.file = o->out, WEFT_NUMBER(count)),
                          "one file cannot hold the videos of %d files of latents. Name a folder.",
                          count);
    if (count > 1 && o->sheet)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--sheet", .value = o->sheet),
                          "a contact sheet takes one --decode-latents, not %d", count);
    weft_kept_sound sound = {0};
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        weft_saved_latents saved = {0};
        status = decode_file(o, paths[i], &sound, &saved);
        weft_saved_latents_close(&saved);
    }
    weft_kept_sound_free(&sound);
    return status;
}
