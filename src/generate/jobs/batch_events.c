#include "generate/jobs/batch_events.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "generate/jobs/batch_files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_alone(const weft_generation_batch *b)
{
    const weft_comm *comm = b->context->team.comm;
    return !comm || weft_comm_ranks(comm) == 1;
}

/* ---- denoising ------------------------------------------------------------------------------ */

static void on_begin(void *user, int64_t first_prompt)
{
    weft_generation_batch *b = user;
    (void)first_prompt;
    b->window.stepping = weft_now();
}

/* Written frames per second since the video began. */
static double frames_per_second(const weft_generation_batch *b)
{
    return (double)b->group->continuation.written / (weft_now() - b->window.began);
}

/* Prints the time of a finished step. */
static void report_step(weft_generation_batch *b, int64_t done, int64_t steps)
{
    weft_generation_progress *p = &b->context->progress;
    weft_generation_window *w = &b->window;
    const int64_t since = done - w->begun_at;
    const double elapsed = weft_now() - w->stepping, taken = elapsed / (double)since;
    char detail[160], each[32];
    if (since == 1) {
        w->first_step = taken;
        weft_progress_turn(&p->bar);
    }
    if (!p->foretold && since == 2) { /* the first step includes one-time work */
        p->foretold = true;
        weft_notice(WEFT_MSG_ESTIMATE, WEFT_NOWHERE,
                    "predicted from the first two steps: %s for the denoising of %" PRId64 " steps",
                    weft_format_seconds(w->first_step + (2 * taken - w->first_step) *
                                                            (double)(steps - w->begun_at - 1),
                                        each),
                    steps - w->begun_at);
    }
    snprintf(detail, sizeof detail,
             "prompt %" PRId64 ", denoising step %" PRId64 "/%" PRId64 ", %s each, %.4g tokens/s",
             weft_generation_batch_job(b, 0) + 1, done, steps, weft_format_seconds(taken, each),
             (double)(b->group->tokens * b->jobs->count) / taken);
    if (w->first_frame > 0) {
        const size_t used = strlen(detail);
        snprintf(detail + used, sizeof detail - used, ", %" PRId64 " frames, %.3g frames/s",
                 b->group->continuation.written, frames_per_second(b));
    }
    p->step_seconds = weft_generation_step_seconds(elapsed, w->first_step, since);
    weft_generation_progress_update(p, p->steps + done, detail, p->longest);
}

static weft_status_code on_step(void *user, int64_t first_prompt, int64_t done, int64_t steps)
{
    weft_generation_batch *b = user;
    (void)first_prompt;
    const weft_status_code stop = weft_generation_context_check_interrupt(b->context);
    const bool stopped = stop == WEFT_E_CANCELLED;
    if (done < steps || stop != WEFT_OK)
        WEFT_TRY(weft_batch_files_apply(b, 0, stopped ? WEFT_JOB_STOPPED : WEFT_JOB_STEPPED));
    if (stopped && b->context->team.writes && !weft_interrupt_discards())
        weft_notice(WEFT_MSG_RUN_FINISHED, WEFT_AT(WEFT_NUMBER(done)),
                    "stopped after step %" PRId64 " of %" PRId64 " of prompt %" PRId64
                    ". The state is saved; the same "
                    "command with --resume continues with bitwise identical results.",
                    done, steps, weft_generation_batch_job(b, 0) + 1);
    WEFT_TRY(stop);
    if (b->context->team.is_rank0)
        report_step(b, done, steps);
    return WEFT_OK;
}

static weft_status_code on_preview(void *user, int64_t prompt, const float *image)
{
    return weft_batch_files_write_preview(user, prompt, image);
}

/* ---- decoding ------------------------------------------------------------------------------- */

/* Updates the progress after `frames` written frames of the video. */
static void update_decoding(weft_generation_batch *b, int64_t job, int64_t frames)
{
    weft_generation_progress *p = &b->context->progress;
    char detail[96];
    const int64_t all = b->group->continuation.frames,
                  steps = weft_generator_steps(b->group->generator);
    const double taken = weft_now() - b->window.decoded;
    const double left = frames ? taken * (double)(all - frames) / (double)frames
                               : (p->longest > taken ? p->longest - taken : 0);
    snprintf(detail, sizeof detail, "prompt %" PRId64 ", decoding frame %" PRId64 "/%" PRId64,
             job + 1, frames, all);
    if (!frames)
        weft_progress_turn(&p->bar);
    weft_generation_progress_update(p, p->steps + steps, detail, left);
}

/* Prints the measured seconds of texts and steps next to the predicted ones. */
static void report_denoising(const weft_generation_batch *b)
{
    const double took = weft_now() - b->window.began, predicted = b->group->predicted;
    char text[32];
    if (predicted > 0 && b->window.begun_at == 0)
        weft_notice(
            WEFT_MSG_ESTIMATE,
            WEFT_AT(WEFT_NUMBER(took), WEFT_DETAILS(WEFT_DETAIL("predicted_seconds", predicted))),
            "denoised in %s, %+.0f %% of the prediction", weft_format_seconds(took, text),
            100 * (took / predicted - 1));
}

static weft_status_code on_latents(void *user, int64_t prompt, const int64_t dim[4], const float *x)
{
    weft_generation_batch *b = user;
    const bool is_rank0 = b->context->team.is_rank0, last = prompt == b->jobs->count - 1;
    b->denoising += prompt ? 0 : weft_now() - b->window.began;
    if (is_rank0 && !prompt)
        report_denoising(b);
    if (b->context->run->latents)
        WEFT_TRY(weft_batch_files_write_array(b, prompt, "latents.npy", 4, dim, x));
    WEFT_TRY(weft_batch_files_apply(b, prompt, WEFT_JOB_DENOISED));
    for (int64_t i = 0; last && i < b->jobs->count; i++)
        WEFT_TRY(weft_batch_files_apply(b, i, WEFT_JOB_BATCH_DENOISED));
    b->window.decoded = weft_now();
    if (is_rank0 && last)
        update_decoding(b, weft_generation_batch_job(b, 0), 0);
    return WEFT_OK;
}

