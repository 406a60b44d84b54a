#include "evaluate/evaluate.h"

#include "base/fs.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "data/dataset.h"
#include "evaluate/image_metrics.h"
#include "generate/generator/generator_denoise.h"
#include "generate/jobs/video_outputs.h"
#include "video/clip.h"
#include "video/image.h"
#include "video/shape_reader.h"
#include "video/shapes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- VAE ----------------------------------------------------------------------------------- */

enum { SHEET_CLIPS = 8, SHEET_COLUMNS = 8 };

typedef struct vae_eval {
    const weft_vae_eval_options *o;
    weft_vae *vae;
    weft_dataset *dataset;
    weft_part_bytes bytes;         /* bytes of the current clip */
    int64_t values, latent_values; /* values per clip */
    float *clip, *latents;
    uint8_t *rgb[3]; /* original, reconstruction, box average */
    uint8_t *sheet[2 * SHEET_CLIPS];
    int64_t sheet_clips;
    json_t *each;
    int64_t clips, skipped;
    weft_psnr_mean psnr[2]; /* PSNR of the VAE, and of the box average */
    double ssim[2];         /* sums over clips */
} vae_eval;

static weft_status_code store_frames(void *user, int64_t first_frame, int64_t count,
                                     const float *frames)
{
    const vae_eval *e = user;
    const int64_t frame = e->o->height * e->o->width * 3;
    weft_clip_to_u8(frames, count, e->o->height, e->o->width, false,
                    e->rgb[1] + first_frame * frame);
    return WEFT_OK;
}

/* Sends the original and the reconstruction from rank `from` to rank 0's sheet. */
static weft_status add_to_sheet(vae_eval *e, int from)
{
    weft_comm *comm = e->o->comm;
    for (int i = 0; i < 2; i++) {
        uint8_t *copy;
        WEFT_TRY(WEFT_NEW(copy, e->values, "the sheet"));
        e->sheet[2 * e->sheet_clips + i] = copy;
        memcpy(copy, e->rgb[i], (size_t)e->values);
        if (comm && weft_comm_ranks(comm) > 1)
            WEFT_TRY(weft_comm_broadcast(comm, copy, e->values, from));
    }
    e->sheet_clips++;
    return WEFT_OK;
}

/* Scores of one clip. */
typedef struct judged {
    int64_t index;
    bool counts;     /* false: the clip was skipped */
    double score[4]; /* psnr, ssim, box psnr, box ssim */
} judged;

static weft_status score_clip(vae_eval *e, judged *out)
{
    const weft_vae_eval_options *o = e->o;
    weft_clip_to_u8(e->clip, o->frames, o->height, o->width, false, e->rgb[0]);
    WEFT_TRY(weft_vae_encode(e->vae, e->clip, o->frames, e->latents));
    WEFT_TRY(weft_vae_decode(e->vae, e->latents,
                             weft_grid_latent_frames(weft_vae_grid(e->vae), o->frames),
                             store_frames, e));
    const int64_t *factor = weft_vae_grid(e->vae)->factor;
    weft_box_average(e->rgb[0], o->frames, o->height, o->width, factor[0], factor[1], factor[2],
                     e->rgb[2]);
    for (int i = 0; i < 2; i++) {
        out->score[2 * i] = weft_psnr(e->rgb[0], e->rgb[1 + i], o->frames, o->height, o->width);
        WEFT_TRY(weft_ssim(e->rgb[0], e->rgb[1 + i], o->frames, o->height, o->width,
                           &out->score[2 * i + 1]));
    }
    out->counts = true;
    return WEFT_OK;
}

static weft_status read_clip(vae_eval *e, const weft_sample *s, const weft_part_data *video)
{
    const weft_vae_eval_options *o = e->o;
    const weft_clip_request request = {.frames = o->frames,
                                       .height = o->height,
                                       .width = o->width,
                                       .fps = o->fps,
                                       .crop_x = 0.5,
                                       .crop_y = 0.5,
                                       .threads = 1};
    WEFT_TRY(weft_dataset_read(e->dataset, s, video, true, &e->bytes));
    return weft_clip_read_memory(e->bytes.data, e->bytes.bytes, s->key, &request, e->clip);
}

