#include "generate/generator/generator.h"

#include "base/fs.h"
#include "base/log.h"
#include "exec/store/weights.h"
#include "generate/generator/feature_cache_rule.h"
#include "generate/generator/generator_graphs.h"
#include "generate/generator/generator_parts.h"
#include "generate/generator/generator_preview.h"
#include "generate/generator/generator_read.h"
#include "model/key_mapping.h"

#include <stdio.h>
#include <string.h>

/* Floats of x, other and the sampler's memory, which grow with the length of a video. */
static int64_t sampler_floats(const weft_generator *p)
{
    const int64_t all = p->options.batch * p->shape.latent_floats;
    return 2 * weft_aligned(all) +
           weft_sampler_workspace_floats(p->options.sampler, &p->trajectory.scheduler.solver, all);
}

static int64_t host_floats(const weft_generator *p)
{
    return (weft_generator_away(p) ? 0 : sampler_floats(p)) + p->shape.rows * p->model.text.floats;
}

const char *weft_generator_away(const weft_generator *p)
{
    return p->shape.windows.count > 1 ? p->options.offload_dir : NULL;
}

int64_t weft_generator_offloaded_bytes(const weft_generator *p)
{
    int64_t bytes = sampler_floats(p) * (int64_t)sizeof(float) +
                    weft_visual_condition_mapped(&p->inputs.visual);
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts; i++)
        bytes += part[i]->cache ? weft_feature_cache_bytes(part[i]->cache, true) : 0;
    return weft_generator_away(p) ? bytes : 0;
}

int weft_generator_denoisers(const weft_generator *p,
                             const weft_generator_part *list[WEFT_GENERATOR_DENOISERS])
{
    int count = 0;
    for (int i = 0; i < p->model.experts; i++) {
        list[count++] = &p->parts.denoiser[i];
        if (p->parts.alone[i].graph)
            list[count++] = &p->parts.alone[i];
    }
    return count;
}

bool weft_generator_has_texts(const weft_generator *p)
{
    return p->layout.text_rank < 0 || p->layout.text_rank == weft_comm_rank(p->comm);
}

int weft_generator_text_rank(const weft_generator *p)
{
    return p->layout.text_rank;
}

/* Lists all programs, which run one at a time, and returns their number. `texts`: with the text
 * encoders. */
enum {
    MAX_PROGRAMS =
        WEFT_GENERATOR_DENOISERS * (1 + WEFT_FEATURE_CACHE_PROGRAM_COUNT) + WEFT_MAX_TEXT_ENCODERS
};
static int programs_of(const weft_generator *p, bool texts, weft_program *list[MAX_PROGRAMS])
{
    int count = 0;
    for (int i = 0; i < p->model.text.encoders && texts; i++)
        list[count++] = p->parts.encoder[i].program;
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts; i++) {
        list[count++] = part[i]->program;
        if (part[i]->cache)
            count += weft_feature_cache_list_programs(part[i]->cache, list + count);
    }
    return count;
}

/* Bytes of everything except the VAE. */
static int64_t bytes_without_vae(const weft_generator *p, bool texts)
{
    weft_program *programs[MAX_PROGRAMS];
    const int count = programs_of(p, texts, programs);
    int64_t bytes = host_floats(p) * (int64_t)sizeof(float) + weft_programs_bytes(programs, count);
    for (int i = 0; i < p->model.text.encoders && texts; i++)
        bytes += weft_program_plan(p->parts.encoder[i].program)->source_bytes;
    for (int i = 0; i < p->model.experts; i++)
        bytes += weft_program_plan(p->parts.denoiser[i].program)->source_bytes;
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts; i++)
        bytes += part[i]->cache ? weft_feature_cache_bytes(part[i]->cache, false) : 0;
    return bytes;
}

int64_t weft_generator_bytes(const weft_generator *p)
{
    return weft_generator_bytes_of(p, weft_generator_has_texts(p));
}

int64_t weft_generator_bytes_of(const weft_generator *p, bool texts)
{
    const int64_t bytes = bytes_without_vae(p, texts) + weft_vae_bytes(p->decoder.vae) +
                          weft_generator_preview_bytes(p),
                  visual = weft_visual_condition_workspace_bytes(&p->inputs.visual),
                  seen = weft_identity_condition_workspace_bytes(&p->inputs.identity),
                  before = visual > seen ? visual : seen;
    return weft_visual_condition_bytes(&p->inputs.visual) + (bytes > before ? bytes : before);
}

