#include "base/fs.h"
#include "base/log.h"
#include "generate/generator_parts.h"
#include "model/dialect.h"
#include "runtime/weights.h"

#include <stdio.h>
#include <string.h>

/* x, other and what the sampler keeps, which grow with the length of a video. */
static int64_t walk_floats(const weft_generator *p)
{
    const int64_t all = p->options.batch * p->latent_floats;
    return 2 * weft_aligned(all) + weft_sampler_work(p->options.sampler, &p->scheduler.solver, all);
}

static int64_t host_floats(const weft_generator *p)
{
    return (weft_generator_away(p) ? 0 : walk_floats(p)) + p->rows * p->captions.floats;
}

const char *weft_generator_away(const weft_generator *p)
{
    return p->windows.count > 1 ? p->options.away : NULL;
}

int64_t weft_generator_away_bytes(const weft_generator *p)
{
    int64_t bytes = walk_floats(p) * (int64_t)sizeof(float) + weft_given_mapped(&p->given);
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts; i++)
        bytes += part[i]->cache ? weft_cache_bytes(part[i]->cache, true) : 0;
    return weft_generator_away(p) ? bytes : 0;
}

int weft_generator_denoisers(const weft_generator *p,
                             const weft_generator_part *list[WEFT_GENERATOR_DENOISERS])
{
    int count = 0;
    for (int i = 0; i < p->experts; i++) {
        list[count++] = &p->denoiser[i];
        if (p->alone[i].graph)
            list[count++] = &p->alone[i];
    }
    return count;
}

bool weft_generator_has_texts(const weft_generator *p)
{
    return p->text_rank < 0 || p->text_rank == weft_comm_rank(p->comm);
}

int weft_generator_text_rank(const weft_generator *p)
{
    return p->text_rank;
}

/* All of them, which run one at a time; how many. `texts`: with those of the text encoders. */
enum { MAX_PROGRAMS = WEFT_GENERATOR_DENOISERS * (1 + WEFT_CACHE_PROGRAMS) + WEFT_MAX_READERS };
static int programs_of(const weft_generator *p, bool texts, weft_program *list[MAX_PROGRAMS])
{
    int count = 0;
    for (int i = 0; i < p->captions.readers && texts; i++)
        list[count++] = p->encoder[i].program;
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts; i++) {
        list[count++] = part[i]->program;
        if (part[i]->cache)
            count += weft_cache_programs(part[i]->cache, list + count);
    }
    return count;
}

/* Of all but the VAE. */
static int64_t bytes_beside(const weft_generator *p, bool texts)
{
    weft_program *programs[MAX_PROGRAMS];
    const int count = programs_of(p, texts, programs);
    int64_t bytes = host_floats(p) * (int64_t)sizeof(float) + weft_programs_bytes(programs, count);
    for (int i = 0; i < p->captions.readers && texts; i++)
        bytes += weft_program_plan(p->encoder[i].program)->source_bytes;
    for (int i = 0; i < p->experts; i++)
        bytes += weft_program_plan(p->denoiser[i].program)->source_bytes;
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts; i++)
        bytes += part[i]->cache ? weft_cache_bytes(part[i]->cache, false) : 0;
    return bytes;
}

int64_t weft_generator_bytes(const weft_generator *p)
{
    return weft_generator_bytes_of(p, weft_generator_has_texts(p));
}

int64_t weft_generator_bytes_of(const weft_generator *p, bool texts)
{
    const int64_t bytes = bytes_beside(p, texts) + weft_vae_bytes(p->vae) +
                          weft_generator_preview_bytes(p),
                  given = weft_given_work_bytes(&p->given),
                  seen = weft_likeness_work_bytes(&p->likeness),
                  before = given > seen ? given : seen;
    return weft_given_bytes(&p->given) + (bytes > before ? bytes : before);
}

const char *weft_generator_tiles(const weft_generator *p, char text[64])
{
    return weft_vae_tiles(p->vae, text);
}

/* Frames that the VAE decodes: with those before the video. */
static int64_t decoded_frames(const weft_generator *p)
{
    return p->options.frames + p->lead * p->grid.factor[0];
}