static weft_status evaluate_clip(vae_eval *e, judged *out)
{
    const weft_sample *s = weft_dataset_at(e->dataset, out->index);
    const weft_part_data *video = weft_sample_video(s);
    if (!video)
        return WEFT_OK;
    const weft_status_code status = read_clip(e, s, video);
    if (status == WEFT_E_MEMORY)
        return status;
    if (status != WEFT_OK) {
        weft_debug("%s skipped: %s", s->key, weft_error_message());
        return WEFT_OK;
    }
    return score_clip(e, out);
}

static bool wants_more(const vae_eval *e)
{
    return e->o->limit == 0 || e->clips < e->o->limit;
}

/* Adds a clip's scores. Called in the order of the clips, as with one rank. */
static weft_status count_clip(vae_eval *e, const judged *one, int from)
{
    if (!one->counts) {
        e->skipped++;
        return WEFT_OK;
    }
    for (int i = 0; i < 2; i++) {
        weft_psnr_add(&e->psnr[i], one->score[2 * i]);
        e->ssim[i] += one->score[2 * i + 1];
    }
    e->clips++;
    json_array_append_new(e->each, json_pack("{s:s, s:o, s:f}", "key",
                                             weft_dataset_at(e->dataset, one->index)->key, "psnr",
                                             weft_psnr_json(one->score[0]), "ssim", one->score[1]));
    return e->o->sheet && e->sheet_clips < SHEET_CLIPS ? add_to_sheet(e, from) : WEFT_OK;
}

/* Evaluates one clip per rank, then gathers the scores on all ranks. */
static weft_status evaluate_round(vae_eval *e, int64_t first, judged *all, weft_progress *progress)
{
    weft_comm *comm = e->o->comm;
    const int ranks = comm ? weft_comm_ranks(comm) : 1, rank = comm ? weft_comm_rank(comm) : 0;
    const int64_t total = weft_dataset_count(e->dataset);
    judged own = {.index = first + rank};
    if (own.index < total)
        WEFT_TRY(evaluate_clip(e, &own));
    all[0] = own;
    if (ranks > 1)
        WEFT_TRY(weft_comm_all_gather(comm, &own, sizeof own, all));
    for (int r = 0; r < ranks && first + r < total && wants_more(e); r++) {
        WEFT_TRY(count_clip(e, &all[r], r));
        weft_progress_update(progress, first + r + 1,
                             weft_dataset_at(e->dataset, all[r].index)->key);
    }
    return WEFT_OK;
}

static weft_status evaluate_clips(vae_eval *e)
{
    const int ranks = e->o->comm ? weft_comm_ranks(e->o->comm) : 1;
    const int64_t total = weft_dataset_count(e->dataset);
    judged *all = weft_calloc(ranks, sizeof *all);
    weft_status_code status = WEFT_OK;
    weft_progress progress;
    weft_progress_begin(&progress, "eval vae", total, 0);
    WEFT_GO(WEFT_ALLOCATED(all, "the evaluation"));
    for (int64_t i = 0; i < total && wants_more(e); i += ranks)
        WEFT_GO(evaluate_round(e, i, all, &progress));
out:
    weft_free(all);
    WEFT_TRY(status);
    weft_progress_end(&progress, e->clips + e->skipped, "");
    if (e->clips == 0)
        return weft_error(WEFT_MSG_SAMPLES_NONE, WEFT_AT(.file = e->o->shards),
                          "none of %" PRId64 " clips has %" PRId64 " frames of %" PRId64
                          "x%" PRId64,
                          total, e->o->frames, e->o->width, e->o->height);
    return WEFT_OK;
}