const char *weft_generator_tiles(const weft_generator *p, char text[64])
{
    return weft_vae_tiles(p->decoder.vae, text);
}

/* Frames that the VAE decodes, with those before the video. */
static int64_t decoded_frames(const weft_generator *p)
{
    return p->options.frames + p->shape.lead * p->model.grid.factor[0];
}

/* Chooses decoder tiles that fit with the rest of the memory, so that a lack of memory is found
 * before the first step. Every rank counts the text encoders, so that all ranks decode in the same
 * tiles. */
static weft_status open_vae(weft_generator *p)
{
    const weft_vae_options o = {.halves = WEFT_VAE_DECODER,
                                .frames = decoded_frames(p),
                                .height = p->options.height,
                                .width = p->options.width,
                                .tile = p->options.tile,
                                .profile = p->options.profile};
    p->decoder.tile_set = o.tile != NULL;
    const int64_t limit = p->options.memory,
                  without_vae = bytes_without_vae(p, true) +
                                weft_visual_condition_bytes(&p->inputs.visual) +
                                weft_generator_preview_bytes(p);
    char needs[32], has[32];
    weft_tile chosen;
    if (without_vae >= limit)
        return weft_error(WEFT_MSG_MEMORY_NEEDED,
                          WEFT_AT(.file = p->model.folder, WEFT_NUMBER(limit)),
                          "transformer and text encoders need %s per rank, and %s are available. "
                          "Use fewer or smaller frames, --weights bf16 or stream, more ranks with "
                          "--parallel fsdp, or set the limit with --memory-limit.",
                          weft_format_bytes(without_vae, needs), weft_format_bytes(limit, has));
    return weft_vae_open_within(p->model.vae_folder, &o, limit - without_vae, &p->decoder.vae,
                                &chosen);
}

bool weft_generator_may_shrink(const weft_generator *p)
{
    return !p->decoder.tile_set && (!p->comm || weft_comm_ranks(p->comm) == 1);
}

weft_status weft_generator_shrink(weft_generator *p)
{
    const weft_vae_options o = {.halves = WEFT_VAE_DECODER,
                                .frames = decoded_frames(p),
                                .height = p->options.height,
                                .width = p->options.width};
    const int64_t limit = weft_vae_bytes(p->decoder.vae) - 1;
    weft_group *group = NULL;
    weft_tile chosen;
    char tiles[64];
    weft_warn_error(WEFT_MSG_ESTIMATE_MISSING, "decoding again with less memory");
    weft_vae_free(p->decoder.vae);
    p->decoder.vae = NULL;
    WEFT_TRY(weft_vae_open_within(p->model.vae_folder, &o, limit, &p->decoder.vae, &chosen));
    weft_notice(WEFT_MSG_JOB_REPORT, WEFT_NOWHERE, "decoding in %s",
                weft_vae_tiles(p->decoder.vae, tiles));
    if (p->comm)
        WEFT_TRY(weft_comm_world(p->comm, &group));
    weft_vae_share(p->decoder.vae, group);
    return weft_vae_bind(p->decoder.vae);
}

/* Name prefix of expert `i` in the graphs. */
static const char *prefix_of(const weft_generator *p, int i, char prefix[64])
{
    snprintf(prefix, 64, "%s.", i ? weft_generator_scopes[1] : p->model.denoiser->family->scope);
    return prefix;
}

static weft_status check_adapters(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    char prefix[64];
    for (int i = 0; i < o->adapter_count; i++)
        if (o->adapters[i].expert >= p->model.experts)
            return weft_error(
                WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.file = o->adapters[i].path, .key = "--lora"),
                "the adapter is for transformer_2, and the model %s has none", p->model.folder);
    for (int i = 0; i < p->model.experts; i++)
        WEFT_TRY(weft_adapters_check(o->adapters, o->adapter_count, i, p->model.denoiser[i].family,
                                     p->parts.denoiser[i].graph, prefix_of(p, i, prefix)));
    return WEFT_OK;
}