/* Decoding must fit beside the rest before the first step is taken, not hours later; on every rank
 * as on one that has all, so that all decode in the same tiles. */
static weft_status open_vae(weft_generator *p)
{
    const weft_vae_options o = {.halves = WEFT_VAE_DECODER,
                                .frames = decoded_frames(p),
                                .height = p->options.height,
                                .width = p->options.width,
                                .tile = p->options.tile,
                                .profile = p->options.profile};
    p->tile_given = o.tile != NULL;
    const int64_t limit = p->options.memory, beside = bytes_beside(p, true) +
                                                      weft_given_bytes(&p->given) +
                                                      weft_generator_preview_bytes(p);
    char needs[32], has[32];
    weft_tile chosen;
    if (beside >= limit)
        return weft_fail(
            WEFT_E_MEMORY,
            "%s: transformer and text encoders take %s a rank, and there are %s; take "
            "fewer or smaller frames, --weights bf16 or stream, more ranks with --parallel "
            "fsdp, "
            "or say with --memory what may be taken",
            p->folder, weft_format_bytes(beside, needs), weft_format_bytes(limit, has));
    return weft_vae_open_within(p->vae_folder, &o, limit - beside, &p->vae, &chosen);
}

bool weft_generator_may_shrink(const weft_generator *p)
{
    return !p->tile_given && (!p->comm || weft_comm_ranks(p->comm) == 1);
}

weft_status weft_generator_shrink(weft_generator *p)
{
    const weft_vae_options o = {.halves = WEFT_VAE_DECODER,
                                .frames = decoded_frames(p),
                                .height = p->options.height,
                                .width = p->options.width};
    const int64_t limit = weft_vae_bytes(p->vae) - 1;
    weft_group *group = NULL;
    weft_tile chosen;
    char tiles[64];
    weft_warn("decoding: %s; once more in less memory", weft_error_message());
    weft_vae_free(p->vae);
    p->vae = NULL;
    WEFT_TRY(weft_vae_open_within(p->vae_folder, &o, limit, &p->vae, &chosen));
    weft_info("decoding in %s", weft_vae_tiles(p->vae, tiles));
    if (p->comm)
        WEFT_TRY(weft_comm_world(p->comm, &group));
    weft_vae_share(p->vae, group);
    return weft_vae_bind(p->vae);
}

/* Of expert `i`, in the graphs. */
static const char *prefix_of(const weft_generator *p, int i, char prefix[64])
{
    snprintf(prefix, 64, "%s.", i ? weft_generator_scopes[1] : p->denoiser_model->family->scope);
    return prefix;
}

static weft_status check_adapters(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    char prefix[64];
    for (int i = 0; i < o->adapter_count; i++)
        if (o->adapters[i].expert >= p->experts)
            return weft_fail(WEFT_E_ARG, "%s: an adapter for transformer_2, and %s has none",
                             o->adapters[i].path, p->folder);
    for (int i = 0; i < p->experts; i++)
        WEFT_TRY(weft_adapters_check(o->adapters, o->adapter_count, i, p->denoiser_model[i].family,
                                     p->denoiser[i].graph, prefix_of(p, i, prefix)));
    return WEFT_OK;
}

static weft_status check_options(const weft_generator_options *o)
{
    if (o->trace && o->cache && strcmp(o->cache, "off") != 0)
        return weft_fail(WEFT_E_ARG,
                         "--trace and --cache %s: of steps that differ no one is like "
                         "the others; leave one of them out",
                         o->cache);
    if (o->stream && o->passes && !o->passes->stream)
        return weft_fail(WEFT_E_ARG, "--weights stream and --pass stream=off: the weights are "
                                     "streamed by that pass; leave one of them out");
    return WEFT_OK;
}