static weft_status write_vae_sheet(vae_eval *e)
{
    int64_t frames[2 * SHEET_CLIPS];
    for (int i = 0; i < 2 * SHEET_CLIPS; i++)
        frames[i] = e->o->frames;
    return weft_sheet_write(&(weft_sheet){.rgb = (const uint8_t *const *)e->sheet,
                                          .frames = frames,
                                          .videos = 2 * e->sheet_clips,
                                          .width = e->o->width,
                                          .height = e->o->height,
                                          .columns = SHEET_COLUMNS,
                                          .gap = 4},
                            e->o->sheet);
}

/* Rejects layouts that split anything but clips. */
static weft_status check_layout(const weft_vae_eval_options *o)
{
    static const char *const splits[] = {"dp", "fsdp"};
    weft_mesh mesh;
    if (!o->parallel)
        return WEFT_OK;
    WEFT_TRY(weft_parallel_mesh(o->parallel, weft_comm_ranks(o->comm), "eval vae", &mesh));
    for (int a = 0; a < mesh.axis_count; a++) {
        bool any = false;
        for (int i = 0; i < WEFT_COUNT(splits); i++)
            any = any || !strcmp(mesh.axis[a].name, splits[i]);
        if (!any)
            return weft_error(WEFT_MSG_LAYOUT_INVALID, WEFT_AT(.key = mesh.axis[a].name),
                              "an autoencoder is not split in `weft eval vae`. Ranks evaluate "
                              "clips of their own; use dp=%d.",
                              weft_comm_ranks(o->comm));
    }
    return WEFT_OK;
}

/* Resolves the memory limit, equal on all ranks: the option, or the free memory divided by the
 * ranks. Tiles, and so results, are then the same on all ranks. */
static weft_status resolve_memory(const weft_vae_eval_options *o, int64_t *bytes)
{
    const int ranks = o->comm ? weft_comm_ranks(o->comm) : 1;
    *bytes = o->memory ? o->memory : weft_device_available(weft_backend_device(o->backend), ranks);
    if (ranks == 1)
        return WEFT_OK;
    WEFT_TRY(weft_comm_barrier(o->comm));
    return weft_comm_broadcast(o->comm, bytes, sizeof *bytes, 0);
}

static weft_status prepare_vae(vae_eval *e)
{
    const weft_vae_eval_options *o = e->o;
    int64_t memory;
    WEFT_TRY(check_layout(o));
    WEFT_TRY(resolve_memory(o, &memory));
    const weft_vae_options vae = {.backend = o->backend,
                                  .halves = WEFT_VAE_ENCODER | WEFT_VAE_DECODER,
                                  .frames = o->frames,
                                  .height = o->height,
                                  .width = o->width,
                                  .products = o->products,
                                  .tile = o->tile};
    weft_tile chosen;
    WEFT_TRY(weft_vae_open_within(o->vae, &vae, memory, &e->vae, &chosen));
    char tiles[64];
    if ((!o->comm || weft_comm_rank(o->comm) == 0) && weft_vae_tiles(e->vae, tiles)[0])
        weft_notice(WEFT_MSG_JOB_REPORT, WEFT_NOWHERE, "the VAE processes each frame in %s", tiles);
    WEFT_TRY(weft_vae_bind(e->vae));
    WEFT_TRY(weft_dataset_open(o->shards, o->split, false, &e->dataset));
    const weft_grid *grid = weft_vae_grid(e->vae);
    e->values = o->frames * o->height * o->width * 3;
    e->latent_values = weft_grid_latent_frames(grid, o->frames) * (o->height / grid->factor[1]) *
                       (o->width / grid->factor[2]) * grid->channels;
    e->clip = weft_alloc(e->values * 4);
    e->latents = weft_alloc(e->latent_values * 4);
    e->each = json_array();
    bool ok = e->clip && e->latents && e->each;
    for (int i = 0; i < 3; i++) {
        e->rgb[i] = weft_alloc(e->values);
        ok &= e->rgb[i] != NULL;
    }
    return WEFT_ALLOCATED(ok, "a clip of %" PRId64 " values", e->values);
}