static weft_status check_options(const weft_generator_options *o)
{
    if (o->trace && o->cache && strcmp(o->cache, "off") != 0)
        return weft_error(
            WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--trace", .value = o->cache),
            "steps differ with --feature-cache %s, so a trace of one step does not represent the "
            "others. Omit one of the two options.",
            o->cache);
    if (o->stream && o->passes && !o->passes->stream)
        return weft_error(
            WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--weights", .value = "stream"),
            "--weights stream needs the pass that --pass weight_streaming=off switches off. "
            "Omit one of the two options.");
    return WEFT_OK;
}

weft_status weft_generator_open(const char *folder, const weft_generator_options *options,
                                weft_comm *comm, weft_generator **generator)
{
    weft_generator *p = weft_alloc(sizeof *p);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(p, "the generator"));
    p->options = *options;
    p->comm = comm;
    p->model.folder = weft_strdup(folder);
    p->parts.store = weft_store_create();
    WEFT_GO(WEFT_ALLOCATED(p->model.folder && p->parts.store, "the generator"));
    weft_store_set_offload(p->parts.store, NULL, 0, options->offload_dir);
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
    for (int i = 0; i < WEFT_MAX_TEXT_ENCODERS; i++) {
        weft_generator_part_free(&p->parts.encoder[i]);
        weft_free(p->model.encoder_folder[i]);
    }
    for (int i = 0; i < 2; i++) {
        weft_generator_part_free(&p->parts.denoiser[i]);
        weft_generator_part_free(&p->parts.alone[i]);
        weft_free(p->model.denoiser_folder[i]);
    }
    weft_tokenizer_set_close(&p->model.tokenizers);
    weft_recipe_free(&p->layout.recipe);
    weft_vae_free(p->decoder.vae);
    weft_vae_free(p->decoder.preview);
    weft_free(p->decoder.seen);
    weft_store_free(p->parts.store);
    weft_free(p->model.folder);
    weft_free(p->model.vae_folder);
    weft_free(p->trajectory.solver_step);
    weft_scratch_release(&p->memory.sampler_buffer);
    weft_visual_condition_free(&p->inputs.visual);
    weft_identity_condition_free(&p->inputs.identity);
    weft_free(p->memory.context);
    json_decref(p->identity);
    weft_free(p);
}

int64_t weft_generator_steps(const weft_generator *p)
{
    return p->options.steps - p->trajectory.skipped;
}

/* `partial`: the file has more tensors than the model, as files of text encoders do. */
static weft_status load_part(weft_generator *p, weft_generator_part *s, const weft_model *model,
                             const char *scope, const char *folder, bool partial)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", scope);
    if (p->options.stream && !p->options.adapter_count) { /* adapters write to the weights */
        WEFT_TRY(weft_key_mapping_open(model->family, s->graph, prefix, folder, &s->file));
        WEFT_TRY(weft_weights_lend(p->parts.store, s->own, prefix, s->file));
    }
    WEFT_TRY(weft_store_init(p->parts.store, s->own, 0));
    weft_tensors *file;
    WEFT_TRY(weft_key_mapping_open(model->family, s->graph, prefix, folder, &file));
    return weft_weights_load(p->parts.store, s->own, prefix, file, partial);
}

static weft_status load_expert(weft_generator *p, int i)
{
    const weft_generator_options *o = &p->options;
    const weft_family *family = p->model.denoiser[i].family;
    const char *scope = i ? weft_generator_scopes[1] : p->model.denoiser->family->scope;
    const weft_generator_part *s = &p->parts.denoiser[i];
    char prefix[64];
    WEFT_TRY(load_part(p, &p->parts.denoiser[i], &p->model.denoiser[i], scope,
                       p->model.denoiser_folder[i], false));
    return weft_adapters_load(o->adapters, o->adapter_count, i, family, s->graph, s->own,
                              prefix_of(p, i, prefix), p->parts.store);
}

int64_t weft_generator_tokens(const weft_generator *p)
{
    int64_t tokens = 1;
    for (int i = 0; i < 3; i++)
        tokens *= p->shape.latent[i] / p->model.patch.factor[i];
    return tokens;
}

/* Noise level i of n: linear in the first half, quadratic in the second, with the same slope at the
 * joint. The last step ends at 0. */
static double quadratic_level(int64_t i, int64_t n)
{
    const double slow = 0.025; /* share of the range that the first half covers */
    const int64_t half = n / 2;
    if (i <= half)
        return half ? 1 - slow * (double)i / (double)half : 1;
    const double bend = (double)(i - half) / (double)(n - half),
                 rest = 1 - slow * (double)n / (double)half;
    return 1 - slow * (double)i / (double)half - rest * bend * bend;
}

