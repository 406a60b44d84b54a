#include "generate/generator/generator.h"

#include "base/fs.h"
#include "base/log.h"
#include "exec/store/weights.h"
#include "generate/generator/feature_cache_rule.h"
#include "generate/generator/generator_decoder.h"
#include "generate/generator/generator_graphs.h"
#include "generate/generator/generator_parts.h"
#include "generate/generator/generator_preview.h"
#include "generate/generator/generator_read.h"
#include "generate/generator/generator_weights.h"
#include "generate/generator/latent_stages.h"
#include "model/key_mapping.h"

#include <stdio.h>
#include <string.h>

/* Floats of `windows` in the memory of a batch; 0 with one window. */
static int64_t window_floats(const weft_generator *p)
{
    return p->shape.windows.count > 1 ? weft_aligned(3 * p->options.batch * p->model.grid.channels)
                                      : 0;
}

/* Floats of the sampler's memory. With level_frames: the histories of all blocks, the workspace of
 * one block, and a prediction. */
static int64_t work_floats(const weft_generator *p)
{
    const int64_t all = p->options.batch * p->shape.begun_floats,
                  frame = p->shape.latent_floats / p->shape.latent[0],
                  block = p->shape.level_frames * frame;
    const weft_solver *solver = &p->trajectory.scheduler.solver;
    return block ? weft_sampler_history_floats(p->options.sampler, solver, all) +
                       weft_sampler_workspace_floats(p->options.sampler, solver, block) + all
                 : weft_sampler_workspace_floats(p->options.sampler, solver, all);
}

/* Floats of the guider's average. */
static int64_t average_floats(const weft_generator *p)
{
    return weft_generator_averages(p) * p->options.batch * p->shape.begun_floats;
}

/* Floats of the predictions of weakened branches. */
static int64_t weakened_floats(const weft_generator *p)
{
    return (p->shape.branches - p->trajectory.guidance->rows) *
           weft_aligned(p->options.batch * p->shape.begun_floats);
}

/* Floats of x, other, weakened, windows, the guider's average and the sampler's memory, which grow
 * with the length of a video. */
static int64_t sampler_floats(const weft_generator *p)
{
    const int64_t all = p->options.batch * p->shape.begun_floats;
    return 2 * weft_aligned(all) + weakened_floats(p) + window_floats(p) + average_floats(p) +
           work_floats(p);
}

/* The guider's average is of one trajectory of the latents of videos. */
static weft_status check_average(const weft_generator *p)
{
    const weft_generator_shape *s = &p->shape;
    if (!weft_generator_averages(p) || (!s->level_frames && !s->sections.count && !s->sound_steps &&
                                        s->begun_floats == s->sampled_floats))
        return WEFT_OK;
    return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                      WEFT_AT(.file = p->model.folder, .key = "guider"),
                      "guidance with a momentum is not implemented for videos in sections, with "
                      "sound or with several noise levels. Use --guidance-method cfg.");
}

/* Reserves the memory of the sampler, in a file if it grows with the length of the video. */
static weft_status reserve_memory(weft_generator *p)
{
    const int64_t all = p->options.batch * p->shape.begun_floats;
    weft_generator_memory *m = &p->memory;
    WEFT_TRY(check_average(p));
    WEFT_TRY(weft_scratch_reserve(weft_generator_offload_dir(p), sampler_floats(p) * 4,
                                  "Write --out to another disk, or make fewer frames",
                                  &m->sampler_buffer));
    m->x = m->sampler_buffer.data;
    m->other = m->x + weft_aligned(all);
    m->weakened = m->other + weft_aligned(all);
    m->windows = m->weakened + weakened_floats(p);
    m->average = m->windows + window_floats(p);
    m->work = m->average + average_floats(p);
    m->average = weft_generator_averages(p) ? m->average : NULL;
    m->prediction =
        p->shape.level_frames ? (float *)m->sampler_buffer.data + sampler_floats(p) - all : NULL;
    m->context = weft_alloc_aligned(p->shape.text_rows * p->model.text.floats * 4);
    return WEFT_ALLOCATED(m->context, "%" PRId64 " latents", all);
}