weft_status weft_evaluate_vae(const weft_vae_eval_options *options, json_t **result)
{
    vae_eval e = {.o = options};
    const bool first = !options->comm || weft_comm_rank(options->comm) == 0;
    weft_status_code status = WEFT_OK;
    *result = NULL;
    WEFT_GO(prepare_vae(&e));
    WEFT_GO(evaluate_clips(&e));
    if (first && options->sheet)
        WEFT_GO(write_vae_sheet(&e));
    if (first) {
        const double n = (double)e.clips;
        *result = json_pack(
            "{s:I, s:I, s:o, s:f, s:I, s:o, s:f, s:I, s:O}", "clips", (json_int_t)e.clips,
            "skipped", (json_int_t)e.skipped, "psnr", weft_psnr_json(weft_psnr_mean_of(&e.psnr[0])),
            "ssim", e.ssim[0] / n, "identical", (json_int_t)e.psnr[0].identical, "box_psnr",
            weft_psnr_json(weft_psnr_mean_of(&e.psnr[1])), "box_ssim", e.ssim[1] / n,
            "box_identical", (json_int_t)e.psnr[1].identical, "each", e.each);
    }
out:
    for (int i = 0; i < 2 * SHEET_CLIPS; i++)
        weft_free(e.sheet[i]);
    for (int i = 0; i < 3; i++)
        weft_free(e.rgb[i]);
    weft_free(e.clip);
    weft_free(e.latents);
    weft_free(e.bytes.data);
    json_decref(e.each);
    weft_dataset_close(e.dataset);
    weft_vae_free(e.vae);
    return status;
}

/* ---- prompts ------------------------------------------------------------------------------- */

typedef struct prompt {
    char text[64];
    weft_shape_words words;
    bool held_out;
} prompt;

typedef struct prompt_eval {
    const weft_prompt_eval_options *o;
    weft_generator *generator;
    weft_video_outputs *outputs;
    weft_video_outputs_item *items; /* [count] */
    prompt *list;
    int64_t count;
    const char **text;
    uint64_t *seed;
    uint8_t *rgb; /* current video */
    json_t *each;
    double score[2][4]; /* training, held out x colour, shape, direction, all */
    int64_t prompts[2];
    weft_progress progress;
} prompt_eval;

/* Marks the combinations in a list of captions and counts them. */
static weft_status read_combinations(const json_t *json, const char *key, const char *path,
                                     bool is_there[WEFT_SHAPE_ALL], int64_t *count)
{
    const json_t *list = json_object_get(json, key);
    *count = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *caption =
            json_string_value(json_object_get(json_array_get(list, i), "caption"));
        const weft_shape_words w =
            caption ? weft_shape_parse(caption) : (weft_shape_words){-1, -1, -1};
        if (w.colour < 0 || w.shape < 0 || w.direction < 0)
            return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = key),
                              "caption %zu does not name a colour, a shape and a direction", i);
        bool *there = &is_there[weft_shape_combination(w)];
        *count += !*there;
        *there = true;
    }
    return WEFT_OK;
}

/* Lists the held-out combinations, `repeats` times each, then `seen` others, evenly spread. */
static weft_status list_prompts(prompt_eval *e, const json_t *json)
{
    const weft_prompt_eval_options *o = e->o;
    bool is_held[WEFT_SHAPE_ALL] = {false}, is_seen[WEFT_SHAPE_ALL] = {false};
    int64_t held_count, others;
    WEFT_TRY(read_combinations(json, "held_out", o->heldout, is_held, &held_count));
    WEFT_TRY(read_combinations(json, "training", o->heldout, is_seen, &others));
    e->count = held_count * o->repeats + (others ? o->seen : 0);
    if (e->count == 0)
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = o->heldout, .key = "held_out"),
                          "the file has no held-out combinations, and no other prompts are "
                          "requested. Set --training-combinations above 0.");
    e->list = weft_calloc(e->count, sizeof *e->list);
    e->text = weft_calloc(e->count, sizeof *e->text);
    e->seed = weft_calloc(e->count, sizeof *e->seed);
    WEFT_TRY(WEFT_ALLOCATED(e->list && e->text && e->seed, "%" PRId64 " prompts", e->count));
    int64_t n = 0;
    for (int64_t r = 0; r < o->repeats; r++)
        for (int i = 0; i < WEFT_SHAPE_ALL; i++)
            if (is_held[i])
                e->list[n++] = (prompt){.words = weft_shape_words_of(i), .held_out = true};
    for (int64_t k = 0; n < e->count; k++) { /* the k-th training combination, evenly spread */
        int64_t want = o->seen < others ? k * others / o->seen : k % others;
        int i = 0;
        for (; i < WEFT_SHAPE_ALL; i++)
            if (is_seen[i] && want-- == 0)
                break;
        e->list[n++] = (prompt){.words = weft_shape_words_of(i)};
    }
    for (int64_t i = 0; i < e->count; i++) {
        e->text[i] = weft_shape_caption(e->list[i].words, e->list[i].text);
        e->seed[i] = (uint64_t)(o->seed + i);
    }
    return WEFT_OK;
}