weft_status weft_generator_open(const char *folder, const weft_generator_options *options,
                                weft_comm *comm, weft_generator **generator)
{
    weft_generator *p = weft_alloc(sizeof *p);
    weft_status_code status = WEFT_OK;
    if (!p) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
        goto out;
    }
    p->options = *options;
    p->comm = comm;
    p->folder = weft_strdup(folder);
    p->store = weft_store_create();
    if (!p->folder || !p->store) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
        goto out;
    }
    weft_store_keep_away(p->store, NULL, 0, options->away);
    WEFT_GO(check_options(options));
    WEFT_GO(weft_generator_read(p));
    WEFT_GO(weft_generator_build(p));
    WEFT_GO(weft_generator_open_preview(p));
    WEFT_GO(open_vae(p));
    WEFT_GO(check_adapters(p));
    *generator = p;
    p = NULL;
out:
    weft_generator_free(p);
    return status;
}

void weft_generator_free(weft_generator *p)
{
    if (!p)
        return;
    for (int i = 0; i < WEFT_MAX_READERS; i++) {
        weft_generator_part_free(&p->encoder[i]);
        weft_free(p->encoder_folder[i]);
    }
    for (int i = 0; i < 2; i++) {
        weft_generator_part_free(&p->denoiser[i]);
        weft_generator_part_free(&p->alone[i]);
        weft_free(p->denoiser_folder[i]);
    }
    weft_spelling_close(&p->spelling);
    weft_recipe_free(&p->recipe);
    weft_vae_free(p->vae);
    weft_vae_free(p->preview);
    weft_free(p->seen);
    weft_store_free(p->store);
    weft_free(p->folder);
    weft_free(p->vae_folder);
    weft_free(p->leg);
    weft_scratch_release(&p->walk);
    weft_given_free(&p->given);
    weft_likeness_free(&p->likeness);
    weft_free(p->context);
    json_decref(p->identity);
    weft_free(p);
}

int64_t weft_generator_steps(const weft_generator *p)
{
    return p->options.steps - p->skipped;
}

/* Files of text encoders have more than the encoder (`partial`). */
static weft_status load_part(weft_generator *p, weft_generator_part *s, const weft_model *model,
                             const char *scope, const char *folder, bool partial)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", scope);
    if (p->options.stream && !p->options.adapter_count) { /* they write into the weights */
        WEFT_TRY(weft_dialect_open(model->family, s->graph, prefix, folder, &s->file));
        WEFT_TRY(weft_weights_lend(p->store, s->own, prefix, s->file));
    }
    WEFT_TRY(weft_store_init(p->store, s->own, 0));
    weft_tensors *file;
    WEFT_TRY(weft_dialect_open(model->family, s->graph, prefix, folder, &file));
    return weft_weights_load(p->store, s->own, prefix, file, partial);
}

static weft_status load_expert(weft_generator *p, int i)
{
    const weft_generator_options *o = &p->options;
    const weft_family *family = p->denoiser_model[i].family;
    const char *scope = i ? weft_generator_scopes[1] : p->denoiser_model->family->scope;
    const weft_generator_part *s = &p->denoiser[i];
    char prefix[64];
    WEFT_TRY(
        load_part(p, &p->denoiser[i], &p->denoiser_model[i], scope, p->denoiser_folder[i], false));
    return weft_adapters_load(o->adapters, o->adapter_count, i, family, s->graph, s->own,
                              prefix_of(p, i, prefix), p->store);
}

int64_t weft_generator_tokens(const weft_generator *p)
{
    int64_t tokens = 1;
    for (int i = 0; i < 3; i++)
        tokens *= p->latent[i] / p->patch.factor[i];
    return tokens;
}

/* Level i of n: both halves meet with the same slope, and the last step ends at 0. */
static double quadratic_level(int64_t i, int64_t n)
{
    const double slow = 0.025; /* of the way, which the first half of the steps goes */
    const int64_t half = n / 2;
    if (i <= half)
        return half ? 1 - slow * (double)i / (double)half : 1;
    const double bend = (double)(i - half) / (double)(n - half),
                 rest = 1 - slow * (double)n / (double)half;
    return 1 - slow * (double)i / (double)half - rest * bend * bend;
}