/* Uses the scheduler's own noise levels, or those of the family's pipeline. */
weft_status weft_generator_lay(weft_generator *p)
{
    const int64_t steps = p->options.steps;
    if (p->trajectory.solver_step)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(p->trajectory.solver_step, steps, "%" PRId64 " levels", steps));
    const weft_own_levels levels = p->trajectory.scheduler.path == WEFT_PATH_FLOW
                                       ? p->model.denoiser->family->noise_levels
                                       : WEFT_LEVELS_NONE;
    weft_timestep_request request = {
        steps, NULL, weft_scheduler_mu(&p->trajectory.scheduler, weft_generator_tokens(p))};
    double *sigma = levels ? weft_calloc(steps, sizeof *sigma) : NULL;
    if (levels && !sigma)
        return weft_no_memory("%" PRId64 " levels", steps);
    for (int64_t i = 0; i < steps && levels; i++)
        sigma[i] = levels == WEFT_LEVELS_EVEN ? (double)(steps - i) / (double)steps
                                              : quadratic_level(i, steps);
    request.sigma = sigma;
    const weft_status_code status =
        weft_scheduler_set_timesteps(&p->trajectory.scheduler, &request, p->trajectory.solver_step);
    weft_free(sigma);
    return status;
}

weft_status weft_generator_bind(weft_generator *p)
{
    const int64_t all = p->options.batch * p->shape.latent_floats;
    WEFT_TRY(weft_visual_condition_read(&p->inputs.visual));
    WEFT_TRY(weft_identity_condition_read(&p->inputs.identity));
    WEFT_TRY(weft_scratch_reserve(weft_generator_away(p), sampler_floats(p) * 4,
                                  "Write --out to another disk, or make fewer frames",
                                  &p->memory.sampler_buffer));
    p->memory.x = p->memory.sampler_buffer.data;
    p->memory.other = p->memory.x + weft_aligned(all);
    p->memory.work = p->memory.other + weft_aligned(all);
    p->memory.context = weft_alloc_aligned(p->shape.rows * p->model.text.floats * 4);
    WEFT_TRY(WEFT_ALLOCATED(p->memory.context, "%" PRId64 " latents", all));
    WEFT_TRY(weft_generator_lay(p));
    const bool texts = weft_generator_has_texts(p);
    for (int i = 0; i < p->model.text.encoders && texts; i++) {
        const weft_text_encoder *encoder = &p->model.text.encoder[i];
        WEFT_TRY(load_part(p, &p->parts.encoder[i], &encoder->model, encoder->row->encoder,
                           p->model.encoder_folder[i], encoder->tokenizer[0] != 0));
    }
    for (int i = 0; i < p->model.experts; i++)
        WEFT_TRY(load_expert(p, i));
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts; i++)
        if (part[i]->cache)
            WEFT_TRY(weft_feature_cache_reserve(part[i]->cache));
    weft_program *programs[MAX_PROGRAMS]; /* each one's outputs are copied after its run */
    const int count = programs_of(p, texts, programs);
    weft_group *group = NULL;
    if (p->comm)
        WEFT_TRY(weft_comm_world(p->comm, &group));
    WEFT_TRY(weft_programs_bind(programs, count, p->parts.store, group));
    weft_vae_share(p->decoder.vae, group);
    WEFT_TRY(weft_generator_bind_preview(p));
    return weft_vae_bind(p->decoder.vae);
}

weft_status weft_generator_tell_cache(const weft_generator *p, weft_buf *out)
{
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts && p->parts.cached; i++) {
        const weft_feature_cache_stats r = weft_feature_cache_get_stats(part[i]->cache);
        const bool second = part[i] == &p->parts.denoiser[1] || part[i] == &p->parts.alone[1];
        if (!r.runs)
            continue;
        weft_buf_printf(out, "cache ");
        weft_feature_cache_name(&p->parts.cache, out);
        weft_buf_printf(
            out,
            "%s%s: %" PRId64 " of %" PRId64 " runs skipped %d of %d %s; speedup predicted %.2f x, "
            "measured %.2f x; steps %s\n",
            second ? ", transformer_2" : "",
            part[i]->graph == p->parts.alone[second].graph ? ", without guidance" : "", r.reused,
            r.runs, r.left, p->parts.cache.what == WEFT_FEATURE_CACHE_ATTENTION ? r.left : r.blocks,
            p->parts.cache.what == WEFT_FEATURE_CACHE_ATTENTION ? "attentions" : "blocks",
            r.predicted, r.measured, r.steps);
    }
    return weft_buf_check(out);
}