static weft_status evaluate_video(prompt_eval *e, int64_t index)
{
    const weft_generator_options *s = weft_generator_settings(e->generator);
    const prompt *p = &e->list[index];
    weft_shape_reading r;
    const int64_t frame = s->height * s->width * 3;
    const bool is_image = s->frames == 1; /* an image has no direction of motion */
    if (is_image)
        memcpy(e->rgb + frame, e->rgb, (size_t)frame);
    WEFT_TRY(weft_shape_read(e->rgb, is_image ? 2 : s->frames, s->height, s->width, &r));
    const bool colour = r.found && r.words.colour == p->words.colour,
               shape = r.found && r.words.shape == p->words.shape;
    const bool direction = r.found && (is_image || r.words.direction == p->words.direction);
    double *score = e->score[p->held_out];
    score[0] += colour;
    score[1] += shape;
    score[2] += direction;
    score[3] += colour && shape && direction;
    e->prompts[p->held_out]++;
    char text[64] = "nothing";
    if (r.found)
        weft_shape_caption(r.words, text);
    json_array_append_new(e->each,
                          json_pack("{s:s, s:I, s:s, s:b, s:b, s:b, s:o}", "prompt", p->text,
                                    "seed", (json_int_t)e->seed[index], "read", text, "held_out",
                                    p->held_out, "colour", colour, "shape", shape, "direction",
                                    is_image ? json_null() : json_boolean(direction)));
    return WEFT_OK;
}

static weft_status_code on_eval_frames(void *user, int64_t index, int64_t first_frame,
                                       int64_t count, const float *frames)
{
    prompt_eval *e = user;
    const weft_generator_options *s = weft_generator_settings(e->generator);
    weft_clip_to_u8(frames, count, s->height, s->width, false,
                    e->rgb + first_frame * s->height * s->width * 3);
    WEFT_TRY(weft_video_outputs_frames(e->outputs, index, first_frame, count, frames));
    return first_frame + count == s->frames ? evaluate_video(e, index) : WEFT_OK;
}

static weft_status_code on_eval_step(void *user, int64_t first_prompt, int64_t done, int64_t steps)
{
    prompt_eval *e = user;
    const int64_t batch = weft_generator_settings(e->generator)->batch;
    weft_progress_update(&e->progress, first_prompt / batch * steps + done, "");
    return WEFT_OK;
}

static weft_status open_outputs(prompt_eval *e, const char *sheet)
{
    const weft_generator_options *s = weft_generator_settings(e->generator);
    WEFT_TRY(WEFT_NEW(e->items, e->count, "%" PRId64 " videos", e->count));
    for (int64_t i = 0; i < e->count; i++)
        e->items[i] = (weft_video_outputs_item){.prompt = e->text[i],
                                                .seed = e->seed[i],
                                                .frames = s->frames,
                                                .height = s->height,
                                                .width = s->width,
                                                .steps = s->steps,
                                                .guidance = s->guidance,
                                                .sampler = s->sampler->name,
                                                .fps = weft_generator_fps(e->generator)};
    const weft_video_outputs_options options = {
        .out = e->o->out, .sheet = sheet, .items = e->items, .count = e->count};
    return weft_video_outputs_open(&options, &e->outputs);
}