static weft_status_code on_audio_latents(void *user, int64_t prompt, const int64_t dim[2],
                                         const float *x)
{
    const weft_generation_batch *b = user;
    return b->context->run->latents
               ? weft_batch_files_write_array(b, prompt, "audio-latents.npy", 2, dim, x)
               : WEFT_OK;
}

static weft_status_code on_sound(void *user, int64_t prompt, const weft_sound *sound)
{
    const weft_generation_batch *b = user;
    return weft_video_outputs_sound(b->context->outputs, weft_generation_batch_job(b, prompt),
                                    sound);
}

static void record_facts(const weft_generation_batch *b)
{
    const weft_generation_team *team = &b->context->team;
    json_t *facts =
        json_pack("{s:{s:f, s:f}, s:I, s:i, s:i}", "seconds", "denoise", b->denoising, "decode",
                  b->decoding + weft_now() - b->window.decoded, "batch", (json_int_t)b->jobs->count,
                  "team", team->number, "ranks", team->comm ? weft_comm_ranks(team->comm) : 1);
    if (facts && weft_generation_group_in_windows(b->group))
        json_object_set_new(facts, "windows", json_integer(b->group->continuation.count));
    if (facts && b->window.first_frame > 0)
        json_object_set_new(json_object_get(facts, "seconds"), "first_frame",
                            json_real(b->window.first_frame));
    if (facts && b->window.begun_at)
        json_object_set_new(facts, "from_step", json_integer(b->window.begun_at));
    weft_video_outputs_facts(b->context->outputs, facts);
}

static weft_status stop_decoding(weft_generation_batch *b, int64_t prompt)
{
    if (weft_interrupt_discards())
        return weft_interrupt_check();
    WEFT_TRY(weft_batch_files_apply(b, prompt, WEFT_JOB_DECODER_STOPPED));
    weft_notice(WEFT_MSG_RUN_FINISHED, WEFT_NOWHERE,
                "stopped while prompt %" PRId64 " was decoded. Its latents are saved; the same "
                "command with --resume continues.",
                weft_generation_batch_job(b, prompt) + 1);
    return weft_interrupt_check();
}

/* Frames of causal models come while later ones are denoised: prints the time of the first. */
static void report_first_frame(weft_generation_batch *b, int64_t job, int64_t frames)
{
    weft_generation_window *w = &b->window;
    char text[32];
    if (w->decoded > 0 || w->first_frame > 0)
        return;
    w->first_frame = weft_now() - w->began;
    if (b->context->team.is_rank0)
        weft_notice(WEFT_MSG_JOB_REPORT,
                    WEFT_AT(WEFT_DETAILS(WEFT_DETAIL("first_frame_seconds", w->first_frame),
                                         WEFT_DETAIL("frames", frames))),
                    "prompt %" PRId64 ": the first %" PRId64 " frame%s after %s", job + 1, frames,
                    weft_plural(frames), weft_format_seconds(w->first_frame, text));
}

/* Prints the frames per second of a video whose frames came while it was denoised. */
static void report_rate(const weft_generation_batch *b, int64_t job)
{
    const double rate = frames_per_second(b);
    if (b->window.first_frame > 0 && b->context->team.is_rank0)
        weft_notice(WEFT_MSG_JOB_REPORT,
                    WEFT_AT(WEFT_DETAILS(WEFT_DETAIL("frames_per_second", rate))),
                    "prompt %" PRId64 ": %" PRId64 " frames, %.3g frames/s", job + 1,
                    b->group->continuation.written, rate);
}

static weft_status_code on_frames(void *user, int64_t prompt, int64_t first, int64_t count,
                                  const float *frames)
{
    weft_generation_batch *b = user;
    weft_continuation *c = &b->group->continuation;
    weft_generation_progress *p = &b->context->progress;
    const int64_t job = weft_generation_batch_job(b, prompt);
    int64_t from, fresh;
    if (is_alone(b) && weft_interrupted() && b->window.decoded > 0)
        return stop_decoding(b, prompt);
    weft_continuation_push(c, first, count, frames, &from, &fresh);
    const bool last = c->written == c->frames;
    if (!fresh)
        return WEFT_OK;
    if (last)
        record_facts(b);
    weft_comm_set_busy(b->context->team.comm, "writing a video");
    const weft_status_code status = weft_video_outputs_frames(
        b->context->outputs, job, c->written - fresh, fresh, frames + from * c->frame);
    weft_comm_set_busy(b->context->team.comm, NULL);
    WEFT_TRY(status);
    p->made += last;
    report_first_frame(b, job, fresh);
    if (b->context->team.is_rank0 && !last && b->window.decoded > 0)
        update_decoding(b, job, c->written);
    if (!last)
        return WEFT_OK;
    report_rate(b, job);
    p->longest = fmax(p->longest, weft_now() - b->window.decoded);
    b->window.decoded = weft_now();
    return weft_batch_files_apply(b, prompt, WEFT_JOB_WRITTEN);
}

weft_generator_sink weft_batch_events_sink(weft_generation_batch *b)
{
    return (weft_generator_sink){.begin = on_begin,
                                 .step = on_step,
                                 .preview = on_preview,
                                 .latents = on_latents,
                                 .audio_latents = on_audio_latents,
                                 .sound = on_sound,
                                 .frames = on_frames,
                                 .user = b};
}