/* The scheduler's own levels, or those that the family's pipeline gives it. */
weft_status weft_generator_lay(weft_generator *p)
{
    const int64_t steps = p->options.steps;
    if (p->leg)
        return WEFT_OK;
    p->leg = weft_alloc(steps * (int64_t)sizeof *p->leg);
    if (!p->leg)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld levels", (long long)steps);
    const weft_own_levels levels =
        p->scheduler.path == WEFT_PATH_FLOW ? p->denoiser_model->family->levels : WEFT_LEVELS_NONE;
    weft_walk walk = {steps, NULL, weft_scheduler_mu(&p->scheduler, weft_generator_tokens(p))};
    double *sigma = levels ? weft_alloc(steps * (int64_t)sizeof *sigma) : NULL;
    if (levels && !sigma)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld levels", (long long)steps);
    for (int64_t i = 0; i < steps && levels; i++)
        sigma[i] = levels == WEFT_LEVELS_EVEN ? (double)(steps - i) / (double)steps
                                              : quadratic_level(i, steps);
    walk.sigma = sigma;
    const weft_status_code status = weft_scheduler_lay(&p->scheduler, &walk, p->leg);
    weft_free(sigma);
    return status;
}

weft_status weft_generator_bind(weft_generator *p)
{
    const int64_t all = p->options.batch * p->latent_floats;
    WEFT_TRY(weft_given_read(&p->given));
    WEFT_TRY(weft_likeness_read(&p->likeness));
    WEFT_TRY(weft_scratch_reserve(weft_generator_away(p), walk_floats(p) * 4,
                                  "Write --out to another disk, or make fewer frames", &p->walk));
    p->x = p->walk.data;
    p->other = p->x + weft_aligned(all);
    p->work = p->other + weft_aligned(all);
    p->context = weft_alloc_aligned(p->rows * p->captions.floats * 4);
    if (!p->context)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld latents", (long long)all);
    WEFT_TRY(weft_generator_lay(p));
    const bool texts = weft_generator_has_texts(p);
    for (int i = 0; i < p->captions.readers && texts; i++) {
        const weft_reader *reader = &p->captions.reader[i];
        WEFT_TRY(load_part(p, &p->encoder[i], &reader->model, reader->reading->encoder,
                           p->encoder_folder[i], reader->tokenizer[0] != 0));
    }
    for (int i = 0; i < p->experts; i++)
        WEFT_TRY(load_expert(p, i));
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts; i++)
        if (part[i]->cache)
            WEFT_TRY(weft_cache_reserve(part[i]->cache));
    weft_program *programs[MAX_PROGRAMS]; /* the results of each are copied at once */
    const int count = programs_of(p, texts, programs);
    weft_group *group = NULL;
    if (p->comm)
        WEFT_TRY(weft_comm_world(p->comm, &group));
    WEFT_TRY(weft_programs_bind(programs, count, p->store, group));
    weft_vae_share(p->vae, group);
    WEFT_TRY(weft_generator_bind_preview(p));
    return weft_vae_bind(p->vae);
}

weft_status weft_generator_tell_cache(const weft_generator *p, weft_buf *out)
{
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts && p->cached; i++) {
        const weft_cache_report r = weft_cache_tell(part[i]->cache);
        const bool second = part[i] == &p->denoiser[1] || part[i] == &p->alone[1];
        if (!r.runs)
            continue;
        weft_buf_printf(out, "cache ");
        weft_cache_name(&p->cache, out);
        weft_buf_printf(out,
                        "%s%s: %lld of %lld runs left out %d of %d %s; %.2f x by FLOPs, %.2f x "
                        "by the clock; steps %s\n",
                        second ? ", transformer_2" : "",
                        part[i]->graph == p->alone[second].graph ? ", without guidance" : "",
                        (long long)r.reused, (long long)r.runs, r.left,
                        p->cache.what == WEFT_REUSE_ATTENTION ? r.left : r.blocks,
                        p->cache.what == WEFT_REUSE_ATTENTION ? "attentions" : "blocks",
                        r.predicted, r.measured, r.steps);
    }
    return weft_buf_check(out);
}