weft_generator_cache_stats weft_generator_get_cache_stats(const weft_generator *p)
{
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    weft_generator_cache_stats all = {.predicted = 1, .measured = 1};
    double predicted = 0, measured = 0; /* remaining time, weighted by runs */
    for (int i = 0; i < parts && p->parts.cached; i++) {
        const weft_feature_cache_stats r = weft_feature_cache_get_stats(part[i]->cache);
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

void weft_generator_set_initial_latents(weft_generator *p, const float *noise, int64_t count)
{
    p->request.noise = noise;
    p->request.noises = count;
}

void weft_generator_set_negative_prompts(weft_generator *p, const char *const *negatives)
{
    p->request.negatives = negatives;
}

const char *weft_generator_negative(const weft_generator *p, int64_t prompt)
{
    const char *own =
        p->request.negatives && prompt < p->request.count ? p->request.negatives[prompt] : NULL;
    return own ? own : p->options.negative;
}

double weft_generator_scale(const weft_generator *p)
{
    return p->trajectory.scheduler.path == WEFT_PATH_EDM ? p->trajectory.scheduler.sigma_data : 1;
}

void weft_generator_latents(const weft_generator *p, int64_t dim[4])
{
    for (int i = 0; i < 3; i++)
        dim[i] = p->shape.latent[i];
    dim[3] = p->model.grid.channels;
}

weft_status weft_generator_format_layout(const weft_generator *p, weft_buf *out)
{
    const int ranks = p->comm ? weft_comm_ranks(p->comm) : 1;
    char tiles[64];
    if (ranks == 1)
        return WEFT_OK;
    weft_buf_printf(out, "%d ranks:", ranks);
    for (int i = 0; i < p->layout.mesh.axis_count; i++)
        if (p->layout.mesh.axis[i].size > 1)
            weft_buf_printf(out, " %s=%d", p->layout.mesh.axis[i].name,
                            p->layout.mesh.axis[i].size);
    weft_buf_printf(out, "; transformer ");
    static const char *const said[][2] = {{"cfg", "guidance halves"},
                                          {"dp", "rows of the batch"},
                                          {"fsdp", "rows, and weights in parts"},
                                          {"tp", "heads and columns of weights"},
                                          {"cp", "tokens"},
                                          {"ring", "tokens, keys by turns"},
                                          {"ep", "experts"}};
    const char *between = "split by ";
    for (int i = 0; i < p->layout.mesh.axis_count; i++)
        for (int k = 0; k < WEFT_COUNT(said); k++)
            if (p->layout.mesh.axis[i].size > 1 &&
                !strcmp(p->layout.mesh.axis[i].name, said[k][0])) {
                weft_buf_printf(out, "%s%s", between, said[k][1]);
                between = ", ";
            }
    if (!strcmp(between, "split by "))
        weft_buf_printf(out, "on one rank");
    const weft_comm_overlap *asked = p->layout.recipe.overlap; /* off: one slice per sample */
    if (asked && asked->kind != WEFT_COMM_OVERLAP_OFF &&
        p->layout.overlap_counts[WEFT_MADE_TIME] + p->layout.overlap_counts[WEFT_MADE_SPACE] +
            p->layout.overlap_counts[WEFT_MADE_HEADS] +
            p->layout.overlap_counts[WEFT_MADE_CHUNKS]) {
        weft_buf_printf(out, ", layers in ");
        weft_comm_overlap_format(p->layout.recipe.overlap, p->layout.overlap_counts, out);
    }
    if (p->layout.text_rank >= 0)
        weft_buf_printf(out, "; text encoders on rank %d alone", p->layout.text_rank);
    else
        weft_buf_printf(out, "; text encoders split likewise where they have such parts");
    weft_buf_printf(out, "; decoding %s",
                    weft_vae_tiles(p->decoder.vae, tiles)[0]
                        ? "tile by tile on all"
                        : "on the first rank (--vae-tile on: on all)");
    return weft_buf_check(out);
}

double weft_generator_fps(const weft_generator *p)
{
    return p->model.fps;
}