static void release_memory(weft_generator_memory *m)
{
    weft_scratch_release(&m->sampler_buffer);
    weft_free(m->context);
    *m = (weft_generator_memory){0};
}

static int64_t host_floats(const weft_generator *p)
{
    return (weft_generator_offload_dir(p) ? 0 : sampler_floats(p)) +
           p->shape.text_rows * p->model.text.floats;
}

const char *weft_generator_offload_dir(const weft_generator *p)
{
    return p->shape.windows.count > 1 || p->shape.causal ? p->options.offload_dir : NULL;
}

int64_t weft_generator_offloaded_bytes(const weft_generator *p)
{
    int64_t bytes = sampler_floats(p) * (int64_t)sizeof(float) +
                    weft_visual_condition_mapped(&p->inputs.visual);
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts; i++)
        bytes += part[i]->cache ? weft_feature_cache_bytes(part[i]->cache, true) : 0;
    return weft_generator_offload_dir(p) ? bytes : 0;
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
    if (p->parts.reasoning.graph)
        list[count++] = &p->parts.reasoning;
    if (p->parts.context.graph)
        list[count++] = &p->parts.context;
    for (int64_t i = 0; i + 1 < p->shape.stages; i++)
        list[count++] = &p->parts.smaller[i];
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
                          weft_sound_decoder_bytes(p->decoder.sound) +
                          weft_generator_preview_bytes(p),
                  visual = weft_visual_condition_workspace_bytes(&p->inputs.visual),
                  seen = weft_identity_condition_workspace_bytes(&p->inputs.identity),
                  given = weft_preceding_frames_workspace_bytes(&p->inputs.preceding),
                  most = visual > seen ? visual : seen, before = given > most ? given : most;
    return weft_visual_condition_bytes(&p->inputs.visual) +
           weft_preceding_frames_bytes(&p->inputs.preceding) + (bytes > before ? bytes : before);
}

const char *weft_generator_tiles(const weft_generator *p, char text[64])
{
    return weft_vae_tiles(p->decoder.vae, text);
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
    if (o->precision_auto)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--precision", .value = "auto"),
                          "this verb does not choose the precision; use f32 or bf16");
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
    WEFT_GO(check_options(options));
    WEFT_GO(weft_generator_read(p, folder));
    WEFT_GO(weft_generator_build(p));
    WEFT_GO(weft_generator_open_preview(p));
    WEFT_GO(weft_generator_decoder_open(p, bytes_without_vae(p, true) +
                                               weft_visual_condition_bytes(&p->inputs.visual) +
                                               weft_generator_preview_bytes(p)));
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
    weft_generator_decoder_close(&p->decoder);
    weft_generator_parts_close(&p->parts);
    weft_generator_return_weights(p);
    weft_generator_layout_close(&p->layout);
    release_memory(&p->memory);
    weft_generator_inputs_close(&p->inputs);
    weft_generator_trajectory_close(&p->trajectory);
    weft_generator_model_close(&p->model);
    json_decref(p->identity);
    weft_free(p);
}

int64_t weft_generator_ready_blocks(const weft_generator *p, int64_t at)
{
    const int64_t shared = p->shape.sections.shared, frames = at || p->options.visual.before
                                                                  ? shared
                                                              : p->options.visual.image ? 1
                                                                                        : 0;
    return frames / p->shape.level_frames;
}

int64_t weft_generator_rounds(const weft_generator *p, int64_t at)
{
    const int64_t block = p->shape.level_frames;
    int64_t steps = p->shape.stages ? 0 : p->options.steps - p->trajectory.skipped;
    for (int64_t i = 0; i < p->shape.stages; i++)
        steps += weft_latent_stages_steps(p, at, i);
    return block
               ? weft_frame_levels_rounds(p->shape.sampled_frames / block, steps,
                                          p->options.frame_lag, weft_generator_ready_blocks(p, at))
               : steps;
}

