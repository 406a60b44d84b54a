#include "generate/jobs/batch_files.h"

#include "base/fs.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "format/tensors/npy.h"
#include "generate/generator/generator_save.h"
#include "video/clip.h"
#include "video/image.h"

weft_job_row weft_batch_files_row(const weft_generation_batch *b, weft_job_state state)
{
    return weft_job_files_row(&b->context->files, state,
                              weft_generation_group_in_windows(b->group) ? WEFT_JOB_CONTINUED
                                                                         : WEFT_JOB_ONE_WINDOW);
}

/* Writes the state of the batch, or of each video. */
static weft_status write_states(weft_generation_batch *b)
{
    const weft_job_files *files = &b->context->files;
    weft_generator *g = b->group->generator;
    const bool split = b->context->run->split_states;
    weft_buf path = {0};
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < (split ? b->jobs->count : 1); i++) {
        const int64_t job = weft_generation_batch_job(b, i);
        WEFT_GO(weft_job_files_saved_path(files, job, WEFT_JOB_SAMPLER_STATE, 0, &path));
        WEFT_GO(split ? weft_generator_save_video(g, i, path.data)
                      : weft_generator_save(g, path.data));
        if (b->context->team.writes)
            weft_job_files_remove_earlier(files, job);
    }
out:
    weft_buf_free(&path);
    return status;
}

/* Saves the sampler state, unless saving would take more than a fiftieth of the time since the last
 * save. `must`: saves, unless the work is not resumed. */
static weft_status save_state(weft_generation_batch *b, bool must)
{
    const weft_generation_team *team = &b->context->team;
    weft_generation_window *w = &b->window;
    const double now = weft_now();
    const bool together = team->comm && weft_generator_keeps_caches(b->group->generator);
    bool save = !weft_interrupt_discards() && (must || now - w->saved_at >= 50 * w->save_seconds);
    if (together) /* each rank saves its caches after the same step */
        WEFT_TRY(weft_comm_broadcast(team->comm, &save, sizeof save, 0));
    if (!save || (!team->writes && !together))
        return WEFT_OK;
    const weft_status_code status = write_states(b);
    w->saved_at = weft_now();
    w->save_seconds = w->saved_at - now;
    if (status == WEFT_OK || must)
        return status;
    weft_warn_error(WEFT_MSG_SAVE_FAILED, "the denoising continues without being saved");
    w->save_seconds = 60; /* retry later: the disk may be full */
    return WEFT_OK;
}

/* `tried`: decoding begins, and the file has the decoder's bytes until decoding is finished. */
static weft_status save_latents(const weft_generation_batch *b, int64_t prompt, bool tried)
{
    weft_buf path = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_job_files_saved_path(&b->context->files, weft_generation_batch_job(b, prompt),
                                      WEFT_JOB_LATENTS, 0, &path));
    WEFT_GO(weft_generator_save_latents(b->group->generator, prompt, tried, path.data));
out:
    weft_buf_free(&path);
    return status;
}

/* Saves the latents of the current window, from which a resumed run decodes. */
static weft_status save_window(const weft_generation_batch *b, int64_t prompt)
{
    weft_buf path = {0};
    if (b->window.begun_at == weft_generator_steps(b->group->generator))
        return WEFT_OK; /* it was resumed from this file */
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_job_files_saved_path(&b->context->files, weft_generation_batch_job(b, prompt),
                                      WEFT_JOB_WINDOWS, b->group->continuation.at, &path));
    WEFT_GO(weft_generator_save(b->group->generator, path.data));
out:
    weft_buf_free(&path);
    return status;
}

static weft_status write_file(weft_generation_batch *b, int64_t prompt, weft_job_file file,
                              weft_job_action action)
{
    switch (file) {
    case WEFT_JOB_SAMPLER_STATE: return save_state(b, action == WEFT_RULE_WRITE);
    case WEFT_JOB_LATENTS: return save_latents(b, prompt, action == WEFT_RULE_WRITE_TRIED);
    case WEFT_JOB_WINDOWS: return save_window(b, prompt);
    default: return WEFT_OK;
    }
}

weft_status weft_batch_files_apply(weft_generation_batch *b, int64_t prompt, weft_job_state state)
{
    const weft_job_row row = weft_batch_files_row(b, state);
    for (weft_job_file file = 0; file < WEFT_JOB_FILES; file++) {
        const weft_job_action action = weft_job_rule(row, file);
        if (action == WEFT_RULE_WRITE || action == WEFT_RULE_WRITE_DUE ||
            action == WEFT_RULE_WRITE_TRIED)
            WEFT_TRY(write_file(b, prompt, file, action));
    }
    weft_job_files_remove(&b->context->files, weft_generation_batch_job(b, prompt), row);
    return WEFT_OK;
}

weft_status weft_batch_files_write_array(const weft_generation_batch *b, int64_t prompt,
                                         const char *ending, int rank, const int64_t *dim,
                                         const float *x)
{
    weft_buf data = {0}, path = {0};
    weft_npy_format(WEFT_F32, rank, dim, x, &data);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&data));
    WEFT_GO(weft_job_files_new_path(&b->context->files, weft_generation_batch_job(b, prompt),
                                    ending, &path));
    weft_comm_set_busy(b->context->team.comm, "writing latents");
    status = weft_file_write_atomic(path.data, data.data, data.len);
    weft_comm_set_busy(b->context->team.comm, NULL);
out:
    weft_buf_free(&data);
    weft_buf_free(&path);
    return status;
}

weft_status weft_batch_files_write_preview(const weft_generation_batch *b, int64_t prompt,
                                           const float *image)
{
    weft_generation_context *c = b->context;
    const int64_t job = weft_generation_batch_job(b, prompt), height = c->items[job].height,
                  width = c->items[job].width;
    weft_buf path = {0};
    uint8_t *rgb = weft_alloc(height * width * 3);
    weft_status_code status;
    WEFT_GO(rgb ? weft_job_files_new_path(&c->files, job, "preview.png", &path)
                : weft_no_memory("a preview image"));
    weft_clip_to_u8(image, 1, height, width, false, rgb);
    WEFT_GO(weft_png_write(path.data, rgb, width, height));
out:
    weft_buf_free(&path);
    weft_free(rgb);
    if (status == WEFT_OK || status == WEFT_E_MEMORY)
        return status;
    if (!c->preview_failed)
        weft_warn_error(WEFT_MSG_SAVE_FAILED,
                        "denoising continues without the images of --preview-interval");
    c->preview_failed = true;
    return WEFT_OK;
}