weft_generator_saved weft_generator_cache(const weft_generator *p)
{
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    weft_generator_saved all = {.predicted = 1, .measured = 1};
    double predicted = 0, measured = 0; /* what is left of the time, weighed by runs */
    for (int i = 0; i < parts && p->cached; i++) {
        const weft_cache_report r = weft_cache_tell(part[i]->cache);
        all.runs += r.runs;
        all.reused += r.reused;
        predicted += (double)r.runs / r.predicted;
        measured += (double)r.runs / r.measured;
    }
    if (all.runs) {
        all.predicted = (double)all.runs / predicted;
        all.measured = (double)all.runs / measured;
    }
    return all;
}

const weft_generator_options *weft_generator_settings(const weft_generator *p)
{
    return &p->options;
}

void weft_generator_begin_with(weft_generator *p, const float *noise, int64_t count)
{
    p->noise = noise;
    p->noises = count;
}

void weft_generator_negatives(weft_generator *p, const char *const *negatives)
{
    p->negatives = negatives;
}

const char *weft_generator_negative(const weft_generator *p, int64_t prompt)
{
    const char *own = p->negatives && prompt < p->count ? p->negatives[prompt] : NULL;
    return own ? own : p->options.negative;
}

double weft_generator_scale(const weft_generator *p)
{
    return p->scheduler.path == WEFT_PATH_EDM ? p->scheduler.sigma_data : 1;
}

void weft_generator_latents(const weft_generator *p, int64_t dim[4])
{
    for (int i = 0; i < 3; i++)
        dim[i] = p->latent[i];
    dim[3] = p->grid.channels;
}

weft_status weft_generator_tell_layout(const weft_generator *p, weft_buf *out)
{
    const int ranks = p->comm ? weft_comm_ranks(p->comm) : 1;
    char tiles[64];
    if (ranks == 1)
        return WEFT_OK;
    weft_buf_printf(out, "%d ranks:", ranks);
    for (int i = 0; i < p->mesh.axis_count; i++)
        if (p->mesh.axis[i].size > 1)
            weft_buf_printf(out, " %s=%d", p->mesh.axis[i].name, p->mesh.axis[i].size);
    weft_buf_printf(out, "; transformer ");
    static const char *const said[][2] = {{"cfg", "guidance halves"},
                                          {"dp", "rows of the batch"},
                                          {"fsdp", "rows, and weights in parts"},
                                          {"tp", "heads and columns of weights"},
                                          {"cp", "tokens"},
                                          {"ring", "tokens, keys by turns"},
                                          {"ep", "experts"}};
    const char *between = "split by ";
    for (int i = 0; i < p->mesh.axis_count; i++)
        for (int k = 0; k < WEFT_COUNT(said); k++)
            if (p->mesh.axis[i].size > 1 && !strcmp(p->mesh.axis[i].name, said[k][0])) {
                weft_buf_printf(out, "%s%s", between, said[k][1]);
                between = ", ";
            }
    if (!strcmp(between, "split by "))
        weft_buf_printf(out, "on one rank");
    const weft_slices *asked = p->recipe.slices; /* off: one slice of each sample */
    if (asked && asked->kind != WEFT_SLICES_OFF &&
        p->slices[WEFT_MADE_TIME] + p->slices[WEFT_MADE_SPACE] + p->slices[WEFT_MADE_HEADS] +
            p->slices[WEFT_MADE_CHUNKS]) {
        weft_buf_printf(out, ", layers in ");
        weft_slices_tell(p->recipe.slices, p->slices, out);
    }
    if (p->text_rank >= 0)
        weft_buf_printf(out, "; text encoders on rank %d alone", p->text_rank);
    else
        weft_buf_printf(out, "; text encoders split likewise where they have such parts");
    weft_buf_printf(out, "; decoding %s",
                    weft_vae_tiles(p->vae, tiles)[0] ? "tile by tile on all"
                                                     : "on the first rank (--tile on: on all)");
    return weft_buf_check(out);
}

double weft_generator_fps(const weft_generator *p)
{
    return p->fps;
}