int64_t weft_generator_steps(const weft_generator *p)
{
    int64_t steps = 0;
    for (int64_t i = 0; i == 0 || i < p->shape.sections.count; i++)
        steps += weft_generator_rounds(p, i);
    return steps;
}

int64_t weft_generator_tokens(const weft_generator *p)
{
    int64_t tokens = (p->shape.kept + p->shape.sampled_frames) / p->model.patch.factor[0];
    for (int i = 1; i < 3; i++)
        tokens *= p->shape.latent[i] / p->model.patch.factor[i];
    return tokens;
}

weft_status weft_generator_bind(weft_generator *p)
{
    WEFT_TRY(weft_generator_take_weights(p));
    WEFT_TRY(weft_generator_inputs_read(&p->inputs));
    WEFT_TRY(reserve_memory(p));
    WEFT_TRY(weft_generator_trajectory_set_levels(p));
    WEFT_TRY(weft_generator_load_weights(p));
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts; i++)
        if (part[i]->cache)
            WEFT_TRY(weft_feature_cache_reserve(part[i]->cache));
    weft_program *programs[MAX_PROGRAMS]; /* each one's outputs are copied after its run */
    const int count = programs_of(p, weft_generator_has_texts(p), programs);
    weft_group *group = NULL;
    if (p->comm)
        WEFT_TRY(weft_comm_world(p->comm, &group));
    WEFT_TRY(weft_programs_bind(programs, count, p->parts.store, group));
    weft_vae_share(p->decoder.vae, group);
    WEFT_TRY(weft_generator_bind_preview(p));
    if (p->decoder.sound && (!p->comm || weft_comm_rank(p->comm) == 0))
        WEFT_TRY(weft_sound_decoder_bind(p->decoder.sound));
    return weft_generator_bind_decoder(p);
}

weft_status weft_generator_format_cache(const weft_generator *p, weft_buf *out)
{
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(p, part);
    for (int i = 0; i < parts && p->parts.cached; i++) {
        const weft_feature_cache_stats r = weft_feature_cache_get_stats(part[i]->cache);
        char size[64];
        const bool second = part[i] == &p->parts.denoiser[1] || part[i] == &p->parts.alone[1];
        if (!r.runs)
            continue;
        weft_buf_printf(out, "cache ");
        weft_feature_cache_name(&p->parts.cache, out);
        weft_buf_printf(out,
                        "%s%s%s: %" PRId64 " of %" PRId64 " runs skipped %d of %d %s; "
                        "speedup predicted by FLOPs %.2f x, measured %.2f x; steps %s\n",
                        second ? ", transformer_2" : "",
                        part[i]->graph == p->parts.alone[second].graph ? ", without guidance" : "",
                        weft_latent_stages_name(p, part[i], size), r.reused, r.runs, r.left,
                        p->parts.cache.what == WEFT_FEATURE_CACHE_ATTENTION ? r.left : r.blocks,
                        p->parts.cache.what == WEFT_FEATURE_CACHE_ATTENTION ? "attentions"
                                                                            : "blocks",
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

void weft_generator_set_request(weft_generator *p, const char *const *prompts,
                                const uint64_t *seeds, int64_t count)
{
    p->request.prompts = prompts;
    p->request.seeds = seeds;
    p->request.count = count;
    p->request.first = 0;
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

bool weft_generator_uses_negatives(const weft_generator *p)
{
    return p->trajectory.guidance->rows > 1;
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

int64_t weft_generator_noise_floats(const weft_generator *p)
{
    return p->shape.begun_floats;
}

void weft_generator_sound(const weft_generator *p, int64_t dim[2])
{
    dim[0] = p->shape.sound_steps;
    dim[1] = p->shape.sound_steps ? p->model.sound.features : 0;
}

void weft_generator_noise_dims(const weft_generator *p, int64_t dim[4])
{
    weft_generator_latents(p, dim);
    dim[0] = p->shape.reasoning_frames ? p->shape.reasoning_frames : dim[0];
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