static weft_status generate_all(prompt_eval *e)
{
    const weft_prompt_eval_options *o = e->o;
    WEFT_TRY(weft_generator_open(o->model, &o->generator, o->comm, &e->generator));
    WEFT_TRY(weft_generator_bind(e->generator));
    const weft_generator_options *s = weft_generator_settings(e->generator);
    if (weft_comm_rank(o->comm) > 0)
        return weft_generator_run(e->generator, e->text, e->seed, e->count,
                                  &(weft_generator_sink){0});
    e->rgb = weft_alloc((s->frames > 1 ? s->frames : 2) * s->height * s->width * 3);
    e->each = json_array();
    WEFT_TRY(WEFT_ALLOCATED(e->rgb && e->each, "a video"));
    char *sheet = weft_path_join(o->out, "sheet.png");
    weft_status_code status = WEFT_OK;
    WEFT_GO(sheet ? weft_make_dirs(o->out) : weft_no_memory("the evaluation"));
    WEFT_GO(open_outputs(e, sheet));
out:
    weft_free(sheet);
    WEFT_TRY(status);
    const int64_t rounds = (e->count + s->batch - 1) / s->batch;
    const weft_generator_sink sink = {.step = on_eval_step, .frames = on_eval_frames, .user = e};
    weft_progress_begin(&e->progress, "eval", rounds * s->steps, 0);
    WEFT_TRY(weft_generator_run(e->generator, e->text, e->seed, e->count, &sink));
    weft_progress_end(&e->progress, rounds * s->steps, "");
    return weft_video_outputs_finish(e->outputs);
}

/* null for images */
static json_t *of_direction(const prompt_eval *e, double share)
{
    return weft_generator_settings(e->generator)->frames > 1 ? json_real(share) : json_null();
}

static json_t *shares(const prompt_eval *e, int group)
{
    const double n = e->prompts[group] ? (double)e->prompts[group] : 1;
    return json_pack("{s:I, s:f, s:f, s:o, s:f}", "prompts", (json_int_t)e->prompts[group],
                     "colour", e->score[group][0] / n, "shape", e->score[group][1] / n, "direction",
                     of_direction(e, e->score[group][2] / n), "all", e->score[group][3] / n);
}

weft_status weft_evaluate_prompts(const weft_prompt_eval_options *options, json_t **result)
{
    prompt_eval e = {.o = options};
    json_t *json = NULL;
    weft_status_code status = WEFT_OK;
    *result = NULL;
    WEFT_GO(weft_json_load(options->heldout, &json));
    WEFT_GO(list_prompts(&e, json));
    WEFT_GO(generate_all(&e));
    if (weft_comm_rank(options->comm) == 0) {
        json_t *chance = json_pack("{s:f, s:f, s:o, s:f}", "colour", 1.0 / WEFT_SHAPE_COLOURS,
                                   "shape", 1.0 / WEFT_SHAPE_KINDS, "direction",
                                   of_direction(&e, 1.0 / WEFT_SHAPE_DIRECTIONS), "all",
                                   weft_generator_settings(e.generator)->frames > 1
                                       ? 1.0 / WEFT_SHAPE_COMBINATIONS
                                       : 1.0 / (WEFT_SHAPE_COLOURS * WEFT_SHAPE_KINDS));
        *result = json_pack("{s:o, s:o, s:o, s:O}", "held_out", shares(&e, 1), "seen",
                            shares(&e, 0), "chance", chance, "each", e.each);
    }
out:
    json_decref(json);
    json_decref(e.each);
    weft_video_outputs_free(e.outputs);
    weft_free(e.items);
    weft_generator_free(e.generator);
    weft_free(e.list);
    weft_free(e.text);
    weft_free(e.seed);
    weft_free(e.rgb);
    return status;
}
